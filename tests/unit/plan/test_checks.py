"""What is asked of the sizes and of the trainer's arguments, and the words in which the answers are told."""

from __future__ import annotations

from typing import Any

import pytest

from hajob.api.enums import ConditionStatus
from hajob.domain.actions import Action
from hajob.domain.layout import Layout
from hajob.plan.checks import JobSetting, is_flag_absent, shown_flags
from hajob.plan.policy import Policy, Refusal, layout_from_spec, parse_spec, policy_from_spec
from hajob.plan.recoverability import recoverability
from hajob.plan.state import JobPhase, JobState, Spend
from hajob.plan.view import ClusterView
from tests.rigs.plan_specs import GOOD, spec, unknown, unmet

SCRIPT = ("bash", "train.sh")
TRAINING = JobState(phase=JobPhase.RUNNING, incarnation=1, attempt=1, base=1, step=5)
SIZES = ("tensor", "pipeline", "context", "expert")


def setting(made: dict[str, Any]) -> JobSetting:
    return JobSetting.from_spec(parse_spec(made))


def by_script(arguments: str) -> dict[str, Any]:
    """The same job, started by a script that shows some of the arguments and may add others."""
    made = spec(arguments)
    made["template"]["spec"]["containers"][1]["command"] = list(SCRIPT)
    return made


def names(made: dict[str, Any]) -> set[str]:
    return {name for found in unmet(made).values() for name in found}


# ------------------------------------------------------------------------------------------------ the sizes


@pytest.mark.parametrize(
    ("made", "missing"),
    [
        # without sharding every rank holds everything, whatever divides
        (spec(numNodes=3, optimizer={"sharding": "None"}), {"DistributedOptimizer"}),
        # the experts' groups are checked apart from the dense ones
        (
            spec(GOOD + " --expert-model-parallel-size 2", numNodes=6, parallelism={"tensor": 2, "expert": 2}),
            {"CopiesDivideExpertDataParallel", "NoExpertParallel"},
        ),
        (
            spec(GOOD + " --expert-model-parallel-size 4", parallelism={"tensor": 2, "expert": 4}),
            {
                "ExpertDataParallelAboveOne",
                "CopiesDivideExpertDataParallel",
                "NoExpertParallel",
                "CopySurvivesNodeLoss",
                "MinDataParallel",
            },
        ),
    ],
)
def test_nothing_else_is_missing(made: dict[str, Any], missing: set[str]) -> None:
    assert names(made) == missing


# ------------------------------------------------------------------------------------------------ the arguments


@pytest.mark.parametrize(
    ("made", "answer"),
    [
        (spec(GOOD), True),
        (spec(GOOD + " --lora-target-modules q"), False),
        (spec(GOOD + " --lora-target-modules q", framework="MindSpore"), True),
        (by_script("--train-iters 5"), None),
        (spec(None), None),
        (spec(None, framework="MindSpore"), True),
    ],
)
def test_a_flag_that_must_not_be_given(made: dict[str, Any], answer: bool | None) -> None:
    assert is_flag_absent("lora-target-modules")(setting(made)) is answer


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (spec("--train-iters 5 --save /a --bf16"), "--save /a, --bf16"),
        (spec("--train-iters 5 --bf16"), "--bf16"),
        (spec("--train-iters 5"), "not given: --save, --bf16"),
        (spec("--verbose"), "the trainer's arguments are hidden in a script"),
        (spec(None), "the trainer's arguments are hidden in a script"),
    ],
)
def test_what_the_arguments_say_in_words(made: dict[str, Any], words: str) -> None:
    assert shown_flags("save", "bf16")(setting(made)) == words


@pytest.mark.parametrize("size", SIZES)
def test_a_size_that_is_not_the_specs_is_told(size: str) -> None:
    option = "--context-parallel-size" if size == "context" else f"--{size}-model-parallel-size"
    others = GOOD.replace(f"{option} 2", "")
    job = {"numNodes": 8, "parallelism": {"tensor": 2, size: 2}}
    assert "LayoutAgrees" not in names(spec(f"{others} {option} 2", **job))
    assert "LayoutAgrees" in names(spec(f"{others} {option} 4", **job))
    assert "LayoutAgrees" in names(spec(others, **job)), "its default is 1"
    assert "LayoutAgrees" in names(by_script(f"{others} {option} 4") | job), "the contradiction is in sight"
    assert "LayoutAgrees" in unknown(by_script(others) | job), "the script may give it"


@pytest.mark.parametrize(("text", "name"), [("/ckpt", "SaveAndLoadSame"), ("size 2", "LayoutAgrees")])
def test_a_shell_variable_hides_only_what_it_stands_for(text: str, name: str) -> None:
    made = spec(GOOD.replace(text, text[:-1] + "$X"))
    assert (names(made), unknown(made)) == (set(), {name})


def test_what_a_script_may_add_is_not_missing() -> None:
    few = by_script("--train-iters 5")
    assert names(few) == set()
    assert {"SaveAndLoadSame", "LayoutAgrees", "CheckpointFormatTorch", "ZeroOne", "Bf16"} <= unknown(few)
    elsewhere = by_script("--train-iters 5 --save /else")
    assert names(elsewhere) == {"SaveAndLoadSame"}
    all_there = by_script(GOOD)
    assert unknown(all_there).isdisjoint({"SaveAndLoadSame", "LayoutAgrees", "CheckpointFormatTorch", "Bf16"})


