"""Everything the coordinator knows of its job, put together from small values that are changed by their own modules.

| value | who changes it |
| --- | --- |
| `attempt`, `incidents`, `effects`, `steps`, `ending` | the module of its name (`ending`: last_step.py) |
| `roster`, with pods, views and targets | roster.py |
| `conversation`, with its memory | the conversation's table and its effects |
| `controller`, `checkpoints` | views.py |
| `change` | controller_change.py, led on by takeover/successor.py |
| `keeping` | store_keeping.py, led on by takeover/successor.py |
| `contacts` | leases.py |
| `operator` | presence.py |
| `pause` | watch/pause_work.py |
| `assignment`, `order` and the rest | this module |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from hajob.domain.fencing import FENCE_AFTER_SECONDS
from hajob.domain.savers import DEFAULT_SAVERS, compile_savers
from hajob.protocol import sidecar_pb2 as pb
from hajob.protocol.addresses import host_port
from trainer_sidecar.coordinator.conversation.conversation import Conversation
from trainer_sidecar.coordinator.state.attempt import Attempt, AttemptPhase
from trainer_sidecar.coordinator.state.controller_change import ControllerChange
from trainer_sidecar.coordinator.state.effects import Effects
from trainer_sidecar.coordinator.state.incidents import Incidents, OpenIncident
from trainer_sidecar.coordinator.state.last_step import LastStep
from trainer_sidecar.coordinator.state.leases import Contacts
from trainer_sidecar.coordinator.state.pause import PauseWork
from trainer_sidecar.coordinator.state.presence import OperatorPresence
from trainer_sidecar.coordinator.state.roster import RankPod, Roster
from trainer_sidecar.coordinator.state.steps import Steps
from trainer_sidecar.coordinator.state.store_keeping import StoreKeeping
from trainer_sidecar.coordinator.state.views import CheckpointView, ControllerView
from trainer_sidecar.launcher.arguments import WITHOUT_MINDIO


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits of the job's rules, in seconds."""

    answer_seconds: float = 110.0  # MindIO's wait for an answer, less a margin
    controller_again_seconds: float = 1.0  # after the first failure: the second one tells whether it passes by itself
    controller_retry_seconds: float = 5.0
    takeover_seconds: float = 3.0
    forget_seconds: float = 2 * FENCE_AFTER_SECONDS  # an agent that hears nobody has ended its ranks
    savers: re.Pattern[str] = field(
        default_factory=lambda: compile_savers(DEFAULT_SAVERS)
    )  # found in the stack of who saves


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where this pod's listeners are."""

    address: str
    mindio_port: int
    rendezvous_port: int

    @property
    def controller_address(self) -> str:
        """Where the gates forward to."""
        return host_port(self.address, self.mindio_port)

    @property
    def store_address(self) -> str:
        """Where the pods' store ports forward to."""
        return host_port(self.address, self.rendezvous_port)


@dataclass(frozen=True, slots=True)
class Setup:
    """What never changes while this coordinator runs.

    Attributes:
        endpoint: of its own listeners.
        limits: of its rules.
        incarnation: the one that its own pod was made for; 0: not known.
        is_followed: TaskD starts the ranks, and MindIO's controller is in its manager at node rank 0: the launcher
            follows the ranks, and a rank that comes back is started after it was named.
    """

    endpoint: Endpoint
    limits: Limits = field(default_factory=Limits)
    incarnation: int = 0
    is_followed: bool = False


