"""The chart is upgraded from the version before and rolled back while a job trains that the version before has made."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.audit import Request
from e2e.harness import operator, previous
from e2e.harness.images import write_operator
from e2e.harness.job import Job
from e2e.harness.leadership import watched
from e2e.harness.rig import RIG_LABEL, Rig, RigLayout
from e2e.harness.undisturbed import undisturbed
from e2e.trainer import proof
from hajob.version import VERSION
from tests.integration.chart.chart_release import TAKE, Release
from tests.integration.chart.helm import CHART, rendered
from tests.rigs.operator_rights import rights_bound_to_the_operator

pytestmark = pytest.mark.skipif(
    not os.environ.get("HAJOB_CHART_ON_SERVER"), reason="changes the CRDs that other tests use: make chart"
)
ITERATIONS = 900
NO_LEADER_SECONDS = 1.0
GUARDED = ("--set", "admissionPolicy.enabled=true")
REQUESTS_SECONDS = 0.5
"""Rolled back, a standby of the version before sees the free Lease at its next look, and then asks and writes."""


class Upgrade:
    """A release with a job."""

    def __init__(self, release: Release, rig: Rig, values: Path) -> None:
        self.release, self.rig, self.values = release, rig, str(values)

    def wait_rolled_out(self, image: str) -> None:
        """Until every pod of the operator has this image, and all are ready."""
        path = f"/api/v1/namespaces/{self.release.namespace}/pods"

        def done() -> bool:
            pods = self.rig.plane.api.items(path, labelSelector=f"app.kubernetes.io/name={operator.NAME}")
            return len(pods) == 2 and all(map(_is_ready, pods)) and {_image(each) for each in pods} == {image}

        self.rig.plane.wait(f"both operators to be {image}", done, 120)

    def operators(self) -> set[str]:
        """The names of the operator's pods."""
        path = f"/api/v1/namespaces/{self.release.namespace}/pods"
        pods = self.rig.plane.api.items(path, labelSelector=f"app.kubernetes.io/name={operator.NAME}")
        return {each["metadata"]["name"] for each in pods}

    def asked(self, pods: set[str]) -> list[Request]:
        """What these pods have asked the API server for; a watch is in its log when it has ended."""
        user = f"system:serviceaccount:{self.release.namespace}:{operator.NAME}"
        return [each for each in self.rig.plane.audit.requests(user=user) if each.resource and each.pod in pods]

    def kill(self, job: Job, rank: int, incarnation: int) -> None:
        """Kill a rank; it comes back in place, and nothing is lost."""
        fault = self.rig.nodes.control.kill(namespace=self.rig.namespace, rank=rank)
        self.recovered(job, incarnation, "InPlace", fault["time"])

    def recovered(self, job: Job, incarnation: int, action: str, since: int) -> None:
        incident = job.wait_incident(incarnation, seconds=120)
        assert (incident["action"], incident["lostSteps"]) == (action, 0)
        self.rig.plane.wait(
            "the first step of all ranks",
            lambda: any(each.end_ns > since for each in proof.outages(job.events(), job.world())),
        )


def rights(values: str) -> dict[tuple[str, str], str]:
    """What the chart grants: resource and verb, with the API group."""
    return rights_bound_to_the_operator(rendered("--values", values))


def _is_ready(pod: dict[str, Any]) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", []))


def _image(pod: dict[str, Any]) -> str:
    return str(pod["spec"]["containers"][0]["image"])


@pytest.fixture
def upgrade(release: Release, start_rig: Callable[[RigLayout], Rig], tmp_path: Path) -> Upgrade:
    try:
        before = previous.sources(tmp_path / "previous")
    except previous.NoHistoryError as error:
        pytest.skip(str(error))
    images = {
        f"hajob/operator:{previous.VERSION}": write_operator(tmp_path / "n-1", before),
        f"hajob/operator:{VERSION}": write_operator(tmp_path / "n", CHECKOUT),
    }
    rig = start_rig(RigLayout(operators=0, plain_nodes=2, images=images))
    selector = {RIG_LABEL: rig.name}
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"watchNamespace": rig.namespace, "nodeSelector": selector}))
    made = Upgrade(release, rig, values)
    release.helm("install", "hajob", str(before / "charts/hajob"), "--values", made.values, *TAKE)
    made.wait_rolled_out(f"hajob/operator:{previous.VERSION}")
    return made


@pytest.mark.timeout(900)
def test_a_job_of_the_version_before_outlives_upgrade(upgrade: Upgrade) -> None:
    """A fault before, during and after; rolled back, and two more. Only faults restart processes.

    The operators ask for nothing that the chart does not grant, and its admission policy is in nobody's way.
    """
    job = upgrade.rig.submit(iterations=ITERATIONS)
    job.wait_step(10)
    upgrade.kill(job, 3, incarnation=2)

    with watched(upgrade.rig.plane, upgrade.release.namespace) as up:
        upgrade.release.helm("upgrade", "hajob", str(CHART), "--values", upgrade.values, *GUARDED)
        upgrade.kill(job, 5, incarnation=3)
        upgrade.wait_rolled_out(f"hajob/operator:{VERSION}")
    newer = upgrade.operators()
    lost = job.node_of(3)
    since = upgrade.rig.nodes.control.power_off(lost)["time"]
    upgrade.recovered(job, 4, "Replace", since)
    images = {each["image"] for pod in job.pods("rank") for each in pod["spec"]["initContainers"]}
    assert images == {f"hajob/operator:{each}" for each in (previous.VERSION, VERSION)}, "old sidecars beside a new one"

    with watched(upgrade.rig.plane, upgrade.release.namespace) as down:
        upgrade.release.helm("rollback", "hajob", "1")
        upgrade.kill(job, 2, incarnation=5)
        upgrade.wait_rolled_out(f"hajob/operator:{previous.VERSION}")
    print(f"without a leader: upgraded {up.without_leader():.2f} s, rolled back {down.without_leader():.2f} s")
    upgrade.kill(job, 0, incarnation=6)

    job.hurry()
    job.wait_condition("Complete", seconds=180)
    assert proof.survivors_kept(job.events(), restarted=[0, 2, 3, 5, 6, 7]) == []
    counts = {rank: len(pids) for rank, pids in proof.processes(job.events()).items()}
    assert counts == {0: 2, 1: 1, 2: 2, 3: 2, 4: 1, 5: 2, 6: 2, 7: 2}
    reference = undisturbed(upgrade.rig.plane.run, tensor=2, pipeline=1, data=4, iterations=ITERATIONS)
    assert job.weights_differ(reference) == []
    granted = {(verb, group, resource) for (resource, verb), group in rights(upgrade.values).items()}
    asked = upgrade.asked(newer)
    used = {(each.verb, each.group, each.resource) for each in asked}
    print("rights that were never used:", *sorted(granted - used), sep="\n  ")
    assert used - granted == set()
    assert [each for each in asked if each.status == 403] == []
    assert up.without_leader() <= NO_LEADER_SECONDS
    assert down.without_leader() <= previous.LOOK_SECONDS + REQUESTS_SECONDS
