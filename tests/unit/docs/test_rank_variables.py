"""docs/admin/pods.md says of every variable of a rank who sets it, and nobody else does."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import yaml

from hajob.api.job import HATrainingJob
from hajob.domain.actions import MINDIO_ACTIONS
from hajob.plan.policy import policy_from_spec
from hajob.pods.environment import rank_environment
from hajob.pods.rank_pod import build_rank_pod
from hajob.pods.settings import PodSettings
from trainer_sidecar.agent.supervise import environment as agent
from trainer_sidecar.coordinator.attempt import rank_variables
from trainer_sidecar.coordinator.state.job import Endpoint, Setup
from trainer_sidecar.launcher.program import mindspore_environment

ROOT = Path(__file__).parents[3]
SECTION = (ROOT / "docs/admin/pods.md").read_text().partition("## Environment")[2].partition("\n## ")[0]
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in SECTION.splitlines() if line.startswith("| `")]
TOLD = {name: row[1] for row in ROWS for name in re.findall(r"`([A-Z_]+)`", row[0])}
IN_THE_CONTAINER_TOO = {"HAJOB_NODE_RANK", "MINDX_TASK_ID", "POD_IP"}
CHOSEN = "operator, where the job chooses"
BOTH = "operator and coordinator"


def told(who: str) -> set[str]:
    return {name for name, setter in TOLD.items() if setter == who}


def job(**changes: Any) -> HATrainingJob:
    raw = yaml.safe_load((ROOT / "examples/full.yaml").read_text())
    raw["metadata"] |= {"namespace": "default", "uid": "uid-1"}
    raw["spec"] |= changes
    return HATrainingJob.from_object(raw)


def test_the_operator_sets_what_is_told() -> None:
    alone = job(recovery={"actions": [{"name": name, "maxCount": 0} for name in MINDIO_ACTIONS]})
    jobs = (job(), job(framework="MindSpore"), alone)
    found = {name for each in jobs for name in rank_environment(each, policy_from_spec(each.spec))}
    assert found == told("operator") | told(CHOSEN) | told(BOTH)


def test_the_coordinator_sets_what_is_told() -> None:
    attempt = SimpleNamespace(number=3)
    checkpoint = SimpleNamespace(attempt=3, loaded_step=40)
    setup, found = Setup(Endpoint("10.0.0.1", 8000, 29500)), SimpleNamespace(found=checkpoint)
    known = SimpleNamespace(attempt=attempt, checkpoints=found, setup=setup)
    assert set(rank_variables.attempt_environment(cast("Any", known))) == told("coordinator") | told(BOTH)


def test_the_agent_sets_what_is_told() -> None:
    wanted = SimpleNamespace(rank=3, name=SimpleNamespace(incarnation=1, start=0))
    settings = SimpleNamespace(
        local_ranks=range(2, 4), ranks_per_node=2, node_rank=1, pod_address="10.0.0.2", mindio_port=8000
    )
    assert set(agent.pod_environment(cast("Any", wanted), cast("Any", settings))) == told("agent")


def test_the_launcher_adds_only_what_is_missing() -> None:
    known = dict.fromkeys(told("operator") | told(BOTH) | told("coordinator") | told("agent"), "x")
    assert set(mindspore_environment(known)) == told("launcher") - {"HAJOB_EXEC_TIME"}


def test_the_container_has_what_is_told() -> None:
    pod = build_rank_pod(job(), 0, 1, PodSettings(sidecar_image="sidecar"))
    (trainer,) = [one for one in pod["spec"]["containers"] if one["name"] == "trainer"]
    users = {one["name"] for one in job().spec.template["spec"]["containers"][0].get("env", [])}
    names = {one["name"] for one in trainer["env"]} - users
    assert names == told("container") | IN_THE_CONTAINER_TOO
