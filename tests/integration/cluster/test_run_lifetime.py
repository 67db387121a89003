"""Nothing of a run stays behind, however its owner ends: real owners, real processes, real signals."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster import run as runs
from e2e.cluster.processes import Process, marked
from e2e.cluster.run import Run

# An owner that starts what runs start: a session of its own, a process that ignores SIGTERM, and one that is stopped.
OWNER = """
import json, os, signal, subprocess, sys, time
from e2e.cluster.run import Run
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is born deaf to it
run = Run.start("test")
run.spawn("plain", ["sleep", "600"])
nested = "import subprocess, time; subprocess.Popen(['sleep', '600'], start_new_session=True); time.sleep(600)"
run.spawn("nested", [sys.executable, "-c", nested])
stubborn = "import signal, time; [signal.signal(s, signal.SIG_IGN) for s in (1, 2, 15)]; time.sleep(600)"
run.spawn("stubborn", [sys.executable, "-c", stubborn])
frozen = run.spawn("frozen", ["sleep", "600"])
os.kill(frozen.pid, signal.SIGSTOP)
{extra}
print(json.dumps([run.identity, str(run.directory), run.block]), flush=True)
{ending}
"""
PROCESSES = 5


class Owner:
    """A process that owns a run."""

    def __init__(self, cache: Path, ending: str = "time.sleep(600)", extra: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(OWNER).format(ending=ending, extra=extra)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=CHECKOUT,
            env=os.environ | {"HAJOB_CACHE": str(cache)},
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.run, directory, self.block = json.loads(self.process.stdout.readline())
        self.directory = Path(directory)

    def reaper(self) -> Process:
        return Process(*json.loads((self.directory / "run.json").read_text())["reaper"])

    def runs_everything(self) -> bool:
        """Its processes start some of their own, which takes a moment after the owner has spoken."""
        return len(list(marked(self.run))) == PROCESSES

    def leaves_nothing(self) -> bool:
        return not list(marked(self.run)) and not self.directory.exists()


def eventually(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HAJOB_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def owners(cache: Path) -> Iterator[Callable[..., Owner]]:
    started: list[Owner] = []

    def start(ending: str = "time.sleep(600)", extra: str = "") -> Owner:
        started.append(Owner(cache, ending, extra))
        return started[-1]

    yield start
    for owner in started:
        owner.process.kill()
        owner.process.wait()
        assert eventually(owner.leaves_nothing)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_a_signal_to_the_owner_ends_everything(owners: Callable[..., Owner], number: signal.Signals) -> None:
    owner = owners()
    assert eventually(owner.runs_everything)
    os.killpg(owner.process.pid, number)  # as a terminal does: the whole foreground group
    owner.process.wait()
    assert eventually(owner.leaves_nothing)


def test_an_owner_that_returns_or_fails_ends_everything(owners: Callable[..., Owner]) -> None:
    for ending in ("run.close()", "pass", "raise SystemExit(3)", "os.abort()"):
        owner = owners(ending)
        owner.process.wait()
        assert eventually(owner.leaves_nothing), ending


def test_close_waits_until_nothing_is_left(cache: Path) -> None:
    run = Run.start("test")
    child = run.spawn("child", ["sleep", "600"])
    assert run.close()
    assert not run.directory.exists()
    assert child.wait() == -signal.SIGKILL
    assert cache.exists()


def test_logs_are_kept_only_when_wanted(owners: Callable[..., Owner], cache: Path) -> None:
    for extra, kept in (("", False), ("run.keep_logs()", True)):
        owner = owners("run.close()", extra)
        owner.process.wait()
        assert eventually(owner.leaves_nothing)
        assert (cache / "logs" / owner.run / "plain.log").exists() == kept


def test_two_runs_do_not_disturb_each_other(owners: Callable[..., Owner]) -> None:
    first, second = owners(), owners()
    assert first.block != second.block
    assert eventually(second.runs_everything)
    first.process.kill()
    first.process.wait()
    assert eventually(first.leaves_nothing)
    assert second.runs_everything()
    assert second.directory.exists()


def test_addresses_are_claimed_until_the_last_process_has_gone(owners: Callable[..., Owner]) -> None:
    owner = owners()
    address = (f"127.{owner.block}.255.254", runs.CLAIM_PORT)
    with socket.socket() as probe, pytest.raises(OSError, match="in use"):
        probe.bind(address)
    owner.process.kill()
    owner.process.wait()

    def free() -> bool:
        with socket.socket() as probe:
            try:
                probe.bind(address)
            except OSError:
                return False
            return True

    assert eventually(free)
    assert owner.leaves_nothing()


def test_down_ends_runs_of_this_checkout_and_what_dead_runs_left(owners: Callable[..., Owner]) -> None:
    alive, dead, foreign = owners(), owners(), owners()
    assert eventually(foreign.runs_everything)
    dead.reaper().signal(signal.SIGKILL)
    dead.process.kill()
    dead.process.wait()
    description = json.loads((foreign.directory / "run.json").read_text())
    (foreign.directory / "run.json").write_text(json.dumps(description | {"checkout": "/somewhere/else"}))

    done = subprocess.run([sys.executable, "-m", "e2e.cluster.down"], cwd=CHECKOUT, check=False, timeout=60)

    assert done.returncode == 0
    assert alive.process.wait() == -signal.SIGTERM
    assert alive.leaves_nothing()
    assert dead.leaves_nothing()
    assert foreign.runs_everything()


def test_a_pid_that_was_given_out_again_is_somebody_else() -> None:
    current = Process.current()
    earlier = Process(current.pid, current.start - 1)
    assert current.alive()
    assert not earlier.alive()
    assert not earlier.signal(signal.SIGKILL)


def test_an_ended_process_that_nobody_waited_for_counts_as_gone() -> None:
    child = subprocess.Popen(["true"])
    process = Process.of(child.pid)
    assert eventually(lambda: not process.alive())
    child.wait()


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("HAJOB_CACHE", str(blocked))
    with pytest.raises(runs.RunError, match="set HAJOB_CACHE to a directory"):
        Run.start("test")


def test_a_stranger_on_the_claim_port_is_named() -> None:
    with socket.socket() as stranger:
        stranger.bind(("0.0.0.0", 0))
        stranger.listen(1)
        port = stranger.getsockname()[1]
        with pytest.raises(runs.RunError, match=rf"listens on 0\.0\.0\.0:{port}"):
            runs.claim_block(port)
        assert runs.free_port("127.200.0.1", port) != port
