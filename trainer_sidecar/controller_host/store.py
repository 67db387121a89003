"""The rendezvous store of the job: where the ranks meet.

It lives in the coordinator's pod and not in rank 0, so that rank 0 can be lost like any other rank. A job of MindSpore
gets MindSpore's scheduler, an image with torch gets torch's `TCPStore`; any other image names a function of its own,
`module:function`, in `HAJOB_STORE`, which comes before both. The function is called with host and port and may either
return when it listens or block while it serves.
"""

from __future__ import annotations

import functools
import importlib
import os
import socket
import sys
import threading
import time
from typing import Any, Callable, Dict, List

from trainer_sidecar.controller_host import scheduler
from trainer_sidecar.controller_host.problems import StartError, check_address
from trainer_sidecar.controller_protocol import OTHER, PACKAGE

HOOK = "HAJOB_STORE"
# Of a store that a user's function serves (`HAJOB_STORE`), which may import first.
START_SECONDS = 20.0
# A start of all ranks waits for it.
POLL_SECONDS = 0.02

_kept: List[Any] = []  # a TCPStore serves for as long as its object lives


def serve_store(host: str, port: int, environment: Dict[str, str], lost: Callable[[str], None]) -> None:
    """Return when the store listens on `host`:`port`; `StartError` when it does not.

    `lost` is called from another thread, with the reason, when it fails later.
    """
    check_address(host, port, "the rendezvous store")
    hook = environment.get(HOOK, "")
    if hook:
        _serve_in_thread(_load_hook(hook), host, port, START_SECONDS, lost)
    elif scheduler.is_scheduler_wanted(environment):
        run = functools.partial(scheduler.run_scheduler, environment)
        _serve_in_thread(run, host, port, scheduler.START_SECONDS, lost)
    else:
        _serve_torch(host, port)


def _load_hook(hook: str) -> Callable[[str, int], None]:
    module_name, _, function_name = hook.partition(":")
    try:
        function: Callable[[str, int], None] = getattr(importlib.import_module(module_name), function_name)
    except BaseException as error:
        text = "HAJOB_STORE=%s does not name a function (%s: %s)" % (hook, type(error).__name__, error)
        raise StartError(PACKAGE, text) from None
    return function


def _serve_in_thread(
    function: Callable[[str, int], None], host: str, port: int, seconds: float, lost: Callable[[str], None]
) -> None:
    failures: List[BaseException] = []
    listening = threading.Event()

    def serve_store_function() -> None:
        try:
            function(host, port)
        except BaseException as error:
            failures.append(error)
            if listening.is_set():
                lost("the rendezvous store failed: %r" % error)

    threading.Thread(target=serve_store_function, name="rendezvous-store", daemon=True).start()
    deadline = time.monotonic() + seconds
    while not _is_listening(host, port):
        if failures:
            raise StartError(OTHER, "the rendezvous store failed: %r" % failures[0])
        if time.monotonic() > deadline:
            text = "the rendezvous store does not listen on %s:%d after %d s" % (host, port, seconds)
            raise StartError(OTHER, text)
        time.sleep(POLL_SECONDS)
    listening.set()


def _is_listening(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def _serve_torch(host: str, port: int) -> None:
    try:
        from torch.distributed import TCPStore
    except BaseException as error:
        raise StartError(PACKAGE, _why_no_torch(error)) from None
    try:
        _kept.append(_open_torch_store(TCPStore, host, port))
    except BaseException as error:
        raise StartError(OTHER, "torch's TCPStore on %s:%d failed: %s" % (host, port, error)) from None


def _why_no_torch(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == "torch":
        return (
            "no Python of the training image has torch (looked at: %s and others) and HAJOB_STORE names no store; name "
            "the Python that has it in spec.coordinator.pythonPath" % sys.executable
        )
    return "torch of the training image cannot be imported by %s: %s: %s" % (
        sys.executable,
        type(error).__name__,
        error,
    )


def _open_torch_store(store_class: Callable[..., object], host: str, port: int) -> object:
    """Open the store; torch binds the wildcard address unless it gets a socket, which older versions cannot take.

    The backend is torch's own choice, as under torchrun: the older one serves no queues. A torch that was built without
    libuv has the older one only.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(1024)
    plain = {"is_master": True, "wait_for_workers": False}
    with listener:
        handed = os.dup(listener.fileno())  # torch owns what it gets, also where it fails with it
        try:
            return store_class(host, port, **plain, master_listen_fd=handed)
        except TypeError:
            os.close(handed)
        except RuntimeError:
            return store_class(host, port, **plain, master_listen_fd=os.dup(listener.fileno()), use_libuv=False)
    return store_class(host, port, **plain)
