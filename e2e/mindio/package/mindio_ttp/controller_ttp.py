# ruff: noqa: ANN401 - values of strangers pass through here
"""The controller's public face: life, the four callbacks, the notifications (docs/protocols/mindio.md §1, §2).

Every notification returns at once: 0 means accepted, not done; 1 means refused.
"""

from __future__ import annotations

import atexit
import socket
from collections.abc import Callable
from typing import Any

from . import _mindx as mindx
from . import _settings as settings
from . import _tls
from ._controller import Controller, Flags
from ._elastic import is_save_unheard
from ._states import WORK

MOST_RANKS = 100000
LONGEST_PARAMS = 1023
OK, REFUSED = 0, 1


class _Here:
    """The one controller of this process."""

    controller: Controller | None = None


def tft_init_controller(
    rank: int, world_size: int, enable_local_copy: bool, enable_arf: bool = False, enable_zit: bool = False
) -> None:
    """Prepare a controller: rank -1 (hosted outside the training) up to world_size - 1."""
    for value, kind in (
        (rank, int),
        (world_size, int),
        (enable_local_copy, bool),
        (enable_arf, bool),
        (enable_zit, bool),
    ):
        if not isinstance(value, kind):
            raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
    settings.open_log("controller")
    if _Here.controller is not None:
        raise Exception("init controller failed to set register callback")  # noqa: TRY002
    in_range = 1 <= world_size <= MOST_RANKS and -1 <= rank < world_size
    if not in_range and settings.on("init_range_raises"):
        raise Exception("init controller failed, error num:1")  # noqa: TRY002
    if settings.mindspore() and (enable_local_copy or enable_zit):
        raise Exception("init controller failed, error num:1")  # noqa: TRY002
    _Here.controller = Controller(Flags(rank, world_size, enable_local_copy, enable_arf, enable_zit))


def tft_start_controller(bind_ip: str, port: int, enable_tls: bool = True, tls_info: str = "") -> None:
    """Serve; any failure is `SystemExit(2)`. A second start does nothing."""
    if _Here.controller is not None and _Here.controller.started:
        return
    try:
        controller = _may_start(port, tls_missing=enable_tls and not _tls.is_usable(tls_info))
        material = _tls.Material(tls_info, serves=True) if enable_tls else None
        controller.start(_resolve(bind_ip), port, WORK, material)
    except (OSError, TypeError) as error:
        settings.log(f"start controller failed: {error}")
        if not settings.on("start_failure_exits"):
            raise
        raise SystemExit(2) from error


def _may_start(port: int, *, tls_missing: bool) -> Controller:
    if _Here.controller is None or tls_missing or not 1024 <= port <= 65535:
        raise OSError("not initialised, no TLS material, or a bad port")
    return _Here.controller


def _resolve(name: str) -> str:
    for attempt in range(3):
        try:
            address = str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
        except OSError:
            if attempt == 2:
                raise
        else:
            if address in {"0.0.0.0", "::"}:
                raise OSError("the zero address is not allowed")
            return address
    raise OSError(name)


def tft_destroy_controller() -> None:
    """End the controller and tell every linked rank; may be repeated."""
    controller, _Here.controller = _Here.controller, None
    if controller is not None and controller.started:
        controller.destroy()


def tft_query_high_availability_switch() -> bool:
    """Whether at least one rank's link is open now."""
    if _Here.controller is None:
        return False
    with _Here.controller.lock:
        return any(r.link is not None for r in _Here.controller.ranks.values())


def tft_register_mindx_callback(action: str, func: Callable[..., Any]) -> int:
    """Register one of the four callbacks; counts when it happens before the start."""
    if action not in mindx.NAMES or not callable(func):
        return REFUSED
    mindx.callbacks[action] = func
    return OK


# ---- notifications


def _running() -> Controller | None:
    return _Here.controller if _Here.controller is not None and _Here.controller.started else None


def _faults(given: Any) -> dict[int, int]:
    if not isinstance(given, dict) or not all(isinstance(v, int) for pair in given.items() for v in pair):
        if not settings.on("int_only_dicts"):
            return {}
        raise TypeError("fault_ranks must be a dict of int to int")
    return dict(sorted(given.items()))


