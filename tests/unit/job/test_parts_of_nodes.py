"""A job that wants a part of each node by another scheduler than Volcano is refused where the device plugin would."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from e2e.memory_api.client import MemoryKube
from e2e.memory_api.server import MemoryServer
from hajob.api.conditions import Reason
from hajob.api.constants import DEFAULT_RESOURCE_NAME as CHIP
from hajob.capacity.nodes import Capacity
from hajob.capacity.parts_of_nodes import PluginPod
from hajob.job.admission import Admission
from hajob.job.cluster import Cluster
from hajob.job.dry_run_cache import DryRunCache
from hajob.pki.authority_store import AuthorityStore
from hajob.pods.settings import PodSettings
from hajob.sources.node import NodeView
from hajob.sources.pod import view_of_foreign_pod
from tests.rigs.example_jobs import example_job
from tests.rigs.fake_clock import FakeClock

PLUGIN = "kube-system/ascend-device-plugin-daemonset-"


def cluster_of(*chips: int, modes: tuple[bool, ...] = (True, True)) -> Cluster:
    """A cluster of nodes with so many chips each, on the first of which the device plugin is in these modes."""
    nodes = [
        NodeView(f"node-{at}", labels={"pool": f"of-{number}"}, all_chips={CHIP: number})
        for at, number in enumerate(chips)
    ]
    cluster = Cluster(FakeClock(), Capacity.from_nodes_and_pods(nodes, ()))
    for at, mode in enumerate(modes):
        cluster.note_device_plugin(f"{PLUGIN}{at}", PluginPod(f"node-{at}", mode))
    return cluster


@pytest.mark.parametrize(
    ("chips", "modes", "scheduling", "refused"),
    [
        ((8, 8), (True, True), {}, True),
        ((8, 8), (True,), {}, True),
        ((8, 8), (False, False), {}, False),
        ((8, 8), (True, False), {}, False),
        ((8, 8), (), {}, False),
        ((8, 8), (True, True), {"gangPolicy": "Volcano"}, False),
        ((8, 2), (True, True), {}, False),
        ((), (True,), {}, False),
        ((1,), (True,), {}, False),
    ],
)
def test_parts_are_refused_only_where_the_plugin_refuses(
    chips: tuple[int, ...], modes: tuple[bool, ...], scheduling: dict[str, Any], refused: bool
) -> None:
    """Two chips are all chips of a node with two; nodes and plugins that are not known tell nothing."""
    told = cluster_of(*chips, modes=modes).why_parts_refused(example_job("quickstart", scheduling=scheduling))
    assert bool(told) is refused
    if refused:
        assert "chipsPerNode: 2 of the 8 huawei.com/Ascend910 of a node, without Volcano: the device" in told
        assert f"{PLUGIN}0" in told


def test_only_nodes_where_the_job_may_go_count() -> None:
    """A pool of small nodes, of which two chips are all, is none of the business of a job for large ones."""
    cluster = cluster_of(8, 2)
    for pool, refused in (("of-8", True), ("of-2", False)):
        job = example_job("quickstart")
        job.spec.template["spec"]["nodeSelector"] = {"pool": pool}
        assert bool(cluster.why_parts_refused(job)) is refused


def test_a_template_that_is_no_pod_is_no_crash() -> None:
    job = example_job("quickstart")
    job.spec.template["spec"]["affinity"] = ["none"]
    assert cluster_of(8).why_parts_refused(job) == ""


async def test_such_a_job_is_refused_and_asked_about_again() -> None:
    clock = FakeClock()
    kube = MemoryKube(MemoryServer(clock))
    await kube.create_object("namespaces", "", {"kind": "Namespace", "metadata": {"name": "team-a"}})
    store = AuthorityStore(kube, clock, "hajob-system", timedelta(days=365))
    cluster = cluster_of(8, modes=(True,))
    admission, job = (
        Admission(kube, clock, PodSettings("hajob/sidecar:dev"), store, DryRunCache()),
        example_job("quickstart"),
    )
    assert not await admission.evaluate_job(job, refused_by_nodes=cluster.why_parts_refused(job))
    assert (admission.reason, "not get valid pod" in admission.message) == (Reason.POD_REFUSED, True)
    cluster.note_device_plugin(f"{PLUGIN}0", None)
    await admission.evaluate_job(job, refused_by_nodes=cluster.why_parts_refused(job))
    assert "not get valid pod" not in admission.message


@pytest.mark.parametrize(
    ("arguments", "mode"),
    [
        ("device-plugin -useAscendDocker=true -volcanoType=true -logFile=/var/log", True),
        ("device-plugin  -volcanoType=false", False),
        ("device-plugin -logLevel=0", False),
    ],
)
def test_the_plugins_mode_is_read_off_its_pod(arguments: str, mode: bool) -> None:
    container = {"name": "device-plugin-01", "command": ["/bin/bash", "-c", "--"], "args": [arguments]}
    pod = {
        "metadata": {"namespace": "kube-system", "name": "p"},
        "spec": {"nodeName": "n", "containers": [container]},
        "status": {"phase": "Running"},
    }
    found = view_of_foreign_pod(pod)
    assert found is not None
    assert found.volcano_mode is mode
    container["args"] = ["sleep 3"]
    assert view_of_foreign_pod(pod) is None
