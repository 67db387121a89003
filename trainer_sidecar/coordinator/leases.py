"""Leases of the gates, and who has fallen silent.

A gate passes bytes to MindIO only under a lease of three seconds, counted by its agent from the moment at which it
*sent* the heartbeat that the grant answers. So three seconds after the last grant left here, no process of that pod can
reach the controller, whatever has become of its node.

Silence is judged by the same heartbeats, every half second. A coordinator that was itself not scheduled hears nothing
either: the time it lost is given to everybody. Pure; seconds of a clock that counts suspended time.
"""

from __future__ import annotations

from dataclasses import dataclass

LEASE_SECONDS = 3.0
SILENT_SECONDS = 3.0
NAMED_ALONG_SECONDS = 2.5
"""When one agent counts as silent, those that are silent this long are named with it: a rank that goes silent
together with others and is not named costs MindIO five seconds."""

REFUSED_SECONDS = 1.5
"""How long the kernel of a pod must refuse connections before the pod counts as silent. A refusal proves that the
agent is not there, not that the pod is: a kubelet restarts a crashed agent at once, the ranks live on, and the new one
listens within a second. Giving up on the first refusals would replace a node for a crashed sidecar; waiting for the
full silence would give away half of what the refusal tells."""

LAG_SECONDS = 0.5


@dataclass
class _Contact:
    heard: float
    refused_since: float | None = None
    told: bool = False


class Leases:
    """When each gate was granted its lease last."""

    def __init__(self, now: float) -> None:
        self._begin = now  # a coordinator before this one may have granted until then
        self._granted: dict[str, float] = {}

    def grant(self, uid: str, now: float) -> None:
        """Note a grant that leaves now."""
        self._granted[uid] = now

    def expired(self, uid: str, now: float, seconds: float = 0.0) -> bool:
        """Whether no gate of this pod can be open any more, and has not been for so many seconds."""
        return now >= self._granted.get(uid, self._begin) + LEASE_SECONDS + seconds

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._granted.pop(uid, None)


class Silence:
    """When each agent was heard last. One that has never spoken is starting, not silent."""

    def __init__(self) -> None:
        self._contacts: dict[str, _Contact] = {}

    def watch(self, uid: str, now: float) -> None:
        """Count from now, although nothing was heard yet; unless the pod is watched already."""
        self._contacts.setdefault(uid, _Contact(now))

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._contacts.pop(uid, None)

    def heard(self, uid: str, now: float) -> bool:
        """Note a sign of life; True when the agent had been given up."""
        contact = self._contacts.setdefault(uid, _Contact(now))
        returned = contact.told
        contact.heard, contact.refused_since, contact.told = now, None, False
        return returned

    def refused(self, uid: str, now: float) -> None:
        """A connection to the agent was refused by its machine."""
        contact = self._contacts.get(uid)
        if contact is not None and contact.refused_since is None:
            contact.refused_since = now

    def forgive(self, lag: float) -> None:
        """This process stood still for `lag` seconds beyond its tick."""
        if lag <= LAG_SECONDS:
            return
        for contact in self._contacts.values():
            contact.heard += lag
            if contact.refused_since is not None:
                contact.refused_since += lag

    def newly_silent(self, now: float) -> dict[str, float]:
        """UID -> seconds of silence of every agent that must be named now, each told once."""
        due = [uid for uid, contact in self._contacts.items() if not contact.told and _is_silent(contact, now)]
        if not due:
            return {}
        along = [
            uid
            for uid, contact in self._contacts.items()
            if not contact.told and now - contact.heard >= NAMED_ALONG_SECONDS
        ]
        named = dict.fromkeys([*due, *along])
        for uid in named:
            self._contacts[uid].told = True
        return {uid: now - self._contacts[uid].heard for uid in named}

    def is_silent(self, uid: str) -> bool:
        """Whether the agent has been given up."""
        contact = self._contacts.get(uid)
        return contact is not None and contact.told


def _is_silent(contact: _Contact, now: float) -> bool:
    refused = contact.refused_since
    return now - contact.heard >= SILENT_SECONDS or (refused is not None and now - refused >= REFUSED_SECONDS)
