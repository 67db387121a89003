"""What a controller knows of its coordinator when a report comes in."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hajob import metrics
from hajob.api import constants as names
from hajob.api.job import HATrainingJob
from hajob.coordinator_link.channel import ChannelListener, CoordinatorCredentials
from hajob.job.coordinator_client import CoordinatorClient, CoordinatorOwner
from hajob.job.coordinator_reports import CoordinatorReports
from hajob.job.ports import Ports
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources.pod import PodView
from tests.rigs.fake_clock import FakeClock


class Owner(CoordinatorOwner):
    """A controller that looks at its coordinator when it hears a report, as the planner does."""

    def __init__(self) -> None:
        self.controller = CoordinatorClient(
            cast("HATrainingJob", None), cast("Ports", SimpleNamespace(clock=FakeClock())), self
        )
        self.seen: list[tuple[bool, int]] = []
        self.changes: list[Any] = []
        self.stood: list[tuple[int, int]] = []

    def note_last_step(self, step: int, age_ms: int) -> None:
        self.stood.append((step, age_ms))

    def apply_report(self, report: wire.Report) -> None:
        assert report
        self.seen.append((self.controller.reports.is_serving, self.controller.reports.newest_step))

    def note_channel_change(self) -> None:
        self.changes.append(self.controller.reports.connected)


def test_a_fact_of_the_first_report_is_read_by_its_state() -> None:
    owner = Owner()
    owner.controller.note_connection_change(True, "")
    owner.controller.apply_report(wire.Report(sequence=1, state=wire.CoordinatorState(controller_ready=True, step=41)))
    assert owner.seen == [(True, 41)]


def report_of(**found: Any) -> wire.Report:
    checkpoint = wire.CheckpointState(**found)
    return wire.Report(state=wire.CoordinatorState(attempt=1, checkpoint=checkpoint))


def test_what_an_attempt_loads_is_told_once_for_that_attempt() -> None:
    controller = Owner().controller
    told = report_of(attempt=1, loaded_step=20, refused=[wire.RefusedCheckpoint(name="x", reason="y")], num_refused=1)
    assert controller.reports.take_newly_loaded(told, 2) is None
    found = controller.reports.take_newly_loaded(told, 1)
    assert found is not None
    assert (found.step, found.refused[0].name, found.num_refused) == (20, "x", 1)
    assert controller.reports.take_newly_loaded(told, 1) is None
    assert controller.reports.take_newly_loaded(report_of(attempt=0, loaded_step=-1), 0) is None


def test_times_of_steps_are_told_while_the_coordinator_is_heard() -> None:
    reports = CoordinatorReports()
    times = wire.StepTimes(median_nanoseconds=1_420_000_000, slow_nanoseconds=1_510_000_000)
    reports.note_connection_change(up=True, reason="")
    reports.store_report(wire.Report(sequence=1, state=wire.CoordinatorState(attempt=1)))
    assert reports.step_times is None, "an older sidecar, or too few steps"
    reports.store_report(wire.Report(sequence=2, state=wire.CoordinatorState(attempt=1, step_times=times)))
    assert reports.step_times == (1.42, 1.51)
    reports.note_connection_change(up=False, reason="it is gone")
    assert reports.step_times is None


def test_the_checkpoint_that_would_be_loaded_is_the_tracked_one() -> None:
    owner = Owner()

    def heard(**found: Any) -> int | None:
        owner.controller.apply_report(
            report_of(**found) if found else wire.Report(state=wire.CoordinatorState(attempt=1))
        )
        return owner.controller.reports.checkpoint_step

    assert heard() is None
    assert heard(step=20, tracked=True) == 20
    assert heard(step=40, tracked=False) == -1
    assert heard(step=40, problem="read-only") is None


def counted(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(name, labels) or 0.0


def test_what_a_coordinator_refused_is_counted_once() -> None:
    before = counted("hajob_refused_total", what="coordinator input")
    controller = Owner().controller
    for refused in (2, 2, 3, 1):  # the last one is of another process
        controller.apply_report(wire.Report(state=wire.CoordinatorState(refused_inputs=refused)))
    assert counted("hajob_refused_total", what="coordinator input") - before == 4


def test_connections_from_outside_are_counted_once() -> None:
    what = "connection from outside a rank's pod"
    before = counted("hajob_refused_total", what=what)
    controller = Owner().controller
    for strangers in (1, 4, 4, 9):
        controller.apply_report(wire.Report(state=wire.CoordinatorState(strangers=strangers)))
    assert counted("hajob_refused_total", what=what) - before == 9


def test_what_a_coordinator_did_by_itself_is_counted_once() -> None:
    before = counted("hajob_standing_actions_total", action="IN_PLACE")
    controller = Owner().controller
    for action in (wire.ACTION_UNSPECIFIED, wire.IN_PLACE, wire.IN_PLACE, wire.ACTION_UNSPECIFIED, wire.IN_PLACE):
        controller.apply_report(wire.Report(state=wire.CoordinatorState(standing_action=action)))
    assert counted("hajob_standing_actions_total", action="IN_PLACE") - before == 2


POD = PodView("ns", "coordinator-a", "uid-a", "job", names.ROLE_COORDINATOR, -1, 1, address="127.0.1.1")


class Line:
    """A link whose listener the test speaks to, as a channel would."""

    def __init__(self, address: str, listener: ChannelListener) -> None:
        self.address, self.listener, self.closed = address, listener, False

    def start_dialling(self) -> None:
        """Nothing is dialled."""

    async def close_channel(self) -> None:
        """Takes effect only in a later turn of the loop, as the cancellation of a channel does."""
        self.closed = True


class Dialled(Owner):
    """A controller in a world in which its coordinators can be dialled."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[Line] = []
        self.asked, self.answer = asyncio.Event(), asyncio.Event()
        world = SimpleNamespace(dialer=self, kube=self, clock=FakeClock())
        job = SimpleNamespace(metadata=SimpleNamespace(uid="job"))
        self.controller = CoordinatorClient(cast("HATrainingJob", job), cast("Ports", world), self)

    def dial(self, address: str, _uid: str, _credentials: CoordinatorCredentials, listener: ChannelListener) -> Line:
        self.lines.append(Line(address, listener))
        return self.lines[-1]

    async def pod_of_token(self, token: str, _audience: str) -> str:
        self.asked.set()
        await self.answer.wait()
        return token


