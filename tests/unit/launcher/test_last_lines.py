"""What a rank printed last is told with its end, also what nobody had read when it ended; a real process."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from trainer_sidecar.launcher.loop import Loop
from trainer_sidecar.launcher.output import Terminal
from trainer_sidecar.launcher.program import Program
from trainer_sidecar.launcher.protocol import ProcessName
from trainer_sidecar.launcher.ranks import OutputSettings, Ranks, Target
from trainer_sidecar.launcher.warm import WarmProcesses

DIES = "import sys; sys.stderr.write('Traceback:\\nAssertionError: it is unsupported\\nand half a line'); sys.exit(1)"


def test_an_end_is_told_with_all_that_was_printed(tmp_path: Path) -> None:
    """One of the lines is told at once where the process runs; it must not tell the end before the lines after it."""
    told: list[list[str]] = []

    def tell(message: dict[str, Any], _may_wait: bool) -> None:
        if message["kind"] == "rank" and not message["running"]:
            told.append(list(message["last_lines"]))

    ranks = Ranks(
        Loop(), OutputSettings(str(tmp_path), 1 << 20, 1), Terminal(), tell, WarmProcesses("", Terminal()).take_or_spawn
    )
    program = Program([sys.executable, "-c", DIES], str(tmp_path), {}, [], True)
    silent = Target(lambda _: None, lambda _: None)
    assert ranks.start_process(0, ProcessName(1, 1), program, {"HAJOB_ATTEMPT": "1"}, silent) is None
    pid, status = os.waitpid(
        ranks.newest_processes()[0].pid, 0
    )  # the loop does not run: nothing is read before the end
    assert ranks.handle_ended_process(pid, os.waitstatus_to_exitcode(status))
    assert told == [["Traceback:", "AssertionError: it is unsupported", "and half a line"]]
