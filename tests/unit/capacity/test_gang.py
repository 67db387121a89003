"""Jobs that wait for all of their nodes at once: who is let in, in which order, and that nobody holds half."""

from __future__ import annotations

import random
from dataclasses import replace

from hajob.api import constants as names
from hajob.capacity.demand import Demand
from hajob.capacity.gang import Claim, jobs_that_may_start, nodes_for_claims
from hajob.capacity.nodes import Capacity
from hajob.plan.policy import layout_from_spec
from hajob.sources.node import NodeView
from tests.rigs.capacity import (
    DEMAND_FOR_ANY_NODE,
    DEMAND_FOR_POOL_A,
    capacity_of_pools,
    pod_of_this_operator,
    quickstart_spec,
    waiting_claim,
)

B = Demand.from_spec(quickstart_spec(nodeSelector={"pool": "b"}), layout_from_spec(quickstart_spec()))


def test_a_job_starts_when_there_are_nodes_for_all_its_pods() -> None:
    assert jobs_that_may_start([waiting_claim("1", 4)], capacity_of_pools(a=4)) == ["1"]
    assert jobs_that_may_start([waiting_claim("1", 5)], capacity_of_pools(a=4)) == []


def test_nodes_that_are_closed_do_not_count() -> None:
    assert jobs_that_may_start([waiting_claim("1", 4)], capacity_of_pools(a=5), {"a-0"}) == ["1"]
    assert jobs_that_may_start([waiting_claim("1", 4)], capacity_of_pools(a=5), {"a-0", "a-3"}) == []


def test_two_jobs_never_get_half_of_the_nodes_each() -> None:
    assert jobs_that_may_start([waiting_claim("2", 4), waiting_claim("1", 4)], capacity_of_pools(a=6)) == ["1"]
    assert jobs_that_may_start([waiting_claim("1", 4), waiting_claim("2", 2)], capacity_of_pools(a=6)) == ["1", "2"]


def test_one_that_fits_passes_one_that_does_not() -> None:
    assert jobs_that_may_start([waiting_claim("1", 8), waiting_claim("2", 2)], capacity_of_pools(a=6)) == ["2"]


def test_nodes_that_somebody_else_is_about_to_take_do_not_count() -> None:
    starting = replace(waiting_claim("9", 3), waits=False)
    assert jobs_that_may_start([starting, waiting_claim("1", 4)], capacity_of_pools(a=6)) == []
    assert jobs_that_may_start([starting, waiting_claim("1", 3)], capacity_of_pools(a=6)) == ["1"]


def test_who_wants_other_nodes_takes_none_away() -> None:
    other = replace(waiting_claim("9", 3, B), waits=False)
    assert jobs_that_may_start([other, waiting_claim("1", 6)], capacity_of_pools(a=6, b=3)) == ["1"]
    anywhere = replace(waiting_claim("9", 3, DEMAND_FOR_ANY_NODE), waits=False)
    assert jobs_that_may_start([anywhere, waiting_claim("1", 6)], capacity_of_pools(a=6, b=3)) == []


def test_a_restart_counts_the_nodes_that_its_own_pods_leave() -> None:
    capacity = capacity_of_pools(a=4)
    for number in range(3):
        capacity.store_pod(pod_of_this_operator(f"r{number}", f"a-{number}"))
    homes = [f"a-{number}" for number in range(3)]
    again = replace(waiting_claim("uid-1", 4), own_nodes=homes)
    assert jobs_that_may_start([again], capacity) == ["uid-1"]
    assert jobs_that_may_start([waiting_claim("uid-1", 4)], capacity) == []


def test_whoever_is_let_in_fits_together() -> None:
    """Whatever waits: all that are let in at once find nodes at once, and the order of asking changes nothing."""
    chance = random.Random(5)
    for _ in range(300):
        nodes = chance.randrange(20)
        claims = [waiting_claim(str(n), chance.randrange(1, 9)) for n in range(chance.randrange(8))]
        starting = [replace(one, waits=chance.random() < 0.8) for one in claims]
        found = jobs_that_may_start(starting, capacity_of_pools(a=nodes))
        chance.shuffle(starting)
        assert jobs_that_may_start(starting, capacity_of_pools(a=nodes)) == found
        taken = sum(one.need for one in starting if one.job_uid in found or not one.waits)
        assert not found or taken <= nodes


def growing(uid: str, need: int, demand: Demand = DEMAND_FOR_POOL_A, on: tuple[str, ...] = ()) -> Claim:
    return Claim(uid, uid, demand, need, waits=True, own_nodes=on, grows=True)


def room(uid: str, claims: list[Claim], capacity: Capacity) -> int:
    return next(found for claim, found in nodes_for_claims(claims, capacity) if claim.job_uid == uid)


def test_of_two_jobs_that_grow_the_older_gets_the_nodes() -> None:
    both = [growing("2", 2), growing("1", 2)]
    assert (room("1", both, capacity_of_pools(a=3)), room("2", both, capacity_of_pools(a=3))) == (3, 1)
    assert room("2", both, capacity_of_pools(a=4)) == 2


def test_a_growth_that_fits_passes_an_older_one_that_does_not() -> None:
    both = [growing("1", 3), growing("2", 2)]
    assert (room("1", both, capacity_of_pools(a=2)), room("2", both, capacity_of_pools(a=2))) == (2, 2)


def test_a_growth_keeps_its_nodes_from_a_later_start_only() -> None:
    assert jobs_that_may_start([growing("1", 1), waiting_claim("2", 4)], capacity_of_pools(a=4)) == []
    assert jobs_that_may_start([growing("1", 1), waiting_claim("2", 4)], capacity_of_pools(a=5)) == ["2"]
    assert jobs_that_may_start([growing("2", 1), waiting_claim("1", 4)], capacity_of_pools(a=4)) == ["1"]
    assert room("2", [growing("2", 1), waiting_claim("1", 4)], capacity_of_pools(a=4)) == 0