def ready(step: int) -> wire.Report:
    return wire.Report(sequence=7, state=wire.CoordinatorState(controller_ready=True, step=step))


async def test_nothing_is_heard_of_a_coordinator_whose_pod_is_gone() -> None:
    """Its channel may have read a message already in the turn of the loop in which the pod was lost."""
    owner = Dialled()
    owner.controller.dial_pod(POD, CoordinatorCredentials(b"", b"", b""))
    (line,) = owner.lines
    line.listener.note_connection_change(True, "")
    line.listener.apply_report(ready(5))
    assert owner.seen == [(True, 5)]
    owner.controller.leave_lost_pod()
    line.listener.apply_report(ready(41))
    line.listener.note_connection_change(True, "")
    assert (owner.seen, owner.changes) == ([(True, 5)], [True])
    assert (
        owner.controller.reports.is_serving,
        owner.controller.reports.connected,
        owner.controller.reports.newest_step,
    ) == (
        False,
        False,
        5,
    )


async def test_each_pod_is_dialled_at_its_own_port() -> None:
    """Of a job whose `network.coordinatorPort` was changed, and of one that an older version made."""
    owner = Dialled()
    for pod in (POD, replace(POD, uid="uid-b", port=7170)):
        owner.controller.dial_pod(pod, CoordinatorCredentials(b"", b"", b""))
    assert [line.address for line in owner.lines] == ["127.0.1.1:7070", "127.0.1.1:7170"]


async def test_only_the_newest_pod_is_heard() -> None:
    owner = Dialled()
    owner.controller.dial_pod(POD, CoordinatorCredentials(b"", b"", b""))
    owner.controller.dial_pod(replace(POD, uid="uid-b", address="127.0.1.2"), CoordinatorCredentials(b"", b"", b""))
    old, new = owner.lines
    new.listener.note_connection_change(True, "")
    old.listener.note_connection_change(False, "it hung up")
    old.listener.apply_report(ready(41))
    new.listener.apply_report(ready(6))
    assert (owner.seen, owner.changes) == ([(True, 6)], [True])


SUCCESSOR = replace(POD, uid="uid-b", address="127.0.1.2")


def replaced() -> tuple[Dialled, Line, Line]:
    """A coordinator that was spoken to, and the one that takes its place."""
    owner = Dialled()
    for pod in (POD, SUCCESSOR):
        owner.controller.dial_pod(pod, CoordinatorCredentials(b"", b"", b""))
    old, new = owner.lines
    return owner, old, new


def last_step(step: int) -> wire.Report:
    return wire.Report(
        sequence=8, milestones=[wire.Milestone(kind=wire.STEP_BEFORE, step=step, age_nanoseconds=3_000_000)]
    )


async def test_a_former_coordinator_tells_its_last_step() -> None:
    owner, old, new = replaced()
    old.listener.apply_report(last_step(41))
    await asyncio.sleep(0)
    assert (owner.stood, owner.seen, old.closed) == ([(41, 3)], [], False)
    new.listener.note_connection_change(True, "")
    old.listener.apply_report(last_step(42))
    await asyncio.sleep(0)
    assert (owner.stood, old.closed) == ([(41, 3)], True)


@pytest.mark.parametrize("ending", ["it hung up", "another pod", "the job is gone"])
async def test_a_former_line_ends_when_nobody_needs_it(ending: str) -> None:
    owner, old, new = replaced()
    if ending == "it hung up":
        old.listener.note_connection_change(False, "")
    elif ending == "another pod":
        owner.controller.dial_pod(replace(POD, uid="uid-c", address="127.0.1.3"), CoordinatorCredentials(b"", b"", b""))
    else:
        await owner.controller.close_links()
    await asyncio.sleep(0)
    assert old.closed
    assert new.closed == (ending == "the job is gone")


async def test_a_token_of_a_pod_gone_meanwhile_proves_nothing() -> None:
    owner = Dialled()
    owner.controller.dial_pod(POD, CoordinatorCredentials(b"", b"", b""))
    greeting = asyncio.create_task(owner.lines[0].listener.check_hello(wire.Hello(token=POD.uid)))
    await owner.asked.wait()
    owner.controller.leave_lost_pod()
    owner.answer.set()
    assert not await greeting
    assert owner.controller.reports.problem == ""


async def test_a_pod_that_is_there_proves_itself_by_its_token() -> None:
    owner = Dialled()
    owner.answer.set()
    owner.controller.dial_pod(POD, CoordinatorCredentials(b"", b"", b""))
    assert await owner.lines[0].listener.check_hello(wire.Hello(token=POD.uid))
    assert not await owner.lines[0].listener.check_hello(wire.Hello(token="uid-of-another"))
    assert "is not pod coordinator-a" in owner.controller.reports.problem
