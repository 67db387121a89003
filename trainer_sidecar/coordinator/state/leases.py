"""Leases of the gates, and who has fallen silent.

A gate passes bytes to MindIO only under a lease of three seconds, counted by its agent from the moment at which it
*sent* the heartbeat that the grant answers. So three seconds after the last grant left here, no process of that pod can
reach the controller, whatever has become of its node.

Silence is measured by the same heartbeats. A coordinator that was itself not scheduled hears nothing
either: the time it lost is given to everybody. Pure; seconds of a clock that counts suspended time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from hajob.protocol.heartbeats import heartbeat_seconds

LEASE_SECONDS = 3.0
SILENT_SECONDS = 3.0
NAMED_ALONG_SECONDS = 2.5
"""When one agent counts as silent, those that are silent this long are named with it: a rank that goes silent
together with others and is not named costs MindIO five seconds. Where agents speak seldom, the silent one is named up
to half a second later while another one might have fallen silent with it."""

REFUSED_SECONDS = 1.5
"""How long the kernel of a pod must refuse connections before the pod counts as silent. A refusal proves that the
agent is not there, not that the pod is: a kubelet restarts a crashed agent at once, the ranks live on, and the new one
listens within a second. Giving up on the first refusals would replace a node for a crashed sidecar; waiting for the
full silence would give away half of what the refusal tells."""

SECOND_LOOK_SECONDS = 6.0
"""How much longer more than half of the agents must be silent together until they are named: one lost node is likelier
than two, but a coordinator whose own network is gone is likelier than half of all nodes lost in one moment. Of a single
agent nobody can tell."""

# A tick that is late by less is a busy machine's, and is in the three seconds already.
LAG_SECONDS = 0.5


@dataclass
class _Contact:
    heard: float
    granted: float | None = None  # its newest lease
    refused_since: float | None = None
    told: bool = False


class Contacts:
    """When each agent was heard last, and when its gate was granted a lease.

    An agent that has never spoken is starting, not silent.

    `begin`: a coordinator before this one may have granted until then.
    """

    def __init__(self, begin: float) -> None:
        self._begin = begin
        self._contacts: dict[str, _Contact] = {}
        self._doubted_since: float | None = None
        self.doubts = False  # nobody is to be stopped or named on what is heard now
        self.unreachable: tuple[int, int] | None = None  # so many of so many, while more than half are silent

    def note_grant(self, uid: str, now: float) -> None:
        """Note that the agent is heard, and that a lease of its gate leaves now."""
        self._contacts[uid].granted = now

    def is_lease_expired(self, uid: str, now: float, seconds: float = 0.0) -> bool:
        """Return whether no gate of this pod can be open, and has not been for this many seconds."""
        contact = self._contacts.get(uid)
        granted = contact.granted if contact is not None else None
        return now >= (granted if granted is not None else self._begin) + LEASE_SECONDS + seconds

    def watch_agent(self, uid: str, now: float) -> None:
        """Count from now, although nothing was heard yet; unless the pod is watched already."""
        self._contacts.setdefault(uid, _Contact(now))

    def forget_agent(self, uid: str) -> None:
        """Forget the pod, which is gone."""
        self._contacts.pop(uid, None)

    def note_sign_of_life(self, uid: str, now: float) -> bool:
        """Note a sign of life; True when the agent had been given up."""
        contact = self._contacts.setdefault(uid, _Contact(now))
        returned = contact.told
        contact.heard, contact.refused_since, contact.told = now, None, False
        return returned

    def note_refused_connection(self, uid: str, now: float) -> None:
        """Note that the agent's machine has refused a connection to it."""
        contact = self._contacts.get(uid)
        if contact is not None and contact.refused_since is None:
            contact.refused_since = now

    def forgive_lag(self, lag: float) -> None:
        """Extend every wait by `lag`, the seconds that this process stood still beyond its tick."""
        if lag <= LAG_SECONDS:
            return
        for contact in self._contacts.values():
            contact.heard += lag
            if contact.refused_since is not None:
                contact.refused_since += lag

    def take_newly_silent(self, now: float, is_missed: Callable[[str], bool]) -> dict[str, float]:
        """Return UID -> seconds of silence of every agent that must be named now, each told once.

        `is_missed`: whether the pod is one whose silence is a loss. While this process doubts itself, it names only
        those whose machines refuse connections.
        """
        named = [
            uid for uid, contact in self._contacts.items() if not contact.told and _is_contact_silent(contact, now)
        ]
        if named and not self._may_others_follow(named, now, is_missed):
            named = [uid for uid, contact in self._contacts.items() if not contact.told and _may_be_named(contact, now)]
        else:
            named = []
        self._update_doubt(now, set(named), is_missed)
        if self.doubts:
            named = [uid for uid in named if _is_contact_refused(self._contacts[uid], now)]
        for uid in named:
            self._contacts[uid].told = True
        return {uid: now - self._contacts[uid].heard for uid in named}

    def _may_others_follow(self, silent: Collection[str], now: float, is_missed: Callable[[str], bool]) -> bool:
        """Whether another one may have fallen silent with these, and a moment will tell."""
        interval = heartbeat_seconds(len(self._contacts))
        first = SILENT_SECONDS - interval  # so long silent at least, if it spoke last within an interval of the other
        longest = max(now - self._contacts[uid].heard for uid in silent)
        if longest >= NAMED_ALONG_SECONDS + interval or any(
            _is_contact_refused(self._contacts[uid], now) for uid in silent
        ):
            return False
        quiet = (uid for uid, one in self._contacts.items() if first <= now - one.heard < NAMED_ALONG_SECONDS)
        return any(not self._contacts[uid].told and is_missed(uid) for uid in quiet)

    def _update_doubt(self, now: float, silent: set[str], is_missed: Callable[[str], bool]) -> None:
        """More than half at once: most likely this process hears nothing, until a second look says otherwise."""
        if not silent and self._doubted_since is None:
            return
        missed = {uid: contact for uid, contact in self._contacts.items() if is_missed(uid)}
        if self._doubted_since is None:
            heard = [contact for contact in missed.values() if not contact.told]
            quiet = [uid for uid in silent if uid in missed and self._contacts[uid].refused_since is None]
            self._doubted_since = now if len(heard) > 1 and 2 * len(quiet) > len(heard) else None
        quiet = [uid for uid, contact in missed.items() if contact.told or uid in silent]
        if 2 * len(quiet) <= len(missed):
            self._doubted_since = None
        since = self._doubted_since
        self.doubts = since is not None and now - since < SECOND_LOOK_SECONDS
        self.unreachable = (len(quiet), len(missed)) if since is not None else None

    def is_agent_silent(self, uid: str) -> bool:
        """Return whether the agent has been given up."""
        contact = self._contacts.get(uid)
        return contact is not None and contact.told


def _is_contact_silent(contact: _Contact, now: float) -> bool:
    return now - contact.heard >= SILENT_SECONDS or _is_contact_refused(contact, now)


def _is_contact_refused(contact: _Contact, now: float) -> bool:
    return contact.refused_since is not None and now - contact.refused_since >= REFUSED_SECONDS


def _may_be_named(contact: _Contact, now: float) -> bool:
    return now - contact.heard >= NAMED_ALONG_SECONDS or _is_contact_refused(contact, now)
