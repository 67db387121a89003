"""Jobs that cannot work, and failures of what surrounds a job: a clear word, an end, and nothing left behind.

What the API server refuses by itself is in tests/integration/api, a first build without network or disk in
tests/integration/bootstrap, a full disk while training in tests/unit/launcher.
"""

from __future__ import annotations

import datetime
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from e2e.harness import mismatched_images
from e2e.harness.job import Job, manifest
from e2e.harness.rig import RIG_LABEL, Rig, RigLayout
from e2e.scenarios.proofs import assert_recovered, assert_weights_equal
from e2e.trainer import proof
from e2e.trainer.store_wire import NEW, UNHEARD_OF, VARIABLE, Version
from hajob.api.constants import LABEL_NODE_RANK

STEPS = 60
LONG = 300
INTERVAL = 30
SMALL: Mapping[str, Any] = {"tensor": 1, "nodes": 2, "chips": 1, "iterations": STEPS}
FAILED_SECONDS = 120.0
TOLD_SECONDS = 10.0
"""So soon a condition names what a job cannot work with."""
LOSS_SECONDS = 3.0
"""So soon the loss of a coordinator is said."""
MINDIO_PORT = 8000
LAST_POD = 40
"""Pods of a node get addresses from 2 on; nobody makes so many in a test."""


@dataclass(frozen=True)
class BadJob:
    """A job that the server accepts and that cannot work.

    Attributes:
        reason: Of the condition Failed in the end.
        words: What its message must contain.
        container: Fields of the trainer's container.
        arguments: Of the trainer.
        spec: Fields of the spec.
        most_starts: So often the job is started at most.
        seen: Where it is promised to be told soon: since when it can be seen, in seconds.
    """

    reason: str
    words: str
    container: Mapping[str, Any] = field(default_factory=dict)
    arguments: Sequence[str] = ()
    spec: Mapping[str, Any] = field(default_factory=dict)
    most_starts: int = 2
    seen: Callable[[Job], float] | None = None


def controller_started(job: Job) -> float:
    """From here on what its image lacks can be found out."""
    return job.started("controller")


def first_call(job: Job) -> float:
    """A rank begins to talk to MindIO."""
    return time_of_first(job, "first_call")


def time_of_first(job: Job, event: str) -> float:
    """Of this kind in the ranks' logs, in seconds."""
    return float(proof.of(job.events(), event)[0]["t"]) / 1e9


def told_at(condition: Mapping[str, Any]) -> float:
    """When a condition became so, in seconds."""
    return datetime.datetime.fromisoformat(condition["lastTransitionTime"]).timestamp()


NONSENSE = ("rank=1 step=40 do=kill", "rank=0 at=clean do=nonsense always=1")
TWICE = {"recovery": {"maxProgramFailures": 1}}
BROKEN_IMAGE = "example/without-python:1"
BAD_JOBS = {
    "image-missing": BadJob(
        "ImageUnavailable", "no/such:1", {"image": "no/such:1"}, spec={"startupDeadlineSeconds": 30}, most_starts=1
    ),
    "nothing-to-run": BadJob(
        "ContainerNotStarted",
        "python3",
        {"image": BROKEN_IMAGE},
        spec={"recovery": {"maxProgramFailures": 0}},
        most_starts=1,
    ),
    "entry-point-wrong": BadJob("ScriptEnded", "no-such-program", {"command": ["no-such-program"]}, spec=TWICE),
    "script-missing": BadJob(
        "ScriptEnded", "no-such.sh: No such file", {"command": ["bash", "no-such.sh"]}, spec=TWICE
    ),
    "script-exits-1": BadJob(
        "ScriptEnded", "what a pity", {"command": ["bash", "-c", "echo what a pity; exit 1"]}, spec=TWICE
    ),
    "rank-exits-1-at-once": BadJob(
        "ProgramFailed",
        "rank 1: ends with code 1, as ordered",
        arguments=["--fault", "rank=1 at=startup do=exit always=1"],
        spec=TWICE,
    ),
    "rank-exits-1-at-a-step": BadJob(
        "ProgramFailed",
        "rank 1: ends with code 1, as ordered",
        arguments=["--fault", "rank=1 step=8 do=exit always=1", "--step-time-ms", "300"],
        spec={"recovery": {"maxProgramFailures": 2}},
        most_starts=3,
    ),
    "no-mindio-in-the-image": BadJob(
        "ImageUnusable",
        "no usable package mindio_ttp (ModuleNotFoundError",
        {"image": "example/no-mindio:1"},
        most_starts=1,
        seen=controller_started,
    ),
    "torch-needs-a-chip": BadJob(
        "ImageUnusable",
        "libhccl.so: cannot open shared object file; source set_env.sh",
        {"image": "example/torch-needs-a-chip:1"},
        most_starts=1,
        seen=controller_started,
    ),
    "old-mindio-in-the-image": BadJob(
        "ImageUnusable",
        "lacks tft_notify_controller_prepare_action",
        {"image": "example/old-mindio:1"},
        most_starts=1,
        seen=controller_started,
    ),
    "tls-in-the-trainer-only": BadJob(
        "MindIOTLSMismatch", "enable_tls=False", {"image": "example/tls-trainer:1"}, most_starts=1, seen=first_call
    ),
}


