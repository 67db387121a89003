"""Carries out the changes that policies want, each with its own retry: a refused one delays nothing else."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from hajob import metrics
from hajob.api.base import Json
from hajob.backoff import Backoff
from hajob.clock import Clock
from hajob.job.pod_maker import PodMaker
from hajob.job.wants import Change, Create, Delete, MakePods, Patch, Put
from hajob.kube.batches import act_on_all
from hajob.kube.client import ALREADY_EXISTS, ApiError, Kube, PatchKind

log = logging.getLogger(__name__)

Key = tuple[str, ...]


@dataclass(slots=True)
class _Try:
    """How far a wanted change is.

    Attributes:
        change: that was tried last.
        backoff: between its tries.
        at: when it may be tried again, in seconds of the monotonic clock; inf: it is done.
        refusal: the server's last answer; None: it has not refused.
    """

    change: Change
    backoff: Backoff
    at: float = 0.0
    refusal: ApiError | None = None


class Applier:
    """The wanted changes of one job, and which of them are done.

    Args:
        kube: the API.
        clock: of the machine.
        pods: makes missing pods.
        title: of the job, for logs.
    """

    def __init__(self, kube: Kube, clock: Clock, pods: PodMaker, title: str) -> None:
        self._kube, self._clock, self._pods, self._title = kube, clock, pods, title
        self._patched: list[Json] = []
        self._tries: dict[Key, _Try] = {}

    def changes_to_try(self, changes: Iterable[Change]) -> list[Change]:
        """Take in all changes that are wanted now, and forget all others; return those to carry out now."""
        wanted, known = {change.key: change for change in changes}, self._tries
        self._tries = {key: _renewed_try(known.get(key), change) for key, change in wanted.items()}
        now = self._clock.monotonic()
        return [one.change for one in self._tries.values() if one.at <= now]

    async def apply_changes(self, changes: Iterable[Change]) -> bool:
        """Carry these out, many at a time; return whether all succeeded. Never raises: what failed is tried again."""
        failed = await act_on_all(self._try_change, list(changes))
        return not failed

    def take_patched(self) -> list[Json]:
        """Return the objects as the server has patched them since the last call."""
        patched, self._patched = self._patched, []
        return patched

    def try_pods_again(self, within: float = 0.0) -> None:
        """Make refused pods within so many seconds, at a random moment: what refuses them may have gone.

        Of repeated calls the first one counts.
        """
        soon = self._clock.monotonic() + within
        for one in self._tries.values():
            if isinstance(one.change, MakePods) and soon < one.at < inf:
                one.at = soon - within * random.random()

    @property
    def refusals(self) -> Mapping[Key, ApiError]:
        """Return the server's refusals of changes that are still wanted; that it cannot be reached is none."""
        return {key: one.refusal for key, one in self._tries.items() if one.refusal is not None and one.refusal.status}

    @property
    def next_try_time(self) -> float:
        """Return when the next change may be tried again, in seconds of the monotonic clock; inf: never."""
        return min((one.at for one in self._tries.values()), default=inf)

    async def _try_change(self, change: Change) -> bool | None:
        """Carry out one change; return False where it failed, so that it is tried again."""
        tried = self._tries.get(change.key)
        try:
            if isinstance(change, MakePods):
                await self._pods.make_pods(change)
            elif (patched := await carry_out_change(self._kube, change)) is not None:
                self._patched.append(patched)
        except ApiError as error:
            if error.status not in change.settled_by:
                if change.counted_as:
                    metrics.REFUSED.labels(change.counted_as).inc()
                log.warning("%s: %s %s: %s", self._title, change.resource, change.name, error)
                self._note_failure(tried, error)
                return False
        except Exception:  # an error in one change keeps no other
            log.exception("%s: %s %s: an error of this program", self._title, change.resource, change.name)
            self._note_failure(tried, None)
            return False
        if tried is not None:
            tried.refusal, tried.at = None, inf
            tried.backoff.reset_delay()
        if change.done:
            log.info("%s: %s", self._title, change.done)
        return None

    def _note_failure(self, tried: _Try | None, refusal: ApiError | None) -> None:
        if tried is not None:
            tried.refusal, tried.at = refusal, self._clock.monotonic() + tried.backoff.next_delay()


def _renewed_try(known: _Try | None, change: Change) -> _Try:
    """Return the try of a change that is wanted now: what was done or refused counts while it is the same."""
    if known is None:
        return _Try(change, Backoff(*change.retry_seconds))
    if known.change == change or (isinstance(change, Create) and known.at == inf):
        return known  # an object that was created may be wanted with another time or place in it since
    return _Try(change, known.backoff, at=0.0 if known.at == inf else known.at, refusal=known.refusal)


async def carry_out_change(kube: Kube, change: Change) -> Json | None:
    """Carry out one change, once, of any kind but `MakePods`; return what a `Patch` has made of its object.

    Raises:
        ApiError: the server refuses, or cannot be reached.
    """
    resource, namespace, name = change.resource, change.namespace, change.name
    match change:
        case Create():
            await _create_object(kube, change)
        case Patch():
            body, kind = _for_its_object_only(change)
            return await kube.patch_object(resource, namespace, name, body, kind=kind, subresource=change.subresource)
        case Put():
            found = await kube.find_object(resource, namespace, name)
            spec = {field: change.body["spec"].get(field) for field in change.fields}
            if found is None:
                await kube.create_object(resource, namespace, change.body)
            elif any(found["spec"].get(field) != value for field, value in spec.items()):
                await kube.patch_object(resource, namespace, name, {"spec": spec})
        case Delete():
            if change.before is not None:
                await _patch_before_deletion(kube, change.before)
            await kube.delete_object(resource, namespace, name, uid=change.uid, grace_seconds=change.grace_seconds)
    return None


async def _patch_before_deletion(kube: Kube, patch: Patch) -> None:
    """Carry out the patch of an object that is about to go; what refuses it does not keep the object."""
    try:
        await carry_out_change(kube, patch)
    except ApiError as error:
        if error.status in patch.settled_by or error.may_pass:
            raise
        log.warning("%s %s/%s goes unpatched: %s", patch.resource, patch.namespace, patch.name, error)


def _for_its_object_only(change: Patch) -> tuple[Json | Sequence[Json], PatchKind]:
    """Return the body with a condition: the server refuses it for an object with another UID; and its format."""
    if isinstance(change.body, Mapping):
        metadata = {**change.body.get("metadata", {}), "uid": change.uid}
        return {**change.body, "metadata": metadata}, PatchKind.MERGE
    return [{"op": "test", "path": "/metadata/uid", "value": change.uid}, *change.body], PatchKind.JSON


async def _create_object(kube: Kube, change: Create) -> None:
    try:
        await kube.create_object(change.resource, change.namespace, change.body)
    except ApiError as error:
        if error.reason != ALREADY_EXISTS:
            raise
        if change.if_there is not None:
            await kube.patch_object(change.resource, change.namespace, change.name, change.if_there)
