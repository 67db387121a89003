"""Faults that only real nodes have: limits of a cgroup, evictions, kubelets that stand still, cut networks, reboots."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from e2e.cluster.cgroups import CGROUPS
from e2e.harness.job import Job
from e2e.kubelets.__main__ import why_skipped
from e2e.kubelets.cluster import Cluster
from e2e.kubelets.configuration import DIRECTORY
from e2e.trainer import proof
from e2e.trainer.faults import Fault, order

pytestmark = [
    pytest.mark.skipif(DIRECTORY not in os.environ, reason=why_skipped()),
    pytest.mark.timeout(600),
]
SAVE_SECONDS = 80
"""Longer than HAJOB_FENCE_AFTER_SECONDS."""
LIMIT = 1024
"""Of a trainer's container, in MiB."""


def newest(job: Job) -> tuple[str, int]:
    """Action and lost steps of the newest incident."""
    incident = job.incidents()[0]
    return incident["action"], incident["lostSteps"]


def node_conditions(cluster: Cluster, name: str) -> dict[str, str]:
    found = cluster.plane.api.get(f"/api/v1/nodes/{name}")["status"]["conditions"]
    return {each["type"]: each["status"] for each in found}


def test_a_rank_killed_for_memory_comes_back_in_place(hajob: Cluster) -> None:
    """The kernel kills one process of the container; the launcher lives, and says so."""
    content = hajob.manifest("hungry")
    (container,) = content["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"limits": {"memory": f"{LIMIT}Mi"}, "requests": {"memory": "64Mi"}}
    job = hajob.apply(content)
    job.wait_step(10, seconds=120)
    pid = hajob.nodes.process_of(1, "hungry")
    (path,) = [
        line.split(":")[2] for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines() if ":memory:" in line
    ]
    group = CGROUPS / "memory" / path.lstrip("/")
    assert int((group / "memory.limit_in_bytes").read_text()) == LIMIT << 20
    began = time.time_ns()
    eater = [sys.executable, "-m", "e2e.kubelets.memory", str(group), str(pid), str(2 * LIMIT)]
    assert subprocess.run(eater, check=False, timeout=120).returncode == 0

    hajob.wait_trains(job, 2, began)

    assert newest(job) == ("InPlace", 0)
    assert "the container's memory limit was reached" in str(job.incidents()[0]["cause"])
    assert hajob.weights_differ(job) == []


def test_a_kubelet_that_stands_still_costs_a_job_nothing(hajob: Cluster) -> None:
    """Its node is NotReady after a minute, and its containers run on."""
    job = hajob.train("patient", iterations=2000)
    node = hajob.nodes.nodes[job.node_of(1)]
    node.signal_kubelet(signal.SIGSTOP)
    try:
        hajob.plane.wait("the node to be lost", lambda: node_conditions(hajob, node.name)["Ready"] == "Unknown", 120)
        job.wait_step(job.common_step() + 50)
    finally:
        node.signal_kubelet(signal.SIGCONT)
    hajob.nodes.wait_ready()
    job.wait_step(job.common_step() + 20)
    assert job.incidents() == []
    assert proof.survivors_kept(job.events(), restarted=[]) == []
    job.delete()


def test_a_node_whose_network_is_cut_is_replaced(hajob: Cluster) -> None:
    """Its ranks run on where nobody sees them, and are gone once they may be heard again."""
    job = hajob.train("apart")
    node = hajob.nodes.nodes[job.node_of(1)]
    old = hajob.nodes.process_of(2, "apart")
    try:
        hajob.wait_trains(job, 2, node.cut())
        assert newest(job) == ("Replace", 0)
    finally:
        node.heal()
    hajob.plane.wait("the old rank to be gone", lambda: not Path(f"/proc/{old}").exists(), 30)
    hajob.nodes.wait_ready()
    assert hajob.weights_differ(job) == []


def test_an_evicted_pod_is_replaced_and_told(hajob: Cluster) -> None:
    """The kubelet of its node finds too little memory left."""
    job = hajob.train("squeezed", iterations=1000)
    node = hajob.nodes.nodes[job.node_of(1)]
    began = time.time_ns()
    usual = {"memory.available": "100Mi"}
    node.configure_kubelet(evictionHard={"memory.available": "99%"}, evictionPressureTransitionPeriod="5s")
    try:
        hajob.wait_trains(job, 2, began)
    finally:
        node.configure_kubelet(evictionHard=usual)
    assert newest(job) == ("Replace", 0)
    cause = job.incidents()[0]["cause"]
    assert (cause["code"], cause["nodeName"]) == ("Evicted", node.name), cause
    assert "low on resource: memory" in cause["message"]
    hajob.plane.wait(
        "the pressure to be over", lambda: node_conditions(hajob, node.name)["MemoryPressure"] == "False", 120
    )
    job.delete()


def test_a_node_that_starts_anew_is_used_again(hajob: Cluster) -> None:
    """Power cut, Replace; it boots, its images are there; the next job that may go nowhere else gets it."""
    job = hajob.train("reboot")
    lost = hajob.nodes.nodes[job.node_of(0)]
    hajob.wait_trains(job, 2, lost.power_off())
    began = time.monotonic()
    hajob.nodes.power_on(lost.name)
    hajob.nodes.wait_ready()
    print(f"ready again {time.monotonic() - began:.1f} s after the boot")
    job.delete(seconds=120)

    others = [node.name for node in hajob.nodes.nodes.values() if node.chips and node is not lost]
    wide = hajob.train("wide", nodes=4, spec={"scheduling": {"excludedNodeNames": others[3:]}})

    assert lost.name in nodes_of(wide)
    wide.delete()


def nodes_of(job: Job) -> set[str]:
    """Nodes of its rank pods."""
    return {pod["spec"].get("nodeName", "") for pod in job.pods("rank")}


def test_a_node_with_leader_and_coordinator_is_lost(hajob: Cluster) -> None:
    """Nothing restarts; the next fault is recovered by the leader that is left, and no step is lost.

    The store went with the coordinator; the ranks' gates fill another one.
    The ranks save meanwhile, for longer than an agent waits for a coordinator before it ends ranks that show no life.
    """
    job = hajob.train("beheaded", iterations=2500, arguments=["--save-interval", "20"])
    (coordinator,) = job.pods("coordinator")
    hajob.lead_from(coordinator["spec"]["nodeName"])
    slow = Fault.parse(f"at=save do=slow seconds={SAVE_SECONDS}")
    order(job.logs, slow.line)
    hajob.plane.wait(
        "every rank to save", lambda: all(slow.mark(job.logs, rank).exists() for rank in range(job.world()))
    )
    lost = hajob.nodes.nodes[coordinator["spec"]["nodeName"]]
    leader = hajob.leader()
    assert leader is not None
    assert leader["spec"]["nodeName"] == lost.name
    lost.power_off()
    began = time.monotonic()
    job.wait_condition("CoordinatorReady", "False", 120)
    job.wait_condition("CoordinatorReady", "True", 240)
    print(f"protected again {time.monotonic() - began:.1f} s after the power cut")
    job.wait_step(job.common_step() + 5)
    assert job.incidents() == []
    assert proof.survivors_kept(job.events(), restarted=[]) == []
    hajob.wait_trains(job, 3, hajob.nodes.kill(1, "beheaded"))
    assert newest(job) == ("InPlace", 0)
    successor = hajob.leader()
    assert successor is not None
    assert successor["metadata"]["uid"] != leader["metadata"]["uid"]
    job.delete()


def test_what_trains_outlives_the_operators_removal(hajob: Cluster) -> None:
    """Uninstalled, jobs train on without protection; installed again, they have it."""
    job = hajob.train("lonely", iterations=1500)
    hajob.helm("uninstall", "hajob", "--wait", "--timeout=60s")
    hajob.plane.wait("the operators to be gone", lambda: not hajob.operators(), 60)
    job.wait_step(job.common_step() + 50)
    assert proof.survivors_kept(job.events(), restarted=[]) == []

    hajob.install()
    hajob.wait_trains(job, 2, hajob.nodes.kill(0, "lonely"))
    assert newest(job) == ("InPlace", 0)
    job.delete()


def test_pods_of_a_deleted_job_are_gone_at_once(hajob: Cluster) -> None:
    """Nobody in them waits for one that was deleted with them."""
    job = hajob.train("brief", iterations=1000)
    began = time.monotonic()
    hajob.plane.api.delete(job.path)
    hajob.plane.wait("its pods to be gone", lambda: not job.pods(), 60)
    seconds = time.monotonic() - began
    print(f"gone after {seconds:.1f} s")
    assert seconds < 5


def test_a_drained_node_is_left_without_a_restart(hajob: Cluster) -> None:
    """The job moves; nothing of it looks like a fault of the program."""
    job = hajob.train("moved", iterations=1500)
    node = job.node_of(1)
    began = time.time_ns()
    drain = ("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=120s")
    try:
        hajob.plane.kubectl(*drain, timeout=150)
        hajob.wait_trains(job, 2, began)
    finally:
        hajob.plane.kubectl("uncordon", node)
    assert newest(job) == ("Migrate", 0)
    assert "SIGKILL" not in str(job.incidents()[0]["cause"])
    job.delete()
