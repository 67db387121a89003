"""The operator is away for more than a minute, at any point of any action: the result is the same.

Each action is played twice, with the same words of the same operator; the second time it is gone for a while at one
point, hears nothing, says nothing, and then gets everything on a new stream.
"""

from __future__ import annotations

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator_plays import PLAYS, AwayWorld, Play, in_place, retry


def played(play: Play, away_at: int | None = None) -> AwayWorld:
    world = AwayWorld()
    for number, _ in enumerate(play(world)):
        if number == away_at:
            world.leave()
    world.advance(0.5)
    return world


@pytest.mark.parametrize(
    ("play", "away_at"),
    [pytest.param(play, at, id=f"{play.__name__}-{at}") for play, points in PLAYS.items() for at in range(points)],
)
def test_an_operator_that_is_away_changes_nothing_in_the_result(play: Play, away_at: int) -> None:
    assert played(play, away_at).outcome() == played(play).outcome()


@pytest.mark.parametrize(("play", "standing"), [(in_place, pb.IN_PLACE), (retry, pb.RETRY)])
def test_what_needs_nobody_else_is_done_meanwhile_and_said(play: Play, standing: pb.Action) -> None:
    world = AwayWorld()
    next(play(world))
    world.leave()
    assert world.state.standing_action == standing
    assert len(world.called("change_strategy")) == 1
    assert world.marks(pb.STRATEGY_SENT)
