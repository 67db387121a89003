"""How long a start waits for ranks that nobody could end."""

from __future__ import annotations

from hajob.plan import events as e
from hajob.plan.fencing import FENCE_SECONDS, fence_wait_ms
from hajob.plan.state import JobPhase, JobState
from hajob.pods.settings import PodSettings
from tests.rigs.plan_rig import Rig, from_dict, to_dict

FENCE_MS = 1000 * FENCE_SECONDS


def test_a_start_waits_for_the_last_that_may_live() -> None:
    rig = Rig.running()
    rig.tell(e.RanksUnreachable(nodes=("node-1",)))
    first = rig.now
    rig.tell(e.RanksUnreachable(nodes=("node-2",)), first + 20_000)
    assert fence_wait_ms(rig.state, first + 20_000) == FENCE_MS
    assert fence_wait_ms(rig.state, first + 20_000, ["node-2"]) == FENCE_MS - 20_000
    assert fence_wait_ms(rig.state, first + 20_000, ["node-1", "node-2"]) == 0
    assert fence_wait_ms(rig.state, first + 20_000 + FENCE_MS) == 0


def test_nobody_unreachable_delays_nothing() -> None:
    assert fence_wait_ms(JobState(), 5_000) == 0


def test_what_is_over_is_forgotten() -> None:
    rig = Rig.running()
    rig.tell(e.RanksUnreachable(nodes=("node-1",)))
    rig.tell(e.RanksUnreachable(nodes=("node-2",)), rig.now + FENCE_MS)
    assert set(rig.state.unreachable) == {"node-2"}


def test_a_start_that_waits_gets_its_time_all_the_same() -> None:
    rig = Rig.running()
    rig.tell(e.RestartRequested())
    rig.state = from_dict(
        {**to_dict(rig.state), "phase": JobPhase.RESTARTING, "deadlines": {"Startup": rig.now + 1000}}
    )
    due = rig.state.deadlines["Startup"]
    rig.tell(e.RanksUnreachable(nodes=("node-1", "node-2")))
    assert rig.state.deadlines["Startup"] == due + FENCE_MS


def test_the_next_leader_knows_of_them() -> None:
    rig = Rig.running()
    rig.tell(e.RanksUnreachable(nodes=("node-1",)))
    assert from_dict(to_dict(rig.state)).unreachable == rig.state.unreachable


def test_a_start_waits_longer_than_agents_let_ranks_live() -> None:
    assert PodSettings("sidecar").fence_after_seconds < FENCE_SECONDS
