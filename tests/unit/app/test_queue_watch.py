"""What the operator hears of Kueue's objects, and that it says so when nothing of them can be read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import cast

import pytest

from hajob.api import constants as names
from hajob.app.core import OperatorCore
from hajob.app.queues import QueueWatch
from hajob.capacity.caches import Caches
from hajob.capacity.queues import Queues
from hajob.job.ports import Ports
from hajob.kube.client import ApiError
from hajob.kube.informer import PATIENCE_SECONDS
from hajob.sources.workload import QueuePriority, QueueTurn
from tests.rigs.example_jobs import UID, example_job
from tests.rigs.fake_clock import FakeClock, settle
from tests.rigs.fake_kube import FakeKube
from tests.rigs.workloads import ADMITTED, workload_of


class WatchedQueues:
    """A watch on an API server in memory, and what it knows."""

    def __init__(self) -> None:
        self.clock, self.queues = FakeClock(), Queues()
        self.kube = FakeKube(self.clock)
        core = OperatorCore(cast("Ports", SimpleNamespace(cluster=SimpleNamespace(queues=self.queues))), Caches())
        self.watch = QueueWatch(self.kube, self.clock, ("team-a",), core, self.queues)
        self.tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to read."""
        self.tasks = [asyncio.create_task(one.list_and_watch()) for one in self.watch.informers]

    def end(self) -> None:
        """End reading."""
        for task in self.tasks:
            task.cancel()


@pytest.fixture
async def watched() -> AsyncIterator[WatchedQueues]:
    made = WatchedQueues()
    yield made
    made.end()


async def test_workloads_flavors_and_classes_are_followed(watched: WatchedQueues) -> None:
    assert watched.queues.served
    assert not watched.queues.is_namespace_read("team-a"), "nothing is known before the first list"
    watched.start()
    await settle()
    assert watched.queues.is_namespace_read("team-a")
    assert not watched.queues.is_namespace_read("team-b")
    raw = workload_of(example_job("quickstart"), ADMITTED)
    watched.kube.put("workloads", "team-a", raw)
    watched.kube.put("resourceflavors", "", {"metadata": {"name": "a2"}, "spec": {"nodeLabels": {"pool": "a2"}}})
    watched.kube.put("workloadpriorityclasses", "", {"metadata": {"name": "urgent"}, "value": 7})
    await settle()
    found = watched.queues.find_workload("team-a", raw["metadata"]["name"], UID)
    assert watched.queues.turn_of_workload(found) is QueueTurn.ADMITTED
    assert watched.queues.classes == {"urgent": QueuePriority("urgent", 7)}
    await watched.kube.delete_object("resourceflavors", "", "a2")
    await watched.kube.delete_object("workloads", "team-a", raw["metadata"]["name"])
    await settle()
    assert (watched.queues.flavors, watched.queues.workloads) == ({}, {})


async def test_others_workloads_are_not_read(watched: WatchedQueues) -> None:
    raw = workload_of(example_job("quickstart"), ADMITTED)
    del raw["metadata"]["labels"][names.LABEL_JOB_UID]
    watched.kube.put("workloads", "team-a", raw)
    watched.start()
    await settle()
    assert watched.queues.workloads == {}


async def test_a_cluster_without_kueue_delays_no_operator(watched: WatchedQueues) -> None:
    watched.kube.fail(*[ApiError(0, "Unreachable", "no route")] * 100)
    watched.start()
    waiting = asyncio.create_task(watched.watch.wait_until_listed())
    await watched.clock.advance(PATIENCE_SECONDS + 1)
    assert waiting.done()
    assert not watched.queues.is_namespace_read("team-a")
