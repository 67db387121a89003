"""Exits without a reason in this pod's output, held for a moment: another pod may have the line that explains them.

Of ranks that end together one prints the reason (docs/protocols/launcher.md#ends). The coordinator restarts the job
on the first fact that it gets, and later facts are lost with their pods.
"""

from __future__ import annotations

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.agent.clock import SECOND

# Who has the reason reports it at once: the coordinator has it by then, wherever it comes from.
HELD_SECONDS = 2


class UnexplainedExits:
    """Facts and when they happened; all are due together, `HELD_SECONDS` after the first of them was held."""

    def __init__(self) -> None:
        self._facts: list[tuple[pb.Fact, int]] = []
        self._due = 0

    def __bool__(self) -> bool:
        return bool(self._facts)

    def hold_fact(self, fact: pb.Fact, time: int, now: int) -> None:
        """Keep a fact of something that happened at `time` (nanoseconds, like `now`)."""
        if not self._facts:
            self._due = now + HELD_SECONDS * SECOND
        self._facts.append((fact, time))

    def take_due_facts(self, now: int) -> list[tuple[pb.Fact, int]]:
        """Return the facts that are due now, each once, oldest first."""
        if now < self._due:
            return []
        taken, self._facts = self._facts, []
        return taken
