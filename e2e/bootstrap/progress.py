"""Running a long command so that the person before it sees that it lives: what is being done, for how long.

On a terminal one line that is rewritten; elsewhere a line every few seconds, so that a log of a build server reads
well, too. All output goes to a log file; it is shown only when the command fails.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from e2e.bootstrap.problems import explain

PLAIN_SECONDS = 10.0
TERMINAL_SECONDS = 0.2
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


class Progress:
    """The line that says how one piece of work goes on; a context manager around it."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.detail = ""
        self.seconds = 0.0
        self._terminal = sys.stderr.isatty()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        self._print(f"{self.what} ...", final=not self._terminal)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self.seconds = time.monotonic() - self._started
        self._print(f"{self.what}: {'failed' if kind else 'done'} in {self.seconds:.0f} s", final=True)

    def _show(self) -> None:
        while not self._done.wait(TERMINAL_SECONDS if self._terminal else PLAIN_SECONDS):
            detail = f", {self.detail}" if self.detail else ""
            seconds = time.monotonic() - self._started
            self._print(f"{self.what}: {seconds:.0f} s{detail}", final=not self._terminal)

    def _print(self, text: str, *, final: bool) -> None:
        start, end = ("\r\x1b[K", "\n" if final else "") if self._terminal else ("", "\n")
        sys.stderr.write(f"{start}set-up: {text}{end}")
        sys.stderr.flush()


def run(
    what: str,
    command: Sequence[str | Path],
    log: Path,
    environment: Mapping[str, str],
    settings: str,
    *,
    directory: Path | None = None,
    detail: Callable[[int, str], str] | None = None,
) -> float:
    """Run a command under a progress line; returns how many seconds it took.

    Args:
        what: What is being done, for people.
        command: The command line.
        log: Where all its output goes.
        environment: Its environment.
        settings: Names of settings that help when the network fails.
        directory: Where it runs.
        detail: Makes the end of the progress line from the number of lines so far and the last one.

    Raises:
        SetupError: It failed.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with Progress(what) as progress, log.open("w") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
            cwd=directory,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - no threads that hold locks are running
        )
        for number, line in enumerate(process.stdout or (), 1):
            file.write(line)
            progress.detail = detail(number, line.strip()) if detail else ""
        if process.wait() != 0:
            file.flush()
            raise explain(what, _words(process.returncode, log), log, settings)
    return progress.seconds


def _words(code: int, log: Path) -> str:
    words = log.read_text(errors="replace")
    return words + (f"\nsignal: {signal.Signals(-code).name.removeprefix('SIG').lower()}ed" if code == -9 else "")


def _die_with_parent() -> None:
    """Have the kernel end this child when the set-up is killed."""
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() == 1:
        os._exit(1)
