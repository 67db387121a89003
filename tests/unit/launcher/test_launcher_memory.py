"""A rank that the kernel ends for want of memory: nothing but a count in its cgroup tells; real processes."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from trainer_sidecar.launcher import memory
from trainer_sidecar.launcher.loop import Loop
from trainer_sidecar.launcher.output import Terminal
from trainer_sidecar.launcher.program import Program
from trainer_sidecar.launcher.protocol import ProcessName
from trainer_sidecar.launcher.ranks import OutputSettings, Ranks, Target
from trainer_sidecar.launcher.warm import WarmProcesses

VERSION_2 = "low 0\nhigh 0\nmax 17\noom 2\noom_kill {}\noom_group_kill 0\n"
VERSION_1 = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"


def killed(tmp_path: Path, count: Path, then: str) -> list[str]:
    """The last words of a rank that is killed after its cgroup says `then`."""
    loop = Loop()
    settings = OutputSettings(str(tmp_path), 1 << 20, 1, memory_files=(str(tmp_path / "nothing"), str(count)))

    def tell(message: dict[str, Any], _may_wait: bool) -> None:
        if message["kind"] == "rank" and message["running"]:
            count.write_text(then)
            os.kill(message["pid"], signal.SIGKILL)

    ranks = Ranks(loop, settings, Terminal(), tell, WarmProcesses("", Terminal()).take_or_spawn)
    program = Program([sys.executable, "-c", "import time; time.sleep(60)"], str(tmp_path), {}, [], True)
    silent = Target(lambda _: None, lambda _: None)
    assert ranks.start_process(0, ProcessName(1, 1), program, {"HAJOB_ATTEMPT": "1"}, silent) is None
    rank = ranks.newest_processes()[0]
    pid, status = os.waitpid(rank.pid, 0)
    assert ranks.handle_ended_process(pid, os.waitstatus_to_exitcode(status))
    return list(rank.message_to_agent()["last_lines"])


@pytest.mark.parametrize("text", [VERSION_2, VERSION_1])
def test_a_rank_killed_for_memory_says_so(tmp_path: Path, text: str) -> None:
    count = tmp_path / "events"
    count.write_text(text.format(3))
    assert killed(tmp_path, count, text.format(4)) == [memory.WORDS]


def test_a_rank_killed_by_somebody_says_where_to_look(tmp_path: Path) -> None:
    count = tmp_path / "events"
    count.write_text(VERSION_2.format(3))
    assert killed(tmp_path, count, VERSION_2.format(3)) == [memory.FOREIGN_KILL]


def test_a_machine_that_counts_nothing_is_no_problem(tmp_path: Path) -> None:
    count = tmp_path / "events"
    count.write_text("nothing of the kind")
    assert killed(tmp_path, count, "oom_kill many") == [memory.FOREIGN_KILL]


def test_a_kill_is_told_once(tmp_path: Path) -> None:
    count = tmp_path / "events"
    count.write_text(VERSION_2.format(0))
    kills = memory.Kills((str(count),))
    count.write_text(VERSION_2.format(1))
    assert [kills.has_risen(), kills.has_risen()] == [True, False]
