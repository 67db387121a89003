"""The order of the set-up, one of a kind at a time per cache, and a way past all of it when everything is there."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.bootstrap import build, environment
from e2e.bootstrap.binaries import BINARIES, Binary, find
from e2e.bootstrap.machine import require_disk, require_supported
from e2e.bootstrap.paths import cache_directory

# Small machines: numeric libraries take one thread per rank, and C's allocator few arenas per process.
EXECUTION = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",
    "GRPC_ENABLE_FORK_SUPPORT": "false",
    "GRPC_VERBOSITY": "ERROR",
    "PYTHONNOUSERSITE": "1",
}


def missing_binaries() -> list[Binary]:
    """Programs of the local cluster that are nowhere to be found."""
    return [binary for binary in BINARIES if find(binary) is None]


def set_up(*, cluster: bool) -> None:
    """Make what is missing: the Python environment and, with `cluster`, the binaries of the control plane.

    Raises:
        SetupError: Something cannot be made.
    """
    require_supported()
    if environment.is_complete() and not (cluster and missing_binaries()):
        return
    started = time.monotonic()
    if not environment.is_complete():
        with _alone("python"):
            if not environment.is_complete():
                environment.make()
    if cluster:
        _make(*BINARIES)
    _say(f"complete after {time.monotonic() - started:.0f} s; kept in {cache_directory()}")


def provide(*binaries: Binary) -> list[Path]:
    """Where these binaries are; built first where one is not there yet.

    Raises:
        SetupError: One cannot be built.
    """
    if not all(find(binary) for binary in binaries):
        _make(*binaries)
    return [find(binary) or binary.cached for binary in binaries]


def _make(*binaries: Binary) -> None:
    with _alone("binaries"):
        missing = [binary for binary in binaries if find(binary) is None]
        if not missing:
            return
        names = ", ".join(binary.name for binary in missing)
        minutes = build.minutes(missing)
        _say(f"to be built, once on this machine: {names} (about {minutes} minutes and the downloads)")
        seconds = build.build(missing)
        _say(f"built in {seconds:.0f} s, downloads not counted")


def execution_environment() -> dict[str, str]:
    """The environment of the project's own programs."""
    temporary = cache_directory() / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    directory = environment.environment_directory()
    own = {
        "VIRTUAL_ENV": str(directory),
        "PATH": f"{directory / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "HAJOB_CACHE": str(cache_directory()),
        "TMPDIR": str(temporary),
        **_readable_paths(),
    }
    # Hundreds of processes would compile the same libraries again, 1.4 s each, where no bytecode may be written.
    dropped = {"PYTHONHOME", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "KUBECONFIG"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return kept | EXECUTION | own


def _readable_paths() -> dict[str, str]:
    """A locale by which Python can read the checkout's path, whatever letters it has.

    In that of C it reads the path that an editable installation names as ASCII, also in its UTF-8 mode, and does not
    start (`site.addpackage`).
    """
    set_ones = (os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    locale = next((each for each in set_ones if each), "C")
    return {"LC_ALL": "C.UTF-8"} if locale in {"C", "POSIX"} else {}


@contextmanager
def _alone(what: str) -> Iterator[None]:
    """Wait until no other set-up makes the same in this cache; the kernel drops the lock when its holder is killed.

    A Python environment, made in a minute, does not wait for binaries, which take many.
    """
    require_disk(cache_directory(), 0, "")
    with (cache_directory() / f"{what}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"another set-up is at work in {cache_directory()}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(text: str) -> None:
    print(f"set-up: {text}", file=sys.stderr, flush=True)
