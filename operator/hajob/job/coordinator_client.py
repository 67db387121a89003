"""The link of a job controller to its coordinator: to the current pod, whose claimed identity it checks.

A link belongs to one pod. When the pod is replaced, or comes up at another address, a new link is made and reports on
the old one are ignored, except for one: the training's step when it was ended. The coordinator reports that a moment
after the order, when its successor may have an address already; so the old link is closed when the successor first
reports.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from math import inf
from typing import Final

from hajob import metrics
from hajob.api.constants import COORDINATOR_TOKEN_AUDIENCE
from hajob.api.job import HATrainingJob
from hajob.clock import Alarm
from hajob.coordinator_link.channel import Channel, CoordinatorCredentials
from hajob.job.coordinator_reports import CoordinatorReports
from hajob.job.ports import Ports
from hajob.kube.client import ApiError
from hajob.protocol import sidecar_pb2 as wire
from hajob.protocol.addresses import host_port
from hajob.sources.pod import PodView
from hajob.sources.report import NANOSECONDS_PER_MILLISECOND

log = logging.getLogger(__name__)

SOON_SECONDS: Final = 0.001
"""Long enough for what was just said to leave."""
ASSIGN_SECONDS_PER_POD: Final = 0.0002
"""Between two assignments, for each node of the job: building and reading one takes a tenth of it."""


class CoordinatorOwner:
    """Who is told what a job's coordinator says: the job controller. This one does nothing with it."""

    def apply_report(self, report: wire.Report) -> None:
        """Handle a report."""

    def note_channel_change(self) -> None:
        """Handle that the channel came up or went down."""

    def note_last_step(self, step: int, age_ms: int) -> None:
        """Handle the last step that all ranks had in common, as the previous coordinator reports it."""

    def send_assignment(self) -> None:
        """Send the coordinator the job's description and the addresses of its pods."""


class _Line:
    """The link of one pod; ignores what its channel has read after the pod was replaced."""

    def __init__(self, client: CoordinatorClient, pod: PodView, address: str) -> None:
        self._client = client
        self.pod, self.address = pod, address
        self.link: Channel | None = None
        self.closed = False

    async def check_hello(self, hello: wire.Hello) -> bool:
        return not self.closed and await self._client.check_hello(hello, self.pod) and not self.closed

    def apply_report(self, report: wire.Report) -> None:
        if self.closed:
            self._client.apply_former_report(self, report)
        else:
            self._client.apply_report(report)

    def note_connection_change(self, up: bool, reason: str) -> None:
        if not self.closed:
            self._client.note_connection_change(up, reason)
        elif not up:
            self._client.close_former_line(self)


