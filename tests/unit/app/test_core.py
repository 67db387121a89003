"""A job whose controller breaks by an error of this program gets another controller, from what the server has.

And what happens to pods and jobs that went while nobody looked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from e2e.memory_api.schema import job_schema
from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.job import HATrainingJob
from hajob.app.core import OperatorCore
from hajob.capacity.caches import Caches
from hajob.coordinator_link.channel import Channel, CoordinatorCredentials, Dialer
from hajob.job.controller import JobController
from hajob.job.ports import Ports
from hajob.job.status.journal import read_journal
from hajob.kube.client import ApiError
from hajob.leader.leader_kube import NOT_LEADING
from hajob.leader.leadership import Leadership
from hajob.plan.state import JobPhase, Shrunk
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources.node import NodeView
from hajob.sources.pod import pod_view_of
from tests.rigs.channel_listeners import NotingListener, ScriptedStream, put_at_every_address
from tests.rigs.fake_clock import FakeClock, settle
from tests.rigs.fake_kube import unreachable
from tests.rigs.job_controller import NAMESPACE, ControllerTown, settle_town
from tests.rigs.metrics import sample
from tests.rigs.two_jobs import TwoJobs

UID = "uid-1"


class Hall:
    """A core with one job."""

    def __init__(self, town: ControllerTown) -> None:
        self.town = town
        self.ports = town.ports()
        self.core = OperatorCore(self.ports, Caches())
        self.core.note_complete_pods(town.kube.version)
        self.core.handle_job(town.stored())

    @property
    def controller(self) -> JobController | None:
        return self.core.controllers.get(UID)

    async def list_pods(self) -> None:
        """What an informer tells that has lost its watch."""
        version = self.town.kube.version
        await self.show_pods()
        self.core.note_complete_pods(version)
        await settle_town(self.town)

    async def show_pods(self) -> None:
        for (resource, _, _), body in sorted(self.town.kube.objects.items()):
            if resource == "pods":
                self.core.handle_changed_pod(pod_view_of(body), deleted=False)
        await settle_town(self.town)


@pytest.fixture
async def hall() -> AsyncIterator[Hall]:
    town = ControllerTown()
    await town.controller.stop_managing()
    made = Hall(town)
    await settle_town(town)
    yield made
    await made.core.close_controllers()


async def broken_by(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> JobController:
    """The controller fails at the next pod it sees."""
    controller = hall.controller
    assert controller is not None

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(controller, "apply_pod", fail)
    await hall.show_pods()
    return controller


def at_work(job: str) -> list[str]:
    """List the tasks that manage a job of this name."""
    names_of_tasks = (task.get_name() for task in asyncio.all_tasks() if not task.done())
    return sorted(name for name in names_of_tasks if name.endswith(f"/{job}"))


async def test_a_failed_controller_is_opened_anew_from_the_journal(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    await hall.show_pods()
    before = hall.controller.state if hall.controller else None
    broken = await broken_by(hall, monkeypatch)
    assert hall.controller is None
    hall.core.handle_job(hall.town.stored())  # from a cache that may be older than the last write
    assert hall.controller is None
    await hall.town.clock.advance(1.0)
    await settle_town(hall.town)
    assert hall.controller not in {None, broken}
    assert hall.controller is not None
    assert hall.controller.state == before
    await hall.show_pods()
    assert len(hall.town.pods()) == 5


async def test_a_controller_whose_task_failed_is_opened_anew(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = hall.controller
    assert broken is not None

    async def fail(*_: object, **__: object) -> Json:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(hall.town.kube, "patch_object", fail)
        broken.note_unread_spec("spec.framework")  # the status says so
        await settle_town(hall.town)
    assert hall.controller is None
    await hall.town.clock.advance(1.0)
    await settle_town(hall.town)
    assert hall.controller not in {None, broken}


async def test_what_cannot_be_opened_again_makes_the_process_unhealthy(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broken_by(hall, monkeypatch)
    hall.town.kube.fail(*[ApiError(403, "Forbidden", "")] * 100)
    await hall.town.clock.advance(20.0)
    assert hall.core.why_unhealthy() == ""
    await hall.town.clock.advance(20.0)
    assert hall.core.why_unhealthy() == "the controller of job quickstart is broken: RuntimeError: a bug"
    hall.town.kube.server.faults.clear()
    await hall.town.clock.advance(60.0)
    await settle_town(hall.town)
    assert hall.controller is not None
    assert hall.core.why_unhealthy() == ""


async def test_a_server_that_is_away_makes_no_process_unhealthy(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    await broken_by(hall, monkeypatch)
    hall.town.kube.fail(*[unreachable()] * 10_000)
    for _ in range(180):
        await hall.town.clock.advance(10.0)
        assert hall.core.why_unhealthy() == ""
    hall.town.kube.server.faults.clear()
    await hall.town.clock.advance(60.0)
    await settle_town(hall.town)
    assert hall.controller is not None


async def test_a_broken_controller_of_a_deleted_job_is_forgotten(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    await broken_by(hall, monkeypatch)
    await hall.core.release_job(UID)
    del hall.town.kube.objects[names.PLURAL, NAMESPACE, "quickstart"]
    await hall.town.clock.advance(60.0)
    assert hall.controller is None
    assert hall.core.why_unhealthy() == ""


class FailingListener(NotingListener):
    def apply_report(self, _report: wire.Report) -> None:
        raise KeyError("bug")


async def test_a_listener_that_fails_does_not_end_the_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = ScriptedStream()
    put_at_every_address(monkeypatch, stream)
    listener, clock, credentials = FailingListener(), FakeClock(), CoordinatorCredentials(b"", b"", b"")
    channel = Channel("127.0.0.1:1", UID, credentials, listener, Dialer(Leadership(), clock))
    channel.start_dialling()
    await settle()
    stream.say(report=wire.Report())
    await settle()
    assert listener.news == [(True, ""), (False, "an error of this program: KeyError: 'bug'")]
    stream.say(hello=wire.Hello(version=1))
    await clock.advance(1.0)
    assert channel.up, "it dials again"
    await channel.close_channel()


@pytest.mark.parametrize("role", [names.ROLE_RANK, names.ROLE_COORDINATOR])
async def test_a_pod_that_went_unseen_is_made_anew_after_the_next_list(hall: Hall, role: str) -> None:
    before = {pod.name: pod for pod in hall.town.pods()}
    victim = next(pod for pod in before.values() if pod.role == role)
    del hall.town.kube.objects["pods", NAMESPACE, victim.name]  # made and deleted while the watch was away
    await hall.list_pods()
    for _ in range(3):
        await hall.town.clock.advance(5.0)
        await settle_town(hall.town)
    heirs = [pod for pod in hall.town.pods() if (pod.role, pod.node_rank) == (role, victim.node_rank)]
    assert [pod.name in before for pod in heirs] == [False]


async def test_a_list_that_is_older_than_a_pod_says_nothing_about_it(hall: Hall) -> None:
    names_before = sorted(pod.name for pod in hall.town.pods())
    hall.core.note_complete_pods("100")  # from a cache that has not heard of the pods yet
    await settle_town(hall.town)
    await hall.show_pods()
    assert hall.controller is not None
    assert hall.controller.state.incident is None
    assert sorted(pod.name for pod in hall.town.pods()) == names_before


async def test_a_list_of_another_namespace_says_nothing_about_a_pod(hall: Hall) -> None:
    """With a list of namespaces each has lists of its own."""
    names_before = sorted(pod.name for pod in hall.town.pods())
    del hall.town.kube.objects["pods", NAMESPACE, names_before[0]]
    hall.core.note_complete_pods(hall.town.kube.version, "elsewhere")
    await settle_town(hall.town)
    assert hall.controller is not None
    assert hall.controller.state.incident is None
    hall.core.note_complete_pods(hall.town.kube.version, NAMESPACE)
    await settle_town(hall.town)
    assert hall.controller.state.incident is not None


async def test_a_pod_that_came_and_went_within_one_create_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list was shown between the server's decision and its answer."""
    town = ControllerTown()
    await town.controller.stop_managing()
    halls: list[Hall] = []
    lost: list[str] = []
    create = town.kube.create_object

    async def slow(resource: str, namespace: str, body: Json, *, dry_run: bool = False) -> Json:
        answer = await create(resource, namespace, body, dry_run=dry_run)
        if resource == "pods" and not dry_run and not lost:
            lost.append(answer["metadata"]["name"])
            del town.kube.objects["pods", namespace, lost[0]]
            halls[0].core.note_complete_pods(town.kube.version)
        return answer

    monkeypatch.setattr(town.kube, "create_object", slow)
    halls.append(Hall(town))
    await settle_town(town)
    for _ in range(3):
        await halls[0].show_pods()
        await town.clock.advance(5.0)
        await settle_town(town)
    assert lost[0] not in {pod.name for pod in town.pods()}
    assert len([pod for pod in town.pods() if not pod.deleting]) == 5
    await halls[0].core.close_controllers()


