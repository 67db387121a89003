"""Reconciles one job's objects: admits the job, asks its policies what they want, makes and deletes its pods.

A task behind the decisions. A round takes one snapshot after the other: what policies tell the table is taken in until
they have nothing to tell; then what they want is carried out, and missing pods are made. What follows from a decision
waits until the status that holds the decision has been acknowledged
(docs/decisions/0004-the-status-is-the-journal.md).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable, Sequence
from math import inf
from typing import Final

from hajob import metrics
from hajob.api.conditions import Reason
from hajob.api.event_reasons import EventReason
from hajob.backoff import Backoff
from hajob.capacity.gang import Claim
from hajob.clock import Alarm
from hajob.domain.text import counted_noun
from hajob.job.admission import REFUSALS, Admission
from hajob.job.apply import Applier
from hajob.job.memory import JobMemory
from hajob.job.observe import Seen
from hajob.job.pod_index import is_node_away
from hajob.job.pod_maker import PodMaker
from hajob.job.policies import drains, gang_start, leaving_pods
from hajob.job.policies.all_policies import PolicyMemos, policies_with
from hajob.job.ports import Ports
from hajob.job.snapshot import JobSnapshot, JobSnapshots, ServerAnswers
from hajob.job.status.announcements import Announcement, event_of_creation
from hajob.job.status_publisher import StatusPublisher
from hajob.job.status_writer import StatusRefusedError
from hajob.job.wants import (
    LONGEST_RETRY_SECONDS,
    RETRY_SECONDS,
    Change,
    Delete,
    MakePods,
    Wants,
    deletion_of_pod,
    merge_wants,
)
from hajob.kube.client import ApiError
from hajob.plan import events
from hajob.plan.state import JobPhase
from hajob.sources.creation import NotCreated, is_from_webhook, parse_refused_creation
from hajob.sources.pod import PodView, pod_view_of

log = logging.getLogger(__name__)

QUOTA_SECONDS: Final = 0.5
"""Within so long after a change of a quota a refused creation is tried again."""

SHORTEST_PAUSE_SECONDS: Final = 1.0
"""Pause after a refusal when the job has news: a job whose pods change all the time retries no more often."""

ASK_AGAIN_SECONDS: Final = (5.0, 300.0)
"""First and longest delay between two questions whether the pods of a refused job are accepted by now.

Whoever makes the missing service account, or allows the pods in a policy, tells nobody.
"""

TURNS: Final = 3
"""So often in a round policies are asked again because they had something to tell; more comes in the next round."""

RELEASE_RETRY_SECONDS: Final = (0.1, 1.0)
"""Between two looks at the pods of a deleted job, and two tries to delete one: somebody waits for its name."""

SAY_AGAIN_SECONDS: Final = 300.0
"""That pods of a deleted job do not go is said again after so long."""


class LoopOwner:
    """Whom the loop tells what it finds: the job controller. This one does nothing with it.

    Attributes:
        status: decides when the job's status is written.
    """

    status: StatusPublisher

    def handle_admission(self) -> None:
        """Handle that the server accepts the job's pods, and the credentials for its coordinator exist."""

    def handle_refusal(self) -> None:
        """Handle that the server refuses the pods; the admission says why."""

    def apply_spec(self) -> None:
        """Apply the spec: the job is admitted and its pods are known."""

    def apply_seen(self, seen: Seen) -> object:
        """Apply these events to the plan, and post what people are told."""

    def look_for_missed(self) -> None:
        """Check for a created pod that is gone again."""

    def apply_pod(self, pod: PodView) -> None:
        """Handle a pod of this job as it is now."""

    def handle_missing_pods(self, told: Announcement | None, *, turned: bool) -> None:
        """Handle that pods are missing for another reason than before, or for none any more.

        Args:
            told: the Event to post.
            turned: whether creation has begun to fail or to succeed.
        """


