"""The lifetime of a run: its id, its directory, its loopback addresses, and that nothing of it stays behind.

A run is one `make demo`, one test session, one benchmark. All its processes carry its id in their environment
(HAJOB_RUN), which children inherit whatever else they do; when the owner ends, for whatever reason, the reaper kills
what carries the mark and removes the directory. Marks instead of process groups, because process nodes, pods and
launchers all make groups and sessions of their own.

Each run has a loopback block 127.R.0.0/16. It is claimed by a listening socket on an address in it, which the kernel
gives to one process of this network namespace only and takes back when the holder is gone.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from e2e.bootstrap.paths import CHECKOUT, cache_directory, logs_directory, runs_directory
from e2e.cluster import reaper
from e2e.cluster.processes import MARKER, Process

CLAIM_PORT = 7999
DESCRIPTION = "run.json"
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
REAPER_PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from e2e.cluster.reaper import main; main(sys.argv[2:])"
PASSED_ON = ("PATH", "LANG", "LC_ALL", "TERM", "TZ", "HAJOB_CACHE", "HAJOB_MINDIO", "KUBEBUILDER_ASSETS")


class RunError(RuntimeError):
    """A run cannot start; the message says why and what to do."""


class Run:
    """A run as its owner, or another process that joins it, sees it.

    Attributes:
        identity: Names the run on this machine, for example `k3f9x2-17`.
        directory: Holds everything the run writes; gone with the run.
        block: R of its addresses 127.R.0.0/16.
    """

    def __init__(self, identity: str, directory: Path, block: int, reaper_process: Process) -> None:
        self.identity = identity
        self.directory = directory
        self.block = block
        self._reaper = reaper_process

    @classmethod
    def start(cls, purpose: str, owner: Process | None = None) -> Run:
        """Begin a run that lasts until `owner` (default: this process) ends or `close` is called.

        Raises:
            RunError: No loopback block is free, or the cache directory cannot be written.
        """
        claim, block = claim_block()
        with claim:
            identity = f"{secrets.token_hex(3)}-{block}"
            directory = _make_directory(identity)
            owner = owner or Process.current()
            started = _start_reaper(identity, directory, owner, claim)
        description = {
            "run": identity,
            "purpose": purpose,
            "checkout": str(CHECKOUT),
            "block": block,
            "owner": [owner.pid, owner.start],
            "reaper": [started.pid, started.start],
        }
        temporary = directory / f"{DESCRIPTION}.new"
        temporary.write_text(json.dumps(description))
        temporary.rename(directory / DESCRIPTION)
        return cls(identity, directory, block, started)

    @classmethod
    def join(cls, directory: Path) -> Run:
        """The run whose directory this is, for a process that is not its owner."""
        found = json.loads((directory / DESCRIPTION).read_text())
        return cls(found["run"], directory, found["block"], Process(*found["reaper"]))

    @property
    def logs(self) -> Path:
        """Where its processes write their logs."""
        return self.directory / "logs"

    def address(self, third: int, fourth: int) -> str:
        """127.R.`third`.`fourth`, an address nobody else uses."""
        return f"127.{self.block}.{third}.{fourth}"

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of a process of this run: its mark, a home of its own, no proxies, no kubeconfig."""
        kept = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        own = {
            MARKER: self.identity,
            "HOME": str(self.directory / "home"),
            "TMPDIR": str(self.directory / "tmp"),
            "HAJOB_CACHE": str(cache_directory()),
        }
        return kept | ONE_THREAD | own | dict(extra or {})

    def spawn(
        self,
        name: str,
        command: Sequence[str | Path],
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a process of this run in a session of its own; its output goes to logs/`name`.log."""
        with (self.logs / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment(environment),
                cwd=directory or self.directory,
                start_new_session=True,
            )

    @contextmanager
    def alone(self, what: str) -> Iterator[None]:
        """Wait until nobody else of this run does the same; the kernel drops the lock of whoever is killed."""
        with (self.directory / f"{what}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def keep_logs(self) -> Path:
        """Have the logs outlive the run, because something failed; returns where they will be found."""
        (self.directory / reaper.KEEP).touch()
        return logs_directory() / self.identity

    def close(self, timeout: float = 30.0) -> bool:
        """End every process of the run and remove its directory; whether that was done in `timeout` seconds."""
        self._reaper.signal(15)
        return self._reaper.wait_gone(timeout) and not self.directory.exists()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def claim_block(port: int = CLAIM_PORT) -> tuple[socket.socket, int]:
    """Claim a loopback block; returns the socket that holds the claim, and R of 127.R.0.0/16.

    Raises:
        RunError: All are taken.
    """
    first = secrets.randbelow(253)
    for offset in range(253):
        block = 2 + (first + offset) % 253
        claim = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            claim.bind((f"127.{block}.255.254", port))
            claim.listen(1)
        except OSError:
            claim.close()
            continue
        return claim, block
    raise RunError(
        f"no loopback addresses left: port {port} of every 127.x.255.254 is taken. "
        f"Either a program listens on 0.0.0.0:{port} (end it), or 253 runs are on (`make down` ends yours)."
    )


def free_port(address: str, preferred: int) -> int:
    """A TCP port of `address` on which nobody listens, also not on the wildcard address: `preferred` or one above.

    Raises:
        RunError: A hundred ports in a row are taken.
    """
    for port in range(preferred, preferred + 100):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
                probe.listen(1)
            except OSError:
                continue
            return port
    raise RunError(f"ports {preferred} to {preferred + 99} of {address} are all taken")


def described_runs() -> Iterator[tuple[Path, dict[str, object]]]:
    """Directories of runs in the cache, each with what it says about itself (empty while it is being made)."""
    if not runs_directory().is_dir():
        return
    for directory in sorted(path for path in runs_directory().iterdir() if path.is_dir()):
        try:
            yield directory, json.loads((directory / DESCRIPTION).read_text())
        except (OSError, ValueError):
            yield directory, {}


def _make_directory(identity: str) -> Path:
    directory = runs_directory() / identity
    try:
        for part in ("logs", "tmp", "home"):
            (directory / part).mkdir(parents=True)
    except OSError as error:
        raise RunError(
            f"cannot write {directory}: {error.strerror}; set HAJOB_CACHE to a directory that can be"
        ) from error
    directory.chmod(0o700)
    return directory


def _start_reaper(identity: str, directory: Path, owner: Process, claim: socket.socket) -> Process:
    """Start the reaper and wait until it watches; it inherits the claim."""
    names = [identity, str(directory), str(logs_directory()), str(owner.pid), str(owner.start)]
    environment = {name: value for name, value in os.environ.items() if name != MARKER}
    process = subprocess.Popen(
        [
            sys.executable,
            "-S",
            "-E",
            "-c",
            REAPER_PROGRAM,
            str(CHECKOUT),
            *names,
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        cwd="/",
        pass_fds=[claim.fileno()],
        start_new_session=True,
    )
    deadline = time.monotonic() + 30
    while not (directory / reaper.READY).exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RunError(f"the process that cleans up after the run did not start: {' '.join(names)}")
        time.sleep(0.01)
    return Process.of(process.pid)