@pytest.fixture
def small_rig(start_rig: Callable[[RigLayout], Rig]) -> Rig:
    """Room for all bad jobs at once, two nodes with a chip for each."""
    rig = start_rig(RigLayout(chip_nodes=len(BAD_JOBS), chips=2))
    images = {
        BROKEN_IMAGE: {"PATH": "/nowhere"},
        "example/no-mindio:1": mismatched_images.no_mindio(),
        "example/torch-needs-a-chip:1": mismatched_images.torch_without_cann(rig.directory / "torch"),
        "example/old-mindio:1": mismatched_images.older_mindio(
            rig.directory / "older", "controller_ttp", "tft_notify_controller_prepare_action"
        ),
        "example/tls-trainer:1": mismatched_images.trainer_with_tls(rig.directory / "certificates"),
    }
    for number, (image, environment) in enumerate(images.items()):
        directory = mismatched_images.image_like(rig.trainer_image, rig.directory / f"image-{number}", environment)
        rig.nodes.control.set_image(image, directory)
    return rig


def submit(rig: Rig, name: str, bad: BadJob) -> Job:
    """Apply a bad job."""
    volume = rig.directory / "volumes" / name
    selector = {RIG_LABEL: rig.name}
    fields = dict(SMALL) | {"arguments": bad.arguments, "spec": bad.spec, "node_selector": selector}
    content = manifest(name, rig.namespace, volume, **fields)
    content["spec"]["template"]["spec"]["containers"][0].update(bad.container)
    return rig.apply(content, volume)


def pod_names_ever(rig: Rig, job: Job) -> set[str]:
    """Every pod of node rank 0 that was made for the job, as the audit log has it."""
    writes = rig.plane.audit.writes(namespace=rig.namespace)
    return {
        each.name
        for each in writes
        if (each.verb, each.resource) == ("create", "pods") and each.name.startswith(f"{job.name}-0-")
    }


@pytest.mark.slow
def test_jobs_that_cannot_work_fail_with_reason_and_last_words(small_rig: Rig) -> None:
    jobs = {name: submit(small_rig, name, bad) for name, bad in BAD_JOBS.items()}
    failed = {name: job.wait_condition("Failed", seconds=FAILED_SECONDS) for name, job in jobs.items()}
    assert {name: failed[name]["reason"] for name in jobs} == {name: bad.reason for name, bad in BAD_JOBS.items()}
    for name, bad in BAD_JOBS.items():
        assert bad.words in failed[name]["message"], name
        restarts = jobs[name].status()["restarts"]
        assert restarts["infrastructure"] + restarts["program"] < bad.most_starts, (name, restarts)
        assert len(pod_names_ever(small_rig, jobs[name])) <= bad.most_starts, name
        if bad.seen:
            assert told_at(failed[name]) - bad.seen(jobs[name]) <= TOLD_SECONDS, name


def test_a_pod_that_the_server_refuses_makes_the_job_impossible(rig: Rig) -> None:
    bad = BadJob("", "", {"volumeMounts": [{"name": "no-such-volume", "mountPath": "/ckpt"}]})
    job = submit(rig, "impossible", bad)
    accepted = job.wait_condition("Accepted", "False")
    assert accepted["reason"] == "PodRefused"
    assert 'volumeMounts[0].name: Not found: "no-such-volume"' in accepted["message"]
    assert job.pods() == []