class ReconcileLoop:
    """The loop of one job.

    Attributes:
        memos: what its policies remember.
    """

    def __init__(
        self, memory: JobMemory, snapshots: JobSnapshots, admission: Admission, ports: Ports, owner: LoopOwner
    ) -> None:
        self._memory, self._snapshots, self._admission, self._ports = memory, snapshots, admission, ports
        self._index = snapshots.pods
        self._owner, self._clock = owner, ports.clock
        self.memos = PolicyMemos(drains.DrainMemo.with_openings(ports.cluster.openings))
        self._policies = policies_with(self.memos)
        self._pods = PodMaker(snapshots, ports)
        self._applier = Applier(ports.kube, ports.clock, self._pods, memory.title)
        self._wake = asyncio.Event()
        self._again, self._again_at = Alarm(ports.clock), inf
        self._backoff, self._asking_again = Backoff(*RETRY_SECONDS), Backoff(*ASK_AGAIN_SECONDS)
        self._not_before = -inf
        self._ended = self._closed = False
        self._claim = self.claim_of_job
        ports.cluster.starts.claims[memory.job.metadata.uid] = self._claim

    def wake_soon(self, *, hurry: bool = False) -> None:
        """Reconcile soon; `hurry`: a pod that was refused may be created now."""
        if hurry:
            self._applier.try_pods_again()
        self._wake.set()

    def note_capacity_change(self) -> None:
        """Reconcile pods that are gated, or exclude a node, because nodes came or went."""
        self._reconcile_at(self._clock.monotonic() + gang_start.SOON_SECONDS)

    def retry_soon(self) -> None:
        """Retry in a moment, because a quota has changed: not all jobs of the namespace at once."""
        self._applier.try_pods_again(QUOTA_SECONDS)
        self._reconcile_at(self._clock.monotonic() + QUOTA_SECONDS * random.random())

    def claim_of_job(self) -> Claim | None:
        """Return the nodes that the job still needs; None for none."""
        return gang_start.claim_of_job(self.take_snapshot(), self.memos.gang)

    def stop_reconciling(self) -> None:
        """Stop changing objects, and withdraw the job's claim."""
        self._ended = self._closed = self._pods.ended = True
        claims, uid = self._ports.cluster.starts.claims, self._memory.job.metadata.uid
        if claims.get(uid) is self._claim:  # else another controller of the job has one by now
            del claims[uid]
        self._again.cancel()

    def take_snapshot(self) -> JobSnapshot:
        """Take a snapshot of the job, for policies."""
        return self._snapshots.take_snapshot(
            ServerAnswers(
                admitted=self._admission.is_admitted,
                accepted=self._admission.reason,
                message=self._admission.message,
                claim_note=self._admission.claim_note,
                edit_note=self._admission.edit_note,
                completed=self._owner.status.current.completion_time,
                pause=self._admission.pause_answer,
                refusals=self._applier.refusals,
            )
        )

    def _reconcile_at(self, at: float) -> None:
        """Reconcile at this moment (seconds of the monotonic clock) at the latest."""
        if at < self._again_at and not self._closed:
            self._again_at = at
            self._again.set_alarm(max(0.0, at - self._clock.monotonic()), self._wake_at_due_time)

    def _wake_at_due_time(self) -> None:
        self._again_at = inf
        self.wake_soon()

    async def reconcile_for_ever(self) -> None:
        """Reconcile until cancelled."""
        while True:
            await self._wake.wait()
            if (rest := self._not_before - self._clock.monotonic()) > 0:
                await self._clock.sleep(rest)
            self._wake.clear()
            self._again.cancel()
            self._again_at = inf
            began = self._clock.monotonic()
            succeeded = await self._reconcile_once()
            metrics.RECONCILE.observe(self._clock.monotonic() - began)
            if succeeded:
                self._backoff.reset_delay()
                continue
            delay, now = self._backoff.next_delay(), self._clock.monotonic()
            self._not_before = now + min(delay, SHORTEST_PAUSE_SECONDS)
            self._reconcile_at(now + delay)

    async def _reconcile_once(self) -> bool:
        """Do each part once; whether all succeeded. What one part is refused keeps no other part."""
        succeeded = True
        for part in (self._admit_job, self._reconcile_objects, self._check_claim, self._check_edit):
            try:
                await part()
            except (ApiError, StatusRefusedError) as error:
                log.warning("%s: %s; trying again soon", self._memory.title, error)
                succeeded = False
                if isinstance(error, StatusRefusedError):  # nothing is done that is not on record
                    break
            except Exception:
                log.exception("%s: an error of this program; trying again soon", self._memory.title)
                succeeded = False
        return succeeded

    async def _check_claim(self) -> None:
        if await self._admission.look_at_claim(self._memory.job):
            self._owner.status.publish_status(lazy=True)

    async def _check_edit(self) -> None:
        if not self._memory.has_ended and await self._admission.look_at_edit(self._memory.job):
            self._owner.status.publish_status()

    async def _admit_job(self) -> None:
        """Ask the server whether it accepts the job's pods, and those of a pause that is requested."""
        if not self._index.complete or self._ended:
            return
        if self._admission.is_admitted or await self._is_admitted():
            await self._admission.ask_about_pause(self._memory.job, self._memory.state.pause_seen)

    async def _reconcile_objects(self) -> None:
        """Ask the policies, carry out what they want, and make the desired pods."""
        if self._ended:
            return
        if self._knows_pods:
            self._owner.apply_spec()
        wants = self._ask_policies()
        memory, state, layout = self._memory, self._memory.state, self._memory.layout
        due = self._applier.changes_to_try(wants.changes)
        self._reconcile_at(wants.again_at)
        await self._apply_changes(change for change in due if not change.follows_status)
        decided = [change for change in due if change.follows_status]
        missing = [change for change in decided if isinstance(change, MakePods)]
        await self._look_at_certificates(for_pods=bool(missing))
        if decided:
            await self._owner.status.wait_until_written()
            if memory.still_desires(state, layout) and not self._ended:
                # Surplus pods may hold the quota and the nodes that missing ones need.
                await self._apply_changes(change for change in decided if change not in missing)
                await self._make_missing_pods(missing)
        self._reconcile_at(self._applier.next_try_time)

    async def _make_missing_pods(self, missing: Sequence[MakePods]) -> None:
        if not missing:
            return
        await self._apply_changes(missing)
        self._owner.look_for_missed()
        if self._snapshots.creation.why_missing is not None:
            self.wake_soon()  # the reason may be gone, or another one

    @property
    def _knows_pods(self) -> bool:
        return self._admission.is_admitted and self._index.complete

    def _ask_policies(self) -> Wants:
        """Return what the policies want, once they have nothing to tell the table any more."""
        missing = self._snapshots.creation.why_missing
        told = self.memos.spares.why_missing, self.memos.tables.told
        for _ in range(TURNS):
            wants = self._ask_each_policy(self.take_snapshot())
            self._owner.apply_seen((*wants.announcements, *wants.events))
            if not wants.events:
                break
        self._tell_missing(missing)
        if told != (self.memos.spares.why_missing, self.memos.tables.told):
            self._owner.status.publish_status(lazy=True)
        return wants

    def _ask_each_policy(self, snapshot: JobSnapshot) -> Wants:
        """Ask each policy once. One that fails, by an error of this program, keeps no other."""
        found = list[Wants]()
        for policy in self._policies:
            try:
                found.append(policy(snapshot))
            except Exception:
                log.exception("%s: an error of this program; trying again soon", self._memory.title)
                self._reconcile_at(snapshot.now + LONGEST_RETRY_SECONDS)
        return merge_wants(found)

    async def _apply_changes(self, changes: Iterable[Change]) -> None:
        due = list(changes)
        # The table hears of it before the pod is gone: a start that begins in between would run beside these ranks.
        for change in due:
            if isinstance(change, Delete) and change.ranks_may_live_on:
                self._owner.apply_seen([events.RanksUnreachable(nodes=(change.ranks_may_live_on,))])
        if not await self._applier.apply_changes(due):
            self.wake_soon()  # a refusal may be news for the policy that wanted the change
        self._show_adopted(map(pod_view_of, self._applier.take_patched()))

    def _show_adopted(self, pods: Iterable[PodView]) -> None:
        """Show former spares in their new role before the watch does: what else happens meanwhile must not undo it."""
        for pod in pods:
            known = self._index.pods.get(pod.name)
            # Watches keep their order: one that still shows the spare has told nothing newer than this answer.
            if pod.is_rank_pod and known is not None and known.is_spare_pod and known.uid == pod.uid:
                self._owner.apply_pod(pod)

    def _tell_missing(self, before: NotCreated | None) -> None:
        now = self._snapshots.creation.why_missing
        if now != before:
            self._owner.handle_missing_pods(
                event_of_creation(before, now), turned=(now is None) is not (before is None)
            )

    async def _look_at_certificates(self, *, for_pods: bool) -> None:
        """Check the certificates: before creating pods, which need the Secret, and periodically, as they expire."""
        certificates = self._admission.certificates
        if self._memory.has_ended or not self._knows_pods:
            return
        if certificates.is_check_due or (for_pods and not certificates.was_just_checked):
            await certificates.reconcile_again(self._memory.job)
        self._reconcile_at(certificates.due_at)

    async def _is_admitted(self) -> bool:
        """Admit the job; one that was accepted once is not checked again, because its pods may exist.

        One whose pods the server refuses is asked about again: that may end without a change of the job.
        """
        told = self._admission.reason, self._admission.message
        accepted_before = self._memory.state.phase is not JobPhase.NEW
        try:
            job, cluster = self._memory.job, self._ports.cluster
            admitted = await self._admission.evaluate_job(
                job, accepted_before=accepted_before, refused_by_nodes=cluster.why_parts_refused(job)
            )
        except ApiError as error:
            if error.status in REFUSALS or is_from_webhook(error.message):
                before = self._snapshots.creation.why_missing
                self._snapshots.creation.why_missing = parse_refused_creation(error.status, error.reason, error.message)
                self._tell_missing(before)
            raise
        if admitted:
            self._owner.handle_admission()
            return True
        if self._admission.reason is Reason.POD_REFUSED:
            self._reconcile_at(self._clock.monotonic() + self._asking_again.next_delay())
        if told != (self._admission.reason, self._admission.message):
            self._owner.handle_refusal()
        return False

    async def delete_pods(self) -> None:
        """Delete the pods of a job that is being deleted, without grace where a node is silent, until all are gone.

        Never raises. It waits for a pod that does not end on a reachable node: a process in it may still write. A pod
        that only somebody's finalizer keeps is left to whoever set that.
        """
        self._ended = self._pods.ended = True
        backoff, said_at = Backoff(*RELEASE_RETRY_SECONDS), self._clock.monotonic() + leaving_pods.GONE_SECONDS
        while not self._closed and (pods := [pod for pod in self._index.all_pods() if not pod.left_over]):
            snapshot = self.take_snapshot()
            wanted = [pod for pod in pods if not pod.deleting or is_node_away(pod, snapshot.nodes)]
            # One that is being deleted already is deleted again where no kubelet is there to end it.
            changes = (deletion_of_pod(snapshot, pod, retry_seconds=RELEASE_RETRY_SECONDS) for pod in wanted)
            await self._apply_changes(self._applier.changes_to_try(changes))
            if self._clock.monotonic() >= said_at:
                named = ", ".join(sorted(f"{pod.name} on {pod.node_name or 'no node'}" for pod in pods)[:3])
                told = f"{counted_noun(len(pods), 'pod')} still there, so the job stays: {named}"
                self._owner.apply_seen([Announcement(EventReason.PODS_NOT_GONE, told)])
                said_at += SAY_AGAIN_SECONDS
            await self._clock.sleep(backoff.next_delay())
