# ruff: noqa: ANN401 - values of strangers pass through here
"""The trainer's side of the package: everything a training script calls (docs/protocols/mindio.md §8).

One processor per process. A failure to initialise or to start ends the process with code 2 instead of raising.
"""

from __future__ import annotations

import atexit
import contextlib
import signal
from collections.abc import Callable
from typing import Any

from . import _decorator, _handlers, _tls
from . import _settings as settings
from ._names import Action, OptimizerType, RepairType, ReportState
from ._processor import Options, Processor, ignore_signals, registered
from .controller_ttp import tft_destroy_controller, tft_init_controller, tft_start_controller
from .utils import tft_can_do_uce_repair

MOST_RANKS = 100000
LONGEST_CODE = 15
LARGEST_STEP = 9223372036854775807


class _Here:
    """The one processor of this process."""

    processor: Processor | None = None
    started = False


def _die(text: str) -> None:
    settings.log(text)
    Processor(Options(0, 1, False, False, False, False)).forced_exit()


def _current() -> Processor | None:
    return _Here.processor if _Here.started else None


def _need() -> Processor:
    if _Here.processor is None:
        raise Exception("processor is not initialized")  # noqa: TRY002
    return _Here.processor


# ---- life


def beating_aside() -> contextlib.AbstractContextManager[None]:
    """Not MindIO's: beat on while native code holds Python's lock, as the package's native heart does."""
    return _need().client.beating_aside()


def tft_init_processor(  # noqa: PLR0917 - the real signature
    rank: int,
    world_size: int,
    enable_local_copy: bool,
    enable_tls: bool = True,
    tls_info: str = "",
    enable_uce: bool = True,
    enable_arf: bool = False,
    enable_zit: bool = False,
) -> None:
    """Make this process a rank; from here on SIGTERM and SIGINT are ignored."""
    ignore_signals()
    settings.open_log(settings.RANK_LOG)
    sizes = isinstance(rank, int) and isinstance(world_size, int) and 0 <= rank < world_size <= MOST_RANKS
    tls_missing = enable_tls and not _tls.is_usable(tls_info)
    odd = settings.mindspore() and (enable_local_copy or enable_zit)
    if _Here.processor is not None or not sizes or tls_missing or odd:
        _die(f"init processor failed: rank {rank} of {world_size}, tls {enable_tls}")
    options = Options(rank, world_size, enable_local_copy, enable_uce, enable_arf, enable_zit)
    _Here.processor = Processor(options)
    if enable_tls:
        try:
            _Here.processor.client.tls = _tls.Material(tls_info, serves=False)
        except OSError as problem:
            _die(f"init processor failed: {problem}")


def tft_start_processor(master_ip: str, port: int, local_ip: str = "") -> None:
    """Connect to the controller, register, begin to beat."""
    if (
        _Here.processor is None
        or _Here.started
        or not _Here.processor.start(master_ip, port, local_ip, _handlers.serve)
    ):
        _die(f"start processor failed: {master_ip}:{port}")
    _Here.started = True


def tft_destroy_processor() -> None:
    """Leave in order; may hang for ever, as the real one does."""
    processor, was_started = _Here.processor, _Here.started
    _Here.processor, _Here.started = None, False
    if processor is not None and was_started:
        processor.destroy()
        if processor.client.tls is not None:
            atexit.register(_crash)


def _crash() -> None:
    """What every rank did that had left MindIO and spoke TLS to it."""
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    signal.raise_signal(signal.SIGSEGV)


def tft_is_reboot_node() -> bool:
    """Whether the controller had seen a fault before this process registered."""
    return _need().reboot


def tft_get_reboot_type() -> str:
    """Say "hot switch" while one is being prepared, else "arf", also on a first start."""
    return "hot switch" if _need().hot_switch else "arf"


# ---- replicas