async def test_a_job_gone_without_release_leaves_nothing_at_work(hall: Hall) -> None:
    for (resource, _, _), body in hall.town.kube.objects.items():
        if resource == "pods":
            body["status"] = {"phase": "Running", "podIP": "127.0.1.1"}
    await hall.show_pods()
    controller = hall.controller
    assert controller is not None
    assert [link.closed for link in hall.town.links] == [False]
    hall.core.handle_deleted_job(UID)
    await settle_town(hall.town)
    assert hall.controller is None
    assert at_work("quickstart") == []
    assert [link.closed for link in hall.town.links] == [True]
    await hall.town.clock.advance(60.0)
    assert hall.town.clock.awaited == [], "a deadline sets its timer anew each second"


async def test_the_end_waits_for_a_controller_that_is_closing(hall: Hall) -> None:
    assert len(at_work("quickstart")) == 2
    hall.core.handle_deleted_job(UID)
    await hall.core.close_controllers()
    assert at_work("quickstart") == []


async def test_what_comes_after_the_end_is_left_to_the_next_leader(hall: Hall) -> None:
    raw, writes = hall.town.stored(), len(hall.town.kube.writes)
    await hall.core.close_controllers()
    hall.core.handle_job(raw)
    await settle_town(hall.town)
    assert hall.core.controllers == {}
    with pytest.raises(ApiError, match=NOT_LEADING) as error:  # else the finalizer would go
        await hall.core.release_job(UID)
    assert error.value.may_pass
    assert len(hall.town.kube.writes) == writes


