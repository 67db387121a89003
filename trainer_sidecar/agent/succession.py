"""Choose the coordinator that this agent obeys: the highest fence, the newest pod, and one at a time.

Two operators, or a frozen and replaced coordinator, may both dial in. The fence decides, then which coordinator
pod was made later; both are kept when a stream ends, or the older one would be accepted in the gap between two streams
of the newer. Between equals the newer stream wins: a coordinator that dials twice has lost its first one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CoordinatorClaim:
    """A coordinator's claim in its Hello: its operator's fence, the incarnation its pod was made for."""

    fence: int
    incarnation: int


class Succession:
    """The highest claims heard so far."""

    def __init__(self) -> None:
        self._fence = 0
        self._incarnation = 0

    def refusal_of_claim(self, claim: CoordinatorClaim) -> str | None:
        """Return why this claim is refused, None when it may take over."""
        if claim.fence < self._fence:
            return f"fence {claim.fence} is lower than {self._fence}, which was seen already"
        if claim.incarnation < self._incarnation:
            return (
                f"the coordinator pod of incarnation {self._incarnation} was heard already, this one is of "
                f"{claim.incarnation}"
            )
        return None

    def accept_claim(self, claim: CoordinatorClaim) -> bool:
        """Accept the claim; return True when it is another coordinator's, by a higher fence."""
        is_higher = claim.fence > self._fence
        self._fence, self._incarnation = claim.fence, claim.incarnation
        return is_higher
