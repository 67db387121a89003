"""Why a controller does not serve, in words for the reader of the job's conditions.

`tft_start_controller` answers every failure with `SystemExit(2)` and gives the reason only in its own log. So the usual
reasons are checked before and after the attempt: the package, its names, the address, the port.
"""

from __future__ import annotations

import errno
import socket
import sys
from types import ModuleType
from typing import List, Optional

from trainer_sidecar.controller_protocol import ADDRESS, PACKAGE, PORT

NEEDED_NAMES = (
    "tft_register_mindx_callback",
    "tft_init_controller",
    "tft_start_controller",
    "tft_notify_controller_stop_train",
    "tft_notify_controller_on_global_rank",
    "tft_notify_controller_change_strategy",
    "tft_notify_controller_prepare_action",
    "tft_notify_controller_dump",
)

HUNG_TEXT = (
    "the MindIO controller's process has not answered for %d s and notices no fault; while it does not, every fault "
    "restarts the job"
)


class StartError(Exception):
    """The reason why controller or store cannot serve; `kind` is one of the constants of this module."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


def missing_names(module: ModuleType) -> List[str]:
    """Return the functions that Hajob calls and that this version of the package lacks."""
    return [name for name in NEEDED_NAMES if not callable(getattr(module, name, None))]


def load_controller_module() -> ModuleType:
    """Return the MindIO controller's module; `StartError` when the image has none, a broken one or an old one."""
    try:
        from mindio_ttp import controller_ttp
    except BaseException as error:
        raise StartError(
            PACKAGE,
            "the training image has no usable package mindio_ttp (%s: %s), as far as %s sees; install the MindIO wheel "
            "of the MindCluster version in use into the image of container trainer, or name the Python that has it in "
            "spec.coordinator.pythonPath" % (type(error).__name__, error, sys.executable),
        ) from None
    missing = missing_names(controller_ttp)
    if missing:
        raise StartError(
            PACKAGE,
            "the package mindio_ttp of the training image lacks %s; Hajob needs version 7.3 or newer"
            % ", ".join(missing),
        )
    module: ModuleType = controller_ttp
    return module


def check_address(host: str, port: int, purpose: str) -> None:
    """Check before the attempt that `host`:`port` can be listened on; `StartError` when not."""
    problem = _bind_error(host, port)
    if problem is None:
        return
    if problem.errno == errno.EADDRINUSE:
        raise StartError(
            PORT,
            "port %d at %s, meant for %s, is taken by another process; free it, or give the job another port: "
            "spec.network.coordinatorPort with hostNetwork, else mindIOPort or rendezvousPort" % (port, host, purpose),
        )
    raise StartError(ADDRESS, "%s cannot listen on %s:%d: %s" % (purpose, host, port, problem))


def _bind_error(host: str, port: int) -> Optional[OSError]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error
    return None
