"""The right of an operator to write, as its writers ask for it."""

from __future__ import annotations

from math import inf


class Leadership:
    """Leads without a rival, for ever. hajob.leader.lease leads by a Lease.

    Attributes:
        fence: number of the leadership, higher for each later one; 0 while there is none.
    """

    def __init__(self, fence: int = 1) -> None:
        self.fence = fence

    @property
    def seconds_left(self) -> float:
        """Return for how long no other operator can begin to lead; 0 where one may have."""
        return inf

    def note_claimed_fence(self, fence: int) -> None:
        """Note a fence that was found in a status: it may be that of a later leader."""
        del fence

    async def wait_until_writable(self) -> None:
        """Wait until no other operator can have taken over."""
