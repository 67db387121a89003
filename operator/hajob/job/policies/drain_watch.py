"""Drains of a job's nodes: announces them, limits evictions, and moves the coordinator in time.

See docs/decisions/0023-drains-wait.md. The start of a drain is not in the journal: after a change of leaders its time
begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from hajob.api.event_reasons import EventReason
from hajob.capacity.drains import Drains, EvictionTurn, budgets
from hajob.clock import Alarm
from hajob.job.memory import JobMemory
from hajob.job.places import JobPlaces
from hajob.job.policies.disruption_budgets import DisruptionBudgets
from hajob.job.ports import Ports
from hajob.job.status.announcements import Announce, Announcement
from hajob.plan import events
from hajob.plan.policy import NodePolicy
from hajob.plan.state import REMADE, STEADY, WITHOUT_PODS
from hajob.sources import observe
from hajob.sources.pod import PodView

ASK_AGAIN_SECONDS: Final = 300.0
"""A coordinator that could not be moved is asked for again after so long, and when the spec is edited."""
MOVE_AGAIN_SECONDS: Final = 600.0
"""A move that was refused or given up is asked for again after so long, when the spec is edited, and by another
coordinator: it may have gone with the one before."""


class DrainWatch:
    """The drains of one job.

    Args:
        memory: of the job.
        places: of the job.
        ports: to the world.
        wake: called when `look` is due.
        announce: posts Events.
    """

    def __init__(
        self, memory: JobMemory, places: JobPlaces, ports: Ports, wake: Callable[[], None], announce: Announce
    ) -> None:
        self._memory, self._places, self._ports, self._clock = memory, places, ports, ports.clock
        self._wake, self._announce = wake, announce
        self._drains = Drains(memory.policy.drain_timeout_seconds)
        self._budgets = DisruptionBudgets(ports.kube, ports.clock, wake)
        self._alarm = Alarm(ports.clock)
        self._turn = EvictionTurn(ports.openings)
        self._opening = Alarm(ports.clock)
        self._asked = (0, float("-inf"))  # generation of the spec, time
        self._move_asked: tuple[object, float] = (None, 0.0)

    def close(self) -> None:
        """Stop all timers."""
        self._budgets.close()
        self._alarm.cancel()
        self._opening.cancel()

    def moves(self) -> Iterable[events.MigrateRequested]:
        """Yield rank pods that are to leave their nodes; a refused move is requested again periodically."""
        memory = self._memory
        for move in observe.of_moves(memory.state, memory.job.spec, self._places.serving(), self._places.drained()):
            now, asked = self._clock.monotonic(), (move, memory.job.metadata.generation, memory.state.coordinator)
            if asked != self._move_asked[0] or now - self._move_asked[1] > MOVE_AGAIN_SECONDS:
                self._move_asked = (asked, now)
                yield move

    def look(self) -> list[events.CoordinatorMoveRequested]:
        """Update which nodes are to be emptied; move the coordinator at once, since the training goes on."""
        pods, now, policy = self._places.drained(), self._clock.monotonic(), self._memory.policy
        self._drains.timeout = policy.drain_timeout_seconds
        fresh = self._drains.look({pod.node_name for pod in pods}, now)
        for pod in pods:
            if pod.node_name in fresh:
                said = _in_words(pod, policy.cordon)
                self._announce(Announcement(EventReason.NODE_DRAINING, said))
        self._alarm.cancel()
        if (rest := self._drains.next_change(now)) is not None:
            self._alarm.set(rest + 0.01, self._wake)
        return self._coordinator_move(now) if policy.cordon is NodePolicy.MIGRATE else []

    async def protect(self) -> None:
        """Set how many pods evictions have to leave now."""
        phase = self._memory.state.phase
        if phase in WITHOUT_PODS or (phase in REMADE and not self._budgets.are_written):
            return  # a pod evicted before the ranks start is replaced alone; a start has enough to write
        policy = self._memory.policy
        overdue = self._drains.overdue(self._clock.monotonic())
        opened = phase in STEADY and self._is_opened(overdue=overdue) and not self._can_move()
        wanted = budgets(self._memory.desired, policy, overdue=overdue, opened=opened)
        await self._budgets.follow(self._memory.job, wanted)

    def _is_opened(self, *, overdue: bool) -> bool:
        """Whether unannounced evictions, which cannot be observed, may go through now."""
        now = self._clock.monotonic()
        if overdue:
            self._turn.begin_anew()
        opened = self._turn.is_now(now, self._drains.timeout)
        self._opening.cancel()
        if (at := self._turn.next_change(now)) is not None:
            self._opening.set(at - now + 0.01, self._wake)
        return opened

    def _can_move(self) -> bool:
        """Whether a cordon would empty the node without an outage: then whoever wants that has to cordon it."""
        return self._memory.policy.moves and (self._places.free_nodes() > 0 or bool(self._places.spares()))

    def _coordinator_move(self, now: float) -> list[events.CoordinatorMoveRequested]:
        pod, generation = self._places.coordinator_pod(), self._memory.job.metadata.generation
        recently = self._asked[0] == generation and now - self._asked[1] < ASK_AGAIN_SECONDS
        if pod is None or not observe.is_drained(pod, self._ports.nodes()) or recently:
            return []
        asked = list(observe.of_coordinator_move(self._memory.state, pod))
        if asked:
            self._asked = (generation, now)
        return asked


def _in_words(pod: PodView, policy: NodePolicy) -> str:
    """Describe what will happen to a pod whose node is to be emptied."""
    what = f"node {pod.node_name} of pod {pod.name} is being drained"
    if policy is NodePolicy.IGNORE:
        return f"{what}; cordonPolicy is Ignore: the pod is left until it is evicted"
    if pod.node_rank >= 0:
        return f"{what}: Hajob moves the pod while the training goes on, and refuses evictions until then"
    return f"{what}: another coordinator takes over while the training goes on; Hajob refuses evictions until then"
