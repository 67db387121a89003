"""Reconciles one job's objects: admits the job, creates and deletes its pods, deletes the job when its time is up.

A task behind the decisions: pods are created and deleted only after the status that holds the decision has been
acknowledged (docs/decisions/0004-the-status-is-the-journal.md).
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
from collections.abc import Sequence
from typing import Final, Protocol

from hajob.api.base import Json
from hajob.api.conditions import Reason
from hajob.backoff import Backoff, Retry
from hajob.clock import Alarm
from hajob.job.admission import REFUSALS, Admission
from hajob.job.memory import JobMemory
from hajob.job.places import JobPlaces
from hajob.job.pod_creation import LONGEST_RETRY_SECONDS, RETRY_SECONDS, CreationListener, PodCreation
from hajob.job.pod_reconciler import Difference, PodReconciler, difference, in_turn
from hajob.job.policies.expiry import Expiry
from hajob.job.policies.finished_pods import FinishedPods, is_idle
from hajob.job.policies.gang_start import GangStart
from hajob.job.policies.leaving_pods import GONE_SECONDS, LeavingPods
from hajob.job.policies.outdated_pods import OutdatedPods
from hajob.job.policies.pause_work import PauseWork
from hajob.job.policies.spare_pods import SparePods
from hajob.job.ports import Ports
from hajob.job.status_publisher import StatusPublisher
from hajob.job.status_writer import StatusRefusedError
from hajob.kube.client import ApiError
from hajob.plan.policy import Mode
from hajob.plan.state import ALL_MADE, JobPhase
from hajob.sources.pod import PodView

log = logging.getLogger(__name__)

QUOTA_SECONDS: Final = 0.5
"""Within so long after a change of a quota a refused creation is tried again."""

SHORTEST_PAUSE_SECONDS: Final = 1.0
"""Pause after a refusal when the job has news: a job whose pods change all the time retries no more often."""

ASK_AGAIN_SECONDS: Final = 5.0
LONGEST_ASK_AGAIN_SECONDS: Final = 300.0
"""Between two questions whether the pods of a refused job are accepted by now: whoever makes the missing service
account, or allows the pods in a policy, tells nobody."""

SAY_AGAIN_SECONDS: Final = 300.0
"""That pods of a deleted job do not go is said again after so long."""


class Reconciled(CreationListener, Protocol):
    """The owner of the loop: the job controller."""

    def admitted(self) -> None:
        """Handle that the server accepts the job's pods, and the credentials for its coordinator exist."""

    def refused(self) -> None:
        """Handle that the server refuses the pods; the admission says why."""

    def follow_spec(self) -> None:
        """Apply the spec: the job is admitted and its pods are known."""

    async def protect_pods(self) -> None:
        """Set how many pods evictions have to leave: the pods are as desired."""

    def look_for_missed(self) -> None:
        """Check for a created pod that is gone again."""

    def still_there(self, pods: list[PodView]) -> None:
        """Announce these pods, which do not go while the job is being deleted."""

    def pod_forced(self, pod: PodView) -> None:
        """Note a pod that is about to be deleted without grace: nothing there can end it."""


