"""Ranks that register with nobody: which launch is the training, and whether it has come to its end.

The pod has ranks 2 and 3 of 4; of Megatron's ranks the last one prints.
"""

from __future__ import annotations

from typing import Any

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.agent_node import NodeRig, order_to_run
from trainer_sidecar.launcher import endings as lines
from trainer_sidecar.launcher.arguments import WITHOUT_MINDIO

SILENT, PRINTS = 2, 3
MEGATRON = ["--train-iters", "50", "--log-interval", "1"]


def alone(arguments: list[str] = MEGATRON) -> NodeRig:
    """A launch whose ranks run."""
    rig = NodeRig()
    ordered = [order_to_run(rank) for rank in (SILENT, PRINTS)]
    for one in ordered:
        one.environment[WITHOUT_MINDIO] = "1"
    rig.order(*ordered)
    rig.script(training=False, arguments=arguments)
    for rank in (SILENT, PRINTS):
        rig.process(rank)
    return rig


def phases(rig: NodeRig) -> list[pb.RankPhase]:
    return [state.phase for state in rig.report().ranks]


def verdict(rig: NodeRig) -> dict[str, Any]:
    rig.commands.clear()
    rig.node.apply_launcher_message({"kind": "all_ended", "launch": 1})
    (said,) = rig.commands
    return said


def ends(rig: NodeRig, step: int = -1, **changes: Any) -> None:
    rig.process(SILENT, running=False)
    rig.process(PRINTS, running=False, step=step, **changes)


def test_a_launch_that_says_where_it_ends_is_the_training() -> None:
    assert "registered" in alone().kinds()
    assert "registered" in alone(["--train-samples", "1000"]).kinds()


def test_a_launch_that_has_ended_a_step_is_the_training() -> None:
    rig = alone(["--config", "mine.yaml"])
    assert "registered" not in rig.kinds()
    rig.node.apply_launcher_message({"kind": "steps", "steps": [[PRINTS, 1, rig.clock.now()]]})
    assert "registered" in rig.kinds()


def test_with_mindio_a_step_makes_no_training() -> None:
    rig = NodeRig()
    rig.order(order_to_run(PRINTS))
    rig.script(training=False, arguments=MEGATRON)
    rig.process(PRINTS)
    rig.node.apply_launcher_message({"kind": "steps", "steps": [[PRINTS, 1, rig.clock.now()]]})
    assert "registered" not in rig.kinds()


def test_ranks_that_print_no_steps_end_as_the_one_that_does() -> None:
    rig = alone()
    ends(rig, 50)
    report = rig.report()
    assert not report.facts
    assert [state.phase for state in report.ranks] == [pb.FINISHED] * 2
    assert verdict(rig) == {"kind": "verdict", "launch": 1, "problem": "", "training": True}


@pytest.mark.parametrize(
    ("arguments", "step", "changes", "problem"),
    [
        ([], 20, {}, "ended with 0 at step 20 of 50"),
        ([], -1, {}, "has trained no step"),
        ([], -1, {"notices": {lines.LAYOUT: "other sizes"}}, "did not train: other sizes"),
        (["--log-interval", "10"], 40, {}, "ended with 0 at step 40 of 50"),
        (["--log-interval", "10", "--train-iters", "49"], 40, {}, ""),
        (["--log-interval", "100"], -1, {}, ""),
        (["--exit-interval", "5", "--log-interval", "10"], 10, {}, ""),
        (["--exit-duration-in-mins", "5", "--log-interval", "10"], -1, {}, ""),
    ],
)
def test_the_rank_that_prints_tells_an_end_before_the_end(
    arguments: list[str], step: int, changes: dict[str, Any], problem: str
) -> None:
    rig = alone([*MEGATRON, *arguments])
    ends(rig, step, **changes)
    said = verdict(rig)["problem"]
    assert (problem in said) if problem else (said == "")


def test_a_silent_rank_that_says_why_it_did_not_train_is_heard() -> None:
    rig = alone()
    rig.process(SILENT, running=False, notices={lines.NOT_LOADED: "no checkpoint"})
    (fact,) = rig.report().facts
    assert "no checkpoint" in fact.message


@pytest.mark.parametrize(
    ("ended", "phase", "facts"),
    [
        ({"exit_code": 0}, pb.FINISHED, []),
        ({"exit_code": 3}, pb.DEAD, [pb.SCRIPT_ENDED]),
        ({"exit_code": 0, "problem": "it runs a launcher of its own"}, pb.DEAD, [pb.SCRIPT_ENDED]),
    ],
)
def test_the_last_launch_that_prints_no_steps_is_the_training(
    ended: dict[str, Any], phase: pb.RankPhase, facts: list[pb.FactKind]
) -> None:
    rig = alone([])
    ends(rig)
    assert verdict(rig) == {"kind": "verdict", "launch": 1, "problem": "", "training": False}
    assert phases(rig) == [pb.STARTING] * 2, "another launch may follow"
    rig.script(training=False, ended=True, **ended)
    report = rig.report()
    assert [state.phase for state in report.ranks] == [phase] * 2
    assert [fact.kind for fact in report.facts] == facts


def test_an_agent_started_again_learns_it_from_the_launcher() -> None:
    rig = NodeRig()
    rig.script(without_mindio=True, arguments=MEGATRON)
    ends(rig, 50)
    assert not rig.report().facts