@pytest.mark.parametrize(
    ("flags", "missing"),
    [
        ("--ckpt-format torch", set()),
        ("--dist-ckpt-format torch", set()),
        ("--ckpt-format torch_dist", {"CheckpointFormatTorch"}),
        ("--dist-ckpt-format zarr", {"CheckpointFormatTorch"}),
        ("--ckpt-format torch --use-dist-ckpt", {"CheckpointFormatTorch", "NoDistributedCheckpoint"}),
        ("", {"CheckpointFormatTorch"}),
        ("--ckpt-format torch --data-parallel-sharding-strategy no_shard", set()),
        ("--ckpt-format torch --data-parallel-sharding-strategy optim", set()),
        ("--ckpt-format torch --data-parallel-sharding-strategy", set()),
        ("--ckpt-format torch --data-parallel-sharding-strategy optim_grads", {"ZeroOne"}),
    ],
)
def test_formats_of_checkpoints_and_strategies_of_sharding(flags: str, missing: set[str]) -> None:
    made = spec(GOOD.replace("--ckpt-format torch", flags))
    assert names(made) == missing
    assert unknown(made) == set()


# ------------------------------------------------------------------------------------------------ what is told


def told(view: ClusterView, policy: Policy, action: Action) -> list[tuple[str, str]]:
    (found,) = [one for one in recoverability(TRAINING, view, policy) if one.action is action]
    return [(one.name, one.message) for one in found.unmet]


NO_CHECKPOINT = "there is no second optimizer copy and no complete periodic checkpoint yet"


@pytest.mark.parametrize(
    ("action", "more", "missing"),
    [
        (
            Action.REPLACE,
            {"free_nodes": 0},
            [("FreeNode", "no free node fits a pod of this job; a lost node would have to come back")],
        ),
        (
            Action.SHRINK,
            {"coordinator_apart": False},
            [
                (
                    "CoordinatorApart",
                    "the coordinator shares a node with ranks of its job; losing that node costs a restart",
                )
            ],
        ),
        (Action.IN_PLACE, {"coordinator_apart": False, "free_nodes": 0}, []),
        (Action.RETRY, {"checkpoint_step": -1}, []),
    ],
)
def test_what_is_missing_now_word_for_word(
    action: Action, more: dict[str, Any], missing: list[tuple[str, str]]
) -> None:
    assert told(ClusterView(layout_from_spec(spec()), step=5, **more), Policy(), action) == missing


@pytest.mark.parametrize("action", [Action.RETRY, Action.IN_PLACE, Action.REPLACE, Action.SHRINK, Action.CHECKPOINT])
def test_one_copy_needs_a_periodic_checkpoint_to_repair_from(action: Action) -> None:
    one_copy = Layout(num_nodes=4, chips_per_node=2, tensor=2, copies=1)
    repairs = action in {Action.RETRY, Action.IN_PLACE, Action.REPLACE}
    expected = [("CheckpointPresent", NO_CHECKPOINT)] if repairs else []
    assert told(ClusterView(one_copy, step=5, checkpoint_step=-1), Policy(), action) == expected
    for step in (0, 1, 5, None):
        assert told(ClusterView(one_copy, step=5, checkpoint_step=step), Policy(), action) == []


def test_the_experts_copies_do_not_stand_in_for_the_dense_ones() -> None:
    lone_experts = Layout(num_nodes=4, chips_per_node=2, tensor=2, expert=4)
    assert told(ClusterView(lone_experts, step=5, checkpoint_step=-1), Policy(), Action.RETRY) == []


def test_it_is_told_in_order_and_once_and_not_without_end() -> None:
    many = tuple(Refusal(f"N{number}", f"words {number}") for number in range(33))
    again = Refusal("N2", "other words")
    policy = Policy(refusals={Action.RETRY: many[:3]}, advice={Action.RETRY: (again, many[3])})
    view = ClusterView(layout_from_spec(spec()), step=5)
    assert told(view, policy, Action.RETRY) == [(f"N{number}", f"words {number}") for number in range(4)]
    assert len(told(view, Policy(advice={Action.RETRY: many}), Action.RETRY)) == 32
    long = Policy(advice={Action.RETRY: (Refusal("Long", "x" * 2000),)})
    assert told(view, long, Action.RETRY) == [("Long", "x" * 1024)]


def test_what_is_unknown_is_told_only_where_nothing_is_missing() -> None:
    hidden = (Refusal("Hidden", "nobody sees it"),)
    view = ClusterView(layout_from_spec(spec()), step=5)
    policy = Policy(
        unknowns={Action.RETRY: hidden, Action.IN_PLACE: hidden}, advice={Action.IN_PLACE: (hidden[0],) * 2}
    )
    retry, in_place, *others = recoverability(TRAINING, view, policy)
    assert (retry.status, in_place.status) == (ConditionStatus.UNKNOWN, ConditionStatus.FALSE)
    assert [one.name for one in (*retry.unmet, *in_place.unmet)] == ["Hidden", "Hidden"]
    assert {one.status for one in others} == {ConditionStatus.TRUE}


def test_a_spent_budget_is_told_with_its_numbers() -> None:
    policy = policy_from_spec(spec(recovery={"actions": [{"name": "Retry", "maxCount": 1, "windowSeconds": 9}]}))
    state = JobState(phase=JobPhase.RUNNING, step=5, spent=(Spend("Retry", 10),))
    first = recoverability(state, ClusterView(layout_from_spec(spec()), step=5), policy, now_ms=10)[0]
    assert [(one.name, one.message) for one in first.unmet] == [
        ("BudgetLeft", "budget exhausted: 1 of 1 in the last 9 s")
    ]
