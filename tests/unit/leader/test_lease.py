"""Exactly one leads, the fence only grows, and an outage of the API drops nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from e2e.memory_api.client import MemoryKube
from e2e.memory_api.requests import requests
from e2e.memory_api.server import MemoryServer
from hajob.api.base import Json
from hajob.leader.lease import FENCE_LIMIT, Candidate, LeaseHolder, LeaseSettings
from tests.rigs.fake_clock import FakeClock

SETTINGS = LeaseSettings("hajob-system")
LEASE = ("leases", "hajob-system", "hajob-operator")


def made() -> tuple[MemoryKube, FakeClock]:
    """A server and its clock."""
    clock = FakeClock()
    return MemoryKube(MemoryServer(clock)), clock


async def spec_of(kube: MemoryKube) -> Json:
    spec: Json = (await kube.get_object(*LEASE))["spec"]
    return spec


class Process(Candidate):
    """An operator's lease holder and what it was told."""

    def __init__(self, kube: MemoryKube, clock: FakeClock, identity: str, floor: int = 0) -> None:
        kube = MemoryKube(kube.server, identity)
        self.gained: list[int] = []
        self.lost: list[str] = []
        self.holder = LeaseHolder(
            kube,
            clock,
            SETTINGS,
            identity,
            self,
        )
        self.fence_floor = floor
        self.task = asyncio.create_task(self.holder.hold_for_ever())

    def leadership_gained(self, fence: int) -> None:
        self.gained.append(fence)

    def leadership_lost(self, reason: str) -> None:
        self.lost.append(reason)


async def test_the_first_one_leads_at_once_and_renews() -> None:
    kube, clock = made()
    one = Process(kube, clock, "one")
    await clock.advance(0)
    assert (one.gained, one.holder.fence, one.holder.may_write) == ([1], 1, True)
    await clock.advance(20)
    assert (one.gained, one.lost, one.holder.may_write) == ([1], [], True)
    spec = await spec_of(kube)
    assert (spec["holderIdentity"], spec["leaseTransitions"], spec["leaseDurationSeconds"]) == ("one", 1, 4)


async def test_a_renewal_is_one_request() -> None:
    kube, clock = made()
    one = Process(kube, clock, "one")
    await clock.advance(0)
    before = len(kube.server.log)
    await clock.advance(10.5)
    assert [request.method for request in kube.server.log[before:]] == ["PUT"] * 10
    assert one.holder.may_write


async def test_what_somebody_else_wrote_is_read_in_the_same_look() -> None:
    kube, clock = made()
    one = Process(kube, clock, "one")
    await clock.advance(0)
    await kube.patch_object(*LEASE, {"metadata": {"labels": {"somebody": "was-here"}}})
    before = len(kube.server.log)
    await clock.advance(1)
    assert [request.method for request in kube.server.log[before:]] == ["PUT", "GET", "PUT"]
    assert (one.holder.may_write, one.lost) == (True, [])
    assert (await kube.get_object(*LEASE))["metadata"]["labels"] == {"somebody": "was-here"}


async def test_what_is_given_back_is_taken_within_half_a_second() -> None:
    kube, clock = made()
    one = Process(kube, clock, "one")
    await clock.advance(0)
    two = Process(kube, clock, "two")
    await clock.advance(10.01)
    one.task.cancel()
    await one.holder.release_lease()
    await clock.advance(0.5)
    assert (two.gained, two.holder.may_write) == ([2], True)


async def test_a_standby_takes_over_once_the_lease_has_stood_still() -> None:
    kube, clock = made()
    one = Process(kube, clock, "one")
    await clock.advance(0)
    two = Process(kube, clock, "two")
    await clock.advance(10)
    assert two.gained == []
    one.task.cancel()
    await clock.advance(3)
    assert two.gained == []
    await clock.advance(3)
    assert two.gained == [2]


async def test_a_lease_that_was_given_back_is_taken_at_the_next_look() -> None:
    kube, clock = made()
    one = Process(kube, clock, "one")
    await clock.advance(0)
    two = Process(kube, clock, "two")
    await clock.advance(2)
    one.task.cancel()
    await one.holder.release_lease()
    assert not one.holder.is_leader
    await clock.advance(1.5)
    assert two.gained == [2]


async def test_an_outage_stops_writing_but_not_leading() -> None:
    kube, clock = made()
    one = Process(kube, clock, "one")
    await clock.advance(0)
    outage = kube.server.faults.unreachable()
    await clock.advance(4)
    assert (one.holder.is_leader, one.holder.may_write, one.lost) == (True, False, [])
    waiting = asyncio.create_task(one.holder.wait_until_writable())
    await clock.advance(3)
    assert not waiting.done()
    outage.end()
    await clock.advance(10)
    assert waiting.done()
    assert (one.gained, one.holder.fence, one.holder.may_write) == ([1], 1, True)


async def test_a_leader_that_slept_sees_the_other_and_stops() -> None:
    kube, clock = made()
    one = Process(kube, clock, "one")
    await clock.advance(0)
    await kube.patch_object(*LEASE, {"spec": {"holderIdentity": "two", "leaseTransitions": 2}})
    await clock.advance(1)
    assert one.lost == ["two holds the Lease"]
    assert not one.holder.is_leader
    assert one.holder.fence == 0


async def test_two_takers_cannot_both_succeed() -> None:
    kube, clock = made()
    processes = [Process(kube, clock, str(number)) for number in range(5)]
    await clock.advance(30)
    assert sum(process.holder.is_leader for process in processes) == 1
    assert [process.gained for process in processes if process.gained] == [[1]]


