"""Starting, reaping and signalling processes: nothing is left behind by a start that fails, no stranger is hit."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainer_sidecar.launcher import process
from trainer_sidecar.launcher.loop import Loop


def descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


@pytest.mark.parametrize("call", ["fork", "pipe"])
def test_a_start_that_fails_leaves_no_descriptor_open(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = descriptors()
    there_is_room_for = [os.pipe()] if call == "pipe" else []

    def fail() -> tuple[int, int]:
        if there_is_room_for:
            return there_is_room_for.pop()
        raise BlockingIOError(errno.EAGAIN, "there are too many")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(BlockingIOError):
        process.spawn_process(["true"], {}, "/")
    assert descriptors() == before


@pytest.fixture
def loop() -> Iterator[Loop]:
    """A loop that catches signals as the launcher's does."""
    before = signal.getsignal(signal.SIGTERM)
    made = Loop()
    yield made
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, before)


def test_a_signal_to_a_child_just_forked_is_the_childs(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[int] = []
    setpgid = os.setpgid

    def ended_at_once(pid: int, group: int) -> None:
        setpgid(pid, group)
        if pid == 0:  # in the child, whose handlers are still the launcher's
            os.kill(os.getpid(), signal.SIGTERM)

    loop.catch_signals([signal.SIGTERM], heard.append)
    monkeypatch.setattr(os, "setpgid", ended_at_once)
    spawned = process.spawn_process(["sleep", "1000"], dict(os.environ), "/")
    assert process.exit_code_of_status(os.waitpid(spawned.pid, 0)[1]) == -signal.SIGTERM
    os.close(spawned.stdout)
    os.close(spawned.stderr)
    loop.call_after(0, loop.stop_loop)
    loop.run_until_stopped()
    assert heard == []


# the start script makes a daemon: the leader of the daemon's group is an orphan that the launcher reaps
START_SCRIPT = """
import os, time
begun, begins = os.pipe()
if os.fork():
    os.close(begins)
    os.read(begun, 1)  # what is of the script's own group when it ends is ended with it
    os._exit(0)
os.setsid()
os.close(begins)
leader = os.getpid()
if os.fork():
    os._exit(0)
while os.path.exists("/proc/%d" % leader):
    time.sleep(0.01)
print("the daemon lives", flush=True)
"""
LAUNCHER = """
import os, select, signal, sys
from trainer_sidecar import prctl
from trainer_sidecar.launcher import process
prctl.become_subreaper()
script = process.spawn_process([sys.executable, "-c", sys.argv[1]], dict(os.environ), "/")
while not select.select([script.stdout], [], [], 0.01)[0]:
    process.reap_children()
print(os.read(script.stdout, 100).decode().strip())
os.killpg = print
process.signal_group(script.pid, signal.SIGTERM)  # its number may be anybody's by now
"""


def test_groups_of_strangers_are_left_alone() -> None:
    command = [sys.executable, "-c", LAUNCHER, START_SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "the daemon lives\n"
