"""What keeps MindIO from protecting this pod's ranks, as the gate sees it."""

from __future__ import annotations

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.agent.gate.rules import LinkPhase
from trainer_sidecar.agent.report import facts
from trainer_sidecar.agent.report.ports import AgentPorts
from trainer_sidecar.agent.settings import AgentSettings
from trainer_sidecar.agent.supervise.processes import Processes


class Protection:
    """Ranks that have not told MindIO of their optimizer copies, or speak TLS when the controller does not."""

    def __init__(self, settings: AgentSettings, processes: Processes, ports: AgentPorts) -> None:
        self._settings, self._processes, self._ports = settings, processes, ports
        self._copies: dict[int, bool] = {}  # whether a rank that registered here has told of them
        self._tls_spoken = False  # by a process that did not say which rank it is
        self._tls_ranks: set[int] = set()

    def note_optimizer_copies(self, rank: int, *, told: bool) -> bool:
        """Note whether a rank has told of its optimizer copies; return whether that changes the problems."""
        before = self.protection_problems()
        self._copies[rank] = told
        return self.protection_problems() != before

    def note_tls(self, rank: int | None) -> None:
        """Note that a process of this pod speaks TLS at the gate."""
        if rank is None:
            self._tls_spoken = True
        else:
            self._tls_ranks.add(rank)

    def note_linked_rank(self, rank: int) -> None:
        """Note that a rank's link is open, so it speaks what the controller speaks."""
        self._tls_ranks.discard(rank)

    def forget_ended_rank(self, rank: int) -> None:
        """Forget the rank: its process has ended."""
        self._copies.pop(rank, None)

    def begin_launch(self) -> None:
        """Forget who has told of copies: processes of another launch have the same names."""
        self._copies.clear()

    def protection_problems(self) -> list[pb.Problem]:
        """Return the present problems."""
        step = self._processes.last_finished_step
        untold = [rank for rank, told in sorted(self._copies.items()) if not told and (step(rank) or 0) >= 1]
        found = [facts.copies_not_registered_problem(untold[0])] if untold else []
        running = [process.rank for process in self._processes.running_processes()]
        outside = [rank for rank in running if self._ports.link_phase(rank) is LinkPhase.NONE]
        speaks_tls = self._tls_ranks.union(outside if self._tls_spoken else ())
        return [*found, facts.tls_mismatch_problem(min(speaks_tls), self._settings)] if speaks_tls else found