async def test_a_controller_broken_at_the_end_does_not_stop_it(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    breaks: dict[str, Callable[[BaseException], None]] = {}

    def made(job: HATrainingJob, ports: Ports, broke: Callable[[BaseException], None]) -> JobController:
        breaks[job.metadata.uid] = broke
        return JobController(job, ports, broke)

    monkeypatch.setattr("hajob.app.core.JobController", made)
    other = {**hall.town.raw, "metadata": {**hall.town.raw["metadata"], "name": "other", "uid": "uid-2"}}
    hall.core.handle_job(hall.town.kube.put(names.PLURAL, NAMESPACE, other))
    await settle_town(hall.town)
    controllers = dict(hall.core.controllers)
    close = controllers[UID].stop_managing

    async def break_the_other() -> None:
        breaks["uid-2"](RuntimeError("a bug"))
        await close()

    monkeypatch.setattr(controllers[UID], "stop_managing", break_the_other)
    assert len([*at_work("quickstart"), *at_work("other")]) == 4
    await hall.core.close_controllers()
    assert [*at_work("quickstart"), *at_work("other")] == []
    await hall.town.clock.advance(60.0)
    await settle_town(hall.town)
    assert hall.core.controllers == {}


# --------------------------------------------------------------------------------- jobs that cannot be looked after


async def taken_over(town: ControllerTown, **status: object) -> Hall:
    """A job that trains, and an operator that finds this in its status when it begins to lead."""
    await town.train()
    await town.controller.stop_managing()
    town.stored()["status"] |= status
    town.kube.writes.clear()
    town.events.reasons.clear()
    hall = Hall(town)
    await hall.show_pods()
    await settle_town(town)
    return hall


def accepted(town: ControllerTown) -> tuple[str, str]:
    found = next(one for one in town.status()["conditions"] if one["type"] == "Accepted")
    return found["status"], found["reason"]


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"journalVersion": 99}, "JournalNewer"),
        ({"journal": '{"state":{"phase":"Draining"}}'}, "JournalNewer"),
        ({"journal": '{"state":{"phase":"Run'}, "JournalUnreadable"),
    ],
)
async def test_a_job_with_a_foreign_journal_is_told_and_left(status: dict[str, object], reason: str) -> None:
    town = ControllerTown()
    hall = await taken_over(town, **status)
    before = town.status()
    assert accepted(town) == ("Unknown", reason)
    assert town.events.reasons == [reason]
    assert sample("hajob_jobs_on_hold", reason=reason) == 1
    assert {key: before[key] for key in status} == status, "whoever can read it must find it"
    assert [write[:2] for write in town.kube.writes] == [("patch", names.PLURAL)]
    assert before["summary"]["state"] == "OnHold"
    hall.core.handle_job(town.stored())
    await hall.list_pods()
    assert len(town.pods()) == 5
    assert len(town.kube.writes) == 1
    await hall.core.close_controllers()
    assert sample("hajob_jobs_on_hold", reason=reason) == 0


