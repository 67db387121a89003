"""Hajob on real kubelets, in short: installed by the chart, from the images that are released."""

from __future__ import annotations

import datetime
import os
import time

import pytest

from e2e.kubelets.__main__ import why_skipped
from e2e.kubelets.cluster import NAMESPACE, Cluster
from e2e.kubelets.configuration import DIRECTORY

pytestmark = [
    pytest.mark.skipif(DIRECTORY not in os.environ, reason=why_skipped()),
    pytest.mark.timeout(900),
]


def test_a_training_outlives_faults_on_real_kubelets(cluster: Cluster) -> None:
    """Install by the chart, one InPlace, one Replace, the weights, uninstall."""
    since, began = datetime.datetime.now(datetime.UTC), time.monotonic()
    cluster.install()
    installed = time.monotonic() - began
    assert len({pod["spec"]["nodeName"] for pod in cluster.operators()}) == 2, "two operators on two nodes"
    job = cluster.train("real")

    in_place = cluster.wait_trains(job, 2, cluster.nodes.kill(rank=1))
    (incident,) = job.incidents()
    assert (incident["action"], incident["lostSteps"]) == ("InPlace", 0)

    lost = job.node_of(0)
    replace = cluster.wait_trains(job, 3, cluster.nodes.nodes[lost].power_off())
    assert (job.incidents()[0]["action"], job.incidents()[0]["lostSteps"]) == ("Replace", 0)
    assert job.node_of(0) != lost

    assert cluster.weights_differ(job) == []
    assert cluster.refused_requests(since) == []
    cluster.helm("uninstall", "hajob")
    cluster.plane.wait("the operators to be gone", lambda: not cluster.operators(), 60)
    assert cluster.plane.api.find(job.path) is not None, "the CRD stays, and so does the job"
    assert cluster.plane.api.find(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/hajob-operator") is None
    print(f"installed {installed:.1f} s, InPlace {in_place.seconds:.2f} s, Replace {replace.seconds:.2f} s")