def test_a_node_that_has_a_pod_of_the_job_takes_no_second() -> None:
    assert room("1", [growing("1", 1, on=("a-0", "b-7"))], capacity_of_pools(a=3)) == 2


def strong(uid: str, need: int, priority: int = 10, demand: Demand = DEMAND_FOR_POOL_A) -> Claim:
    return Claim(uid, uid, demand, need, waits=True, priority=priority, preempts=True)


def held(capacity: Capacity, *nodes: str, priority: int = 0, job: str = "uid-low") -> Capacity:
    for node in nodes:
        capacity.store_pod(replace(pod_of_this_operator(f"on-{node}", node), job_uid=job, priority=priority))
    return capacity


def test_a_start_counts_the_nodes_of_lower_pods() -> None:
    capacity = held(capacity_of_pools(a=4), "a-0", "a-1", "a-2")
    assert jobs_that_may_start([strong("1", 4)], capacity) == ["1"]
    assert jobs_that_may_start([strong("1", 5)], capacity) == []
    assert jobs_that_may_start([strong("1", 4, priority=0)], capacity) == [], "its equals stay"
    assert jobs_that_may_start([replace(strong("1", 4), preempts=False)], capacity) == [], "its class is to wait"


def test_nodes_of_higher_pods_and_closed_ones_are_not_taken() -> None:
    capacity = held(held(capacity_of_pools(a=4), "a-0", "a-1"), "a-2", priority=20, job="uid-high")
    assert jobs_that_may_start([strong("1", 3)], capacity) == ["1"]
    assert jobs_that_may_start([strong("1", 4)], capacity) == []
    assert jobs_that_may_start([strong("1", 3)], capacity, {"a-0"}) == []


def test_a_node_is_taken_from_lower_pods_once() -> None:
    capacity = held(capacity_of_pools(a=4), "a-0", "a-1", "a-2", "a-3")
    assert jobs_that_may_start([strong("1", 3), strong("2", 2)], capacity) == ["1"]
    assert jobs_that_may_start([strong("1", 3), strong("2", 1)], capacity) == ["1", "2"]
    assert jobs_that_may_start([strong("1", 3), strong("2", 2, demand=DEMAND_FOR_ANY_NODE)], capacity) == ["1"], (
        "it would take the same nodes"
    )


def test_who_has_the_higher_priority_is_asked_first() -> None:
    assert jobs_that_may_start([waiting_claim("1", 4), strong("2", 4)], capacity_of_pools(a=4)) == ["2"]
    both = [growing("1", 2), replace(growing("2", 2), priority=10)]
    assert (room("1", both, capacity_of_pools(a=2)), room("2", both, capacity_of_pools(a=2))) == (0, 2)


def test_what_lower_pods_are_about_to_take_is_not_theirs_yet() -> None:
    starting = replace(waiting_claim("9", 3), waits=False)
    assert jobs_that_may_start([starting, strong("1", 4)], capacity_of_pools(a=4)) == ["1"]
    equal = replace(starting, priority=10)
    assert jobs_that_may_start([equal, strong("1", 4)], capacity_of_pools(a=4)) == []


def test_a_growth_takes_no_node_of_lower_pods() -> None:
    capacity = held(capacity_of_pools(a=3), "a-0", "a-1")
    claim = replace(growing("1", 2), priority=10, preempts=True)
    assert room("1", [claim], capacity) == 1


def test_a_lower_pod_that_leaves_is_forgotten() -> None:
    capacity = held(capacity_of_pools(a=2), "a-0", "a-1", priority=-5)
    assert capacity.nodes_taken_by_lower(DEMAND_FOR_POOL_A, 0) == {"a-0", "a-1"}
    for node in ("a-0", "a-1"):
        capacity.remove_pod(replace(pod_of_this_operator(f"on-{node}", node), job_uid="uid-low").key)
    assert capacity.nodes_taken_by_lower(DEMAND_FOR_POOL_A, 0) == set()
    assert capacity.free_nodes(DEMAND_FOR_POOL_A) == {"a-0", "a-1"}


def in_super_pods(*sizes: int) -> Capacity:
    """A cluster of free nodes, so many in each super pod."""
    nodes = [(f"{where}-{number}", str(where)) for where, size in enumerate(sizes) for number in range(size)]
    chips = {names.DEFAULT_RESOURCE_NAME: 2}
    made = [NodeView(name, chips=chips, labels={names.LABEL_NODE_SUPER_POD: where}) for name, where in nodes]
    return Capacity.from_nodes_and_pods(made, [])


def test_blocks_need_room_in_super_pods() -> None:
    blocks = replace(waiting_claim("1", 4, DEMAND_FOR_ANY_NODE), nodes_per_block=2)
    assert jobs_that_may_start([blocks], in_super_pods(3, 1)) == []
    assert jobs_that_may_start([blocks], in_super_pods(3, 2)) == ["1"]
    assert jobs_that_may_start([blocks], in_super_pods(3, 2), {"1-0"}) == []
    assert jobs_that_may_start([replace(blocks, nodes_per_block=0)], in_super_pods(3, 1)) == ["1"]


def test_who_is_before_may_break_a_block() -> None:
    blocks = replace(waiting_claim("1", 4, DEMAND_FOR_ANY_NODE), nodes_per_block=2)
    starting = replace(waiting_claim("9", 1, DEMAND_FOR_ANY_NODE), waits=False)
    assert jobs_that_may_start([starting, blocks], in_super_pods(3, 2)) == []
    assert jobs_that_may_start([starting, blocks], in_super_pods(3, 4)) == ["1"]
