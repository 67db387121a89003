"""The Lease that elects the leading operator, and the number of that leadership.

A Lease of our own, because the client library's election writes no `leaseTransitions`, and that is our fence: every
status write and every coordinator connection carries it, and a smaller one is refused (docs/decisions).

Rules:

- another holder's Lease is taken only when it has not *changed* for its whole duration on our own monotonic clock; wall
  clocks of different machines are never compared. A request may take long: what we saw counts from its answer, what
  we hold counts from before we asked;
- a leader that cannot renew stops *writing* after `renew_seconds`, but keeps leading: its coordinators are still
  served. It stops leading when it sees another holder;
- every write is a PUT with the version that was read, so that two takers cannot both succeed;
- a Lease that is not there may have been deleted under a leader: it is made after it was missing for a whole duration,
  at once only where no fence is known. A leader whose Lease was deleted makes another and goes on leading;
- a leader that is cut off from the coordinators offers the Lease, and gives it back to a standby that has volunteered
  (hajob.leader.handover); a standby volunteers only after it has reached the coordinators itself;
- a look that takes longer than half the time between renewal and loss is given up, so that one request that hangs
  does not cost the Lease.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from hajob.api.base import Json
from hajob.clock import Clock, format_microtime, timeout
from hajob.kube.client import ApiError, Kube
from hajob.leader import handover
from hajob.leader.leadership import Leadership

log = logging.getLogger(__name__)

FENCE_LIMIT: Final = 1_000_000_000
"""Fences that statuses claim count only below this. Whoever may write a status may claim one; what is left above, up to
the 2,000,000,000 that the CRD allows and the 31 bits of a Lease, is more changes of leader than there will ever be.
"""
STANDBY_LOOKS: Final = 2
"""How often a standby looks where a leader renews once: what is given back is taken within half that time."""
_MISSING: Final = ("no Lease",)


class Candidate:
    """A process that stands for leader; this one does nothing with it, and always may lead.

    Attributes:
        fence_floor: the highest fence that is known from statuses; a new leadership gets a larger one, even where the
            Lease was deleted meanwhile and counts from the beginning. From `FENCE_LIMIT` on it is not believed.
    """

    fence_floor = 0

    def leadership_gained(self, fence: int) -> None:
        """Begin to lead."""

    def leadership_lost(self, reason: str) -> None:
        """End what only the leader does."""

    def why_unfit(self) -> str:
        """Return why this leader should not lead, though the API server answers; empty: it may."""
        return ""

    async def reaches_coordinators(self) -> bool:
        """Return whether this standby could do better than a leader that is cut off, which offers its Lease."""
        return False


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """Name and timing of the Lease; `lease > renew > retry`."""

    namespace: str
    name: str = "hajob-operator"
    # A standby leads some five seconds after a leader has died: below MindIO's own waits, and four renewals long, so
    # that a slow API server costs no leadership.
    lease_seconds: float = 4.0
    renew_seconds: float = 3.0
    retry_seconds: float = 1.0


class LeaseHolder(Leadership):
    """Takes, renews and gives back the Lease.

    Args:
        kube: the API.
        clock: its monotonic side decides.
        settings: names and times.
        identity: of this process; another process must have another one, even in the same pod.
        candidate: this process, as it is told and asked.
    """

    def __init__(
        self,
        kube: Kube,
        clock: Clock,
        settings: LeaseSettings,
        identity: str,
        candidate: Candidate,
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._settings = settings
        self._identity = identity
        self._candidate = candidate
        self._is_offered = self._volunteers = self._given_up = False
        super().__init__(fence=0)
        self._claimed = 0
        self._renewed = 0.0
        self._left: Json | None = None
        self._seen: tuple[object, ...] = ()
        self._seen_since = 0.0
        self._writable = asyncio.Event()

    @property
    def is_leader(self) -> bool:
        """Whether this process leads."""
        return self.fence > 0

    @property
    def may_write(self) -> bool:
        """Whether no other operator can have taken over yet."""
        return self.is_leader and self._clock.monotonic() - self._renewed < self._settings.renew_seconds

    @property
    def seconds_left(self) -> float:
        """Return for how long no other operator can begin to lead; 0 where one may have."""
        if not self.may_write:
            return 0.0
        return self._settings.lease_seconds - (self._clock.monotonic() - self._renewed)

    @property
    def seconds_since_renewal(self) -> float:
        """Return the age of the newest renewal; 0 while this process does not lead."""
        return self._clock.monotonic() - self._renewed if self.is_leader else 0.0

    def note_claimed_fence(self, fence: int) -> None:
        """Note a fence found in a status: the next renewal writes a larger one, unless the Lease has another holder."""
        if fence < FENCE_LIMIT:
            self._claimed = max(self._claimed, fence)

    async def wait_until_writable(self) -> None:
        """Wait until `may_write`."""
        while not self.may_write:
            self._writable.clear()
            await self._writable.wait()

    async def hold_for_ever(self) -> None:
        """Take or renew the Lease until cancelled."""
        while True:
            if await self.check_lease():
                self._volunteers = self._is_offered and await self._candidate.reaches_coordinators()
                await self._clock.sleep(self._settings.retry_seconds / (1 if self.is_leader else STANDBY_LOOKS))

    async def check_lease(self) -> bool:
        """Read the Lease once and act on it; return whether the server answered."""
        asked = self._clock.monotonic()
        limit = (self._settings.lease_seconds - self._settings.retry_seconds) / 2
        try:
            async with timeout(self._clock, limit):
                await self._read_and_act(asked)
        except ApiError as error:
            if error.status != 409:  # 409: another writer was faster, the next look tells which
                log.warning("lease %s: %s", self._settings.name, error)
        except TimeoutError:
            log.warning("lease %s: no answer within %.1f s; asking again", self._settings.name, limit)
            return False
        return True

    async def release_lease(self) -> None:
        """Give the Lease back, so that another operator need not wait for its expiry."""
        if not self.is_leader:
            return
        fence = self.fence
        # First, so that nothing is written any more while the Lease is on its way back.
        self._stop_leading("the operator is shutting down")
        try:
            lease = await self._kube.find_object("leases", self._settings.namespace, self._settings.name)
            if lease is not None and self._is_held_by_us(lease["spec"], fence):
                lease["spec"]["holderIdentity"] = ""
                await self._kube.replace_object("leases", self._settings.namespace, lease)
        except ApiError as error:
            log.warning("lease %s cannot be given back: %s", self._settings.name, error)

    async def _read_and_act(self, asked: float) -> None:
        self._is_offered = False
        if self.is_leader and await self._renew_lease(asked):
            return
        lease = await self._kube.find_object("leases", self._settings.namespace, self._settings.name)
        if lease is None:
            if self.is_leader or self._is_missing(asked):
                body: Json = {"metadata": {"name": self._settings.name}, "spec": {}}
                self._fill_in_holder(body, self._next_fence(self.fence))
                stored = await self._kube.create_object("leases", self._settings.namespace, body)
                self._become_leader(body, asked)
                self._left = stored
            return
        spec = lease.setdefault("spec", {})
        if self.is_leader and not self._is_held_by_us(spec, self.fence):
            self._stop_leading(f"{spec.get('holderIdentity') or 'nobody'} holds the Lease")
        if self.is_leader:
            self._offer_or_keep(lease)
            self._fill_in_holder(lease, self.fence if self._claimed <= self.fence else self._next_fence(self.fence))
        elif self._is_free_to_take(lease, asked):
            handover.withdraw_offer(lease)
            self._fill_in_holder(lease, self._next_fence(int(spec.get("leaseTransitions") or 0)))
        else:
            await self._volunteer_if_able(lease)
            return
        await self._write_lease(lease, asked)

    async def _renew_lease(self, asked: float) -> bool:
        """Renew it in one request, as this leader left it; return whether no other writer has changed it since."""
        lease, self._left = self._left, None
        if lease is None:
            return False
        try:
            self._offer_or_keep(lease)
            self._fill_in_holder(lease, self.fence if self._claimed <= self.fence else self._next_fence(self.fence))
            await self._write_lease(lease, asked)
        except ApiError as error:
            if error.status not in {404, 409}:
                raise
            return False
        return True

    async def _write_lease(self, lease: Json, asked: float) -> None:
        """Write it, unless another writer was faster; `_left` is only what is known to be stored."""
        stored = await self._kube.replace_object("leases", self._settings.namespace, lease)
        self._become_leader(lease, asked)
        self._left = stored

    def _offer_or_keep(self, lease: Json) -> None:
        """Offer the Lease while this leader is cut off, and stop leading as soon as a standby volunteers."""
        why, successor = self._candidate.why_unfit(), handover.volunteer_of_lease(lease)
        if not why:
            handover.withdraw_offer(lease)
        elif not successor:
            handover.offer_lease(lease, why)
        elif not self._given_up:
            self._given_up = True
            self._candidate.leadership_lost(f"{successor} reaches the coordinators and is to lead; {why}")

    async def _volunteer_if_able(self, lease: Json) -> None:
        """Tell the leader that this standby reaches the coordinators."""
        self._is_offered = bool(handover.why_offered(lease)) and not handover.volunteer_of_lease(lease)
        if self._is_offered and self._volunteers:
            handover.volunteer_for_lease(lease, self._identity)
            await self._kube.replace_object("leases", self._settings.namespace, lease)
            log.info("lease %s: %s; this standby reaches them", self._settings.name, handover.why_offered(lease))

    def _next_fence(self, last: int) -> int:
        floor = self._candidate.fence_floor
        return max(last, floor if floor < FENCE_LIMIT else 0, self._claimed) + 1

    def _is_held_by_us(self, spec: Json, fence: int) -> bool:
        return spec.get("holderIdentity") == self._identity and spec.get("leaseTransitions") == fence

    def _is_free_to_take(self, lease: Json, asked: float) -> bool:
        """Whether it was given back, to this one or to any, or has not changed for its duration while we looked.

        The server may have read the record at any moment between request and answer: a new one may be as young as the
        answer, and one that has not changed had not changed when we asked.
        """
        spec = lease["spec"]
        if not spec.get("holderIdentity") and handover.volunteer_of_lease(lease) in {"", self._identity}:
            return True
        state = (spec.get("holderIdentity"), spec.get("leaseTransitions"), spec.get("renewTime"))
        duration = float(spec.get("leaseDurationSeconds") or self._settings.lease_seconds)
        return self._has_stood_still(state, max(duration, self._settings.lease_seconds), asked)

    def _is_missing(self, asked: float) -> bool:
        """Whether a missing Lease may be created: its former holder may still write for its duration."""
        if not self._seen and not self._candidate.fence_floor:
            return True
        return self._has_stood_still(_MISSING, self._settings.lease_seconds, asked)

    def _has_stood_still(self, state: tuple[object, ...], seconds: float, asked: float) -> bool:
        if state != self._seen:
            self._seen, self._seen_since = state, self._clock.monotonic()
        return asked - self._seen_since >= seconds

    def _fill_in_holder(self, lease: Json, fence: int) -> None:
        now = format_microtime(self._clock.now_milliseconds())
        spec = lease["spec"]
        if spec.get("leaseTransitions") != fence:
            spec["acquireTime"] = now
        spec |= {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._settings.lease_seconds)),
            "leaseTransitions": fence,
            "renewTime": now,
        }

    def _become_leader(self, lease: Json, asked: float) -> None:
        """Become or stay leader, because the write was accepted; it counts from the moment at which we began to ask."""
        fence = int(lease["spec"]["leaseTransitions"])
        before, self.fence, self._renewed = self.fence, fence, asked
        self._writable.set()
        # A renewal keeps the fence; everything below is for a leadership that begins.
        if before == fence:
            return
        log.info("lease %s: leading with fence %d", self._settings.name, fence)
        if not before:
            self._candidate.leadership_gained(fence)

    def _stop_leading(self, reason: str) -> None:
        log.warning("lease %s: no longer leading: %s", self._settings.name, reason)
        self.fence, self._left = 0, None
        self._seen = ()
        self._candidate.leadership_lost(reason)