async def test_a_job_on_hold_is_taken_up_with_another_journal() -> None:
    town = ControllerTown()
    await town.train()
    journal = town.status()["journal"]
    hall = await taken_over(town, journal="{")
    assert hall.controller is None
    town.status()["journal"] = journal
    hall.core.handle_job(town.stored())
    await settle_town(town)
    assert hall.controller is not None
    await hall.show_pods()
    await town.clock.advance(5.0)
    assert accepted(town) == ("True", "Valid")
    await hall.core.close_controllers()


async def test_a_job_on_hold_can_be_deleted() -> None:
    town = ControllerTown()
    hall = await taken_over(town, journal="{")
    await hall.core.release_job(UID)
    await settle_town(town)
    assert sample("hajob_jobs_on_hold", reason="JournalUnreadable") == 0
    await hall.core.close_controllers()


@pytest.mark.parametrize("how", ["another namespace", "labels alone", "not the controller"])
async def test_a_copied_pod_changes_nothing(hall: Hall, how: str) -> None:
    """Whoever may make pods can copy labels, and an owner reference into another namespace."""
    await hall.show_pods()
    assert hall.controller is not None
    before = hall.controller.state
    real = next(body for (kind, _, _), body in hall.town.kube.objects.items() if kind == "pods" and "-0-" in str(body))
    copy: Json = {**real, "status": {"phase": "Failed"}}
    copy["metadata"] = {**real["metadata"], "uid": "uid-of-the-copy", "name": "copy"}
    if how == "another namespace":
        copy["metadata"]["namespace"] = "elsewhere"
    elif how == "labels alone":
        copy["metadata"]["ownerReferences"] = []
    else:
        owners = real["metadata"]["ownerReferences"]
        copy["metadata"]["ownerReferences"] = [{**owner, "controller": False} for owner in owners]
    hall.core.handle_changed_pod(pod_view_of(copy), deleted=False)
    hall.core.handle_changed_pod(pod_view_of(copy), deleted=True)
    await settle_town(hall.town)
    assert hall.controller.state == before
    assert len(hall.town.pods()) == 5


