"""Everything that can happen to a node, on command."""

from __future__ import annotations

import os
import select
import socket
from pathlib import Path
from typing import Any

import pytest

from e2e.nodes.control import ControlError
from tests.integration.nodes.conftest import Object, Rig, python, shell

IP = [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
ECHO = (
    "import os, socket; s = socket.create_server((os.environ['IP'], 7000)); print('up')\n"
    "c, _ = s.accept()\n"
    "while True: c.sendall(c.recv(100))"
)


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "gone"


def node(rig: Rig, name: str) -> Object:
    found: Object = rig.plane.api.get(f"/api/v1/nodes/{name}")
    return found


def renewed(rig: Rig, name: str) -> str:
    path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"
    return str(rig.plane.api.get(path)["spec"]["renewTime"])


def connected(rig: Rig, name: str) -> socket.socket:
    """A connection to a pod's echo server that was seen to work."""
    rig.wait_log(name, "up")
    peer = socket.create_connection((rig.pod(name)["status"]["podIP"], 7000), timeout=60)
    peer.sendall(b"a")
    assert peer.recv(1) == b"a"
    return peer


def silent(peer: socket.socket, seconds: float) -> bool:
    """Whether nothing comes, no end of the connection either."""
    return not select.select([peer], [], [], seconds)[0]


def test_a_node_that_is_off_says_nothing_and_closes_nothing(rig: Rig) -> None:
    rig.run("p", node=rig.small, containers=[python("main", ECHO, env=IP)])
    with connected(rig, "p") as peer:
        rig.control.power_off(rig.small)
        assert {process.state for process in rig.control.processes(pod="p")} == {"T"}
        before = renewed(rig, rig.small)
        peer.sendall(b"b")
        assert silent(peer, 1.0)
        assert renewed(rig, rig.small) == before
        pids = rig.pids("p")

        rig.control.thaw_node(rig.small)
        assert peer.recv(1) == b"b"
        assert rig.pids("p") == pids
        rig.wait("the lease to be renewed", lambda: renewed(rig, rig.small) != before)
    assert rig.pod("p")["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_node_that_boots_has_lost_what_ran(rig: Rig) -> None:
    rig.run("p", node=rig.small, containers=[python("main", ECHO, env=IP)])
    rig.run("always", "exec sleep 600", node=rig.small, restartPolicy="Always")
    rig.wait_phase("always", "Running")
    with connected(rig, "p") as peer:
        pids = [*rig.pids("p"), *rig.pids("always")]
        boot = node(rig, rig.small)["status"]["nodeInfo"]["bootID"]
        rig.control.power_off(rig.small)
        rig.control.power_on(rig.small)
        assert peer.recv(1) == b""
    assert {state_of(pid) for pid in pids} == {"gone"}
    rig.wait_phase("p", "Failed")
    ended = rig.container("p")["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (255, "Unknown")
    assert node(rig, rig.small)["status"]["nodeInfo"]["bootID"] != boot
    rig.wait("the other pod to run again", lambda: rig.container("always")["restartCount"] == 1 and rig.pids("always"))
    assert rig.container("always")["lastState"]["terminated"]["exitCode"] == 255


def test_a_pod_frozen_with_its_node_ends_when_that_thaws(rig: Rig) -> None:
    rig.run("p", "exec sleep 600", node=rig.small)
    rig.wait_phase("p", "Running")
    (pid,) = rig.pids("p")
    rig.control.power_off(rig.small)
    rig.delete("p", gracePeriodSeconds=1)
    assert state_of(pid) == "T"
    assert rig.pod("p")["metadata"]["deletionTimestamp"]
    rig.control.thaw_node(rig.small)
    rig.wait_gone("p")
    assert state_of(pid) == "gone"


def test_a_pod_removed_while_its_node_was_off_is_dead_at_boot(rig: Rig) -> None:
    rig.run("p", "exec sleep 600", node=rig.small)
    rig.wait_phase("p", "Running")
    (pid,) = rig.pids("p")
    rig.control.power_off(rig.small)
    rig.delete("p", gracePeriodSeconds=0)
    rig.control.power_on(rig.small)
    assert state_of(pid) == "gone"
    rig.run("q", "exit 0", node=rig.small)
    rig.wait_phase("q", "Succeeded")


def test_what_was_frozen_before_stays_frozen_when_a_node_thaws(rig: Rig) -> None:
    rig.run("p", "exec sleep 600", node=rig.small)
    rig.run("q", "exec sleep 600", node=rig.small)
    rig.wait_phase("p", "Running")
    rig.wait_phase("q", "Running")
    rig.control.freeze(pod="p")
    rig.control.power_off(rig.small)
    rig.control.thaw_node(rig.small)
    rig.wait("the other pod to go on", lambda: state_of(rig.pids("q")[0]) == "S")
    assert state_of(rig.pids("p")[0]) == "T"
    rig.control.thaw(pod="p")
    rig.wait("the pod to go on", lambda: state_of(rig.pids("p")[0]) == "S")


def test_a_node_without_its_api_runs_on_and_tells_later(rig: Rig) -> None:
    rig.run("p", "trap 'exit 5' USR1; echo up; while :; do sleep 0.02; done", node=rig.small)
    rig.wait_log("p", "up")
    rig.wait_phase("p", "Running")
    (first, *_) = rig.pids("p")
    rig.control.cut_api(rig.small)
    before = renewed(rig, rig.small)
    rig.control.kill("USR1", pod="p", container="main")
    rig.wait("the process to end", lambda: state_of(first) == "gone")
    assert rig.pod("p")["status"]["phase"] == "Running"
    assert renewed(rig, rig.small) == before
    rig.control.restore_api(rig.small)
    rig.wait_phase("p", "Failed")
    assert rig.container("p")["state"]["terminated"]["exitCode"] == 5


def test_a_pod_made_and_deleted_during_a_cut_is_gone_after_it(rig: Rig) -> None:
    rig.control.cut_api(rig.small)
    rig.run("p", "exec sleep 600", node=rig.small)
    rig.delete("p", gracePeriodSeconds=20)
    assert rig.pod("p")["metadata"]["deletionTimestamp"]
    rig.control.restore_api(rig.small)
    rig.wait_gone("p")


def test_a_chip_broken_on_a_cut_off_node_is_told_later(rig: Rig) -> None:
    rig.control.cut_api(rig.small)
    rig.control.break_chip(rig.small, 0)
    allocatable = node(rig, rig.small)["status"]["allocatable"]
    assert allocatable["huawei.com/Ascend910"] == "2"
    rig.control.restore_api(rig.small)

    def chips() -> str:
        return str(node(rig, rig.small)["status"]["allocatable"]["huawei.com/Ascend910"])

    rig.wait("one chip less", lambda: chips() == "1")
    rig.control.repair_chip(rig.small, 0)
    assert chips() == "2"


def test_freezing_sidecars_cuts_hajobs_connections_of_a_node(rig: Rig) -> None:
    agent = shell("agent", "exec sleep 600", restartPolicy="Always")
    rig.run("p", "exec sleep 600", node=rig.small, initContainers=[agent])
    rig.wait_phase("p", "Running")
    rig.control.cut_hajob(rig.small)
    assert [p.container for p in rig.control.processes(pod="p") if p.state == "T"] == ["agent"]
    rig.control.restore_hajob(rig.small)
    rig.wait("the agent to go on", lambda: not [p for p in rig.control.processes(pod="p") if p.state == "T"])


RANKS = """
import os, subprocess, sys, time
child = "import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', 'import time; time.sleep(600)'])"
for rank in ("4", "5"):
    subprocess.Popen([sys.executable, "-S", "-c", child], env={**os.environ, "RANK": rank})
print("up")
time.sleep(600)
"""


def test_a_rank_is_killed_alone(rig: Rig) -> None:
    rig.run("p", node=rig.small, containers=[python("main", RANKS)])
    rig.wait_log("p", "up")
    rig.wait("both ranks", lambda: len(rig.pids("p")) == 5)
    killed = rig.control.kill(rank=5, pod="p")
    assert killed["pod"] == "p"
    assert killed["node"] == rig.small
    rig.wait("the rank to end", lambda: state_of(killed["pid"]) in {"Z", "gone"})
    assert [process.rank for process in rig.control.processes(pod="p")].count(4) == 2
    assert rig.container("p")["state"].keys() == {"running"}


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ({"rank": 9}, "means 0 processes, not one: none"),
        ({"node": "nowhere", "rank": 1}, "no node 'nowhere'; there are: "),
        ({}, "say which processes: pod, container, rank or pid"),
        ({"podd": "x"}, "unknown arguments podd; processes are selected by node, namespace, pod"),
    ],
)
def test_a_command_that_means_nothing_is_refused_with_the_reason(rig: Rig, which: Any, message: str) -> None:
    with pytest.raises(ControlError) as raised:
        rig.control.kill(**which)
    assert message in str(raised.value)


def test_commands_that_make_no_sense_are_refused(rig: Rig) -> None:
    with pytest.raises(ControlError, match="is not off"):
        rig.control.power_on(rig.small)
    with pytest.raises(ControlError, match=r"has no chip 7, it has 2"):
        rig.control.break_chip(rig.small, 7)
    with pytest.raises(ControlError, match="unknown command 'explode'; there are: break-chip"):
        rig.control.call("explode")
    with pytest.raises(ControlError, match="argument 'node' is missing"):
        rig.control.call("power-off")


def test_the_state_shows_nodes_pods_and_processes(rig: Rig) -> None:
    rig.run("p", "exec sleep 600", node=rig.small, container={"resources": {"limits": {"huawei.com/Ascend910": 1}}})
    rig.wait_phase("p", "Running")

    def shown() -> Object:
        (small,) = (one for one in rig.control.state()["nodes"] if one["name"] == rig.small)
        found: Object = next(one for one in small["pods"] if one["name"] == "p")
        return found

    def commands() -> list[list[str]]:
        (container,) = shown()["containers"]
        return [process["command"] for process in container["processes"]]

    rig.wait("the shell to become what it runs", lambda: commands() == [["sleep", "600"]])
    pod = shown()
    assert pod["address"] == rig.pod("p")["status"]["podIP"]
    assert len(pod["chips"]) == 1
    (container,) = pod["containers"]
    assert container["state"] == "running"
    assert os.path.exists(container["log"])  # noqa: PTH110


def test_every_process_carries_the_mark_of_the_run(rig: Rig) -> None:
    rig.run("p", "env | grep HAJOB_RUN; exec sleep 600")
    assert f"HAJOB_RUN={rig.plane.run.identity}" in rig.wait_log("p", "HAJOB_RUN")
