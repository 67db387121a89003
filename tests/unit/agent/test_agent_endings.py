"""Whether a rank that ended with 0 has finished: steps, the last one, and a few lines decide."""

from __future__ import annotations

from typing import Any

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.agent_node import NodeRig, order_to_run
from trainer_sidecar.agent.clock import SECOND
from trainer_sidecar.agent.supervise.endings import Endings, Training
from trainer_sidecar.launcher import endings as lines
from trainer_sidecar.launcher.protocol import ProcessName

FIRST = ProcessName(1, 0)
MISSING = "could not load the checkpoint"


def after(steps: dict[int, float], **arguments: str) -> Endings:
    """A process that told of steps, at seconds."""
    made = Endings(Training.from_options({name.replace("_", "-"): value for name, value in arguments.items()}))
    for step, seconds in steps.items():
        made.note_step(0, FIRST, step, int(seconds * SECOND))
    return made


@pytest.mark.parametrize(
    ("steps", "arguments", "notices", "target", "problem"),
    [
        ({100: 1}, {"train_iters": "100"}, {}, None, ""),
        ({}, {}, {}, None, "has trained no step"),
        ({5: 1}, {}, {}, None, ""),
        ({5: 1}, {}, {}, 9, "at step 5 of 9"),
        ({1: 1, 50: 50}, {"train_iters": "100"}, {}, None, "at step 50 of 100"),
        ({1: 1, 98: 98}, {"train_iters": "100"}, {}, None, ""),  # the last heartbeats of a second each
        ({1: 0, 400: 4}, {"train_iters": "600"}, {}, None, ""),  # a hundred steps a second
        ({50: 1}, {"train_iters": "100"}, {lines.EARLY_END: "exiting program at iteration 50"}, None, ""),
        ({50: 1}, {"train_iters": "100", "exit_interval": "50"}, {}, None, ""),
        ({1: 1, 60: 60}, {"train_iters": "100", "exit_interval": "50"}, {}, None, "at step 60 of 100"),
        ({50: 1}, {"train_iters": "100", "exit_duration_in_mins": "230"}, {}, None, ""),
        ({}, {"train_iters": "100"}, {lines.NOT_LOADED: MISSING}, None, MISSING),
        ({}, {"train_iters": "40"}, {lines.LOADED: "successfully loaded checkpoint from /c at iteration 40"}, None, ""),
    ],
)
def test_an_end_with_zero(
    steps: dict[int, float], arguments: dict[str, str], notices: dict[str, str], target: int | None, problem: str
) -> None:
    found = after(steps, **arguments).why_unfinished(0, FIRST, notices, target)
    assert (problem in found) if problem else (found == "")


def test_steps_of_another_process_do_not_count() -> None:
    assert (
        after({100: 1}, train_iters="100").why_unfinished(0, ProcessName(1, 1), {}, None)
        == "rank 0 ended with 0 and has trained no step"
    )


TRACEBACK = '  File "megatron/training/checkpointing.py", line 1, in _load_base_checkpoint'

MINDFORMERS = '  File "mindformers/trainer/utils.py", line 1, in load_ckpt'


@pytest.mark.parametrize(
    ("exit_code", "more", "arguments", "told"),
    [
        (0, {"notices": {lines.NOT_LOADED: MISSING}}, ["--load", "/c", "--save", "/c"], True),
        (1, {"last_lines": [TRACEBACK, "KeyError: 'w'"]}, ["--load", "/c", "--save", "/c"], True),
        (1, {"last_lines": ["RuntimeError: HCCL timeout"]}, ["--load", "/c", "--save", "/c"], False),
        (1, {"last_lines": [TRACEBACK]}, ["--save", "/c"], False),
        (1, {"last_lines": [TRACEBACK]}, ["--load", "/pretrained"], False),
        (1, {"last_lines": [MINDFORMERS]}, ["--config", "a.yaml", "--resume_training", "True"], True),
        (1, {"last_lines": ["RuntimeError: HCCL timeout"]}, ["--config", "a.yaml"], False),
        (-9, {"last_lines": [TRACEBACK]}, ["--load", "/c", "--save", "/c"], False),
    ],
)
def test_a_load_that_fails_is_told(exit_code: int, more: dict[str, Any], arguments: list[str], *, told: bool) -> None:
    rig = NodeRig()
    rig.script(arguments=[*arguments, "--train-iters", "100"])
    wanted = order_to_run(2)
    wanted.environment["HAJOB_LOAD_STEP"] = "40"
    rig.order(wanted)
    rig.process(2)
    rig.process(2, running=False, exit_code=exit_code, **more)
    (fact,) = rig.report().facts
    assert fact.load_failed is told


def test_an_unfinished_end_is_a_fault_that_names_the_line() -> None:
    rig = NodeRig()
    rig.script(arguments=["--train-iters", "100"])
    rig.process(2)
    rig.process(2, running=False, notices={lines.NOT_LOADED: MISSING}, last_lines=["the last line"])
    report = rig.report()
    (fact,) = report.facts
    assert (fact.kind, fact.exit_code, fact.code) == (pb.PROCESS_EXITED, 0, "NotFinished")
    assert not fact.unexplained
    assert fact.message == f"the last line\nrank 2 ended with 0 and did not train: {MISSING}"
    assert report.ranks[0].phase == pb.DEAD
    rig.commands.clear()
    rig.node.apply_launcher_message({"kind": "all_ended", "launch": 1})
    assert rig.commands == [
        {
            "kind": "verdict",
            "launch": 1,
            "problem": f"rank 2 ended with 0 and did not train: {MISSING}",
            "training": True,
        }
    ]


