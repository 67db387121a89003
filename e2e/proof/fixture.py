"""What a proof does to nodes and processes, and what it finds there afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from e2e.harness.job import Job
from e2e.harness.rig import Rig
from e2e.nodes.control import ProcessInfo
from e2e.proof.cells import CHIPS, WORLD

NODE_RANK: Final = "training.hajob.io/node-rank"
INCARNATION: Final = "training.hajob.io/incarnation"


class NodeFixture:
    """The nodes of a rig; what is switched off here is switched on again by `power_on`."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self._off: list[str] = []

    def kill(self, job: Job, rank: int) -> bool:
        """SIGKILL to the present process of a rank; False when it has none."""
        pid = self.process_of(job, rank)
        if pid is not None:
            self.rig.nodes.control.kill(pid=pid)
        return pid is not None

    def freeze(self, job: Job, rank: int) -> bool:
        """SIGSTOP to the present process of a rank; False when it has none."""
        pid = self.process_of(job, rank)
        if pid is not None:
            self.rig.nodes.control.freeze(pid=pid)
        return pid is not None

    def power_off(self, job: Job, rank: int) -> bool:
        """The node of a rank loses its power; False when its pod is on no node, or on one that is off already."""
        pod = newest_pod(job, rank // CHIPS)
        node = "" if pod is None else pod[1]
        if not node or node in self._off:
            return False
        self.rig.nodes.control.power_off(node)
        self._off.append(node)
        return True

    def power_on(self) -> None:
        """Nodes that lost their power boot again, and may be used again."""
        while self._off:
            node = self._off.pop()
            self.rig.nodes.control.power_on(node)
            self._await_ready(node)

    def process_of(self, job: Job, rank: int) -> int | None:
        """The topmost live process of a rank in the newest pod of its node rank."""
        pod = newest_pod(job, rank // CHIPS)
        ranks = [one for one in self.processes(job) if pod is not None and one.rank == rank and one.pod == pod[0]]
        pids = {one.pid for one in ranks}
        return next((one.pid for one in ranks if one.parent not in pids), None)

    def processes(self, job: Job) -> list[ProcessInfo]:
        """Live processes of the job's trainer containers."""
        found = self.rig.nodes.control.processes(container="trainer")
        mine = [one for one in found if one.namespace == job.namespace and one.pod.startswith(f"{job.name}-")]
        return [one for one in mine if one.state != "Z"]

    def surplus(self, job: Job) -> Iterator[str]:
        """Sentences about a running job's processes: one of each rank, in the newest pods, and nothing else."""
        live = self.processes(job)
        pods = {found[0] for number in range(WORLD // CHIPS) if (found := newest_pod(job, number))}
        for one in live:
            if one.pod not in pods:
                yield f"process {one.pid} of {one.pod} was left over"
        for rank in range(WORLD):
            own = [one for one in live if one.rank == rank and one.pod in pods]
            pids = {one.pid for one in own}
            top = [one.pid for one in own if one.parent not in pids]
            if len(top) != 1:
                yield f"rank {rank} has processes {top}"

    def _await_ready(self, node: str) -> None:
        def ready() -> bool:
            conditions = self.rig.plane.api.get(f"/api/v1/nodes/{node}")["status"]["conditions"]
            return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

        self.rig.plane.wait(f"{node} to be ready", ready)


def newest_pod(job: Job, node_rank: int) -> tuple[str, str] | None:
    """Name and node of the newest pod of a node rank."""
    pods = [pod for pod in job.pods("rank") if pod["metadata"]["labels"].get(NODE_RANK) == str(node_rank)]
    newest = max(pods, key=lambda pod: int(pod["metadata"]["labels"][INCARNATION]), default=None)
    return (newest["metadata"]["name"], newest["spec"].get("nodeName", "")) if newest else None
