"""Everything the coordinator knows of its job, in one place that the pure modules work on.

Effects are collected here and carried out by the shell after each event: requests to the controller host, node orders
for pods marked dirty, a report when something urgent happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.coordinator.conversation import Conversation
from trainer_sidecar.coordinator.leases import Leases, Silence
from trainer_sidecar.coordinator.outbox import Outbox
from trainer_sidecar.coordinator.roster import Pod, Roster
from trainer_sidecar.coordinator.steps import Steps

if TYPE_CHECKING:
    from trainer_sidecar.coordinator.last_step import LastStep


class Phase(StrEnum):
    """Of the attempt: one start of the whole job."""

    IDLE = "idle"  # no order has come, or every rank was told to end
    OPENING = "opening"  # controller, store and launchers are being waited for
    RUNNING = "running"


@dataclass(frozen=True)
class Limits:
    """Times the job's rules go by, in seconds."""

    answer_seconds: float = 110.0  # MindIO's wait for an answer, less a margin
    finish_seconds: float = 120.0  # what a rank gets after others have left and no step ends any more
    controller_again_seconds: float = 1.0  # after the first failure: the second one tells whether it passes by itself
    controller_retry_seconds: float = 5.0
    takeover_seconds: float = 3.0
    forget_seconds: float = 120.0  # an agent that hears nobody ends its ranks after 60 s


@dataclass(frozen=True)
class Endpoint:
    """Where this pod's listeners are."""

    address: str
    mindio_port: int
    rendezvous_port: int

    @property
    def controller(self) -> str:
        """Where the gates forward to."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.mindio_port}"


@dataclass
class ControllerView:
    """What the controller host last said of itself."""

    connected: bool = False
    attempt: int = 0
    controller: str = "none"
    store: str = "none"
    problem: str = ""
    kind: str = ""
    requested: int = -1  # the attempt a start was asked for
    requested_at: float = 0.0
    starts: int = 0  # so often for this attempt
    incidents: int = 0  # that this controller has been through, by the count of its host

    def serves(self, attempt: int) -> bool:
        """Whether the controller of this attempt is up."""
        return self.connected and self.attempt == attempt and self.controller == "serving"

    def ready(self, attempt: int) -> bool:
        """Whether controller and store of this attempt are up."""
        return self.serves(attempt) and self.store == "listening"


@dataclass
class Incident:
    """One outage, from the first loss to MindIO's success report."""

    incarnation: int
    opened: float
    planned: bool = False  # nothing was lost: a move, a pause, growing
    joined: int = 0  # the highest number of an order that is part of it
    stopped: float | None = None
    strategy_sent: float | None = None
    resumed: bool = False
    standing: pb.Action = pb.ACTION_UNSPECIFIED
    started: frozenset[int] = frozenset()
    ready: frozenset[int] = frozenset()


@dataclass
class Attempt:
    """One start of the whole job."""

    number: int = -1
    incarnation: int = 0
    phase: Phase = Phase.IDLE
    since: float = 0.0
    linked: bool = False  # every rank has been linked once
    stepped: bool = False  # all ranks have finished the first step after the start
    done: bool = False
    alone: bool = False  # no process of an older attempt is left that could write a checkpoint
    finished: set[int] = field(default_factory=set)
    first_finish: float | None = None


@dataclass
class Standstill:
    """No step has ended for too long. Before it is told, the ranks are asked where they stand."""

    since: float  # the end of the last step
    asked: float
    ranks: frozenset[int]
    stacks: dict[int, str] = field(default_factory=dict)
    told: bool = False


@dataclass(frozen=True)
class Request:
    """One line for the controller host."""

    call: str
    arguments: dict[str, object]


@dataclass
class Job:
    """The state of one coordinator."""

    uid: str
    endpoint: Endpoint
    limits: Limits
    conversation: Conversation
    leases: Leases
    now: float
    roster: Roster = field(default_factory=Roster)
    silence: Silence = field(default_factory=Silence)
    steps: Steps = field(default_factory=Steps)
    last_step: LastStep | None = None  # of an attempt that is being ended
    outbox: Outbox = field(default_factory=Outbox)
    controller: ControllerView = field(default_factory=ControllerView)
    controller_log: list[Mapping[str, Any]] = field(default_factory=list)
    attempt: Attempt = field(default_factory=Attempt)
    assignment: pb.Assignment | None = None
    order: pb.Order | None = None
    incident: Incident | None = None
    unresumed: Incident | None = None  # over for MindIO before a step had ended: it repaired from a checkpoint
    pod_incarnation: int = 0  # that this coordinator's own pod was made for; 0: not known
    incarnation: int = 0  # the highest known
    concluded: int = 0  # orders up to this incarnation have been carried out
    dropped: set[int] = field(default_factory=set)  # ranks left out since a shrink
    checkpoint: pb.CheckpointState | None = None  # what the agent of `checkpoint_pod` has found
    checkpoint_pod: str = ""
    fact_number: int = 0
    standstill: Standstill | None = None
    watched_since: float | None = None  # steps have been expected since then
    requests: list[Request] = field(default_factory=list)
    dirty: set[str] = field(default_factory=set)
    urgent: bool = False
    changed: bool = False
    refused_input: int = 0

    @property
    def num_ranks(self) -> int:
        """Ranks that take part."""
        return max(self.roster.world_size - len(self.dropped), 1)

    def hears(self, pod: Pod) -> bool:
        """Whether the pod's agent is connected and has spoken lately."""
        return pod.connected and not self.silence.is_silent(pod.uid)

    def touch(self, rank: int) -> None:
        """The pod of this rank has to be told something new."""
        target = self.roster.targets.get(rank)
        if target is not None and target.pod_uid:
            self.dirty.add(target.pod_uid)

    def touch_all(self) -> None:
        """Every pod has to be looked at anew."""
        self.dirty.update(self.roster.pods)

    def mark(self, kind: pb.MilestoneKind, at: float, message: pb.Milestone | None = None) -> None:
        """Note a milestone of the incident, or of the attempt when there is none."""
        self.mark_in(self.incident or self.attempt, kind, at, message)

    def mark_in(
        self, of: Incident | Attempt, kind: pb.MilestoneKind, at: float, message: pb.Milestone | None = None
    ) -> None:
        """Note a milestone of this incident or attempt."""
        milestone = message if message is not None else pb.Milestone()
        milestone.kind = kind
        milestone.incarnation = of.incarnation
        self.outbox.add_milestone(milestone, at)
        self.urgent = True

    def tell(self, fact: pb.Fact, at: float) -> None:
        """Queue a fact for the operator."""
        if self.outbox.add_fact(fact, at):
            self.urgent = True

    def tell_controller_lost(self, text: str, at: float) -> None:
        """The controller of the attempt that runs is gone; a later attempt has another one."""
        fact = self.new_fact(pb.CONTROLLER_LOST, f"attempt-{self.attempt.number}", text)
        fact.incarnation = self.incarnation
        self.tell(fact, at)

    def new_fact(self, kind: pb.FactKind, subject: str, message: str) -> pb.Fact:
        """A fact of the coordinator's own."""
        self.fact_number += 1
        name = pb.FactKind.Name(kind).lower()
        identity = f"{name}/{subject}/{self.incarnation}/{self.fact_number}"
        step = self.steps.newest if self.steps.newest >= 0 else None
        return pb.Fact(id=identity, kind=kind, node_rank=-1, step=step, message=message)