async def test_only_a_shrunk_job_is_told_of_each_node(hall: Hall) -> None:
    town, core = hall.town, hall.core
    await hall.show_pods()
    assert hall.ports.cluster.watchers == set()
    await core.close_controllers()
    journal = read_journal(town.status()["journal"]).journal
    gone = Shrunk(dropped=(0,), ranks=(0, 1), nodes=(0,), lost_nodes=(0,))
    shrunk = replace(journal, state=replace(journal.state, phase=JobPhase.SHRUNK, shrunk=gone))
    town.status()["journal"] = shrunk.to_text(0)
    caches = Caches()
    ports = town.ports(caches)
    core = OperatorCore(ports, caches)
    core.handle_job(town.stored())
    controller = core.controllers[UID]
    for free in (True, False):
        core.handle_changed_node(NodeView("new", ready=free, chips={names.DEFAULT_RESOURCE_NAME: 2}), deleted=False)
        assert controller.state.shrunk is not None
        assert bool(controller.state.shrunk.capacity_ms) is free
    await core.close_controllers()
    assert ports.cluster.watchers == set()


async def test_without_gates_two_jobs_hold_half_each() -> None:
    jobs = TwoJobs(gangPolicy="None")
    await jobs.start()
    assert sorted((jobs.placed(0), jobs.placed(1))) == [3, 3]
    await jobs.core.close_controllers()


async def test_with_gates_one_job_starts_whole_and_then_the_other() -> None:
    jobs = TwoJobs()
    await jobs.start()
    assert (jobs.placed(0), jobs.placed(1)) == (4, 0)
    assert jobs.gates_opened() == 0, "where capacity suffices a start costs no second write"
    held = jobs.core.controllers["uid-of-job-1"]
    assert held.state.waiting is not None
    assert "4 pods held back" in str(jobs.town.kube.objects[names.PLURAL, NAMESPACE, "job-1"]["status"])
    release = asyncio.create_task(jobs.core.release_job("uid-of-job-0"))
    await jobs.town.clock.advance(0.1)
    for pod in jobs.core.controllers["uid-of-job-0"].snapshots.pods.all_pods():
        jobs.town.kube.objects.pop(("pods", NAMESPACE, pod.name), None)
        jobs.core.handle_changed_pod(pod, deleted=True)
    await jobs.show(2.0)
    await release
    assert (jobs.placed(0), jobs.placed(1)) == (0, 4)
    assert jobs.gates_opened() == 4
    await jobs.core.close_controllers()


async def test_a_new_leader_keeps_what_waits_waiting() -> None:
    jobs = TwoJobs()
    await jobs.start()
    stored = [body for (kind, _, _), body in jobs.town.kube.objects.items() if kind == names.PLURAL]
    await jobs.core.close_controllers()
    jobs.caches = Caches()
    jobs.core = OperatorCore(jobs.town.ports(jobs.caches), jobs.caches)
    for node in jobs.town.nodes.values():
        jobs.core.handle_changed_node(node, deleted=False)
    for pod in jobs.town.pods():
        jobs.core.handle_changed_pod(pod, deleted=False)
    for body in reversed(stored):
        jobs.core.handle_job(body)
    jobs.core.note_complete_pods(jobs.town.kube.version)
    await jobs.show(10.0)
    assert (jobs.placed(0), jobs.placed(1)) == (4, 0)
    await jobs.core.close_controllers()


