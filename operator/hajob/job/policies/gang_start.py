"""The start of one job under `gangPolicy: SchedulingGates`: its rank pods are ungated when there are nodes for all.

Until then they are gated and hold no node. Where there are enough nodes from the beginning, they are created without
a gate, which saves a start the second write for each pod.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hajob.api.base import format_time
from hajob.api.enums import GangPolicy
from hajob.capacity.gang import Claim
from hajob.clock import Alarm
from hajob.job.memory import JobMemory
from hajob.job.places import JobPlaces
from hajob.job.ports import Ports
from hajob.plan.placements import WITHOUT_RANK_PODS
from hajob.plan.state import ENDED, UNTRAINED
from hajob.plan.waits import nodes_to_return
from hajob.sources.pod import PodView

AGAIN_SECONDS: Final = 5.0
"""Who waits looks again after so long, for what is told to nobody."""
SOON_SECONDS: Final = 0.1
"""Changes of the cluster are looked at together."""


class GangStart:
    """Whether the rank pods of one job may be scheduled.

    Args:
        memory: of the job.
        places: of the job.
        ports: with the claims of all jobs.
        wake: called when that may have become possible.
    """

    def __init__(self, memory: JobMemory, places: JobPlaces, ports: Ports, wake: Callable[[], None]) -> None:
        self._memory, self._places, self._ports, self._wake = memory, places, ports, wake
        self._let_in = 0
        self._alarm = Alarm(ports.clock)
        self._soon = Alarm(ports.clock)
        ports.starts.claims[memory.job.metadata.uid] = self.claim

    def close(self) -> None:
        """Withdraw the job's claim."""
        if self._ports.starts.claims.get(self._memory.job.metadata.uid) == self.claim:
            del self._ports.starts.claims[self._memory.job.metadata.uid]
        self._alarm.cancel()
        self._soon.cancel()

    def claim(self) -> Claim | None:
        """Return the nodes that the job still needs; None for none."""
        memory, state = self._memory, self._memory.state
        if state.phase in WITHOUT_RANK_PODS or state.phase in ENDED:
            return None
        serving, waits, made = self._places.pods.serving(state), self._waits(), memory.job.metadata.creation_timestamp
        returning = nodes_to_return(state, memory.policy, memory.time.now())
        like = next(iter(serving.pods.values()), None)  # the server has resolved its priority class
        wanted = memory.layout.num_nodes - len(state.released)
        if self._places.pods.not_created is not None and not waits:
            wanted = len(serving.pods)  # pods that no quota allows take no node
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
        """Whether pods that are created now get the gate."""
        if not self._waits():
            return False
        if self._ports.may_start(self._memory.job.metadata.uid):
            self._let_in = self._memory.state.base
            return False
        self._alarm.set(AGAIN_SECONDS, self._wake)
        return True

    def held_back(self) -> list[PodView]:
        """Return the gated pods."""
        return [pod for pod in self._places.serving().values() if pod.gated and not pod.deleting]

    def capacity_changed(self) -> None:
        """Check soon whether a waiting job can start, because nodes came or went."""
        if not self._soon.is_set:
            self._soon.set(SOON_SECONDS, self._wake)

    def _waits(self) -> bool:
        """Whether all of this start's pods are gated; an ungated one means that the start was let in before."""
        memory, state = self._memory, self._memory.state
        gates = memory.job.spec.scheduling.gang_policy is GangPolicy.SCHEDULING_GATES
        if not gates or state.phase not in UNTRAINED or self._let_in == state.base:
            return False
        serving = self._places.pods.serving(state)
        if len(serving.gated) < len(serving.pods):
            self._let_in = state.base
            return False
        return True