def _may_be_named(controller: Controller, rank: int, fault: int) -> bool:
    entry = controller.ranks.get(rank)
    known = entry is not None and entry.registered
    known = known or not settings.on("unknown_rank_refuses")
    if not 0 <= rank < controller.flags.world_size or fault not in {0, 1, 2} or not known:
        return False
    return settings.on("wider_dict") or not controller.errors or rank in controller.errors


def _name_ranks(controller: Controller, faults: dict[int, int]) -> bool:
    """False from the first entry on that is refused; those before it stay marked (docs/protocols/mindio.md §2.3)."""
    whole = not settings.on("refusal_keeps_earlier")
    if whole and not all(_may_be_named(controller, rank, fault) for rank, fault in faults.items()):
        return False
    for rank, fault in faults.items():
        if not _may_be_named(controller, rank, fault):
            return False
        controller.mark(rank, fault)
        controller.named.add(rank)
    return True


def tft_notify_controller_stop_train(
    fault_ranks: dict[int, int], stop_type: str = "stop", timeout: int | None = None
) -> int:
    """Stop the training because of these ranks, or pause it for `timeout` seconds."""
    if stop_type == "pause":
        return _pause(timeout)
    faults = _faults(fault_ranks)
    controller = _running()
    if controller is None or stop_type != "stop":
        return REFUSED
    with controller.lock:
        if not _name_ranks(controller, faults):
            return REFUSED
        controller.mindx.put("stop")
    return OK


def _pause(timeout: Any) -> int:
    if not isinstance(timeout, int):
        raise TypeError("a pause needs an int timeout")
    if timeout < 0:
        raise OverflowError("can't convert negative value to unsigned")
    controller = _running()
    if controller is None:
        return REFUSED
    with controller.lock:
        controller.mindx.pause_seconds = timeout
        controller.mindx.put("pause")
    return OK


def tft_notify_controller_on_global_rank(fault_ranks: dict[int, int], time: int = 1) -> int:
    """Name every fault rank of the job; `time` (1 to 3600 s) may lengthen the wait for the strategy."""
    faults = _faults(fault_ranks)
    if not isinstance(time, int):
        raise TypeError("time must be an int")
    controller = _running()
    if controller is None or not 1 <= time <= 3600:
        return REFUSED
    with controller.lock:
        if not _name_ranks(controller, faults):
            return REFUSED
        controller.mindx.strategy_seconds = time
        controller.mindx.put("global")
    return OK


def tft_notify_controller_prepare_action(action: str, fault_ranks: dict[int, int] | None = None) -> int:
    """Prepare ("hot switch") or abandon ("stop switch") a hot switch of `fault_ranks`."""
    faults = _faults(fault_ranks) if fault_ranks is not None else {}
    controller = _running()
    if controller is None or action not in {"hot switch", "stop switch"}:
        return REFUSED
    from ._pause import prepare

    return OK if prepare(controller, action, faults) else REFUSED


def tft_notify_controller_change_strategy(strategy: str, params: str = "") -> int:
    """Answer the controller's question."""
    if not isinstance(strategy, str) or not isinstance(params, str):
        raise TypeError("strategy and params must be text")
    controller = _running()
    if controller is None or strategy not in mindx.STRATEGIES:
        return REFUSED
    needs_params = strategy in {"downgrade", "upgrade"} and settings.on("params_length")
    if needs_params and not 1 <= len(params) <= LONGEST_PARAMS:
        return REFUSED
    with controller.lock:
        offered = controller.mindx.offered
        if offered is not None and strategy not in offered and settings.on("invalid_strategy"):
            controller.mindx.put(mindx.INVALID)
        elif strategy == "upgrade" and settings.on("upgrade_never_wakes"):
            controller.upgrade_params = params
            controller.changed.notify_all()
        else:
            controller.mindx.put(strategy, params)
    return OK


def tft_notify_controller_dump() -> int:
    """Save a checkpoint and leave, without a fault."""
    controller = _running()
    if controller is None:
        return REFUSED
    with controller.lock:
        if not is_save_unheard(controller):
            controller.mindx.put("save")
    return OK


atexit.register(tft_destroy_controller)

__all__ = [
    "tft_notify_controller_change_strategy",
    "tft_notify_controller_dump",
    "tft_notify_controller_on_global_rank",
    "tft_notify_controller_prepare_action",
    "tft_notify_controller_stop_train",
    "tft_query_high_availability_switch",
    "tft_register_mindx_callback",
]
