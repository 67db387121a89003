"""Ranks that somebody else starts below the script: found by what torchrun gives them, ends told with their codes."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainer_sidecar import prctl
from trainer_sidecar.launcher import followed
from trainer_sidecar.launcher.loop import Loop
from trainer_sidecar.launcher.protocol import ProcessName

TORCHRUN = """
import os, subprocess, sys, time
says_up = "import os, time; os.write(1, b'up' + bytes([10])); time.sleep(600)"
worker = [sys.executable, "-c", says_up, "--lr", "1"]
for rank in (4, 5):
    own = {"RANK": str(rank), "LOCAL_RANK": str(rank - 4), "TORCHELASTIC_RESTART_COUNT": "0"}
    subprocess.Popen(worker, env={**os.environ, **own})
time.sleep(600)
"""


class Followed:
    """A start script with two workers, a loop, and what was told of them."""

    def __init__(self, script: subprocess.Popen[str]) -> None:
        self.script = script
        self.loop = Loop()
        self.told: list[dict[str, Any]] = []
        self.ranks = followed.FollowedRanks(self.loop, self._tell, lambda: ["the script's last line"])
        self._wanted = 1000

    def _tell(self, message: dict[str, Any]) -> None:
        self.told.append(message)
        if len(self.told) >= self._wanted:
            self.loop.stop_loop()

    def run_until_told(self, number: int) -> None:
        """Run the loop until so many messages have come; ten seconds end it."""
        self._wanted = number
        if len(self.told) < number:
            self.loop.call_after(10.0, self.loop.stop_loop)
            self.loop.run_until_stopped()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Followed]:
    """A script whose workers run; torchrun's own RANK is the node rank."""
    environment = {**os.environ, "RANK": "2"}
    (tmp_path / "torchrun.py").write_text(textwrap.dedent(TORCHRUN))
    command = [sys.executable, str(tmp_path / "torchrun.py")]
    script = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert script.stdout is not None
    assert [script.stdout.readline() for _ in range(2)] == ["up\n", "up\n"]
    yield Followed(script)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(script.pid, signal.SIGKILL)
    script.wait()


def test_the_next_process_of_a_rank_gets_the_name(started: Followed) -> None:
    started.ranks.expect_process_of_rank(5, ProcessName(3, 1))
    started.ranks.look_for_processes(started.script.pid)
    (message,) = started.told
    assert (message["rank"], message["incarnation"], message["start"], message["running"]) == (5, 3, 1, True)
    assert not started.ranks.is_expecting
    assert followed.arguments_of_worker(message["pid"])[-2:] == ["--lr", "1"]


def test_an_end_is_told_with_its_code(started: Followed) -> None:
    for rank in (4, 5):
        started.ranks.expect_process_of_rank(rank, ProcessName(3, 0))
    started.ranks.look_for_processes(started.script.pid)
    os.kill(next(one["pid"] for one in started.told if one["rank"] == 4), signal.SIGKILL)
    started.run_until_told(3)
    ended = started.told[2]
    assert (ended["rank"], ended["running"], ended["exit_code"], ended["ordered"]) == (4, False, -9, False)
    assert ended["last_lines"] == ["the script's last line"]


def test_an_ordered_end_spares_a_newer_process(started: Followed) -> None:
    started.ranks.expect_process_of_rank(4, ProcessName(3, 1))
    started.ranks.look_for_processes(started.script.pid)
    started.ranks.end_process(4, ProcessName(3, 0), gently=False)
    assert started.ranks.running_processes()[0].ordered is False
    started.ranks.end_process(4, ProcessName(3, 1), gently=True)
    started.run_until_told(2)
    assert (started.told[1]["exit_code"], started.told[1]["ordered"]) == (-15, True)


def test_a_name_that_was_used_is_not_given_again(started: Followed) -> None:
    started.ranks.expect_process_of_rank(4, ProcessName(3, 0))
    started.ranks.look_for_processes(started.script.pid)
    started.ranks.expect_process_of_rank(4, ProcessName(3, 0))
    assert not started.ranks.is_expecting


def test_torchrun_itself_is_no_rank() -> None:
    assert followed.rank_of_environment({"RANK": "2", "LOCAL_RANK": "0,1", "TORCHELASTIC_RESTART_COUNT": "0"}) is None
    assert followed.rank_of_environment({"RANK": "2"}) is None
    assert followed.exit_code_of_zombie(2**22 + 1) is None


def test_a_process_is_opened_without_pythons_own_function() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    descriptor = prctl.open_process(ended.pid)
    ended.wait()
    assert select.select([descriptor], [], [], 10)[0] == [descriptor]
    os.close(descriptor)
    with pytest.raises(ProcessLookupError):
        prctl.open_process(ended.pid)
