"""Which coordinator an agent listens to."""

from __future__ import annotations

import pytest

from trainer_sidecar.agent.succession import CoordinatorClaim, Succession


@pytest.mark.parametrize(
    ("heard", "claim", "words"),
    [
        (CoordinatorClaim(5, 3), CoordinatorClaim(5, 3), None),
        (CoordinatorClaim(5, 3), CoordinatorClaim(6, 3), None),
        (CoordinatorClaim(5, 3), CoordinatorClaim(5, 9), None),
        (CoordinatorClaim(5, 3), CoordinatorClaim(4, 9), "fence 4 is lower than 5"),
        (CoordinatorClaim(5, 9), CoordinatorClaim(5, 3), "incarnation 9 was heard already, this one is of 3"),
        (CoordinatorClaim(5, 9), CoordinatorClaim(6, 3), "incarnation 9 was heard already, this one is of 3"),
    ],
)
def test_what_was_heard_once_is_not_forgotten(
    heard: CoordinatorClaim, claim: CoordinatorClaim, words: str | None
) -> None:
    succession = Succession()
    succession.accept_claim(heard)
    refusal = succession.refusal_of_claim(claim)
    assert refusal is None if words is None else words in (refusal or "")


def test_a_higher_fence_is_another_operators() -> None:
    succession = Succession()
    assert [succession.accept_claim(CoordinatorClaim(fence, 1)) for fence in (1, 1, 2)] == [True, False, True]
