"""Holds a new attempt back until the previous one has ended: both write into the same checkpoint directory.

The API server shows which ranks have ended: a kubelet lets a pod go only once its containers have ended. Where a pod
had to be deleted without that proof, the start waits until its agent has ended the ranks (hajob.plan.fencing), or a
person has marked the node as out of service (docs/decisions/0033-old-ranks-are-gone.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hajob.clock import Alarm
from hajob.domain.actions import OrderCommand
from hajob.job.memory import JobMemory
from hajob.job.observer import JobObserver
from hajob.job.ports import Ports
from hajob.plan import fencing
from hajob.plan.effects import SendOrder
from hajob.plan.state import UNTRAINED

_NAMED: Final = 3
LOOK_SECONDS: Final = 5.0
"""So often it is looked whether a person has taken a node out of service."""
STUCK_SECONDS: Final = 45.0
"""Pods that have not ended for so long do not do so by themselves: the start-up clock stands still."""


class StartGate:
    """The gate for orders that start ranks.

    Args:
        memory: of the job.
        observer: of the job.
        ports: to the world.
        open_again: called when a held order may be able to leave.
    """

    def __init__(self, memory: JobMemory, observer: JobObserver, ports: Ports, open_again: Callable[[], None]) -> None:
        self._memory, self._observer, self._ports, self._open_again = memory, observer, ports, open_again
        self._alarm = Alarm(ports.clock)
        self.holds = False
        """Whether an order waits."""
        self._since = 0.0

    def close(self) -> None:
        """Stop all timers."""
        self._alarm.cancel()

    def passes(self, order: SendOrder) -> bool:
        """Return whether the order may be sent; to the earlier attempt's coordinator always: it only ends what it runs.

        An order to take over a training passes as well: it starts nothing.
        """
        self.close()
        before, starts = self.holds, order.command is OrderCommand.START and self._memory.state.phase in UNTRAINED
        self.holds = starts and self._is_of_this_start() and bool(self.why_closed())
        if self.holds and not before:
            self._since = self._ports.clock.monotonic()
        if self.holds and (rest := self._next_look()) > 0:
            self._alarm.set(rest, self._open_again)
        return not self.holds

    def _next_look(self) -> float:
        """Return in how many seconds something changes by time alone; 0 for never."""
        if self._observer.earlier_ranks():
            return self._since + STUCK_SECONDS - self._ports.clock.monotonic()
        left = fencing.left_ms(self._memory.state, self._memory.time.now(), self._known_dead()) / 1000
        return min(left, LOOK_SECONDS)  # no event tells of nodes without a pod of this job

    def why_stuck(self) -> str:
        """Return which pods of the previous attempt are overdue, in words; empty for none."""
        long_ago = self.holds and self._ports.clock.monotonic() - self._since >= STUCK_SECONDS
        return self.why_closed() if long_ago and self._observer.earlier_ranks() else ""

    def why_closed(self) -> str:
        """Return what a start waits for, in words; empty for nothing."""
        old = self._observer.earlier_ranks()
        if old:
            named = ", ".join(sorted(old)[:_NAMED])
            return f"waiting for {len(old)} pods of the previous attempt to end: {named}"
        state = self._memory.state
        left = fencing.left_ms(state, self._memory.time.now(), self._known_dead())
        if not left:
            return ""
        where = ", ".join(sorted(state.unreachable)[:_NAMED])
        return f"waiting up to {fencing.FENCE_SECONDS} s: ranks of the previous attempt may still run on {where}"

    def _is_of_this_start(self) -> bool:
        return self._observer.coordinator.incarnation >= self._memory.state.base

    def _known_dead(self) -> list[str]:
        return [name for name, node in self._ports.cluster.nodes.items() if node.is_out_of_service]