@pytest.mark.slow
def test_misuse_of_mindio_is_named_and_the_training_ends_well(rig: Rig) -> None:
    silent = {"step_milliseconds": 1000, "environment": {"TOY_REGISTERS_NOTHING": "1"}}
    secret = rig.submit("secret", **{**SMALL, "iterations": LONG}, **silent)
    faults = [word for fault in NONSENSE for word in ("--fault", fault)]
    nonsense = rig.submit("nonsense", **{**SMALL, "chips": 2}, arguments=faults)
    words = "failed: 4"  # MindIO's code and words

    def restarts() -> bool:
        running = nonsense.condition("Running")
        return running.get("status") == "False" and words in running.get("message", "")

    rig.plane.wait("the handler's failure in a condition", restarts)
    assert time.time() - time_of_first(nonsense, "stop") <= TOLD_SECONDS
    named = rig.plane.wait("the copies in a condition", lambda: _reason(secret, "Recoverable", "CopiesNotRegistered"))
    assert told_at(named) - time_of_first(secret, "step_end") <= TOLD_SECONDS
    actions = secret.status()["recoverability"]
    evaluated = {each["action"]: {one["name"] for one in each.get("unmet", [])} for each in actions}
    assert "HandlersRegistered" in evaluated["InPlace"], "as of an entry that registers none"
    (pod,) = [each["metadata"] for each in secret.pods("rank") if each["metadata"]["labels"][LABEL_NODE_RANK] == "1"]
    rig.nodes.control.kill(namespace=rig.namespace, pod=pod["name"], rank=1)
    assert_weights_equal(nonsense, STEPS)
    assert secret.wait_incident(2, seconds=120)["action"] == "Restart", "nobody could answer MindIO"
    assert_weights_equal(secret, LONG)


def _reason(job: Job, kind: str, reason: str) -> dict[str, Any] | None:
    found = job.condition(kind)
    return found if found.get("reason") == reason else None


@pytest.fixture
def occupied() -> Iterator[Callable[[Sequence[str], int], None]]:
    """Listens at addresses until the test is over."""
    with ExitStack() as listening:

        def occupy(addresses: Sequence[str], port: int) -> None:
            for address in addresses:
                listening.enter_context(socket.create_server((address, port)))

        yield occupy


@pytest.mark.slow
def test_a_taken_port_is_named_and_the_node_avoided(
    start_rig: Callable[[RigLayout], Rig], occupied: Callable[[Sequence[str], int], None]
) -> None:
    rig = start_rig(RigLayout(chip_nodes=3))
    taken = rig.nodes.settings.first_block  # of the first node
    occupied([rig.plane.run.address(taken, pod) for pod in range(2, LAST_POD)], MINDIO_PORT)
    first = rig.nodes.settings.nodes[0].name
    for other in rig.nodes.settings.nodes[2:3]:  # so that the first node has to be tried
        rig.plane.kubectl("cordon", other.name)
    job = rig.submit(iterations=STEPS, nodes=2, tensor=1)
    words = f":{MINDIO_PORT} cannot be listened on"
    rig.plane.wait("the port in a condition", lambda: words in job.condition("Running").get("message", ""))
    assert time.time() - job.started("agent") <= TOLD_SECONDS
    cause = job.incidents()[0]["cause"]
    assert words in cause["message"]
    assert cause["nodeName"] == first
    for other in rig.nodes.settings.nodes[2:3]:
        rig.plane.kubectl("uncordon", other.name)
    assert_weights_equal(job, STEPS)
    assert first not in {job.node_of(0), job.node_of(1)}


@pytest.mark.slow
def test_deleted_and_applied_again_at_once_with_a_dead_node(rig: Rig) -> None:
    job = rig.submit(iterations=STEPS)
    job.wait_step(5)
    rig.nodes.control.power_off(job.node_of(0))
    rig.plane.wait("the node to be missed", job.incidents)  # else its pod is waited for until Kubernetes misses it
    rig.plane.kubectl("--namespace", job.namespace, "delete", "hatrainingjob", job.name, "--timeout=30s")
    for log in job.logs.iterdir():
        log.unlink()
    again = rig.submit(iterations=STEPS)
    assert_recovered(again, [], STEPS)