def test_a_rank_that_says_nothing_lets_another_tell_the_reason() -> None:
    rig = NodeRig()
    rig.script(arguments=["--train-iters", "100"])
    rig.process(2)
    rig.process(2, running=False)
    report = rig.report()
    assert (list(report.facts), report.ranks[0].phase) == ([], pb.DEAD)
    rig.clock.pass_seconds(1.9)
    rig.node.tick_every_second()
    assert rig.node.next_report() is None
    rig.clock.pass_seconds(0.1)
    rig.node.tick_every_second()
    (fact,) = rig.report().facts
    assert (fact.code, fact.message) == ("NotFinished", "rank 2 ended with 0 and has trained no step")
    assert (fact.age_nanoseconds, fact.unexplained) == (2 * SECOND, True)


def test_a_script_waits_with_the_silent_ranks_it_ends_for() -> None:
    rig = NodeRig()
    rig.script(arguments=["--train-iters", "100"])
    for rank in (2, 3):
        rig.process(rank)
        rig.process(rank, running=False)
        rig.clock.pass_seconds(0.5)
    rig.script(ended=True)
    assert "seen_end" not in rig.kinds()
    rig.report()
    rig.clock.pass_seconds(1)
    rig.node.tick_every_second()
    told = [(fact.kind, fact.age_nanoseconds / SECOND, fact.unexplained) for fact in rig.report().facts]
    assert told == [(pb.PROCESS_EXITED, 2.0, True), (pb.PROCESS_EXITED, 1.5, True), (pb.SCRIPT_ENDED, 1.0, True)]
    assert rig.kinds().count("seen_end") == 1


def test_a_script_that_ends_after_a_reason_is_told_at_once() -> None:
    rig = NodeRig()
    rig.script(arguments=["--train-iters", "100"])
    rig.process(2)
    rig.process(2, running=False, notices={lines.NOT_LOADED: MISSING})
    rig.script(ended=True)
    assert [(fact.kind, fact.unexplained) for fact in rig.report().facts] == [
        (pb.PROCESS_EXITED, False),
        (pb.SCRIPT_ENDED, False),
    ]
    assert "seen_end" in rig.kinds()


def test_a_silent_rank_that_sped_up_has_finished() -> None:
    rig = NodeRig()
    rig.script(arguments=["--train-iters", "300"])
    rig.process(2)
    for step in (10, 11):  # a step in two seconds, then hundreds in less than one: only the last heartbeat tells
        rig.node.apply_heartbeat(2, step, asked=False)
        rig.clock.pass_seconds(2)
    rig.node.apply_heartbeat(2, 300, asked=False)
    rig.process(2, running=False)
    report = rig.report()
    assert (list(report.facts), report.ranks[0].phase) == ([], pb.FINISHED)


def test_a_return_far_from_the_last_step_is_no_finish() -> None:
    rig = NodeRig()
    rig.script(arguments=["--train-iters", "300"])
    rig.process(2)
    rig.node.apply_heartbeat(2, 11, asked=False)
    rig.process(2, running=False)
    (fact,) = rig.report().facts
    assert fact.message == "rank 2 ended with 0 at step 11 of 300"


def reloading(step: int, *, arguments: list[str]) -> NodeRig:
    """A start that is to load the checkpoint of step 40, and its first step."""
    rig = NodeRig()
    rig.script(arguments=arguments)
    wanted = order_to_run(2)
    wanted.environment["HAJOB_LOAD_STEP"] = "40"
    rig.order(wanted)
    rig.process(2)
    rig.node.apply_launcher_message({"kind": "steps", "steps": [[2, step, rig.clock.now()]]})
    return rig


SAME = ["--save", "/c", "--load", "/c"]


def test_a_start_that_goes_on_from_its_checkpoint_is_none() -> None:
    assert list(reloading(41, arguments=SAME).report().facts) == []


def test_a_start_from_step_zero_is_a_fault_at_its_first_step() -> None:
    (fact,) = reloading(1, arguments=SAME).report().facts
    assert (fact.kind, fact.code) == (pb.LOG_RULE, "CheckpointNotReloaded")
    assert fact.message == "rank 2 trains step 1 although it was started from the checkpoint of step 40"


def test_a_script_that_never_resumes_may_start_over() -> None:
    assert list(reloading(1, arguments=["--save", "/c", "--load", "/pretrained"]).report().facts) == []


def test_a_missing_tracker_is_told_before_the_first_step() -> None:
    rig = reloading(41, arguments=SAME)
    rig.report()
    rig.process(2, notices={lines.NO_TRACKER: "WARNING: could not find the metadata file /c/latest"})
    (fact,) = rig.report().facts
    assert fact.message.endswith("WARNING: could not find the metadata file /c/latest")


def test_nothing_is_left_to_train_after_the_last_checkpoint() -> None:
    told = after({}, train_iters="300")
    assert told.why_unfinished(1, FIRST, {}, None, loads=300) == ""
    assert "has trained no step" in told.why_unfinished(1, FIRST, {}, None, loads=299)