@dataclass(slots=True)
class Job:
    """The state of one coordinator."""

    setup: Setup
    conversation: Conversation
    contacts: Contacts
    now: float
    incidents: Incidents
    operator: OperatorPresence
    roster: Roster = field(default_factory=Roster)
    steps: Steps = field(default_factory=Steps)
    ending: LastStep = field(default_factory=LastStep)
    effects: Effects = field(default_factory=Effects)
    controller: ControllerView = field(default_factory=ControllerView)
    checkpoints: CheckpointView = field(default_factory=CheckpointView)
    change: ControllerChange = field(default_factory=ControllerChange)
    keeping: StoreKeeping = field(default_factory=StoreKeeping)
    pause: PauseWork = field(default_factory=PauseWork)
    attempt: Attempt = field(default_factory=Attempt)
    assignment: pb.Assignment | None = None
    order: pb.Order | None = None
    steps_ahead: int = 0  # what gates add to the ranks' steps when MindIO asks for them

    # -- the only changes that are not a value's own ----------------------------------------------------------------

    def set_time(self, now: float) -> None:
        """Set the time at which what follows happens."""
        self.now = now

    def apply_assignment(self, assignment: pb.Assignment) -> bool:
        """Take in pods and settings as they are now; return whether agents have to know of the settings.

        The environment of an attempt is fixed once its ranks are ordered: MindIO's controller and all ranks need the
        same switches, also a rank that is started anew after the spec was edited. Only that MindIO is left out may be
        known from what was launched, after that; it is true for ranks of which none has registered.
        """
        before, taken, alone = self.assignment, assignment, False
        if before is not None and self.is_running and before.attempt == assignment.attempt:
            taken = pb.Assignment()
            taken.CopyFrom(assignment)
            taken.environment.clear()
            taken.environment.update(before.environment)
            if WITHOUT_MINDIO in assignment.environment and not self.roster.registered:
                alone = WITHOUT_MINDIO not in before.environment
                taken.environment[WITHOUT_MINDIO] = assignment.environment[WITHOUT_MINDIO]
        self.assignment = taken
        self.roster.apply_assignment(taken)
        for pod in self.roster.pods.values():
            self.incidents.note_taken_number(pod.incarnation)
        if before is None:
            return alone
        other_table = before.rank_table.version != taken.rank_table.version
        return alone or other_table or list(before.log_rules) != list(taken.log_rules)

    @property
    def rank_table(self) -> pb.RankTable | None:
        """Return the newest rank table that is complete; None where there is none."""
        table = self.assignment.rank_table if self.assignment is not None else None
        return table if table is not None and table.version else None

    def keep_environment(self, environment: Mapping[str, str]) -> None:
        """Keep the environment that the ranks were started with, whatever the spec says now; empty: it is not known."""
        if self.assignment is not None and environment:
            self.assignment.environment.clear()
            self.assignment.environment.update(environment)

    def replace_order(self, order: pb.Order) -> None:
        """Replace the order: it is the step that is desired now."""
        self.order = order

    def set_steps_ahead(self, steps: int) -> None:
        """Set by how many steps gates tell MindIO more than the ranks have made."""
        self.steps_ahead = steps

    def begin_attempt(self, number: int, incarnation: int) -> None:
        """Begin another start of the whole job."""
        self.attempt = Attempt(number, incarnation, AttemptPhase.OPENING, self.now)
        self.change.forget_change()
        self.keeping = StoreKeeping()
        self.checkpoints.forget_reported_save()

    @contextmanager
    def muted_effects(self) -> Iterator[Effects]:
        """Collect effects instead of sending them: what happens inside has happened before."""
        live, self.effects = self.effects, Effects()
        try:
            yield self.effects
        finally:
            self.effects = live

    # -- questions ----------------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether ranks of the attempt have been ordered."""
        return self.attempt.phase is AttemptPhase.RUNNING

    @property
    def without_mindio(self) -> bool:
        """Whether the ranks register with no controller, because no action through MindIO is possible or allowed.

        A start script that switches it on all the same gets one: its ranks would end without.
        """
        left_out = self.assignment is not None and WITHOUT_MINDIO in self.assignment.environment
        return left_out and not self.roster.switches_mindio_on

    @property
    def is_everything_up(self) -> bool:
        """Whether everything is up that the ranks of the attempt need: the store, and MindIO's controller."""
        number, controller = self.attempt.number, self.controller
        return controller.has_store(number) if self.without_mindio else controller.is_ready(number)

    @property
    def num_telling(self) -> int:
        """Ranks that tell of their steps: without MindIO's heartbeats those that print, of which one is enough."""
        return 1 if self.without_mindio else self.roster.number_in_training

    @property
    def store_name(self) -> str:
        """Name of the attempt's store in this coordinator's pod: each pod opens one of its own."""
        return f"{self.attempt.number}/{self.setup.incarnation}"

    @property
    def controller_address(self) -> str:
        """Where the gates forward to: at this pod, or at the one where TaskD's manager is; empty: not known."""
        if not self.setup.is_followed:
            return self.setup.endpoint.controller_address
        return host_port(self.first_address, self.setup.endpoint.mindio_port) if self.first_address else ""

    @property
    def first_address(self) -> str:
        """Address of the pod of node rank 0; empty: not known."""
        return next((pod.address for pod in self.roster.pods_of_node(0) if pod.is_current and pod.address), "")

    def is_agent_heard(self, pod: RankPod) -> bool:
        """Return whether the pod's agent is connected and has spoken lately."""
        return pod.connected and not self.contacts.is_agent_silent(pod.uid)

    # -- words for the operator and the agents -----------------------------------------------------------------------

    def touch_pod_of(self, rank: int) -> None:
        """Mark the pod of this rank: it has to be told something new."""
        target = self.roster.targets.get(rank)
        if target is not None:
            self.effects.touch_pods(target.pod_uid)

    def touch_all_pods(self) -> None:
        """Mark every pod to be looked at anew."""
        self.effects.touch_pods(*self.roster.pods)

    def mark_milestone(self, kind: pb.MilestoneKind, at: float, message: pb.Milestone | None = None) -> None:
        """Note a milestone of the incident, or of the attempt when there is none."""
        self.mark_milestone_of(self.incidents.current or self.attempt, kind, at, message)

    def mark_milestone_of(
        self, of: OpenIncident | Attempt, kind: pb.MilestoneKind, at: float, message: pb.Milestone | None = None
    ) -> None:
        """Note a milestone of this incident or attempt."""
        milestone = message if message is not None else pb.Milestone()
        milestone.kind = kind
        milestone.incarnation = of.incarnation
        self.effects.queue_milestone(milestone, at)

    def new_fact(self, kind: pb.FactKind, subject: str, message: str) -> pb.Fact:
        """Build a fact of the coordinator's own."""
        name = pb.FactKind.Name(kind).lower()
        identity = f"{name}/{subject}/{self.incidents.incarnation}/{self.effects.next_fact_number()}"
        step = self.steps.newest if self.steps.newest >= 0 else None
        return pb.Fact(id=identity, kind=kind, node_rank=-1, step=step, message=message)

    def tell_controller_lost(self, text: str, at: float, *, code: str = "") -> None:
        """Report that the controller of the running attempt is gone.

        `code`: what that means for the job (hajob.domain.facts).
        """
        fact = self.new_fact(pb.CONTROLLER_LOST, f"attempt-{self.attempt.number}", text)
        fact.code = code
        fact.incarnation = self.incidents.incarnation
        self.effects.queue_fact(fact, at)
