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
from hajob.job.admission import Admission
from hajob.job.cluster import Cluster
from hajob.job.dry_run_cache import DryRunCache
from hajob.pki.authority_store import AuthorityStore
from hajob.pods.settings import PodSettings
from hajob.sources.node import NodeView
from hajob.sources.pod import view_of_foreign_pod
from tests.rigs.example_jobs import example_job
from tests.rigs.fake_clock import FakeClock

PLUGIN = "kube-system/ascend-device-plugin-daemonset-x"


def cluster_of(*chips: int, mode: bool | None = True) -> Cluster:
    nodes = [NodeView(f"node-{at}", all_chips={CHIP: number}) for at, number in enumerate(chips)]
    cluster = Cluster(FakeClock(), Capacity.from_nodes_and_pods(nodes, ()))
    cluster.note_device_plugin(PLUGIN, mode)
    return cluster


@pytest.mark.parametrize(
    ("chips", "mode", "scheduling", "refused"),
    [
        ((8, 8), True, {}, True),
        ((8, 8), False, {}, False),
        ((8, 8), None, {}, False),
        ((8, 8), True, {"gangPolicy": "Volcano"}, False),
        ((8, 2), True, {}, False),
        ((), True, {}, False),
        ((1,), True, {}, False),
    ],
)
def test_parts_are_refused_only_where_the_plugin_refuses(
    chips: tuple[int, ...], mode: bool | None, scheduling: dict[str, Any], refused: bool
) -> None:
    """Two chips are all chips of a node with two; nodes that are not known tell nothing."""
    told = cluster_of(*chips, mode=mode).why_parts_refused(example_job("quickstart", scheduling=scheduling))
    assert bool(told) is refused
    if refused:
        assert "chipsPerNode: 2 of the 8 huawei.com/Ascend910 of a node, without Volcano: the device" in told
        assert PLUGIN in told


async def test_such_a_job_is_refused_and_asked_about_again() -> None:
    clock = FakeClock()
    kube = MemoryKube(MemoryServer(clock))
    await kube.create_object("namespaces", "", {"kind": "Namespace", "metadata": {"name": "team-a"}})
    store = AuthorityStore(kube, clock, "hajob-system", timedelta(days=365))
    cluster = cluster_of(8)
    admission, job = (
        Admission(kube, clock, PodSettings("hajob/sidecar:dev"), store, DryRunCache()),
        example_job("quickstart"),
    )
    assert not await admission.evaluate_job(job, refused_by_nodes=cluster.why_parts_refused(job))
    assert (admission.reason, "not get valid pod" in admission.message) == (Reason.POD_REFUSED, True)
    cluster.note_device_plugin(PLUGIN, None)
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
