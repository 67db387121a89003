"""A leader that is cut off hands its Lease to a standby that reaches the coordinators, and to no other."""

from __future__ import annotations

import asyncio

from e2e.memory_api.client import MemoryKube
from e2e.memory_api.server import MemoryServer
from hajob.leader import handover
from hajob.leader.lease import Candidate, LeaseHolder, LeaseSettings
from tests.rigs.fake_clock import FakeClock

LEASE = ("leases", "hajob-system", "hajob-operator")


class Process(Candidate):
    """An operator that is or is not cut off, and gives its Lease back when it is told that it should not lead."""

    def __init__(self, kube: MemoryKube, clock: FakeClock, identity: str, *, reaches: bool = True) -> None:
        self.cut_off, self.reached, self.asked = "", reaches, 0
        self.gained: list[int] = []
        self.lost: list[str] = []
        self.holder = LeaseHolder(
            MemoryKube(kube.server, identity),
            clock,
            LeaseSettings("hajob-system"),
            identity,
            self,
        )
        self.task = asyncio.create_task(self.holder.hold_for_ever())

    def leadership_gained(self, fence: int) -> None:
        self.gained.append(fence)

    def leadership_lost(self, reason: str) -> None:
        self.lost.append(reason)

    def why_unfit(self) -> str:
        return self.cut_off

    async def reaches_coordinators(self) -> bool:
        self.asked += 1
        return self.reached

    async def end(self) -> None:
        """As the process does once it has let go of its jobs."""
        self.task.cancel()
        await self.holder.release_lease()


async def pair(*, reaches: bool = True) -> tuple[MemoryKube, FakeClock, Process, Process]:
    """A leader and a standby."""
    clock = FakeClock()
    kube = MemoryKube(MemoryServer(clock))
    one = Process(kube, clock, "one", reaches=False)
    await clock.advance(0)
    two = Process(kube, clock, "two", reaches=reaches)
    await clock.advance(3)
    assert (one.gained, two.gained, two.asked) == ([1], [], 0)
    return kube, clock, one, two


async def test_a_standby_that_reaches_them_is_given_the_lease() -> None:
    kube, clock, one, two = await pair()
    one.cut_off = "3 of 3 coordinators cannot be reached"
    await clock.advance(4)
    (reason,) = one.lost
    assert reason.startswith("two reaches the coordinators")
    assert (two.gained, one.holder.is_leader) == ([], True)  # the old one has not let go of its jobs yet
    await one.end()
    await clock.advance(1)
    assert two.gained == [2]
    lease = await kube.get_object(*LEASE)
    assert (handover.why_offered(lease), handover.volunteer_of_lease(lease)) == ("", "")


async def test_without_a_capable_standby_the_leader_keeps_it() -> None:
    kube, clock, one, two = await pair(reaches=False)
    one.cut_off = "2 of 2 coordinators cannot be reached"
    await clock.advance(600)
    assert (one.lost, two.gained, one.holder.may_write) == ([], [], True)
    assert handover.why_offered(await kube.get_object(*LEASE)) == one.cut_off
    assert two.asked > 100
    two.reached = True
    await clock.advance(4)
    assert len(one.lost) == 1


async def test_an_offer_is_withdrawn_once_they_are_reached() -> None:
    kube, clock, one, two = await pair(reaches=False)
    one.cut_off = "2 of 2 coordinators cannot be reached"
    await clock.advance(3)
    one.cut_off, two.reached = "", True
    await clock.advance(60)
    lease = await kube.get_object(*LEASE)
    assert (handover.why_offered(lease), handover.volunteer_of_lease(lease)) == ("", "")
    assert (one.lost, one.holder.is_leader, two.gained) == ([], True, [])


async def test_a_lease_given_to_one_standby_is_left_to_it() -> None:
    kube, clock, one, two = await pair()
    three = Process(kube, clock, "three", reaches=False)
    one.cut_off = "2 of 2 coordinators cannot be reached"
    await clock.advance(4)
    two.task.cancel()  # it dies in the wrong moment
    await one.end()
    await clock.advance(3)
    assert three.gained == []
    await clock.advance(4)
    assert three.gained == [2]
