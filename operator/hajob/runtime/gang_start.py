"""The start of one job under `gangPolicy: SchedulingGates`: its rank pods ask for nodes when there are enough for all.

Until then they stand behind a scheduling gate, where they hold no node. Where there are enough from the beginning they
are made without a gate, and a start costs no second write for each pod.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hajob.api.base import format_time
from hajob.api.enums import GangPolicy
from hajob.plan.placements import WITHOUT_RANK_PODS
from hajob.plan.state import ENDED, UNTRAINED
from hajob.plan.waits import nodes_to_return
from hajob.runtime.clock import Alarm
from hajob.runtime.job_memory import JobMemory
from hajob.runtime.job_places import JobPlaces
from hajob.runtime.ports import Ports
from hajob.scheduling.gang import Claim
from hajob.sources.pod import PodView

AGAIN_SECONDS: Final = 5.0
"""Who waits looks again after so long, for what is told to nobody."""
SOON_SECONDS: Final = 0.1
"""Changes of the cluster are looked at together."""


class GangStart:
    """Whether the rank pods of one job may ask for nodes.

    Args:
        memory: of the job.
        places: of the job.
        ports: with the claims of all jobs.
        wake: called when it may have become possible.
    """

    def __init__(self, memory: JobMemory, places: JobPlaces, ports: Ports, wake: Callable[[], None]) -> None:
        self._memory, self._places, self._ports, self._wake = memory, places, ports, wake
        self._let_in = 0
        self._alarm = Alarm(ports.clock)
        self._soon = Alarm(ports.clock)
        ports.starts.claims[memory.job.metadata.uid] = self.claim

    def close(self) -> None:
        """The job claims nothing any more."""
        if self._ports.starts.claims.get(self._memory.job.metadata.uid) == self.claim:
            del self._ports.starts.claims[self._memory.job.metadata.uid]
        self._alarm.cancel()
        self._soon.cancel()

    def claim(self) -> Claim | None:
        """What the job still needs of the cluster; None for nothing."""
        memory, state = self._memory, self._memory.state
        if state.phase in WITHOUT_RANK_PODS or state.phase in ENDED:
            return None
        serving, waits, made = self._places.pods.serving(state), self._waits(), memory.job.metadata.creation_timestamp
        returning = nodes_to_return(state, memory.policy, memory.time.now())
        like = next(iter(serving.pods.values()), None)  # the server has looked up its priority class
        wanted = memory.layout.num_nodes - len(state.released)
        if self._places.pods.not_created is not None and not waits:
            wanted = len(serving.pods)  # what no quota allows takes no node
        return Claim(
            job_uid=memory.job.metadata.uid,
            made=format_time(made) if made else "",
            demand=self._places.demand(),
            need=len(returning) or wanted - len(serving.node_names),
            waits=waits or bool(returning),
            own_nodes=self._places.pods.node_names if waits or returning else (),
            grows=bool(returning),
            priority=like.priority if like is not None else 0,
            preempts=like is not None and like.preempts,
            ask=self._places.ask(),
        )

    def holds_back(self) -> bool:
        """Whether pods that are made now stand behind the gate."""
        if not self._waits():
            return False
        if self._ports.may_start(self._memory.job.metadata.uid):
            self._let_in = self._memory.state.base
            return False
        self._alarm.set(AGAIN_SECONDS, self._wake)
        return True

    def held_back(self) -> list[PodView]:
        """Pods that stand behind the gate."""
        return [pod for pod in self._places.serving().values() if pod.gated and not pod.deleting]

    def capacity_changed(self) -> None:
        """Nodes came or went, and the job waits for some: look in a moment."""
        if not self._soon.is_set:
            self._soon.set(SOON_SECONDS, self._wake)

    def _waits(self) -> bool:
        """Whether none of this start's pods may ask for a node yet; what asks already was let in before."""
        memory, state = self._memory, self._memory.state
        gates = memory.job.spec.scheduling.gang_policy is GangPolicy.SCHEDULING_GATES
        if not gates or state.phase not in UNTRAINED or self._let_in == state.base:
            return False
        serving = self._places.pods.serving(state)
        if len(serving.gated) < len(serving.pods):
            self._let_in = state.base
            return False
        return True