class ReconcileLoop:
    """The loop of one job.

    Attributes:
        pause: the work of its planned pauses.
    """

    def __init__(
        self, memory: JobMemory, places: JobPlaces, admission: Admission, ports: Ports, owner: Reconciled
    ) -> None:
        self._memory, self._places, self._admission, self._owner = memory, places, admission, owner
        self._clock = ports.clock
        self._outdated = OutdatedPods(memory, places, ports)
        self._finished = FinishedPods(ports.kube)
        self._reconciler = PodReconciler(
            ports.kube,
            ports.pod_settings,
            places.unreachable,
            places.refused,
            silent_nodes=ports.silent_nodes,
            drained=ports.drained_for,
            returned=self._outdated.returned,
            creations=ports.creations,
            away=places.node_is_away,
            forced=owner.pod_forced,
        )
        self.pause = PauseWork(memory, places, ports, self._reconciler, self.wake)
        self._spares = SparePods(memory, places, ports, self._reconciler, self.wake)
        self._expiry = Expiry(ports.kube, ports.clock)
        self._wake = asyncio.Event()
        self._creation = PodCreation(places.pods, ports.clock, self.wake, owner)
        self._asks_again = Retry(ports.clock, self.wake, ASK_AGAIN_SECONDS, LONGEST_ASK_AGAIN_SECONDS)
        self._backoff = Backoff(RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        self._gang = GangStart(memory, places, ports, self.wake)
        self._pause_ends, self._pause_alarm = asyncio.Event(), Alarm(ports.clock)
        self._leaving = LeavingPods(memory, places, ports, self.wake)
        self._ended = self._closed = False

    def wake(self, *, hurry: bool = False) -> None:
        """Reconcile soon; `hurry`: a pod that was refused may be created now."""
        if hurry:
            self._creation.hurry()
        self._wake.set()
        self._pause_alarm.bring_forward(SHORTEST_PAUSE_SECONDS)

    def pod_refused(self, pod: PodView) -> None:
        """Note a rank pod that its node has refused."""
        self._creation.pod_refused(pod)

    def capacity_changed(self) -> None:
        """Reconcile pods that are gated, or exclude a node, because nodes came or went."""
        self._gang.capacity_changed()

    def try_soon(self) -> None:
        """Retry in a moment, because a quota has changed: not all jobs of the namespace at once."""
        self._creation.sooner(QUOTA_SECONDS)
        self._pause_alarm.bring_forward(QUOTA_SECONDS * random.random())

    def close(self) -> None:
        """Stop changing objects."""
        self._ended = self._closed = True
        self._gang.close()
        self._spares.close()
        self._expiry.close()
        self._creation.close()
        self._asks_again.cancel()
        self._admission.certificates.close()

    async def run(self, status: StatusPublisher) -> None:
        """Reconcile until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if await self._round(status):
                self._backoff.reset()
                continue
            await self._pause(self._backoff.delay())
            self._wake.set()

    async def _round(self, status: StatusPublisher) -> bool:
        """Do each part once; whether all succeeded. What one part is refused keeps no other part."""
        succeeded = True
        parts = (self._settle, self._end_idle_pods, self._hold_spares, self._expire, self._protect, self._advise)
        for part in parts:
            try:
                await part(status)
            except (ApiError, StatusRefusedError) as error:
                log.warning("%s: %s; trying again soon", self._memory.title, error)
                succeeded = False
                if isinstance(error, StatusRefusedError):  # nothing is done that is not on record
                    break
            except Exception:
                log.exception("%s: an error of this program; trying again soon", self._memory.title)
                succeeded = False
        return succeeded

    async def _advise(self, status: StatusPublisher) -> None:
        if await self._admission.look_at_claim(self._memory.job):
            status.publish(lazy=True)

    async def _pause(self, seconds: float) -> None:
        """Wait; `wake` and a changed quota shorten it."""
        self._pause_ends = asyncio.Event()
        self._pause_alarm.set(seconds, self._pause_ends.set)
        if self._wake.is_set():
            self._pause_alarm.bring_forward(SHORTEST_PAUSE_SECONDS)
        try:
            await self._pause_ends.wait()
        finally:
            self._pause_alarm.cancel()

    async def _settle(self, status: StatusPublisher) -> None:
        memory, index = self._memory, self._places.pods
        if not index.complete or self._ended:
            return
        if not self._admission.admitted and not await self._admit():
            return
        await self.pause.ask()
        self._owner.follow_spec()
        outdated = self._outdated.pods_worth_replacing()
        for pod in outdated:
            await self._reconciler.delete(pod)
        state, layout = memory.state, memory.layout
        todo = difference(memory.job, memory.desired, index.pods, index.gone | index.made.keys() | self._spares.adopted)
        hanging = tuple(pod for pod in index.all() if self._reconciler.hangs(pod))
        todo = dataclasses.replace(todo, surplus=(*todo.surplus, *hanging))
        todo = self._without_what_is_lost(todo)
        todo = in_turn(todo, memory.state.base, index.pods, self._leaving.overdue())
        todo = self._creation.now(todo)
        await self._look_at_certificates(for_pods=todo.lacks_pods)
        gated = self._gang.holds_back()
        held_back = [] if gated else [pod for pod in self._gang.held_back() if pod not in outdated]
        if not (todo.lacks_pods or todo.surplus or held_back):
            return
        await status.acknowledged()
        if memory.still_desires(state, layout) and not self._ended:
            todo = dataclasses.replace(todo, rank_pods=await self._spares.adopt(todo.rank_pods))
            await self._apply(todo, held_back, gated)

    async def _apply(self, todo: Difference, held_back: Sequence[PodView], gated: bool) -> None:
        """Delete first, because surplus pods may hold the quota and the nodes that the missing pods need; then create.

        Raises:
            ApiError: one object at least was refused. All the others have been dealt with.
        """
        failures = await self._reconciler.delete_surplus(todo.surplus)
        if todo.lacks_pods:
            started, made, goes_on = self._memory.started, self._pod_made, self._goes_on
            refused = await self._reconciler.create_missing(started, todo, made, goes_on, gated=gated)
            self._creation.tried(refused)
        failures += await self._reconciler.open_gates(held_back)
        if failures:
            raise failures[0]

    def _without_what_is_lost(self, todo: Difference) -> Difference:
        """Leave out pods that are missing because they were lost, and that no decision makes anew.

        The pods of a job that ends are left as they are: they may stay for their logs, and another coordinator still
        tells who ends. While the mode is not Enforce an operator that has just started cannot tell a lost pod by its
        absence from one that was never made.
        """
        memory = self._memory
        if memory.ended:
            surplus = tuple(pod for pod in todo.surplus if not pod.ended)
            return dataclasses.replace(todo, rank_pods=(), coordinators=(), surplus=surplus)
        watches = memory.policy.mode is not Mode.ENFORCE and memory.state.phase in ALL_MADE
        if watches or memory.state.phase is JobPhase.ENDING:
            return dataclasses.replace(todo, rank_pods=())
        return todo

    async def _end_idle_pods(self, status: StatusPublisher) -> None:
        """Give back the chips of a complete job, once that it is complete is in the status."""
        index, state = self._places.pods, self._memory.state
        if state.phase is not JobPhase.COMPLETE or not index.complete or self._ended:
            return
        if idle := [pod for pod in index.all() if is_idle(pod, state)]:
            await status.acknowledged()
            await self._finished.end(idle)

    async def _look_at_certificates(self, *, for_pods: bool) -> None:
        """Check the certificates: before creating pods, which need the Secret, and periodically, as they expire."""
        certificates = self._admission.certificates
        if self._memory.ended or not (certificates.due or (for_pods and not certificates.recent)):
            return
        await certificates.look_again(self._memory.job)
        certificates.wake_when_due(self.wake)

    def _goes_on(self) -> bool:
        return not self._ended

    def _pod_made(self, raw: Json) -> None:
        self._places.pods.was_made(raw)
        self._owner.look_for_missed()

    async def _admit(self) -> bool:
        """Admit the job; one that was accepted once is not checked again, because its pods may exist.

        One whose pods the server refuses is asked about again: that may end without a change of the job.
        """
        told = self._admission.reason, self._admission.message
        accepted_before = self._memory.state.phase is not JobPhase.NEW
        try:
            admitted = await self._admission.ask(self._memory.job, accepted_before=accepted_before)
        except ApiError as error:
            if error.status in REFUSALS:
                self._creation.not_admitted(error)
            raise
        if admitted:
            self._admission.certificates.wake_when_due(self.wake)
            self._owner.admitted()
            return True
        if self._admission.reason is Reason.POD_REFUSED:
            self._asks_again.failed()
        if told != (self._admission.reason, self._admission.message):
            self._owner.refused()
        return False

    async def _hold_spares(self, status: StatusPublisher) -> None:
        index = self._places.pods
        if index.complete and self._admission.admitted and not self._ended:
            before = index.spares_not_created
            await self._spares.reconcile()
            await self.pause.reconcile()
            if index.spares_not_created != before:
                status.publish(lazy=True)

    async def _expire(self, status: StatusPublisher) -> None:
        """Delete an ended job when its time is up, once its end is in the status."""
        job = self._memory.job
        counts = self._memory.ended and job.spec.ttl_seconds_after_finished is not None
        if counts:
            await status.acknowledged()
        if not self._ended:
            self._expiry.follow(job, status.current.completion_time if counts else None)

    async def _protect(self, _status: StatusPublisher) -> None:
        if self._admission.admitted and not self._ended:
            await self._owner.protect_pods()

    async def delete_pods(self) -> None:
        """Delete the pods of a job that is being deleted, without grace where a node is silent, until all are gone.

        Never raises. It waits for a pod that does not end on a reachable node: a process in it may still write. A pod
        that only somebody's finalizer keeps is left to whoever set that.
        """
        self._ended = True
        backoff, said_at = Backoff(first=0.1, longest=1.0), self._clock.monotonic() + GONE_SECONDS
        while not self._closed and (pods := [pod for pod in self._places.pods.all() if not pod.left_over]):
            await self._reconciler.delete_all([pod for pod in pods if not pod.deleting or self._reconciler.hangs(pod)])
            if self._clock.monotonic() >= said_at:
                self._owner.still_there(pods)
                said_at += SAY_AGAIN_SECONDS
            await self._clock.sleep(backoff.delay())