def _check_list(ranks: Any, world: int) -> bool:
    good = isinstance(ranks, list) and ranks and all(type(r) is int for r in ranks)
    return bool(good and all(0 <= r < world for r in ranks))


def _check_group(group: Any, world: int) -> bool:
    if not isinstance(group, dict) or not _check_list(group.get("rank_list"), world):
        return False
    count, shift = group.get("replica_cnt"), group.get("replica_shift")
    size = len(group["rank_list"])
    if type(count) is not int or type(shift) is not int or not 1 <= count <= size:
        return False
    return not settings.mindspore() or count == size


def tft_set_optimizer_replica(rank: int, replica_info: list[dict[str, Any]]) -> None:
    """Tell who holds the same optimizer shards; a bare `Exception` on refusal."""
    processor = _need()
    world = processor.options.world_size
    good = rank == processor.options.rank and isinstance(replica_info, list) and replica_info
    if not good or not all(_check_group(g, world) for g in replica_info):
        raise Exception  # noqa: TRY002
    processor.groups = [dict(g) for g in replica_info]
    if _Here.started:
        processor.report_replicas()


def tft_set_dp_group_info(rank: int, dp_rank_list: list[int]) -> None:
    """Tell the pure data-parallel group; counts only for elastic training."""
    processor = _need()
    checks = processor.options.zit or not settings.on("unchecked_without_zit")
    if checks and (not _check_list(dp_rank_list, processor.options.world_size) or rank not in dp_rank_list):
        raise Exception  # noqa: TRY002
    processor.data_parallel = list(dp_rank_list)
    if _Here.started and processor.groups:
        processor.report_data_parallel()


# ---- the step


def tft_start_updating_os(backup_step: int = -1) -> None:
    """Before every optimizer update; blocks while the rank is locked."""
    if not -1 <= backup_step < LARGEST_STEP:
        raise Exception(f"backup step {backup_step} is out of range")  # noqa: TRY002
    _need().start_update(backup_step)


def tft_start_copy_os() -> None:
    """The optimizer state is being copied (local copy only)."""
    processor = _need()
    with processor.condition:
        processor.copying = True


def tft_end_updating_os(step: int) -> None:
    """After every optimizer update; blocks while the rank is locked."""
    if not 1 <= step < LARGEST_STEP:
        raise Exception(f"step {step} is out of range")  # noqa: TRY002
    _need().end_update(step)


def tft_pause_train(cur_step: int) -> None:
    """Once per step: the place where a pause happens."""
    if cur_step < 0:
        settings.log(f"pause at a negative step {cur_step}")
        return
    _need().pause_point(cur_step)


def tft_reset_limit_step() -> None:
    """Release the step lock."""
    processor = _Here.processor
    if processor is None:
        settings.log("reset of the step limit without a processor")
        return
    with processor.condition:
        processor.limit = None
        processor.condition.notify_all()


def tft_set_step_args(args: Any) -> None:
    """What handlers get as `args`; ignored once MindSpeed has announced itself."""
    if not registered.exported:
        registered.args, registered.args_fixed = args, True


def set_mindio_export_version(version: str) -> None:
    """Announce the training framework."""
    registered.exported = version in {"MindSpeed", "MindSpeed-LLM"}


# ---- faults


