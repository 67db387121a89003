"""The lease counts from the heartbeat that a grant answers, by a clock that counts suspended time."""

from __future__ import annotations

from tests.rigs.agent_node import FakeClock
from trainer_sidecar.agent.gate.lease import REMEMBERED_HEARTBEATS, Lease


def test_a_grant_counts_from_when_its_heartbeat_was_sent() -> None:
    clock, lease = FakeClock(), Lease()
    number = lease.number_heartbeat(clock.now())
    clock.pass_seconds(2)
    assert lease.apply_grant(number, 3000)
    assert lease.is_valid(clock.now())
    clock.pass_seconds(0.999)
    assert lease.is_valid(clock.now())
    clock.pass_seconds(0.001)
    assert not lease.is_valid(clock.now())


def test_a_grant_that_waited_in_a_socket_has_run_out() -> None:
    clock, lease = FakeClock(), Lease()
    number = lease.number_heartbeat(clock.now())
    clock.pass_seconds(30)
    lease.apply_grant(number, 3000)
    assert not lease.is_valid(clock.now())


def test_grants_that_answer_nothing_change_nothing() -> None:
    clock, lease = FakeClock(), Lease()
    assert not lease.apply_grant(1, 3000)
    number = lease.number_heartbeat(clock.now())
    assert lease.apply_grant(number, 3000)
    assert not lease.apply_grant(number, 60_000), "the same heartbeat answered twice"
    clock.pass_seconds(3)
    assert not lease.is_valid(clock.now())


def test_an_older_grant_does_not_shorten_the_lease() -> None:
    clock, lease = FakeClock(), Lease()
    first = lease.number_heartbeat(clock.now())
    clock.pass_seconds(1)
    second = lease.number_heartbeat(clock.now())
    assert lease.apply_grant(second, 3000)
    assert not lease.apply_grant(first, 3000)
    clock.pass_seconds(2.9)
    assert lease.is_valid(clock.now())


def test_another_stream_does_not_answer_former_heartbeats() -> None:
    clock, lease = FakeClock(), Lease()
    number = lease.number_heartbeat(clock.now())
    lease.begin_conversation(is_kept=True)
    assert not lease.apply_grant(number, 3000)


def test_a_higher_fence_ends_the_lease_of_the_lower() -> None:
    clock, lease = FakeClock(), Lease()
    lease.apply_grant(lease.number_heartbeat(clock.now()), 3000)
    lease.begin_conversation(is_kept=True)
    assert lease.is_valid(clock.now())
    lease.begin_conversation(is_kept=False)
    assert not lease.is_valid(clock.now())


def test_unanswered_heartbeats_are_forgotten() -> None:
    clock, lease = FakeClock(), Lease()
    first = lease.number_heartbeat(clock.now())
    for _ in range(REMEMBERED_HEARTBEATS):
        lease.number_heartbeat(clock.now())
    assert not lease.apply_grant(first, 3000)
