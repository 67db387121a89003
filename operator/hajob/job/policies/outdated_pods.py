"""Pods of one job that wait for a node, or for the start of their gang, and exclude nodes that are free by now.

An exclusion cannot be taken back from a pod that exists, so the pod is replaced. A gang whose pods exclude different
nodes could be placed in part, and wait for ever with what it got.
"""

from __future__ import annotations

from hajob.job.memory import JobMemory
from hajob.job.places import JobPlaces
from hajob.job.ports import Ports
from hajob.plan.state import REMADE, JobPhase, JobState
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView


class OutdatedPods:
    """The outdated pods of one job."""

    def __init__(self, memory: JobMemory, places: JobPlaces, ports: Ports) -> None:
        self._memory, self._places, self._ports = memory, places, ports
        self._boots: dict[str, tuple[str, str]] = {}

    def pods_worth_replacing(self) -> list[PodView]:
        """Return the pods that would exclude fewer free nodes if they were made now."""
        state, serving = self._memory.state, self._places.serving().values()
        waiting = [pod for pod in serving if (pod.unschedulable or pod.gated) and pod.excluded and not pod.deleting]
        returned = self.returned()
        if not waiting or (state.phase not in REMADE and not (state.phase is JobPhase.GATHERING and returned)):
            return []
        free = self._places.free_names().difference(self._places.refused(len(waiting)))
        open_now = free - _avoided(state) if state.phase in REMADE else set()
        return [pod for pod in waiting if not pod.excluded.isdisjoint(open_now | (free & returned))]

    def returned(self) -> set[str]:
        """Return nodes that the open incident avoids, but that have restarted since and are well: usable again.

        Only this operator remembers their state before the restart; a new leader waits for the incident's end.
        """
        nodes, avoided = self._ports.nodes(), _avoided(self._memory.state)
        self._boots = {name: self._boots.get(name, _boot(nodes.get(name))) for name in avoided}
        well = {name for name in avoided if name in nodes and nodes[name].usable} - set(self._ports.kept_out())
        return {name for name in well if _boot(nodes[name]) != self._boots[name]}


def _avoided(state: JobState) -> set[str]:
    """Return the nodes that the open incident keeps pods away from."""
    return {name for names in state.avoided.values() for name in names}


def _boot(node: NodeView | None) -> tuple[str, str]:
    """Return an identity of a machine's start, which differs also when the machine is registered anew."""
    return ("", "") if node is None else (node.uid, node.boot)
