"""The chart is upgraded from the version before and rolled back on real kubelets, from the images of both."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.harness import previous
from e2e.harness.job import Job
from e2e.harness.leadership import watched
from e2e.kubelets import images
from e2e.kubelets.__main__ import this_platform, why_skipped
from e2e.kubelets.cluster import CHART, NAMESPACE, Cluster
from e2e.kubelets.configuration import DIRECTORY
from e2e.trainer import proof
from hajob.version import VERSION

pytestmark = [
    pytest.mark.skipif(DIRECTORY not in os.environ, reason=why_skipped()),
    pytest.mark.timeout(900),
]
USER = 65532
"""Of the training, too: the version before could not serve a training of another user."""
ITERATIONS = 2000
STEP_MILLISECONDS = 200


@pytest.fixture
def before(hajob: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    """The cluster with the version before installed."""
    try:
        sources = previous.sources(tmp_path / "previous")
    except previous.NoHistoryError as error:
        pytest.skip(str(error))
    hajob.nodes.load([images.of_sources(this_platform(), sources, previous.VERSION, tmp_path / "previous.tar")])
    hajob.uninstall()
    hajob.install(chart=sources / "charts/hajob")
    yield hajob
    hajob.uninstall()


def wait_rolled_out(cluster: Cluster, version: str) -> None:
    """Until both operators are of a version, and ready."""

    def done() -> bool:
        pods = cluster.operators()
        ready = [any(each["ready"] for each in pod["status"].get("containerStatuses", [])) for pod in pods]
        return len(pods) == 2 and all(ready) and all(version_of(pod) == version for pod in pods)

    cluster.plane.wait(f"both operators to be {version}", done, 180)


def version_of(pod: dict[str, dict[str, list[dict[str, str]]]]) -> str:
    """Of the operator in a pod."""
    return pod["spec"]["containers"][0]["image"].rpartition(":")[2]


def sidecars(job: Job) -> set[str]:
    """Versions of the sidecars in its rank pods."""
    pods = job.pods("rank")
    return {each["image"].rpartition(":")[2] for pod in pods for each in pod["spec"]["initContainers"]}


def kill(cluster: Cluster, job: Job, rank: int, incarnation: int) -> None:
    """A rank dies; it comes back in place, and nothing is lost."""
    cluster.wait_trains(job, incarnation, cluster.nodes.kill(rank, job.name))
    incident = job.incidents()[0]
    assert (incident["action"], incident["lostSteps"]) == ("InPlace", 0)


def a_job(cluster: Cluster) -> Job:
    volume = cluster.volume("kept")
    volume.mkdir(parents=True)
    shutil.chown(volume, USER, USER)
    content = cluster.manifest("kept", iterations=ITERATIONS, step_milliseconds=STEP_MILLISECONDS)
    content["spec"]["template"]["spec"]["securityContext"] = {"runAsUser": USER, "runAsGroup": USER, "fsGroup": USER}
    return cluster.apply(content)


def test_containers_of_the_version_before_outlive_an_upgrade(before: Cluster) -> None:
    """A fault before, during and after; rolled back, and two more. Only faults restart processes.

    How long nobody leads is printed; `make chart` holds it to a second.
    """
    job = a_job(before)
    job.wait_step(10, seconds=180)
    kill(before, job, 1, incarnation=2)

    with watched(before.plane, NAMESPACE) as up:
        before.helm("upgrade", "hajob", str(CHART), "--reset-then-reuse-values")
        kill(before, job, 2, incarnation=3)
        wait_rolled_out(before, VERSION)
    assert sidecars(job) == {previous.VERSION}
    lost = before.nodes.nodes[job.node_of(1)]
    before.wait_trains(job, 4, lost.power_off())
    assert (job.incidents()[0]["action"], job.incidents()[0]["lostSteps"]) == ("Replace", 0)
    assert sidecars(job) == {previous.VERSION, VERSION}, "old sidecars beside a new one"

    before.nodes.power_on(lost.name)  # else an operator that was there goes for ever
    with watched(before.plane, NAMESPACE) as down:
        before.helm("rollback", "hajob", "1")
        kill(before, job, 3, incarnation=5)
        wait_rolled_out(before, previous.VERSION)
    kill(before, job, 0, incarnation=6)

    print(f"without a leader: upgraded {up.without_leader():.2f} s, rolled back {down.without_leader():.2f} s")
    assert before.weights_differ(job, ITERATIONS) == []
    counts = {rank: len(pids) for rank, pids in proof.processes(job.events()).items()}
    assert counts == {0: 2, 1: 2, 2: 3, 3: 3}, "each was restarted by its faults and by nothing else"
    job.delete()
