"""Each default of the spec has a scenario that ran with it; each limit that an end-to-end scenario changes has a why.

A field that comes new, or a scenario that changes one limit more, fails here until it has its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from hajob.api.spec import HATrainingJobSpec
from tests.rigs.names_of_tests import names_of_tests

ROOT = Path(__file__).parents[3]

EVERYWHERE = """
framework accelerator.chipsPerNode accelerator.resourceName accelerator.superPodChips launcher managedBy model
parallelism.pipeline parallelism.context parallelism.expert parallelism.expertTensor parallelism.rankOrder
optimizer.sharding optimizer.copies suspend restartRequestTime pause recovery.mode recovery.actions recovery.logRules
activeDeadlineSeconds ttlSecondsAfterFinished scheduling.queueName scheduling.excludedNodeNames
coordinator.resources.requests coordinator.resources.limits coordinator.nodeSelector coordinator.tolerations
coordinator.priorityClassName coordinator.pythonPath agent.resources.requests agent.resources.limits
network.agentPort network.coordinatorPort network.mindIOPort network.rendezvousPort
"""
"""What every scenario runs with; one is named for all of them."""

PLAYED = {
    **dict.fromkeys(EVERYWHERE.split(), "test_in_place"),
    "restartCheckpointPolicy": "test_a_request_waits_for_a_silent_coordinator",
    "startupDeadlineSeconds": "test_a_start_that_stands_still_is_given_up",
    "scheduling.gangPolicy": "test_a_start_waits_for_its_last_node",
    "scheduling.capacityTimeoutSeconds": "test_a_start_waits_for_its_last_node",
    "scheduling.waitingPodPolicy": "test_a_start_waits_for_its_last_node",
    "scheduling.numSpareNodes": "test_replace_onto_a_free_node",
    "scheduling.spareMode": "test_replace_onto_a_spare",
    "recovery.maxProgramFailures": "test_a_program_that_fails_is_given_up",
    "recovery.replacementTimeoutSeconds": "test_shrink_where_no_node_is_free",
    "recovery.cordonPolicy": "test_migrate_off_a_cordoned_node",
    "recovery.hang.stepTimeMultiple": "test_a_hang_is_noticed",
    "recovery.hang.minTimeoutSeconds": "test_a_hang_is_noticed",
    "elastic.policy": "test_shrink_where_no_node_is_free",
    "elastic.minDataParallel": "test_shrink_where_no_node_is_free",
    "elastic.shrunkPodPolicy": "test_expand_after_the_node_is_back",
    "elastic.expandDelaySeconds": "test_expand_after_the_node_is_back",
    "elastic.restartSize": "test_refused_shrink_saves_and_restarts",
}

PLAYED_ELSEWHERE = {
    "finishTimeoutSeconds": "tests/unit/coordinator/test_final_state.py",
    "recovery.drainTimeoutSeconds": "tests/unit/job/test_drained_nodes.py",
    "recovery.preemptionTimeoutSeconds": "e2e/scenarios/test_kueue_troubles.py",
    "recovery.subHealthPolicy": "tests/unit/job/test_hardware_policies.py",
    "recovery.coordinatorLossPolicy": "tests/unit/job/test_coordinators_node_lost.py",
    "checkpoint.savedLimit": "e2e/scenarios/test_checkpoints.py",
    "checkpoint.resumePolicy": "e2e/scenarios/test_checkpoints.py",
    "network.interface": "tests/unit/launcher/test_launcher_variables.py",
    "network.mindIOTLSPolicy": "e2e/scenarios/test_one_fault.py",
    "network.rankTablePolicy": "e2e/scenarios/test_rank_tables.py",
    "output.path": "e2e/scenarios/test_start_scripts.py",
    "output.attemptLimit": "e2e/scenarios/test_start_scripts.py",
}
"""What has no path of its own in virtual time: processes, files and sockets, or another clock than a recovery's."""

LIMITS = (
    "replacementTimeoutSeconds|expandDelaySeconds|minTimeoutSeconds|stepTimeMultiple|startupDeadlineSeconds|"
    "finishTimeoutSeconds|drainTimeoutSeconds|deadlineSeconds|windowSeconds|maxCount|maxProgramFailures|"
    "activeDeadlineSeconds|capacityTimeoutSeconds|ttlSecondsAfterFinished"
)

SHORT = "minutes without a node made seconds"
SMALLEST = "leaves out the smaller actions, so that the one under test is taken"
OFTEN = "more faults than a budget allows, so that the budget is not what is tested"
QUICK_HANG = "a hang is noticed in seconds; the default multiple is kept"
FEWER_FAILURES = "the last failure that is allowed is reached sooner"

