"""Images that read a rank table: it is there before the ranks start, and holds the new pod when one is replaced."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.harness.job import Job
from e2e.harness.rig import Rig
from e2e.scenarios.nodes_taken import pod_of
from e2e.scenarios.proofs import assert_recovered
from e2e.trainer import proof

STEPS = 300
BY_TABLE = """#!/usr/bin/env bash
# As MindCluster's rank_table.sh: nothing is launched before the table is complete.
while ! grep -q '"status": *"completed"' "$RANK_TABLE_FILE"; do
    sleep 0.2
done
exec bash train.sh "$@"
"""
WITH_TABLE: dict[str, Any] = {"spec": {"network": {"rankTablePolicy": "Enabled"}}, "script": "train_by_table.sh"}
NOTED = "ascend.kubectl.kubernetes.io/ascend-910-configuration"


def tables(job: Job, rank: int) -> list[dict[str, Any]]:
    """The tables that this rank has read, oldest first."""
    return [event for event in proof.of(job.events(), "rank_table") if event["rank"] == rank]


def addresses(job: Job) -> list[str]:
    """Addresses of the job's pods, by rank."""
    pods = sorted(job.pods("rank"), key=lambda one: int(one["metadata"]["labels"]["training.hajob.io/node-rank"]))
    return [pod["status"]["podIP"] for pod in pods for _ in range(2)]


def test_the_rank_table_follows_a_replacement(rig: Rig) -> None:
    """The ranks that go on read the new one, too, when they rebuild their groups."""
    (rig.trainer_image / "train_by_table.sh").write_text(BY_TABLE)
    job = rig.submit(iterations=STEPS, **WITH_TABLE)
    job.wait_step(10)
    first = addresses(job)
    assert [tables(job, rank)[0]["pods"] for rank in range(8)] == [first] * 8
    rig.nodes.control.power_off(job.node_of(1))
    assert job.wait_incident(2)["action"] == "Replace"
    rig.plane.wait("a table read anew by all", lambda: all(tables(job, rank)[-1]["pods"] != first for rank in range(8)))
    assert [tables(job, rank)[-1]["pods"] for rank in range(8)] == [addresses(job)] * 8
    assert tables(job, 0)[-1]["version"] > tables(job, 0)[0]["version"]
    assert_recovered(job, [2, 3], STEPS)


@pytest.mark.slow
def test_a_rank_started_in_place_reads_the_same_table(rig: Rig) -> None:
    (rig.trainer_image / "train_by_table.sh").write_text(BY_TABLE)
    job = rig.submit(iterations=STEPS, **WITH_TABLE)
    job.wait_step(10)
    rig.nodes.control.kill(namespace=rig.namespace, rank=3)
    assert job.wait_incident(2)["action"] == "InPlace"
    assert {tuple(each["pods"]) for each in tables(job, 3)} == {tuple(addresses(job))}
    assert_recovered(job, [3], STEPS)


def test_chips_that_nobody_notes_are_named(rig: Rig) -> None:
    """A note that is no longer right: nothing is started by it, and the condition says which pod it is."""
    (rig.trainer_image / "train_by_table.sh").write_text(BY_TABLE)
    job = rig.submit(iterations=STEPS, **WITH_TABLE)
    job.wait_step(10)
    pod = pod_of(job, 2)
    rig.plane.kubectl("--namespace", job.namespace, "annotate", "pod", pod, f"{NOTED}={{}}", "--overwrite")
    job.wait_step(job.common_step() + 5)
    rig.nodes.control.kill(namespace=rig.namespace, rank=0)
    rig.plane.wait(
        "the pod to be named",
        lambda: f"waits for the chips of {pod}" in job.condition("Running").get("message", ""),
    )
