"""Finished steps are told as they are printed, by a real process."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from trainer_sidecar.launcher import progress
from trainer_sidecar.launcher.loop import Loop
from trainer_sidecar.launcher.output import Terminal
from trainer_sidecar.launcher.program import Program
from trainer_sidecar.launcher.protocol import ProcessName
from trainer_sidecar.launcher.ranks import OutputSettings, Ranks, Target
from trainer_sidecar.launcher.warm import WarmProcesses

STOOD_AT_FIVE_AND_LOADED_FOUR = "for step in (4, 5, 5, 6): print(f'iteration {step}/ 9 |')"


def test_a_step_that_is_done_again_is_told_again(tmp_path: Path) -> None:
    """A rank that goes back by one step finishes the same number twice in a row."""
    told: list[list[int]] = []
    loop = Loop()

    def tell(message: dict[str, Any], _may_wait: bool) -> None:
        told.extend(step[:2] for step in message.get("steps", ()))
        if [7, 6] in told:
            loop.stop_loop()

    ranks = Ranks(
        loop, OutputSettings(str(tmp_path), 1 << 20, 1), Terminal(), tell, WarmProcesses("", Terminal()).take_or_spawn
    )
    program = Program([sys.executable, "-c", STOOD_AT_FIVE_AND_LOADED_FOUR], str(tmp_path), {}, [], True)
    loop.call_after(30.0, loop.stop_loop)
    silent = Target(lambda _: None, lambda _: None)
    assert ranks.start_process(7, ProcessName(1, 1), program, {"HAJOB_ATTEMPT": "1"}, silent) is None
    loop.run_until_stopped()
    os.waitpid(ranks.newest_processes()[0].pid, 0)
    assert told == [[7, 4], [7, 5], [7, 5], [7, 6]]


def test_a_usual_step_waits_only_for_the_ranks_of_its_pod() -> None:
    untold = progress.Untold()
    untold.add_step(0, 7, 10 * progress.SECOND, 9 * progress.SECOND)
    untold.add_step(1, 7, 10 * progress.SECOND + 1000, 9 * progress.SECOND)
    assert untold.next_send_time() == 10 * progress.SECOND + 1000 + progress.TOGETHER
    assert [step[:2] for step in untold.take_steps()] == [[0, 7], [1, 7]]
    assert untold.steps == []


def test_quick_steps_are_gathered_for_a_while() -> None:
    untold, step, times = progress.Untold(), progress.SECOND // 20, []
    for number in range(1, 20):
        untold.add_step(0, number, number * step, (number - 1) * step)
        times.append(untold.next_send_time() - number * step)
    assert times[0] == progress.STILL
    assert untold.next_send_time() == step + progress.GATHER


def test_quick_steps_that_end_are_told_soon() -> None:
    untold, step = progress.Untold(), progress.SECOND // 20
    untold.add_step(0, 1, step, 0)
    untold.add_step(0, 2, 2 * step, step)
    assert untold.next_send_time() == 2 * step + progress.STILL


def test_the_first_step_after_a_pause_is_told_at_once() -> None:
    untold = progress.Untold()
    untold.add_step(0, 1, progress.SECOND, 0)
    untold.take_steps()
    untold.add_step(0, 2, progress.SECOND + progress.QUICK, progress.SECOND)
    assert untold.next_send_time() == progress.SECOND + progress.QUICK + progress.TOGETHER
