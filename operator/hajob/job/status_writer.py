"""Writes the status of one job: the newest value wins; irrevocable actions wait for its acknowledgement.

The job controller hands over whole statuses, as often as it likes. The writer sends the difference to what the server
has, nothing when there is none, and tries for ever. So an outage of the API costs no memory and loses nothing that
still matters. `fence` is in every patch, because the server refuses a smaller one (422). A refused fence means that
another operator has taken over, or that somebody else wrote one: the Lease tells which, so the writer only reports it
and tries again. A fence that no operator can have reached makes this one job's status unwritable, and nothing else.

A 404 may come from a proxy, or from a server that has just lost sight of the CRD: the job is gone once the server says
so by its name, twice, with a pause between.

It is a JSON patch whose first operation tests the UID: a UID in the metadata of a merge patch is ignored for the
status of a custom resource, and a job that was deleted and applied again must not get its predecessor's status.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.job import Metadata
from hajob.api.status import HATrainingJobStatus, without_empty_parts
from hajob.backoff import Backoff
from hajob.clock import Clock
from hajob.kube.client import ApiError, Kube, PatchKind
from hajob.leader.leadership import Leadership
from hajob.leader.lease import FENCE_LIMIT

log = logging.getLogger(__name__)

_FENCE: Final = "fence"
_FENCE_FIELD: Final = "status.fence"
FORGED: Final = (
    "status.fence is {fence}, which no operator has written: the status can't be written any more. Delete the job and "
    "apply it again; see who may write the status of HATrainingJobs"
)


class JobGoneError(Exception):
    """The job was deleted, or another one has its name."""


class StatusRefusedError(Exception):
    """The server refuses this status for a reason that a repetition does not change."""


def patch_of_status(known: Json, wanted: Json, uid: str) -> list[Json]:
    """Return the JSON patch that turns one status into the other, if the job has this UID; empty when they are equal.

    A status without a fence was never written, whatever defaults it was read with: it is set as a whole. So is the
    first one under a new fence: a late write of the leader before may have changed what this one never saw.
    """
    if known == wanted:
        return []
    patch: list[Json] = [{"op": "test", "path": "/metadata/uid", "value": uid}]
    if not known.get(_FENCE) or known[_FENCE] != wanted.get(_FENCE):
        return [*patch, {"op": "add", "path": "/status", "value": wanted}]
    for name in sorted(known.keys() | wanted.keys()):
        if name not in wanted:
            patch.append({"op": "remove", "path": f"/status/{name}"})
        elif known.get(name) != wanted[name] or name == _FENCE:
            patch.append({"op": "add", "path": f"/status/{name}", "value": wanted[name]})
    return patch


class StatusWriter:
    """The only writer of one job's status.

    Args:
        kube: the API.
        clock: for backoff and for writes that may wait.
        job: whose status it is; a job of another UID is never written to.
        known: the status that the server has, raw.
        leadership: of this process. A status that was computed under an earlier one is written with its fence, and the
            fence in the server's status is claimed when the server refuses a smaller one.
    """

    def __init__(self, kube: Kube, clock: Clock, job: Metadata, known: Json, leadership: Leadership) -> None:
        self._kube, self._clock, self._leadership = kube, clock, leadership
        self._job = (job.namespace, job.name, job.uid)
        self._known = without_empty_parts(known)
        self._backoff = Backoff()
        self._wanted: Json | None = None
        self._revision = 0
        self._acknowledged = 0
        self._due = float("inf")
        self._changed = asyncio.Event()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._ended: Exception | None = None

    @property
    def newest_revision(self) -> int:
        """Return the number of the newest status that was handed over."""
        return self._revision

    def hand_over_status(self, status: HATrainingJobStatus, *, within: float = 0.0) -> int:
        """Take over a status; return its number for `wait_until_written`. Never waits.

        Args:
            status: the whole status.
            within: seconds for which it may wait for a more urgent one to ride along with.
        """
        self._wanted = status.to_json()
        self._revision += 1
        self._due = min(self._due, self._clock.monotonic() + within)
        self._changed.set()
        return self._revision

    async def wait_until_written(self, revision: int) -> None:
        """Wait until the server has this status or a newer one.

        Raises:
            JobGoneError: there is nothing left to write to.
            StatusRefusedError: the server does not accept this status.
        """
        if self._ended is not None:
            raise self._ended
        if self._acknowledged >= revision:
            return
        self._due = self._clock.monotonic()
        self._changed.set()
        future: asyncio.Future[None] = asyncio.Future()
        self._waiting.append((revision, future))
        await future

    async def write_for_ever(self) -> None:
        """Write until cancelled, or until there is no job any more."""
        while self._ended is None:
            await self._changed.wait()
            await self._wait_until_due()
            await self._leadership.wait_until_writable()
            self._changed.clear()
            self._due = float("inf")
            await self._send_newest()

    async def _wait_until_due(self) -> None:
        """Delay a write that has time; a more urgent one ends the delay."""
        while (rest := self._due - self._clock.monotonic()) > 0:
            self._changed.clear()
            sleeper = asyncio.ensure_future(self._clock.sleep(rest))
            changed = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait({sleeper, changed}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                sleeper.cancel()
                changed.cancel()

    async def _send_newest(self) -> None:
        """Send the newest status once; on failure it is due again."""
        revision, wanted = self._revision, self._wanted or {}
        if _FENCE in wanted:
            wanted = {**wanted, _FENCE: max(wanted[_FENCE], self._leadership.fence)}
        namespace, name, uid = self._job
        patch = patch_of_status(self._known, wanted, uid)
        if not patch:
            self._acknowledge_revision(revision)
            return
        try:
            answer = await self._kube.patch_object(
                names.PLURAL, namespace, name, patch, kind=PatchKind.JSON, subresource="status"
            )
        except ApiError as error:
            await self._handle_failure(revision, error)
            return
        self._backoff.reset_delay()
        self._known = without_empty_parts(answer.get("status") or {})
        self._acknowledge_revision(revision)

    async def _handle_failure(self, revision: int, error: ApiError) -> None:
        if error.status == 404:
            await self._check_if_gone(error)
        elif error.status in {400, 413, 422}:
            await self._handle_refused_patch(revision, error)
        else:
            await self._retry_later(error)

    async def _check_if_gone(self, error: ApiError) -> None:
        """Ask once more, a little later: a single 404 proves nothing."""
        await self._retry_later(error)
        namespace, name, uid = self._job
        try:
            current = await self._kube.get_object(names.PLURAL, namespace, name)
        except ApiError as again:
            if again.status == 404 and again.details.get("name") == name == error.details.get("name"):
                self._end_writer(JobGoneError(f"{namespace}/{name} is gone"))
            return
        if current["metadata"]["uid"] != uid:
            self._end_writer(JobGoneError(f"{namespace}/{name} is another job now"))

    async def _handle_refused_patch(self, revision: int, error: ApiError) -> None:
        """Handle a refused patch: another job has the name, the status differs from the known one, or it is invalid."""
        namespace, name, uid = self._job
        try:
            current = await self._kube.get_object(names.PLURAL, namespace, name)
        except ApiError as unknown:
            await self._retry_later(unknown)
            return
        status = without_empty_parts(current.get("status") or {})
        if current["metadata"]["uid"] != uid:
            self._end_writer(JobGoneError(f"{namespace}/{name} is another job now"))
        elif _is_about_fence(error) and status.get(_FENCE, 0) < FENCE_LIMIT:
            self._known = status
            self._leadership.note_claimed_fence(int(status.get(_FENCE, 0)))
            await self._retry_later(error)
        elif status != self._known and not _is_about_fence(error):
            self._known = status
            await self._retry_later(error)
        else:
            message = FORGED.format(fence=status[_FENCE]) if _is_about_fence(error) else error.message
            log.error("%s/%s: the server refuses the status: %s", namespace, name, message)
            self._fail_waiters(revision, StatusRefusedError(message))

    async def _retry_later(self, error: ApiError) -> None:
        """Make the newest status due once more, a little later."""
        log.warning("%s/%s: status not written: %s; trying again", *self._job[:2], error)
        await self._clock.sleep(self._backoff.next_delay())
        self._due = self._clock.monotonic()
        self._changed.set()

    def _acknowledge_revision(self, revision: int) -> None:
        self._acknowledged = max(self._acknowledged, revision)
        for wanted, future in self._take_waiters(revision):
            if not future.done() and wanted <= revision:
                future.set_result(None)

    def _fail_waiters(self, revision: int, error: Exception) -> None:
        for _, future in self._take_waiters(revision):
            if not future.done():
                future.set_exception(error)

    def _take_waiters(self, revision: int) -> list[tuple[int, asyncio.Future[None]]]:
        """Return and remove the waiters for this or an older revision."""
        done = [entry for entry in self._waiting if entry[0] <= revision]
        self._waiting = [entry for entry in self._waiting if entry[0] > revision]
        return done

    def _end_writer(self, error: Exception) -> None:
        log.warning("status writer ends: %s", error)
        self._ended = error
        self._fail_waiters(self._revision, error)


def _is_about_fence(error: ApiError) -> bool:
    causes: list[dict[str, Any]] = error.details.get("causes") or []
    return any(cause.get("field") == _FENCE_FIELD for cause in causes) or _FENCE_FIELD in error.message