@pytest.fixture
def newer_crd(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CRD that admits another framework and another part of the status."""
    spec, status = (job_schema()["properties"][name]["properties"] for name in ("spec", "status"))
    monkeypatch.setitem(spec["framework"], "enum", [*spec["framework"]["enum"], "JAX"])
    monkeypatch.setitem(status, "ofTomorrow", {"type": "object", "x-kubernetes-preserve-unknown-fields": True})


def newer(town: ControllerTown) -> Json:
    """The job with a word of a CRD that is newer than this operator."""
    stored = town.stored()
    stored["spec"]["framework"] = "JAX"
    stored["metadata"]["generation"] = 2
    return stored


@pytest.mark.usefixtures("newer_crd")
async def test_a_new_job_that_cannot_be_read_is_told_with_the_field() -> None:
    town = ControllerTown()
    await town.controller.stop_managing()
    writes = len(town.kube.writes)
    raw = newer(town)
    raw["status"] = {}
    core = OperatorCore(town.ports(), Caches())
    core.note_complete_pods(town.kube.version)
    core.handle_job(raw)
    await settle_town(town)
    assert accepted(town) == ("Unknown", "SpecNotRead")
    (condition,) = town.status()["conditions"]
    assert "spec.framework: Input should be 'PyTorch' or 'MindSpore', not 'JAX'" in condition["message"]
    assert (town.status()["summary"]["state"], condition["observedGeneration"]) == ("OnHold", 2)
    assert sample("hajob_jobs_on_hold", reason="SpecNotRead") == 1
    core.handle_job(town.stored())
    await settle_town(town)
    assert len(town.kube.writes) == writes + 1, "what it has said is not said again"
    assert town.events.reasons.count("SpecNotRead") == 1
    town.stored()["spec"]["framework"] = "PyTorch"
    town.stored()["metadata"]["generation"] = 3
    core.handle_job(town.stored())
    await settle_town(town)
    await town.clock.advance(5.0)
    assert accepted(town) == ("True", "Valid")
    assert sample("hajob_jobs_on_hold", reason="SpecNotRead") == 0
    await core.close_controllers()


@pytest.mark.usefixtures("newer_crd")
async def test_of_a_newer_operators_job_only_the_condition_changes() -> None:
    town = ControllerTown()
    await town.train()
    await town.controller.stop_managing()
    status = town.status()
    status["conditions"].append(
        {
            "type": "OfTomorrow",
            "status": "True",
            "reason": "New",
            "message": "",
            "lastTransitionTime": "2030-01-01T00:00:00Z",
        }
    )
    status["ofTomorrow"] = {"y": [2]}
    before = {name: value for name, value in status.items() if name not in {"conditions", "summary", "fence"}}
    others = [one for one in status["conditions"] if one["type"] != "Accepted"]
    core = OperatorCore(town.ports(), Caches())
    core.handle_job(newer(town))
    await settle_town(town)
    after = town.status()
    assert accepted(town) == ("Unknown", "SpecNotRead")
    assert {name: value for name, value in after.items() if name in before} == before
    assert [one for one in after["conditions"] if one["type"] != "Accepted"] == others
    assert (after["summary"]["state"], after["fence"]) == ("OnHold", 1)
    await core.close_controllers()


@pytest.mark.usefixtures("newer_crd")
async def test_a_running_job_is_served_by_its_last_spec_and_says_so(hall: Hall) -> None:
    await hall.show_pods()
    controller = hall.controller
    for _ in range(2):
        hall.core.handle_job(newer(hall.town))
        await settle_town(hall.town)
    assert hall.town.events.reasons.count("SpecNotRead") == 1
    assert hall.controller is controller
    assert accepted(hall.town) == ("Unknown", "SpecNotRead")
    assert hall.town.status()["observedGeneration"] == 1
    hall.town.stored()["spec"]["framework"] = "PyTorch"
    hall.town.stored()["metadata"]["generation"] = 3
    hall.core.handle_job(hall.town.stored())
    await settle_town(hall.town)
    assert accepted(hall.town) == ("True", "Valid")
    assert hall.town.status()["observedGeneration"] == 3


async def test_another_operators_unreadable_job_is_left() -> None:
    town = ControllerTown()
    await town.controller.stop_managing()
    writes = len(town.kube.writes)
    raw = newer(town)
    raw["spec"]["managedBy"] = "somebody.example/else"
    core = OperatorCore(town.ports(), Caches())
    core.handle_job(raw)
    await settle_town(town)
    assert len(town.kube.writes) == writes
    await core.close_controllers()
