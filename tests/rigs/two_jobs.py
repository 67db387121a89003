"""Two jobs that want more nodes than there are, one operator, and a scheduler that knows no gang."""

from __future__ import annotations

from hajob.api import constants as names
from hajob.app.core import OperatorCore
from hajob.capacity.caches import Caches
from hajob.sources.pod import pod_view_of
from tests.rigs.job_controller import NAMESPACE, ControllerTown


class TwoJobs:
    """Two jobs of four nodes each, six nodes, and a scheduler that knows no gang: each pod for itself."""

    def __init__(self, **scheduling: str) -> None:
        self.town, self.caches = ControllerTown(), Caches()
        self.core = OperatorCore(self.town.ports(self.caches), self.caches)
        self.core.note_complete_pods(self.town.kube.version)
        self.scheduling = scheduling

    async def start(self) -> None:
        """Show the operator the nodes and both jobs, and let ten seconds pass."""
        await self.town.controller.stop_managing()
        for name in self.town.nodes:
            self.core.handle_changed_node(self.town.nodes[name], deleted=False)
        raw = {key: value for key, value in self.town.raw.items() if key != "metadata"}
        raw["spec"] = raw["spec"] | {"scheduling": self.scheduling}
        for number in range(2):
            metadata = {"name": f"job-{number}", "namespace": NAMESPACE, "generation": 1}
            self.core.handle_job(self.town.kube.put(names.PLURAL, NAMESPACE, raw | {"metadata": metadata}))
        await self.show(10.0)

    async def show(self, seconds: float) -> None:
        """Give pods without a gate a node one after the other, job by job in turn, and show the operator all of it."""
        for _ in range(int(seconds * 5)):
            pods = sorted((pod for pod in self.town.pods() if pod.role == names.ROLE_RANK), key=lambda p: p.node_rank)
            taken = {pod.node_name for pod in pods}
            for pod in pods:
                free = [name for name in sorted(self.town.nodes) if name not in taken]
                body = self.town.kube.objects["pods", NAMESPACE, pod.name]
                if not pod.node_name and not body["spec"].get("schedulingGates") and free:
                    body["spec"]["nodeName"] = free[0]
                    taken.add(free[0])
            for body in [body for (kind, _, _), body in self.town.kube.objects.items() if kind == "pods"]:
                self.core.handle_changed_pod(pod_view_of(body), deleted=False)
            await self.town.clock.advance(0.2)

    def placed(self, job: int) -> int:
        """Count the rank pods of a job that have a node."""
        ours = [pod for pod in self.town.pods() if pod.role == names.ROLE_RANK and pod.name.startswith(f"job-{job}-")]
        return sum(bool(pod.node_name) for pod in ours)

    def gates_opened(self) -> int:
        """Count the changes of pods that the operator made: each opened a gate."""
        return sum(kind == "patch" and resource == "pods" for kind, resource, _ in self.town.kube.writes)