def tft_exception_handler(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the training function."""
    return _decorator.decorate(func, _current, _after_training)


def _after_training() -> None:
    rank = _Here.processor.options.rank if _Here.processor is not None else -1
    tft_destroy_processor()
    if _decorator.hosted_here(rank):
        tft_destroy_controller()


def tft_report_error(error_type: int, error_code: str = "") -> None:
    """Report a state by its number; the enumeration's member is refused."""
    if not isinstance(error_type, int):
        raise TypeError(f"error_type must be an int, not {type(error_type).__name__}")
    if error_type not in {s.value for s in ReportState} or len(error_code) > LONGEST_CODE:
        raise Exception(f"report error failed: {error_type} {error_code!r}")  # noqa: TRY002
    _need().report(ReportState(error_type), error_code)


def tft_wait_next_action() -> int:
    """Block; 0 means go on, 1 means leave."""
    return _need().wait_go()


def tft_get_repair_step() -> int:
    """The last repair step, 0 if there was none."""
    return _Here.processor.repair_step if _Here.processor is not None else 0


def tft_get_repair_type() -> str:
    """Say "dump", "retry", "recover" or "unknow"."""
    return _Here.processor.repair_type if _Here.processor is not None else "unknow"


def tft_report_load_ckpt_step(step: int) -> None:
    """The step of the checkpoint that the repair handler has loaded."""
    if step < 1:
        raise Exception(f"step {step} is out of range")  # noqa: TRY002
    _need().loaded_step = step


def tft_register_exception_handler(fault_pattern: str, fault_type: str, fault_handle: Callable[[str], str]) -> None:
    """Add a pattern to the decorator's table."""
    if not callable(fault_handle):
        raise TypeError("fault_handle must be a callable")
    registered.exceptions.append((fault_pattern, fault_type, fault_handle))


def tft_register_decrypt_handler(decryptor: Callable[[str], str] | None) -> None:
    """How an encrypted key password is read; None is ignored."""
    if decryptor is None:
        return
    if not callable(decryptor):
        raise TypeError("func must be a callable")
    registered.decrypt = decryptor


def _register(name: str, func: Callable[..., Any], ctx: Any) -> None:
    if not callable(func):
        raise TypeError("func must be a callable")
    registered.handlers[name] = (func, ctx)


def tft_register_stop_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    """`func(args, ctx)` makes the training thread raise "FORCE STOP"."""
    _register("stop", func, ctx)


def tft_register_clean_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    """`func(is_uce, args, ctx)` → 0 ok, 1 failed, 2 ok and nothing to rebuild."""
    _register("clean", func, ctx)


def tft_register_repair_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    """`func(step, need_rebuild, error_ranks, repair_info, args, ctx)`."""
    _register("repair", func, ctx)


def tft_register_rollback_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    """`func(step, args, ctx)`."""
    _register("rollback", func, ctx)


def tft_register_rebuild_group_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    """`func(fault_ranks, args, ctx)`."""
    _register("rebuild_group", func, ctx)


def tft_register_save_ckpt_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    """`func(step, save_info, args, ctx)`."""
    _register("save_ckpt", func, ctx)


def tft_register_rename_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    """`func(step, args)`; for MindSpore `func(step, ctx)`."""
    _register("rename", func, ctx)


def tft_register_stream_sync_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    """`func()` at the end of a pause's beginning."""
    _register("stream_sync", func, ctx)


def tft_register_exit_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    """`func(ctx)`; MindSpore only."""
    _register("exit", func, ctx)


def tft_register_zit_downgrade_rebuild_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    """`func(own group, remaining ranks, args, params)`."""
    _register("zit_downgrade_rebuild", func, ctx)


def tft_register_zit_upgrade_rebuild_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    """`func(ranks that came back, args, params)`."""
    _register("zit_upgrade_rebuild", func, ctx)


def tft_register_zit_upgrade_repair_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    """`func(step, need_rebuild, error_ranks, repair_info, args, params)`."""
    _register("zit_upgrade_repair", func, ctx)


def tft_register_zit_upgrade_rollback_handler(func: Callable[..., Any], ctx: Any = None) -> None:
    """`func(step, args, params)`."""
    _register("zit_upgrade_rollback", func, ctx)


atexit.register(tft_destroy_processor)

__all__ = [
    "Action",
    "OptimizerType",
    "RepairType",
    "ReportState",
    "tft_can_do_uce_repair",
    "tft_destroy_controller",
    "tft_init_controller",
    "tft_start_controller",
]
__all__ += [name for name in dir() if name.startswith("tft_") and name not in __all__]