CHANGED = {
    "e2e/demo/acts.py": {"IMPATIENT": SHORT, "replacementTimeoutSeconds": "the default, set back after the short one"},
    "e2e/harness/job.py": {"IMPATIENT": SHORT, "expandDelaySeconds": SHORT, "replacementTimeoutSeconds": SHORT},
    "e2e/kubelets/test_real_tenants.py": {"maxCount": SMALLEST},
    "e2e/proof/chance.py": {
        "maxCount": SMALLEST,
        "replacementTimeoutSeconds": SHORT,
        "startupDeadlineSeconds": "a start that fails ends its cell",
    },
    "e2e/proof/setup.py": {
        "maxCount": SMALLEST,
        "maxProgramFailures": OFTEN,
        "minTimeoutSeconds": QUICK_HANG,
        "replacementTimeoutSeconds": SHORT,
    },
    "e2e/scenarios/nodes_taken.py": {"IMPATIENT": SHORT},
    "e2e/scenarios/test_cause_in_two_commands.py": {
        "maxProgramFailures": FEWER_FAILURES,
        "minTimeoutSeconds": QUICK_HANG,
        "stepTimeMultiple": QUICK_HANG,
    },
    "e2e/scenarios/test_checkpoints.py": {"maxCount": SMALLEST},
    "e2e/scenarios/repairs_in_place.py": {"maxCount": OFTEN},
    "e2e/scenarios/test_controller_killed_in_actions.py": {"IMPATIENT": SHORT},
    "e2e/scenarios/test_coordinators_node.py": {"IMPATIENT": SHORT},
    "e2e/scenarios/test_elastic.py": {"IMPATIENT": SHORT},
    "e2e/scenarios/test_kueue_troubles.py": {"IMPATIENT": SHORT},
    "e2e/scenarios/test_volcano.py": {"IMPATIENT": SHORT, "maxCount": SMALLEST},
    "e2e/scenarios/test_failure_modes.py": {
        "maxProgramFailures": FEWER_FAILURES,
        "startupDeadlineSeconds": "an image that never comes is given up in half a minute",
    },
    "e2e/scenarios/test_layouts.py": {"IMPATIENT": SHORT},
    "e2e/scenarios/test_mindformers.py": {"maxCount": SMALLEST},
    "e2e/scenarios/test_moves.py": {"drainTimeoutSeconds": "an eviction's turn comes after half a minute"},
    "e2e/scenarios/test_moves_that_fail.py": {"replacementTimeoutSeconds": "a move is given up in time, or not at all"},
    "e2e/scenarios/test_one_fault.py": {"maxCount": SMALLEST},
    "e2e/scenarios/test_one_rank_prints.py": {"minTimeoutSeconds": QUICK_HANG, "stepTimeMultiple": QUICK_HANG},
    "e2e/scenarios/test_operator_killed.py": {"maxCount": OFTEN},
    "e2e/scenarios/test_pod_lost_in_actions.py": {"IMPATIENT": SHORT},
    "e2e/scenarios/test_real_mindspore.py": {"maxCount": SMALLEST},
    "e2e/scenarios/test_real_torch.py": {"IMPATIENT": SHORT, "maxCount": SMALLEST},
    "e2e/scenarios/test_rules.py": {
        "minTimeoutSeconds": QUICK_HANG,
        "stepTimeMultiple": QUICK_HANG,
        "windowSeconds": "a rule's window passes within the test",
    },
    "e2e/scenarios/test_start_scripts.py": {"maxCount": SMALLEST, "maxProgramFailures": FEWER_FAILURES},
    "e2e/scenarios/test_taskd.py": {"IMPATIENT": SHORT, "maxCount": SMALLEST},
    "e2e/scenarios/test_through_kubectl.py": {"replacementTimeoutSeconds": "a value that a person edits"},
    "e2e/scenarios/test_two_jobs.py": {
        "IMPATIENT": SHORT,
        "expandDelaySeconds": SHORT,
        "replacementTimeoutSeconds": SHORT,
    },
}


def defaults(model: type[BaseModel], above: str = "") -> Iterator[str]:
    """Every field that a manifest may leave out, as a dotted path."""
    for name, field in model.model_fields.items():
        path, kind = f"{above}{field.alias or name}", field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from defaults(kind, f"{path}.")
        elif not field.is_required():
            yield path


def test_each_default_has_the_scenario_that_ran_with_it() -> None:
    assert {*PLAYED, *PLAYED_ELSEWHERE} == set(defaults(HATrainingJobSpec))
    assert not PLAYED.keys() & PLAYED_ELSEWHERE.keys()
    played = names_of_tests(Path(__file__).with_name("test_untouched_manifest.py"))
    assert not set(PLAYED.values()) - set(played)
    assert all((ROOT / path).is_file() for path in PLAYED_ELSEWHERE.values())


def test_each_limit_that_a_scenario_changes_has_a_why() -> None:
    found: dict[str, set[str]] = {}
    for room in ("scenarios", "harness", "demo", "proof", "kubelets"):
        for path in sorted((ROOT / "e2e" / room).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            limits = {*re.findall(f'"({LIMITS})"', text), *(["IMPATIENT"] if "IMPATIENT" in text else [])}
            if limits:
                found[str(path.relative_to(ROOT))] = limits
    assert found == {path: set(limits) for path, limits in CHANGED.items()}
