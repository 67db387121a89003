"""What cannot shrink is refused by the precondition's name; then, where a copy is left, the step is saved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hajob.domain.actions import Action
from hajob.domain.layout import Layout
from hajob.plan import events as e
from hajob.plan.policy import layout_from_spec, policy_from_spec
from hajob.plan.state import JobPhase
from tests.rigs.plan_rig import Rig
from tests.rigs.plan_specs import GOOD, spec
from tests.rigs.plan_worlds import VIEW

EIGHT = {"numNodes": 8, "accelerator": {"product": "A2", "chipsPerNode": 2}}
MINDSPORE = {"name": "trainer", "command": ["msrun", "train.py"]}


def arguments(more: str) -> str:
    """The example's, with these sizes."""
    return f"{GOOD} {more}"


def lost(nodes: tuple[int, ...], made: dict[str, Any]) -> Rig:
    """These nodes are lost, no other is free, and the time for replacements is up."""
    layout = layout_from_spec(made)
    rig = Rig.running(view=replace(VIEW, layout=layout, free_nodes=0, node_names={}), policy=policy_from_spec(made))
    for node in nodes:
        rig.silent(node)
    rig.deadline("Recovery")
    return rig


def saved_and_restarted(rig: Rig) -> bool:
    """The step is saved, and the job starts anew from it."""
    if not rig.at(JobPhase.SAVING):
        return False
    rig.tell(e.ResultReported(rig.incident.incarnation, 0, "", "dump"))
    return rig.at(JobPhase.RESTARTING)


@pytest.mark.parametrize(
    ("nodes", "made", "names"),
    [
        pytest.param((0,), spec(), {"RankZeroInSet"}, id="rank 0 itself"),
        pytest.param(
            (4,),
            spec(arguments("--pipeline-model-parallel-size 2"), **EIGHT, parallelism={"tensor": 2, "pipeline": 2}),
            {"RankZeroInSet"},
            id="another stage of data-parallel rank 0",
        ),
        pytest.param((0, 1), spec(), {"RankZeroInSet"}, id="rank 0 among others"),
        pytest.param((3,), spec(elastic={"minDataParallel": 4}), {"MinDataParallel"}, id="too few would be left"),
        pytest.param(
            (2,),
            spec(arguments("--context-parallel-size 2"), **EIGHT, parallelism={"tensor": 2, "context": 2}),
            {"NoContextParallel"},
            id="context parallelism",
        ),
        pytest.param(
            (2,),
            spec(arguments("--expert-model-parallel-size 2"), parallelism={"tensor": 2, "expert": 2}),
            {"NoExpertParallel"},
            id="expert parallelism",
        ),
        pytest.param(
            (3,),
            spec(
                arguments("--pipeline-model-parallel-size 2 --use-tp-pp-dp-mapping"),
                **EIGHT,
                parallelism={"tensor": 2, "pipeline": 2, "rankOrder": "TensorPipelineData"},
            ),
            {"DefaultRankOrder"},
            id="the other rank order",
        ),
        pytest.param((3,), spec(elastic={"policy": "Disabled"}), {"ActionAllowed"}, id="not wanted"),
    ],
)
def test_what_cannot_shrink_is_saved_and_restarted(
    nodes: tuple[int, ...], made: dict[str, Any], names: set[str]
) -> None:
    rig = lost(nodes, made)
    assert names <= set(rig.refused[Action.SHRINK])
    assert saved_and_restarted(rig)
    assert names <= set(next(one.unmet for one in rig.incident.refused if one.action is Action.SHRINK))


def test_mindspore_cannot_shrink_and_saves() -> None:
    made = spec(None, framework="MindSpore")
    rig = lost((3,), made)
    assert "FrameworkPyTorch" in rig.refused[Action.SHRINK]
    assert saved_and_restarted(rig)


def test_without_either_partner_there_is_nothing_to_save() -> None:
    rig = lost((1, 3), spec())
    assert set(rig.refused[Action.SHRINK]) == {"CompleteCopy"}
    assert set(rig.refused[Action.CHECKPOINT]) == {"CompleteCopy"}
    assert (rig.state.phase, rig.action) == (JobPhase.RESTARTING, Action.RESTART)


def test_rank_zero_back_at_its_gate_still_forbids_a_shrink() -> None:
    """MindIO counts who was named, whoever stands there again: its answer would be 406."""
    rig = Rig.running(view=replace(VIEW, layout=Layout(6, 2, 2), free_nodes=1), policy=policy_from_spec(spec()))
    rig.silent(0)
    rig.tell(e.ReplacementsReady(2, 1))
    rig.silent(4)
    rig.deadline("Recovery")
    assert set(rig.refused[Action.SHRINK]) == {"RankZeroInSet"}
    assert saved_and_restarted(rig)


def test_a_shrunk_job_refuses_a_second_shrink_by_name() -> None:
    rig = Rig.shrunk()
    rig.silent(1)
    assert set(rig.refused[Action.SHRINK]) == {"NotShrunk"}
    assert saved_and_restarted(rig)
    assert rig.state.shrunk is None, "at the original size"


def test_a_shrunk_job_that_loses_the_last_copy_restarts() -> None:
    rig = Rig.shrunk()
    rig.silent(0)
    assert set(rig.refused[Action.CHECKPOINT]) == {"CompleteCopy"}
    assert (rig.state.phase, rig.action) == (JobPhase.RESTARTING, Action.RESTART)
