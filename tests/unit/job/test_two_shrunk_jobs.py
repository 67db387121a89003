"""Two jobs that lost a node each, and one that comes back: the older job grows, the other one says why it waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hajob.api import constants as names
from hajob.app.core import OperatorCore
from hajob.capacity.caches import Caches
from hajob.job.status.journal import read_journal
from hajob.plan.state import JobPhase, Shrunk
from hajob.sources.node import NodeView
from hajob.sources.quota import Quota
from tests.rigs.job_controller import NAMESPACE
from tests.rigs.two_jobs import TwoJobs

GONE = Shrunk(dropped=(3,), ranks=(6, 7), nodes=(3,), lost_nodes=(3,))
CHIPS = {names.DEFAULT_RESOURCE_NAME: 2}
DELAY = 120


class ShrunkJobs(TwoJobs):
    """Both jobs have trained and shrunk, and no node is free."""

    async def shrink(self) -> None:
        """Both lose the node of node rank 3, and a new operator finds them as they are then."""
        self.town.nodes |= {f"node-{n}": NodeView(f"node-{n}", chips=CHIPS) for n in (6, 7)}
        await self.start()
        assert (self.placed(0), self.placed(1)) == (4, 4)
        await self.core.close_controllers()
        for pod in [pod for pod in self.town.pods() if pod.node_rank == 3]:
            del self.town.kube.objects["pods", NAMESPACE, pod.name]
            del self.town.nodes[pod.node_name]
        for number in range(2):
            status = self.raw(number)["status"]
            journal = read_journal(status["journal"]).journal
            state = replace(journal.state, phase=JobPhase.SHRUNK, shrunk=GONE, released=(3,), deadlines={})
            status["journal"] = replace(journal, state=state).to_text(0)
        self.caches = Caches()
        self.ports = self.town.ports(self.caches)
        self.core = OperatorCore(self.ports, self.caches)
        for node in self.town.nodes.values():
            self.core.handle_changed_node(node, deleted=False)
        for number in reversed(range(2)):
            self.core.handle_job(self.raw(number))
        self.core.note_complete_pods(self.town.kube.version)
        await self.show(1.0)

    def raw(self, number: int) -> dict[str, Any]:
        """A job as the server has it."""
        found: dict[str, Any] = self.town.kube.objects[names.PLURAL, NAMESPACE, f"job-{number}"]
        return found

    async def bring(self, name: str) -> None:
        """A node comes."""
        self.town.nodes[name] = NodeView(name, chips=CHIPS)
        self.core.handle_changed_node(self.town.nodes[name], deleted=False)
        await self.show(1.0)

    async def allow(self, pods: int) -> None:
        """The quota of the namespace has room for so many more pods."""
        self.core.handle_changed_quota(NAMESPACE, "team", Quota(NAMESPACE, "team", (("pods", 1000 * pods),)))
        await self.show(0.2)

    def phases(self) -> tuple[JobPhase, ...]:
        """Of both."""
        return tuple(self.core.controllers[f"uid-of-job-{number}"].state.phase for number in range(2))


async def test_the_older_of_two_shrunk_jobs_gets_the_node() -> None:
    jobs = ShrunkJobs(gangPolicy="None")
    await jobs.shrink()
    assert jobs.phases() == (JobPhase.SHRUNK, JobPhase.SHRUNK)
    await jobs.bring("new-0")
    younger = jobs.core.controllers["uid-of-job-1"].state.shrunk
    assert younger is not None
    assert not younger.capacity_ms
    await jobs.town.clock.advance(5.0)
    told = [jobs.raw(number)["status"]["dataParallel"] for number in range(2)]
    assert [(one["current"], one["waitReason"]) for one in told] == [(3, "ExpandDelay"), (3, "NoFreeNode")]
    assert told[1]["waitMessage"].endswith("for node ranks 3; free after jobs ahead in the queue: 0")
    await jobs.town.clock.advance(DELAY)
    await jobs.show(1.0)
    assert jobs.phases() == (JobPhase.EXPANDING, JobPhase.SHRUNK)
    assert (jobs.placed(0), jobs.placed(1)) == (4, 3)
    await jobs.bring("new-1")
    await jobs.town.clock.advance(DELAY)
    await jobs.show(1.0)
    assert jobs.phases() == (JobPhase.EXPANDING, JobPhase.EXPANDING)
    assert (jobs.placed(0), jobs.placed(1)) == (4, 4)
    await jobs.core.close_controllers()


async def test_a_node_that_goes_before_the_delay_is_over_grows_nobody() -> None:
    jobs = ShrunkJobs(gangPolicy="None")
    await jobs.shrink()
    await jobs.bring("new-0")
    await jobs.town.clock.advance(DELAY / 2)
    jobs.core.handle_changed_node(jobs.town.nodes.pop("new-0"), deleted=True)
    await jobs.bring("new-1")
    await jobs.town.clock.advance(DELAY * 0.75)
    assert jobs.phases() == (JobPhase.SHRUNK, JobPhase.SHRUNK)
    assert (jobs.placed(0), jobs.placed(1)) == (3, 3)
    await jobs.core.close_controllers()


@pytest.mark.parametrize(("boot", "grows"), [("first", False), ("second", True)])
async def test_a_silent_node_that_looks_ready_grows_nobody(boot: str, *, grows: bool) -> None:
    jobs = ShrunkJobs(gangPolicy="None")
    await jobs.shrink()
    jobs.town.nodes["lost"] = NodeView("lost", chips=CHIPS, boot="first")
    jobs.core.handle_changed_node(jobs.town.nodes["lost"], deleted=False)
    jobs.ports.cluster.avoid_node("lost")
    jobs.town.nodes["lost"] = replace(jobs.town.nodes["lost"], boot=boot)
    jobs.core.handle_changed_node(jobs.town.nodes["lost"], deleted=False)
    await jobs.show(1.0)
    await jobs.town.clock.advance(5.0)
    told = jobs.raw(0)["status"]["dataParallel"]["waitReason"]
    assert told == ("ExpandDelay" if grows else "NoFreeNode")
    await jobs.town.clock.advance(DELAY)
    await jobs.show(1.0)
    assert jobs.phases()[0] is (JobPhase.EXPANDING if grows else JobPhase.SHRUNK)
    await jobs.town.clock.advance(DELAY)
    assert jobs.phases()[0] is JobPhase.EXPANDING, "long silent and still called ready: its agent alone was lost"
    await jobs.core.close_controllers()


async def test_a_growth_without_quota_is_not_begun() -> None:
    jobs = ShrunkJobs(gangPolicy="None")
    await jobs.shrink()
    await jobs.allow(0)
    await jobs.bring("new-0")
    await jobs.bring("new-1")
    writes = len([one for one in jobs.town.kube.writes if one[:2] == ("create", "pods")])
    await jobs.town.clock.advance(2 * DELAY)
    assert jobs.phases() == (JobPhase.SHRUNK, JobPhase.SHRUNK)
    told = jobs.raw(0)["status"]["dataParallel"]
    assert told["waitReason"] == "QuotaExceeded"
    assert (
        told["waitMessage"]
        == "needs 1 pod at once, for node ranks 3; ResourceQuota team allows 0 more such pods (pods)"
    )
    assert len([one for one in jobs.town.kube.writes if one[:2] == ("create", "pods")]) == writes
    await jobs.allow(1)
    await jobs.town.clock.advance(DELAY)
    await jobs.show(1.0)
    assert jobs.phases() == (JobPhase.EXPANDING, JobPhase.SHRUNK), "room for one: the older has it"
    await jobs.core.close_controllers()


async def test_quota_that_goes_before_the_delay_is_over_grows_nobody() -> None:
    jobs = ShrunkJobs(gangPolicy="None")
    await jobs.shrink()
    await jobs.allow(5)
    await jobs.bring("new-0")
    await jobs.town.clock.advance(DELAY / 2)
    await jobs.allow(0)
    await jobs.town.clock.advance(DELAY)
    assert jobs.phases() == (JobPhase.SHRUNK, JobPhase.SHRUNK)
    await jobs.core.close_controllers()