@pytest.mark.slow
def test_a_deleted_job_leaves_nothing(rig: Rig) -> None:
    job = rig.submit(iterations=1000)
    job.wait_step(5)
    uid = job.get()["metadata"]["uid"]
    job.delete()
    kinds = rig.plane.kubectl("api-resources", "--namespaced", "--verbs=list", "--output=name").stdout.split()
    kinds = [kind for kind in kinds if not kind.startswith("events")]

    def left() -> list[str]:
        listed = rig.plane.kubectl("--namespace", job.namespace, "get", ",".join(kinds), "--output=json", check=False)
        return [
            f"{each['kind']} {each['metadata']['name']}"
            for each in json.loads(listed.stdout)["items"]
            if any(owner["uid"] == uid for owner in each["metadata"].get("ownerReferences", []))
        ]

    rig.plane.wait("nothing to be left of the job", lambda: not left())
    pods = [process for process in rig.nodes.control.processes() if process.pod.startswith(f"{job.name}-")]
    assert pods == []


@pytest.mark.slow
def test_suspended_and_resumed(rig: Rig) -> None:
    job = rig.submit(iterations=LONG)
    job.wait_step(5)
    job.patch({"spec": {"suspend": True}})
    suspended = job.wait_condition("Suspended")
    assert "the current step is saved" in suspended["message"]
    assert job.pods() == []
    before = job.common_step()
    job.patch({"spec": {"suspend": False}})
    job.wait_condition("Suspended", "False")
    assert_weights_equal(job, LONG)
    (loaded,) = {each["step"] for each in proof.of(job.events(), "load_checkpoint")}
    assert loaded >= before, "not a step is lost"


def kill_the_controller(rig: Rig, pod: str) -> float:
    """MindIO's controller dies, the sidecar beside it lives; returns when, in seconds."""
    killed = rig.nodes.control.kill(namespace=rig.namespace, pod=pod, container="controller")
    return int(killed["time"]) / 1e9


def delete_the_pod(rig: Rig, pod: str) -> float:
    """All of it is gone at once; returns when, in seconds."""
    began = time.time()
    rig.plane.api.delete(f"/api/v1/namespaces/{rig.namespace}/pods/{pod}", gracePeriodSeconds=0)
    return began


def kill_at(job: Job, rig: Rig, step: int, kill: Callable[[Rig, str], float]) -> None:
    """Its coordinator is hit at a step, which the conditions say within three seconds."""
    job.wait_condition("CoordinatorReady")
    pod = job.pods("coordinator")[0]["metadata"]["name"]
    job.wait_step(step)
    killed = kill(rig, pod)
    told = job.wait_condition("CoordinatorReady", "False")
    assert told_at(told) - killed <= LOSS_SECONDS


def test_an_end_without_a_coordinator_is_complete(rig: Rig) -> None:
    job = rig.submit(iterations=STEPS)
    kill_at(job, rig, STEPS - 16, delete_the_pod)
    assert_recovered(job, [], STEPS)


@pytest.mark.parametrize(
    ("torch", "came_to"),
    [(NEW, ("InPlace", [])), (UNHEARD_OF, ("Restart", ["Checkpoint"]))],
    ids=["known", "unheard-of"],
)
@pytest.mark.slow
def test_a_lost_coordinator_costs_no_restart(rig: Rig, torch: Version, came_to: tuple[str, list[str]]) -> None:
    """A new pod takes over while the training goes on; where its store cannot be filled, the next fault is saved."""
    spec: dict[str, Any] = {"recovery": {"coordinatorLossPolicy": "Immediately"}}
    job = rig.submit("now", **{**SMALL, "iterations": LONG}, spec=spec, environment={VARIABLE: torch.name})
    kill_at(job, rig, 5, kill_the_controller)
    job.wait_condition("CoordinatorReady")
    rig.plane.wait("the takeover to be counted", lambda: job.takeovers() == 1)
    assert job.status()["restarts"] == {"infrastructure": 0, "program": 0}
    rig.nodes.control.kill(namespace=rig.namespace, rank=1)
    assert_weights_equal(job, LONG)
    (incident,) = job.incidents()
    assert (incident["action"], incident.get("escalatedFrom", [])) == came_to, incident
    assert incident["lostSteps"] == 0
