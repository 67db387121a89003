"""Whether this node may still speak for its ranks: a lease that runs out by itself.

It counts from the moment at which the agent *sent* the heartbeat that a grant answers, so a grant that lay in a socket
while this machine was frozen has run out when it is read, and no clock is compared between machines.
"""

from __future__ import annotations

from collections import OrderedDict

from trainer_sidecar.agent.clock import MILLISECOND

# An answer to an older heartbeat could only grant a lease that has run out: at ten heartbeats a second 256 of them are
# 25 s, a lease lasts 3 s.
REMEMBERED_HEARTBEATS = 256


class Lease:
    """The lease and the heartbeats whose answers may renew it. Times are nanoseconds of the agent's clock."""

    def __init__(self) -> None:
        self._valid_until = 0
        self._number = 0
        self._sent: OrderedDict[int, int] = OrderedDict()

    def number_heartbeat(self, now: int) -> int:
        """Return the number of a heartbeat that is sent now."""
        self._number += 1
        self._sent[self._number] = now
        if len(self._sent) > REMEMBERED_HEARTBEATS:
            self._sent.popitem(last=False)
        return self._number

    def apply_grant(self, number: int, milliseconds: int) -> bool:
        """Take a grant in; False: it answers no heartbeat of this conversation, or nothing newer than known."""
        sent = self._sent.pop(number, None)
        if sent is None:
            return False
        until = sent + milliseconds * MILLISECOND
        if until <= self._valid_until:
            return False
        self._valid_until = until
        return True

    def begin_conversation(self, *, is_kept: bool) -> None:
        """Begin another stream: answers to heartbeats of the former one do not count.

        `is_kept`: False where a coordinator with a higher fence has come, which must grant its own lease.
        """
        self._sent.clear()
        if not is_kept:
            self._valid_until = 0

    def is_valid(self, now: int) -> bool:
        """Return whether the lease holds at this moment."""
        return now < self._valid_until
