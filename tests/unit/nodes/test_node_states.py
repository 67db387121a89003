"""From what a node knows about containers to the status of their pod."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.nodes.states import (
    ContainerRecord,
    ContainerWaiting,
    Failure,
    Kind,
    PodRecord,
    Running,
    State,
    Terminated,
    conditions_by_type,
    kind_of,
    phase,
    status,
)

RUNS = Running(100.0, "process://1")
GOOD = Terminated(0, "Completed", 100.0, 101.0, "process://1")
BAD = Terminated(137, "Error", 100.0, 101.0, "process://1", "killed")
WAITS = ContainerWaiting("PodInitializing")
CRASHED = ContainerWaiting("CrashLoopBackOff", "back-off 10s")


def container(kind: Kind, state: State, **fields: Any) -> ContainerRecord:
    return ContainerRecord(fields.pop("name", kind.value), "img", kind, state, **fields)


def pod(*containers: ContainerRecord, **fields: Any) -> PodRecord:
    body = {"metadata": {"name": "p", "generation": 3}, "spec": fields.pop("spec", {})}
    return PodRecord(body, list(containers), host_address="h", pod_address="a", **fields)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (pod(container(Kind.MAIN, WAITS)), "Pending"),
        (pod(container(Kind.INIT, RUNS), container(Kind.MAIN, WAITS)), "Pending"),
        (pod(container(Kind.INIT, BAD), container(Kind.MAIN, WAITS)), "Pending"),
        (pod(container(Kind.INIT, BAD), container(Kind.MAIN, WAITS), finished=True), "Failed"),
        (pod(container(Kind.SIDECAR, RUNS, started=True), container(Kind.MAIN, WAITS)), "Pending"),
        (pod(container(Kind.INIT, GOOD), container(Kind.MAIN, RUNS)), "Running"),
        (pod(container(Kind.MAIN, RUNS), container(Kind.MAIN, WAITS)), "Pending"),
        (pod(container(Kind.MAIN, CRASHED, last=BAD, restart_count=1)), "Running"),
        (pod(container(Kind.MAIN, GOOD), container(Kind.SIDECAR, RUNS, started=True)), "Running"),
        (pod(container(Kind.MAIN, GOOD), container(Kind.SIDECAR, BAD), finished=True), "Succeeded"),
        (pod(container(Kind.MAIN, GOOD), container(Kind.MAIN, BAD), finished=True), "Failed"),
        (pod(container(Kind.MAIN, WAITS), failure=Failure("UnexpectedAdmissionError", "m")), "Failed"),
    ],
)
def test_phase(record: PodRecord, expected: str) -> None:
    assert phase(record) == expected


def conditions(record: PodRecord) -> dict[str, dict[str, Any]]:
    return conditions_by_type(status(record, {}, 100.0)["conditions"])


def truths(record: PodRecord) -> dict[str, str]:
    return {name: condition["status"] for name, condition in conditions(record).items()}


def test_a_pod_that_has_just_come() -> None:
    record = pod(container(Kind.INIT, WAITS, name="i"), container(Kind.MAIN, WAITS, name="m"))
    assert truths(record) == {
        "PodReadyToStartContainers": "False",
        "Initialized": "False",
        "Ready": "False",
        "ContainersReady": "False",
        "PodScheduled": "True",
    }
    got = conditions(record)
    assert got["Initialized"]["message"] == "containers with incomplete status: [i]"
    assert got["Ready"]["reason"] == "ContainersNotReady"
    assert got["Ready"]["message"] == "containers with unready status: [m]"


def test_a_pod_that_runs_and_is_ready() -> None:
    record = pod(
        container(Kind.INIT, GOOD),
        container(Kind.SIDECAR, RUNS, started=True, ready=True),
        container(Kind.MAIN, RUNS, started=True, ready=True),
        sandbox_ready=True,
    )
    assert set(truths(record).values()) == {"True"}
    assert all(condition["reason"] is None for condition in conditions(record).values())


def test_an_unready_sidecar_makes_the_pod_unready() -> None:
    record = pod(container(Kind.SIDECAR, RUNS, started=True), container(Kind.MAIN, RUNS, ready=True))
    assert conditions(record)["Ready"]["message"] == "containers with unready status: [sidecar]"


def test_a_readiness_gate_holds_ready_back() -> None:
    record = pod(container(Kind.MAIN, RUNS, ready=True), spec={"readinessGates": [{"conditionType": "g"}]})
    assert truths(record)["ContainersReady"] == "True"
    assert conditions(record)["Ready"]["reason"] == "ReadinessGatesNotReady"
    record.pod["status"] = {"conditions": [{"type": "g", "status": "True"}]}
    assert truths(record)["Ready"] == "True"


@pytest.mark.parametrize(("state", "reason"), [(GOOD, "PodCompleted"), (BAD, "PodFailed")])
def test_a_pod_that_is_over_is_not_ready(state: State, reason: str) -> None:
    got = conditions(pod(container(Kind.MAIN, state), finished=True, sandbox_ready=True))
    assert (got["Ready"]["status"], got["Ready"]["reason"]) == ("False", reason)
    assert got["PodReadyToStartContainers"]["status"] == "False"


def test_an_unchanged_condition_keeps_its_time() -> None:
    record = pod(container(Kind.MAIN, RUNS, ready=True), sandbox_ready=True)
    first = conditions_by_type(status(record, {}, 100.0)["conditions"])
    record.containers[0].ready = False
    second = conditions_by_type(status(record, first, 200.0)["conditions"])
    assert second["Initialized"]["lastTransitionTime"] == first["Initialized"]["lastTransitionTime"]
    assert second["Ready"]["lastTransitionTime"] == "1970-01-01T00:03:20Z"


def test_container_statuses() -> None:
    record = pod(
        container(Kind.INIT, GOOD),
        container(Kind.SIDECAR, RUNS, started=True, ready=True),
        container(Kind.MAIN, CRASHED, last=BAD, restart_count=2),
    )
    got = status(record, {}, 100.0)
    init, sidecar = got["initContainerStatuses"]
    assert init["ready"] is True
    assert init["state"]["terminated"]["exitCode"] == 0
    assert (sidecar["started"], sidecar["ready"]) == (True, True)
    assert sidecar["state"] == {"running": {"startedAt": "1970-01-01T00:01:40Z"}}
    (main,) = got["containerStatuses"]
    assert main["restartCount"] == 2
    assert main["state"] == {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    assert main["lastState"]["terminated"] == {
        "exitCode": 137,
        "reason": "Error",
        "message": "killed",
        "containerID": "process://1",
        "startedAt": "1970-01-01T00:01:40Z",
        "finishedAt": "1970-01-01T00:01:41Z",
    }


def test_addresses_and_failure() -> None:
    record = pod(container(Kind.MAIN, WAITS), failure=Failure("UnexpectedAdmissionError", "no chips"))
    got = status(record, {}, 100.0)
    assert (got["reason"], got["message"]) == ("UnexpectedAdmissionError", "no chips")
    assert (got["podIP"], got["podIPs"], got["hostIP"]) == ("a", [{"ip": "a"}], "h")
    assert got["observedGeneration"] == 3
    record.pod_address = ""
    assert "podIP" not in status(record, {}, 100.0)


def test_kinds() -> None:
    init, sidecar, main = {"name": "i"}, {"name": "s", "restartPolicy": "Always"}, {"name": "m"}
    spec = {"initContainers": [init, sidecar], "containers": [main]}
    assert [kind_of(spec, one) for one in (init, sidecar, main)] == [Kind.INIT, Kind.SIDECAR, Kind.MAIN]