async def test_a_restarted_process_waits_and_gets_a_new_fence() -> None:
    kube, clock = made()
    one = Process(kube, clock, "pod_1111")
    await clock.advance(0)
    one.task.cancel()
    again = Process(kube, clock, "pod_2222")
    await clock.advance(3)
    assert again.gained == []
    await clock.advance(3)
    assert again.gained == [2]


async def test_a_new_lease_counts_on_from_what_statuses_say() -> None:
    kube, clock = made()
    one = Process(kube, clock, "one", floor=7)
    await clock.advance(10)
    assert one.gained == [8]


@pytest.mark.parametrize("floor", [FENCE_LIMIT, 2**31 - 1, 2**62])
async def test_a_fence_that_nobody_can_have_reached_is_not_believed(floor: int) -> None:
    kube, clock = made()
    one = Process(kube, clock, "one", floor=floor)
    await clock.advance(10)
    assert (one.gained, one.holder.may_write) == ([1], True)
    one.holder.note_claimed_fence(floor)
    await clock.advance(10)
    assert (one.holder.fence, one.lost) == (1, [])


async def test_a_claimed_fence_is_outdone_without_a_change_of_leader() -> None:
    kube, clock = made()
    one = Process(kube, clock, "one")
    await clock.advance(0)
    one.holder.note_claimed_fence(FENCE_LIMIT - 1)
    await clock.advance(2)
    assert (one.holder.fence, one.gained, one.lost) == (FENCE_LIMIT, [1], [])
    assert (await spec_of(kube))["leaseTransitions"] == FENCE_LIMIT
    one.task.cancel()
    two = Process(kube, clock, "two")
    await clock.advance(10)
    assert two.gained == [FENCE_LIMIT + 1]


async def test_a_lease_deleted_under_a_leader_changes_only_the_fence() -> None:
    kube, clock = made()
    one = Process(kube, clock, "one")
    await clock.advance(0)
    two = Process(kube, clock, "two")
    await clock.advance(5)
    for _ in range(3):
        await kube.delete_object(*LEASE)
        await clock.advance(5)
    assert (one.gained, one.lost, one.holder.fence, one.holder.may_write) == ([1], [], 4, True)
    assert two.gained == []


@pytest.mark.parametrize("known", ["from the Lease", "from statuses"])
async def test_a_lease_that_is_missing_may_still_be_somebodys(known: str) -> None:
    """Its holder may go on writing for as long as it was given: nobody makes another before."""
    kube, clock = made()
    if known == "from the Lease":
        one = Process(kube, clock, "one")
        await clock.advance(0)
    two = Process(kube, clock, "two", floor=0 if known == "from the Lease" else 5)
    await clock.advance(2)
    if known == "from the Lease":
        one.task.cancel()
        await kube.delete_object(*LEASE)
    await clock.advance(1.9)
    assert two.gained == []
    await clock.advance(4)
    assert len(two.gained) == 1


async def test_a_request_that_hangs_does_not_cost_the_lease() -> None:
    kube, clock = made()
    one = Process(kube, clock, "one")
    await clock.advance(0.5)
    two = Process(kube, clock, "two")
    await clock.advance(5)
    for method in ("GET", "PUT"):
        kube.server.faults.hold(matching=requests("leases", method, client="one"))
        await clock.advance(30)
    assert (one.lost, one.holder.is_leader, two.gained) == ([], True, [])


Request = Callable[..., Awaitable[Json]]


def stalled(clock: FakeClock, request: Request, before: float, after: float) -> Request:
    """A request that the server takes up late, and whose answer comes late."""

    async def slow(*arguments: object) -> Json:
        clock.seconds += before
        answer = await request(*arguments)
        clock.seconds += after
        return answer

    return slow


def holder_of(kube: MemoryKube, clock: FakeClock, identity: str) -> LeaseHolder:
    return LeaseHolder(kube, clock, SETTINGS, identity, Candidate())


@pytest.mark.parametrize(("before", "after"), [(5.0, 0.0), (0.0, 5.0)])
async def test_a_record_counts_as_seen_once_the_answer_is_there(
    monkeypatch: pytest.MonkeyPatch, before: float, after: float
) -> None:
    """The server stood still: the leader renewed right before the standby's read, long after that was asked."""
    kube, clock = made()
    await holder_of(kube, clock, "one").check_lease()
    standby = holder_of(kube, clock, "two")
    with monkeypatch.context() as patch:
        patch.setattr(kube, "get_object", stalled(clock, kube.get_object, before, after))
        await standby.check_lease()
    for _ in range(3):
        clock.seconds += 1.0
        await standby.check_lease()
    assert not standby.is_leader
    clock.seconds += 1.0
    await standby.check_lease()
    assert standby.is_leader


async def test_a_record_has_stood_still_only_until_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long the answer lay about says nothing: the leader may have renewed since."""
    kube, clock = made()
    await holder_of(kube, clock, "one").check_lease()
    standby = holder_of(kube, clock, "two")
    await standby.check_lease()
    monkeypatch.setattr(kube, "get_object", stalled(clock, kube.get_object, 0.0, 5.0))
    await standby.check_lease()
    assert not standby.is_leader


async def test_a_renewal_counts_from_before_it_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows when in between the server took it: others count from then at the earliest."""
    kube, clock = made()
    leader = holder_of(kube, clock, "one")
    await leader.check_lease()
    assert leader.may_write
    monkeypatch.setattr(kube, "replace_object", stalled(clock, kube.replace_object, 0.0, 3.0))
    await leader.check_lease()
    assert (leader.is_leader, leader.may_write) == (True, False)
