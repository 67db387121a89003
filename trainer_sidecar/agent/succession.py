"""Which coordinator is listened to: the highest fence, and one at a time.

Two operators, or a coordinator that was frozen and replaced, may both dial in. The fence decides; between equals the
one that knows the higher incarnation; between equals again the newer stream, since a coordinator that dials twice has
lost its first stream.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Claim:
    """What a coordinator says of itself in its Hello."""

    fence: int
    incarnation: int


class Succession:
    """The claims seen so far."""

    def __init__(self) -> None:
        self._highest_fence = 0
        self._current: Claim | None = None

    def refusal(self, claim: Claim) -> str | None:
        """Why this claim must be turned away, None when it may take over."""
        if claim.fence < self._highest_fence:
            return f"fence {claim.fence} is lower than {self._highest_fence}, which was seen already"
        if self._current is not None and claim < self._current:
            newer = self._current.incarnation
            return f"a coordinator that knows incarnation {newer} is connected, this one only {claim.incarnation}"
        return None

    def accept(self, claim: Claim) -> bool:
        """Let it take over; True when it is another one than before, by a higher fence."""
        is_higher = claim.fence > self._highest_fence
        self._highest_fence = claim.fence
        self._current = claim
        return is_higher

    def leave(self, claim: Claim) -> None:
        """The stream of this claim has ended."""
        if self._current is claim:
            self._current = None
