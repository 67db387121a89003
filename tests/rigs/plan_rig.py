"""A job in the hands of a test: tell it events, look at what it wants."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from hajob.domain.actions import Action
from hajob.domain.facts import NO_SUCCESSOR, Fact, FactKind, Source
from hajob.domain.incidents import Incident
from hajob.job.status.journal import Journal, read_journal
from hajob.plan import events as e
from hajob.plan.effects import Effect, SendOrder
from hajob.plan.invariants import Step, broken_rules
from hajob.plan.machine import Transition, advance_job
from hajob.plan.placements import (
    CoordinatorPlacement,
    Placement,
    Placements,
    PodPurpose,
    placements,
    same_placements,
    serving_incarnation,
)
from hajob.plan.policy import Policy
from hajob.plan.state import JobPhase, JobState
from hajob.plan.view import ClusterView
from tests.rigs.plan_worlds import VIEW


def to_dict(state: JobState) -> dict[str, Any]:
    """Write the state as it stands in the journal."""
    found: dict[str, Any] = json.loads(Journal(state).to_text(0)).get("state", {})
    return found


def from_dict(data: dict[str, Any]) -> JobState:
    """Read a state as the journal has it."""
    return read_journal(json.dumps({"state": data})).journal.state


def in_words(pod: Placement | CoordinatorPlacement) -> str:
    """Write each pod as `node rank:incarnation`, purpose, avoided nodes."""
    if isinstance(pod, CoordinatorPlacement):
        return f"coordinator:{pod.incarnation}{'' if pod.apart else ' anywhere'}"
    purpose = "" if pod.purpose is PodPurpose.SERVING else f" {pod.purpose}"
    return f"{pod.node_rank}:{pod.incarnation}{purpose}{' off ' if pod.avoid else ''}{','.join(pod.avoid)}"


def assert_told_alike(before: JobState, after: JobState, num_nodes: int) -> None:
    """Check that the short answer to whether other pods should exist is the one that all of them give."""
    same = placements(before, num_nodes) == placements(after, num_nodes)
    assert same_placements(before, after, num_nodes) is same, f"{before} and {after}"


@dataclass
class Rig:
    """One job, its world, and the last outcome."""

    state: JobState
    view: ClusterView = VIEW
    policy: Policy = field(default_factory=Policy)
    now: int = 1_000_000
    transition: Transition | None = None
    last_fact: Fact = field(default_factory=lambda: Fact("none", FactKind.PROCESS_EXITED))
    last_incident: Incident = None  # type: ignore[assignment]
    facts: int = 0

    @classmethod
    def running(cls, view: ClusterView = VIEW, policy: Policy | None = None, step: int = 5) -> Rig:
        """Build a job that trains."""
        state = JobState(phase=JobPhase.RUNNING, incarnation=1, attempt=1, base=1, coordinator=1, step=step)
        state = replace(state, active_since_ms=1_000_000)
        return cls(state, view, policy or Policy())

    @classmethod
    def naming(cls) -> Rig:
        """Build a job whose rank 5 was restarted; MindIO has just been told."""
        rig = cls.running()
        rig.exits(5)
        rig.tell(e.Named(2, 1))
        return rig

    @classmethod
    def shrunk(cls) -> Rig:
        """Build a job whose node rank 2 was lost and dropped."""
        rig = cls.running(view=replace(VIEW, free_nodes=0))
        rig.silent(2)
        rig.deadline("Recovery")
        rig.tell(e.Resumed(2, 11))
        return rig

    def tell(self, event: e.JobEvent, now: int | None = None) -> tuple[Effect, ...]:
        """Tell one event."""
        self.now = now if now is not None else self.now + 10
        if self.state.incident is not None:
            self.last_incident = self.state.incident
        before, self.transition = self.state, advance_job(self.state, event, self.view, self.policy, self.now)
        self.state = self.transition.state
        assert_told_alike(before, self.state, self.view.layout.num_nodes)
        assert not broken_rules(Step(before, event, self.transition, self.view.layout, self.policy, self.now))
        return self.transition.effects

    def see(
        self, kind: FactKind, *, node: int | None = None, ranks: tuple[int, ...] = (), **more: object
    ) -> tuple[Effect, ...]:
        """Tell a fresh fact about the processes and pods that exist now."""
        self.facts += 1
        made = Fact(f"fact-{self.facts}-{self.now}", kind, node_rank=node, ranks=ranks, time_ms=self.now + 5)
        given = {"incarnation": self.state.incarnation, "source": Source.AGENT, **more}
        self.last_fact = replace(made, **given)  # type: ignore[arg-type]
        return self.tell(e.FactSeen(fact=self.last_fact))

    def lose_for_good(self, message: str = "") -> tuple[Effect, ...]:
        """Lose the controller, and no other one can take its place."""
        return self.see(FactKind.CONTROLLER_LOST, code=NO_SUCCESSOR, message=message, source=Source.COORDINATOR)

    def exits(self, rank: int, exit_code: int = -9, **more: object) -> tuple[Effect, ...]:
        """Have a process exit."""
        return self.see(FactKind.PROCESS_EXITED, ranks=(rank,), exit_code=exit_code, **more)  # type: ignore[arg-type]

    def silent(self, node: int) -> tuple[Effect, ...]:
        """Have a node fall silent."""
        pod, name = self.state.pod_incarnation(node), f"node-{node}"
        return self.see(FactKind.AGENT_SILENT, node=node, source=Source.COORDINATOR, incarnation=pod, node_name=name)

    def memory(self, rank: int, source: Source) -> Rig:
        """Tell a memory fault."""
        self.see(FactKind.MEMORY_FAULT, ranks=(rank,), source=source)
        return self

    def deadline(self, name: str) -> tuple[Effect, ...]:
        """Let a deadline pass."""
        return self.tell(e.DeadlineReached(name=name), max(self.now, self.state.deadlines[name]))

    def grow(self) -> tuple[Effect, ...]:
        """Have nodes for the pods that left, for long enough."""
        self.tell(e.CapacityAvailable(nodes=self.view.layout.num_nodes))
        return self.deadline("Expand")

    def out_of_reach(self) -> tuple[Effect, ...]:
        """Have the coordinator out of reach, for long enough to be spoken of."""
        self.tell(e.CoordinatorUnreachable())
        return self.deadline("Unreachable") if "Unreachable" in self.state.deadlines else ()

    def recover(self) -> None:
        """Have MindIO succeed."""
        number = self.incident.incarnation
        for event in (e.Named(number), e.Resumed(number, self.state.step + 1), e.ResultReported(number, 0)):
            self.tell(event)

    def at(self, phase: JobPhase) -> bool:
        """Tell whether the job is in this state."""
        return self.state.phase is phase

    @property
    def pods(self) -> Placements:
        """The pods that should exist."""
        return placements(self.state, self.view.layout.num_nodes)

    @property
    def served(self) -> dict[int, int]:
        """Node rank to the incarnation of its pod, 0 where there should be none."""
        return {node: serving_incarnation(self.state, node) for node in range(self.view.layout.num_nodes)}

    @property
    def incident(self) -> Incident:
        """The open incident."""
        assert self.state.incident is not None
        return self.state.incident

    @property
    def action(self) -> Action:
        """What is being done."""
        return self.incident.action

    @property
    def ignored(self) -> str:
        """Why the last event changed nothing."""
        assert self.transition is not None
        return str(self.transition.ignored or "")

    @property
    def refused(self) -> dict[Action, tuple[str, ...]]:
        """Refusals of the last decision, by name."""
        assert self.transition is not None
        considered = self.transition.considered
        return {one.action: one.unmet for one in considered if not one.taken}

    def order(self, done: tuple[Effect, ...] | None = None) -> SendOrder:
        """Return the one order among the effects."""
        (found,) = self.orders(done)
        return found

    def orders(self, done: tuple[Effect, ...] | None = None) -> list[SendOrder]:
        """List the orders among the effects of the last event."""
        assert self.transition is not None
        return [
            effect for effect in (self.transition.effects if done is None else done) if isinstance(effect, SendOrder)
        ]

    @staticmethod
    def kinds(done: tuple[Effect, ...]) -> list[str]:
        """List the names of the effects."""
        return [type(effect).__name__ for effect in done]
