"""Preconditions by name, the trainer's flags, recoverability."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from hajob.api.enums import ConditionStatus
from hajob.domain.actions import FAULT_ACTIONS, Action
from hajob.domain.errors import HajobInputError, LayoutError
from hajob.plan.evaluator import Evaluator
from hajob.plan.flags import TrainerFlags, parse_flags, read_flags
from hajob.plan.policy import ActionLimits, Mode, NodePolicy, layout_from_spec, parse_spec, policy_from_spec
from hajob.plan.preconditions import PRECONDITIONS
from hajob.plan.recoverability import SCHEDULER_LIMIT, recoverability, recoverable
from hajob.plan.state import JobPhase, JobState, Spend
from hajob.plan.view import ClusterView
from tests.rigs.plan_specs import GOOD, spec, unknown, unmet

MINDIO = {Action.RETRY, Action.IN_PLACE, Action.REPLACE, Action.SHRINK, Action.CHECKPOINT}
AVAILABLE = {"restartSize": "Available"}


def test_a_good_job_lacks_nothing() -> None:
    assert unmet(spec()) == {}
    assert unknown(spec()) == set()


@pytest.mark.parametrize(
    ("made", "name", "actions"),
    [
        # data x context must be even and above 1, divisible by the copies
        (spec(parallelism={"tensor": 8}), "DataParallelAboveOne", MINDIO),
        (spec(numNodes=3), "DataParallelEven", MINDIO),
        (spec(numNodes=3), "CopiesDivideDataParallel", MINDIO),
        # with experts dense and sparse both
        (spec(parallelism={"tensor": 2, "expert": 4}), "ExpertDataParallelAboveOne", MINDIO),
        (spec(numNodes=6, parallelism={"tensor": 2, "expert": 2}), "CopiesDivideExpertDataParallel", MINDIO),
        (spec(optimizer={"copies": 1}), "OptimizerCopies", {Action.SHRINK, Action.CHECKPOINT}),
        (spec(GOOD + " --distributed-optimizer-no-replica"), "ReplicaFlagAgrees", MINDIO),
        (spec(optimizer={"copies": 1}), "ReplicaFlagAgrees", MINDIO),
        # layout class: a pod spans both halves
        (
            spec(accelerator={"product": "A3"}, numNodes=2, parallelism={"tensor": 8, "pipeline": 2}),
            "CopySurvivesNodeLoss",
            {Action.SHRINK},
        ),
        # layout class: misaligned
        (
            spec(accelerator={"product": "A2"}, numNodes=6, parallelism={"tensor": 2, "pipeline": 4}),
            "PodsAligned",
            {Action.SHRINK},
        ),
        (spec(elastic={"minDataParallel": 4}), "MinDataParallel", {Action.SHRINK}),
        (spec(framework="MindSpore"), "FrameworkPyTorch", {Action.SHRINK}),
        (spec(network={"rankTablePolicy": "Enabled"}), "NoRankTable", {Action.SHRINK}),
        (spec(numNodes=8, parallelism={"tensor": 2, "expert": 2}), "NoExpertParallel", {Action.SHRINK}),
        (spec(numNodes=8, parallelism={"tensor": 2, "context": 2}), "NoContextParallel", {Action.SHRINK}),
        (spec(parallelism={"tensor": 2, "rankOrder": "TensorPipelineData"}), "DefaultRankOrder", {Action.SHRINK}),
        (spec(optimizer={"sharding": "None"}), "DistributedOptimizer", {Action.SHRINK}),
        (spec(GOOD.replace("--use-distributed-optimizer", "")), "DistributedOptimizer", {Action.SHRINK}),
        (spec(GOOD + " --use-torch-fsdp2"), "ZeroOne", MINDIO),
        (spec(GOOD + " --data-parallel-sharding-strategy optim_grads"), "ZeroOne", MINDIO),
        (spec(GOOD + " --use-custom-fsdp"), "NoCustomFsdp", {Action.SHRINK}),
        (spec(GOOD + " --reuse-fp32-param"), "NoReuseFp32Param", {Action.SHRINK}),
        (spec(GOOD + " --use_dist_ckpt"), "NoDistributedCheckpoint", MINDIO),
        (spec(GOOD + " --swap-attention"), "NoSwapAttention", MINDIO),
        (spec(GOOD + " --swap-optimizer"), "NoSwapOptimizer", MINDIO),
        (spec(GOOD + " --disable-gloo-group"), "GlooGroups", MINDIO),
        (spec(GOOD + " --lora-target-modules q k"), "NoLora", MINDIO),
        (spec(GOOD.replace("size 2", "size 4")), "LayoutAgrees", {*MINDIO, Action.RESTART}),
        (spec(GOOD + " --use-tp-pp-dp-mapping"), "LayoutAgrees", {*MINDIO, Action.RESTART}),
        (spec(GOOD + " --pipeline-model-parallel-size 2"), "LayoutAgrees", {*MINDIO, Action.RESTART}),
        (spec(GOOD.replace("--bf16", "")), "Bf16", MINDIO),
        (spec(GOOD.replace("--load /ckpt", "--load /old")), "SaveAndLoadSame", {Action.CHECKPOINT, Action.RESTART}),
        (spec(GOOD.replace("/ckpt", "/else")), "SaveAndLoadSame", {Action.CHECKPOINT, Action.RESTART}),
        (spec(GOOD.replace("--save /ckpt", "")), "SaveAndLoadSame", {Action.CHECKPOINT, Action.RESTART}),
        (spec(GOOD.replace("torch ", "torch_dist ")), "CheckpointFormatTorch", {Action.CHECKPOINT}),
        (spec(GOOD + " --no-load-optim"), "OptimizerLoaded", {Action.CHECKPOINT, Action.RESTART}),
        (spec(GOOD + " --no-load-rng"), "RandomStateLoaded", {Action.CHECKPOINT, Action.RESTART}),
        (spec(GOOD + " --finetune"), "CheckpointReloaded", {Action.RESTART}),
        (spec(GOOD + " --save-interval 100 --train-iters 100"), "PeriodicSave", {Action.RESTART}),
        (spec(GOOD.replace("torch ", "zarr "), elastic=AVAILABLE), "CheckpointResizable", {Action.RESTART}),
        (spec(GOOD.replace("--global-batch-size 64", ""), elastic=AVAILABLE), "GlobalBatchGiven", {Action.RESTART}),
        (spec(accelerator={"product": "A2"}, numNodes=1), "TwoNodes", {Action.REPLACE, Action.SHRINK}),
        (spec(None, framework="MindSpore", optimizer={"copies": 1}), "MindSporeOptimizerCopies", MINDIO),
    ],
)
def test_each_precondition_by_name(made: dict[str, Any], name: str, actions: set[Action]) -> None:
    found = unmet(made)
    assert {action for action, names in found.items() if name in names} == actions
    line = next(one for one in PRECONDITIONS if one.name == name)
    assert set(line.actions) == actions
    policy = policy_from_spec(made)
    told = (*policy.refusals[line.actions[0]], *policy.advice[line.actions[0]])
    message = next(one.message for one in told if one.name == name)
    assert line.sentence in message
    assert message.endswith(f"it should be {line.wanted}")


@pytest.mark.parametrize(
    "made",
    [
        spec(GOOD.replace("--bf16", "")),
        spec(GOOD.replace("size 2", "size 4")),
        spec(GOOD + " --no-load-rng"),
        spec(GOOD + " --use-custom-fsdp"),
    ],
)
def test_what_only_the_arguments_say_binds_shrink_alone(made: dict[str, Any]) -> None:
    policy = policy_from_spec(made)
    assert {action for action, found in policy.refusals.items() if found} <= {Action.SHRINK}
    told = {one.action for one in recoverability(TRAINING, view(), policy) if one.unmet}
    assert told == set(unmet(made))


def test_sizes_bind_but_never_a_restart() -> None:
    policy = policy_from_spec(spec(numNodes=3))
    assert {action for action, found in policy.refusals.items() if found} == MINDIO
    assert not any(policy.advice.values())


EXAMPLE = "--train-iters 2000 --save-interval 2000 --save /ckpt --load /model --finetune --no-load-optim --no-load-rng"
LAUNCHED = [
    ("pretrain_gpt.py --train-iters 9 --save /ckpt --load /ckpt", set()),
    (f"pretrain_gpt.py {EXAMPLE}", {"CheckpointReloaded", "PeriodicSave", "SaveAndLoadSame", "OptimizerLoaded"}),
    ("posttrain_gpt.py --train-iters 9 --save /ckpt --load /ckpt", {"HandlersRegistered"}),
    ("train_fsdp2.py --train-iters 9 --save /ckpt --load /ckpt", {"NoFsdp2"}),
    ("pretrain_gpt.py --train-iters 9 --save /ckpt --load /ckpt --lora-target-modules q", {"NoLora"}),
]


@pytest.mark.parametrize(("words", "names"), LAUNCHED)
def test_what_a_script_has_launched_is_checked(words: str, names: set[str]) -> None:
    policy = policy_from_spec(spec(None), words.split())
    told = {one.name for kind in (policy.advice, policy.refusals) for found in kind.values() for one in found}
    assert told - {"RandomStateLoaded"} == names


def test_arguments_that_the_launcher_mends_hinder_nothing() -> None:
    made = spec(None, checkpoint={"path": "/ckpt", "resumePolicy": "Arguments"})
    policy = policy_from_spec(made, f"pretrain_gpt.py {EXAMPLE}".split())
    assert {one.name for found in policy.advice.values() for one in found} == {"PeriodicSave"}


def test_every_precondition_but_the_unknowable_has_a_case() -> None:
    cases = test_each_precondition_by_name.pytestmark[0].args[1]
    named = {case[1] for case in cases}.union(*(names for _, names in LAUNCHED))
    assert {one.name for one in PRECONDITIONS} - named == {"MindSporeGraphMode", "MindSporeSinkSizeOne", "MindIOPort"}


def test_a_port_that_mindspeed_llm_never_dials_is_said() -> None:
    assert unknown(spec(network={"mindIOPort": 8001})) == {"MindIOPort"}
    assert unknown(spec(network={"mindIOPort": 8000})) == set()


def test_what_a_script_hides_is_unknown_not_true() -> None:
    hidden = unknown(spec(None))
    assert {"LayoutAgrees", "SaveAndLoadSame", "ZeroOne", "Bf16", "NoCustomFsdp", "NoLora"} <= hidden
    assert unmet(spec(None)) == {}
    policy = policy_from_spec(spec(None))
    evaluated = recoverability(TRAINING, view(), policy)
    assert {one.status for one in evaluated} == {ConditionStatus.UNKNOWN}
    assert recoverable(evaluated) is ConditionStatus.UNKNOWN


def test_shell_variables_are_unknown() -> None:
    hidden = unknown(spec(GOOD.replace("/ckpt", "$CKPT").replace("size 2", "size $TP")))
    assert hidden == {"LayoutAgrees", "SaveAndLoadSame"}


def test_mindspore_modes_are_unknown() -> None:
    assert {"MindSporeGraphMode", "MindSporeSinkSizeOne", "MindSporeOptimizerCopies"} <= unknown(
        spec(None, framework="MindSpore")
    )


# ------------------------------------------------------------------------------------------------ flags


def test_flags_are_read_as_a_shell_would() -> None:
    words = {
        "command": ["bash", "-c", "cd /x && torchrun train.py --train-iters 10 --save='/a b' --bf16"],
        "name": "trainer",
    }
    flags = read_flags({"spec": {"containers": [words]}})
    assert flags.visible
    assert flags.text_of_option("save") == "/a b"
    assert flags.number_of_option("train-iters") == 10
    assert flags.has_switch("bf16") is True
    assert flags.lacks_switch("bf16") is False
    assert flags.has_switch("fp16") is False
    assert flags.text_of_option("load") is None


def test_flags_of_odd_texts() -> None:
    assert parse_flags(["--train_iters=5", "--save"]).values == {"train-iters": "5", "save": ""}
    assert parse_flags(["--micro-batch-size", "${MBS}"]).number_of_option("micro-batch-size") is None
    assert not parse_flags(["--verbose", "--save", "/x"]).visible
    assert TrainerFlags().has_switch("bf16") is None
    assert TrainerFlags().lacks_switch("bf16") is None
    broken = {"name": "trainer", "command": ["bash", "-c", "it's --train-iters 5"]}
    assert read_flags({"spec": {"containers": [broken]}}).number_of_option("train-iters") == 5
    other = {"name": "other", "args": ["--train-iters", "5"]}
    templates: list[dict[str, Any]] = [{}, {"spec": {}}, {"spec": {"containers": [other]}}]
    for template in templates:
        assert read_flags(template) == TrainerFlags()


# ------------------------------------------------------------------------------------------------ policy


def test_the_policy_of_a_spec() -> None:
    made = spec(
        recovery={
            "mode": "Hold",
            "actions": [{"name": "InPlace", "maxCount": 7, "windowSeconds": 8, "deadlineSeconds": 9}],
            "maxProgramFailures": 5,
            "replacementTimeoutSeconds": 77,
            "subHealthPolicy": "Evict",
            "cordonPolicy": "Ignore",
            "coordinatorLossPolicy": "Never",
            "logRules": [{"name": "nan", "pattern": "loss: nan", "action": "InPlace"}],
        },
        elastic={"policy": "Disabled", "minDataParallel": 2, "shrunkPodPolicy": "Release", "expandDelaySeconds": 5},
        startupDeadlineSeconds=11,
        activeDeadlineSeconds=12,
    )
    policy = policy_from_spec(made)
    assert policy.mode is Mode.HOLD
    assert policy.limits[Action.IN_PLACE] == ActionLimits(7, 8, 9)
    assert policy.limits[Action.RETRY] == ActionLimits(3, 600, 60)
    assert (policy.max_program_failures, policy.replacement_timeout_seconds) == (5, 77)
    assert (policy.sub_health, policy.cordon, policy.coordinator_loss) == (NodePolicy.EVICT, NodePolicy.IGNORE, "Never")
    assert policy.log_rules == {"nan": Action.IN_PLACE}
    assert (policy.elastic, policy.min_data_parallel, policy.release_shrunk_pods) == (False, 2, True)
    assert (policy.expand_delay_seconds, policy.startup_deadline_seconds, policy.active_deadline_seconds) == (5, 11, 12)
    assert policy.allowed_actions == tuple(action for action in FAULT_ACTIONS if action is not Action.SHRINK)
    assert policy.no_copy_repair
    mindspore = policy_from_spec(spec(framework="MindSpore"))
    assert not mindspore.no_copy_repair
    none = [{"name": name, "maxCount": 0} for name in ("InPlace", "Replace")]
    sharding = {"sharding": "None"}
    assert policy_from_spec(spec(framework="MindSpore", optimizer=sharding)).hot_switch
    assert not policy_from_spec(spec(framework="MindSpore", optimizer=sharding, recovery={"actions": none})).hot_switch
    assert policy_from_spec(parse_spec(made)) == policy


def test_an_action_with_no_uses_is_not_allowed() -> None:
    policy = policy_from_spec(spec(recovery={"actions": [{"name": "Replace", "maxCount": 0}]}))
    assert Action.REPLACE not in policy.allowed_actions
    assert Action.SHRINK in policy.allowed_actions


def test_a_spec_that_is_none_is_named() -> None:
    with pytest.raises(HajobInputError, match=r"spec.numNodes: .*spec.parallelism") as error:
        policy_from_spec({**spec(), "numNodes": "x", "parallelism": None})
    assert "spec.parallelism" in str(error.value)
    with pytest.raises(LayoutError, match="no multiple"):
        layout_from_spec(spec(parallelism={"tensor": 3}))


# ------------------------------------------------------------------------------------------------ recoverability

TRAINING = JobState(phase=JobPhase.RUNNING, incarnation=1, attempt=1, base=1, step=5)


def view(**changes: Any) -> ClusterView:
    made: dict[str, Any] = {"step": 5, "free_nodes": 1, "coordinator_apart": True, **changes}
    return ClusterView(layout_from_spec(spec()), **made)


def test_everything_would_work() -> None:
    evaluated = recoverability(TRAINING, view(), policy_from_spec(spec()), now_ms=1)
    assert [one.action for one in evaluated] == list(FAULT_ACTIONS)
    assert all(one.status is ConditionStatus.TRUE and not one.unmet for one in evaluated)
    assert recoverable(evaluated) is ConditionStatus.TRUE


@pytest.mark.parametrize(
    ("state", "seen", "missing"),
    [
        (JobState(phase=JobPhase.STARTING), view(step=-1), {key: {"FirstStepFinished"} for key in MINDIO}),
        (TRAINING, view(coordinator_ready=False), {key: {"CoordinatorReady"} for key in MINDIO}),
        (TRAINING, view(free_nodes=0), {Action.REPLACE: {"FreeNode"}}),
        (
            TRAINING,
            view(coordinator_apart=False),
            {Action.REPLACE: {"CoordinatorApart"}, Action.SHRINK: {"CoordinatorApart"}},
        ),
        (TRAINING, view(free_nodes=None, coordinator_apart=None), {}),
    ],
)
def test_what_is_missing_now(state: JobState, seen: ClusterView, missing: dict[Action, set[str]]) -> None:
    evaluated = recoverability(state, seen, policy_from_spec(spec()))
    assert {one.action: {two.name for two in one.unmet} for one in evaluated if one.unmet} == missing
    assert recoverable(evaluated) is (ConditionStatus.FALSE if missing else ConditionStatus.TRUE)


@pytest.mark.parametrize(("checkpoints", "told"), [(0, {Action.RESTART}), (5, set())])
def test_ranks_that_end_with_their_scheduler_are_told(checkpoints: int, told: set[Action]) -> None:
    """MindSpore's workers outlive the coordinator's pod only with MindIO."""
    actions = [{"name": name, "maxCount": 0} for name in ("Retry", "InPlace", "Replace")]
    actions.append({"name": "Checkpoint", "maxCount": checkpoints})
    mindspore = spec(framework="MindSpore", recovery={"actions": actions}, optimizer={"sharding": "None"})
    evaluated = recoverability(TRAINING, view(), policy_from_spec(mindspore))
    assert {one.action for one in evaluated if SCHEDULER_LIMIT in one.message} == told
    assert not any(SCHEDULER_LIMIT in one.message for one in recoverability(TRAINING, view(), policy_from_spec(spec())))


def test_a_spent_budget_is_told() -> None:
    policy = policy_from_spec(spec())
    state = JobState(phase=JobPhase.RUNNING, step=5, spent=(Spend("Retry", 10),) * 3)
    evaluated = recoverability(state, view(), policy, now_ms=20)
    assert [two.name for two in evaluated[0].unmet] == ["BudgetLeft"]
    assert recoverability(state, view(), policy, now_ms=700_000)[0].status is ConditionStatus.TRUE
    assert recoverability(state, view(), policy)[0].status is ConditionStatus.TRUE


def test_recoverability_never_promises_what_a_decision_refuses() -> None:
    """Every refusal of a decision without a loss is in the list, under the same name."""
    from hajob.plan.evaluator import FAULT, Loss

    for made in (spec(), spec(numNodes=3), spec(parallelism={"tensor": 8}), spec(optimizer={"copies": 1})):
        policy, layout = policy_from_spec(made), layout_from_spec(made)
        seen = ClusterView(layout, step=5, free_nodes=1, coordinator_apart=True)
        for one in recoverability(TRAINING, seen, policy):
            refusals = Evaluator(Loss((), counted=False), FAULT, TRAINING, seen, policy, 0).refusals_of_action(
                one.action
            )
            assert {refusal.name for refusal in refusals} <= {two.name for two in one.unmet}


def test_a_name_stands_once() -> None:
    made = copy.deepcopy(spec(elastic={"minDataParallel": 4}, numNodes=3, parallelism={"tensor": 2}))
    evaluated = recoverability(TRAINING, ClusterView(layout_from_spec(made), step=5), policy_from_spec(made))
    for one in evaluated:
        names = [two.name for two in one.unmet]
        assert len(names) == len(set(names))
