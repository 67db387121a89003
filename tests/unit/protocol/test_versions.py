"""Two ends talk when their ranges of versions meet, also with peers from before there were ranges."""

from __future__ import annotations

import pytest

from hajob.protocol import sidecar_pb2 as pb
from hajob.protocol.versions import OURS, Versions, disagreement


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Versions(1, 1), pb.Hello(version=1)),  # 0.1: one version, no range
        (Versions(1, 2), pb.Hello(version=1)),
        (Versions(1, 3), pb.Hello(version=2, highest_version=5)),
        (Versions(3, 4), pb.Hello(version=1, highest_version=3)),
        (Versions(2, 2), pb.Hello(version=1, highest_version=9)),
    ],
)
def test_ranges_that_meet_talk(ours: Versions, theirs: pb.Hello) -> None:
    assert disagreement(theirs, "the agent", ours) == ""


@pytest.mark.parametrize(
    ("ours", "theirs", "sentence"),
    [
        (
            Versions(2, 3),
            pb.Hello(version=1),
            "the agent speaks protocol version 1, this end 2 to 3: the agent is too old and must be replaced",
        ),
        (
            Versions(1, 1),
            pb.Hello(version=2, highest_version=4),
            "the agent speaks protocol version 2 to 4, this end 1: this end is too old and must be replaced",
        ),
    ],
)
def test_ranges_apart_say_which_end_is_too_old(ours: Versions, theirs: pb.Hello, sentence: str) -> None:
    assert disagreement(theirs, "the agent", ours) == sentence


def test_a_peer_without_a_range_is_served_while_it_is_supported() -> None:
    """Raising the lowest version cuts off every sidecar of 0.1: it needs a decision, and this test."""
    assert OURS.lowest == 1
