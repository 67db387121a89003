"""Jobs that wait for nodes ask together: what that costs, and that no answer is older than what is known."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from hajob.api import constants as names
from hajob.capacity.gang import Claim
from hajob.capacity.start_queue import KEPT_SECONDS, StartQueue
from hajob.sources.node import NodeView
from tests.rigs.capacity import DEMAND_FOR_ANY_NODE, capacity_of_pools, waiting_claim


class Jobs:
    """So many jobs of four nodes each, that count how often they are asked what they need."""

    def __init__(self, count: int) -> None:
        self.queue = StartQueue()
        self.claims = {f"{number:03}": waiting_claim(f"{number:03}", 4, DEMAND_FOR_ANY_NODE) for number in range(count)}
        self.asked = 0
        for uid in self.claims:
            self.queue.claims[uid] = partial(self._ask, uid)

    def _ask(self, uid: str) -> Claim | None:
        self.asked += 1
        return self.claims[uid]


def test_jobs_that_ask_together_are_answered_by_one_look() -> None:
    jobs, capacity = Jobs(100), capacity_of_pools(a=8)
    let_in = [uid for uid in jobs.claims if jobs.queue.may_start(uid, 1.0, capacity, ())]
    assert (let_in, jobs.asked) == (["000", "001"], 100)


def test_a_node_that_came_is_in_the_next_answer() -> None:
    jobs, capacity = Jobs(3), capacity_of_pools(a=8)
    assert not jobs.queue.may_start("002", 1.0, capacity, ())
    for number in range(4):
        capacity.store_node(NodeView(f"new-{number}", chips={names.DEFAULT_RESOURCE_NAME: 2}))
    assert jobs.queue.may_start("002", 1.0, capacity, ())
    assert not jobs.queue.may_start("002", 1.0, capacity, {"new-0"})


def test_a_claim_that_ended_is_seen_a_moment_later() -> None:
    jobs, capacity = Jobs(3), capacity_of_pools(a=8)
    assert not jobs.queue.may_start("002", 1.0, capacity, ())
    jobs.claims["000"] = replace(jobs.claims["000"], need=0)
    assert jobs.queue.may_start("002", 1.0 + KEPT_SECONDS, capacity, ())


def test_a_job_that_came_since_is_asked_at_once() -> None:
    jobs, capacity = Jobs(1), capacity_of_pools(a=8)
    assert jobs.queue.may_start("000", 1.0, capacity, ())
    jobs.queue.claims["new"] = lambda: waiting_claim("new", 4, DEMAND_FOR_ANY_NODE)
    assert jobs.queue.may_start("new", 1.0, capacity, ())