class CoordinatorClient:
    """The link to the coordinator of one job.

    Attributes:
        reports: what it has reported.
    """

    def __init__(self, job: HATrainingJob, ports: Ports, owner: CoordinatorOwner) -> None:
        self._job = job
        self._ports = ports
        self._owner = owner
        self._line: _Line | None = None
        self._former: _Line | None = None  # of the previous pod, until the current one reports
        self._assignment: wire.Assignment | None = None
        self._assigning, self._assigned = Alarm(ports.clock), -inf
        self._closing: set[asyncio.Task[None]] = set()
        self.reports = CoordinatorReports()

    @property
    def _current_link(self) -> Channel | None:
        return self._line.link if self._line else None

    def dial_pod(self, pod: PodView, credentials: CoordinatorCredentials) -> None:
        """Dial this pod, unless that is done already; the caller sends the order."""
        address = host_port(pod.address, pod.port)
        if self._line is not None and self._line.pod.uid == pod.uid and self._line.address == address:
            if self._line.link is not None:
                self._line.link.dial_at_once()
            return
        self._close_line(self._former)
        self._former = self._leave_line()
        self._line = _Line(self, pod, address)
        self.reports.note_dialled_pod(pod.incarnation, address)
        self._line.link = link = self._ports.dialer.dial(address, self._job.metadata.uid, credentials, self._line)
        if self._assignment is not None:
            link.send_assignment(self._assignment)
        link.start_dialling()

    def leave_lost_pod(self) -> None:
        """Close the link, because the pod is gone."""
        self._close_line(self._leave_line())

    def _leave_line(self) -> _Line | None:
        self.reports.forget_pod()
        line, self._line = self._line, None
        if line is not None:
            line.closed = True
        return line

    def _close_line(self, line: _Line | None) -> None:
        if line is not None and line.link is not None:
            task = asyncio.create_task(line.link.close_channel())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close_links(self) -> None:
        """Close the link for good."""
        self._assigning.cancel()
        self.leave_lost_pod()
        self.close_former_line(self._former)
        for task in list(self._closing):
            await task

    def send_order(self, order: wire.Order) -> None:
        """Send the action that is wanted now."""
        if self._current_link is not None:
            self._current_link.send_order(order)

    def acknowledge_reports(self, sequence: int) -> None:
        """Acknowledge that the effects of the reports up to this one are in the status."""
        if self._current_link is not None:
            self._current_link.acknowledge_report(sequence)

    def assign_soon(self, num_nodes: int) -> None:
        """Send the changed pods in a moment, several changes in one message.

        The message names every pod, so during a storm it is sent less often the larger the job is.
        """
        if self._assigning.is_set or self._line is None:
            return  # a coordinator that is dialled later gets everything
        rest = self._assigned + ASSIGN_SECONDS_PER_POD * num_nodes - self._ports.clock.monotonic()
        self._assigning.set_alarm(max(rest, SOON_SECONDS), self._owner.send_assignment)

    def send_assignment(self, build: Callable[[int], wire.Assignment], now_ms: int) -> None:
        """Send the pods as they are now; `build` makes the message of a revision, which is sent only if it has changed.

        Revisions are job time: a coordinator refuses a smaller one, and no leader's job time is behind that of the one
        before it, whatever their clocks say.
        """
        self._assigning.cancel()
        self._assigned = self._ports.clock.monotonic()
        current = self._assignment
        new = build(current.revision if current is not None else 0)
        if new == current:
            return
        new.revision = max(current.revision + 1 if current is not None else 0, now_ms)
        self._assignment = new
        if self._current_link is not None:
            self._current_link.send_assignment(self._assignment)

    # ----------------------------------------------------------------------------------------- from its line

    async def check_hello(self, hello: wire.Hello, pod: PodView) -> bool:
        """Return whether the token proves that this is the pod that was dialled (docs/protocols/sidecar.md)."""
        try:
            uid = await self._ports.kube.pod_of_token(hello.token, COORDINATOR_TOKEN_AUDIENCE)
        except ApiError as error:
            log.warning("the token of %s cannot be checked: %s", self.reports.address, error)
            return False
        if uid == pod.uid:
            return True
        metrics.REFUSED.labels("coordinator token").inc()
        dialled = f"the coordinator at {self.reports.address}"
        self.reports.problem = f"{dialled} is not pod {pod.name}: its token names another pod"
        log.warning(self.reports.problem)
        return False

    def apply_report(self, report: wire.Report) -> None:
        """Handle a report. Its state is stored first, so that a fact in the first report is decided with it."""
        self.reports.store_report(report)
        self._owner.apply_report(report)

    def apply_former_report(self, line: _Line, report: wire.Report) -> None:
        """Handle a report of a pod that is no longer this job's coordinator."""
        for milestone in report.milestones if line is self._former else ():
            if milestone.kind == wire.STEP_BEFORE:
                self._owner.note_last_step(milestone.step, milestone.age_nanoseconds // NANOSECONDS_PER_MILLISECOND)

    def close_former_line(self, line: _Line | None) -> None:
        """Close the previous pod's link: it has ended, or is no longer needed."""
        if line is self._former:
            self._former = None
            self._close_line(line)

    def note_connection_change(self, up: bool, reason: str) -> None:
        """Handle that the channel came up or went down."""
        if up:
            self.close_former_line(self._former)
        self.reports.note_connection_change(up, reason)
        self._owner.note_channel_change()
