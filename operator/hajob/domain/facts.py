"""The common form of every observation about a job.

Every source (agents, coordinator, pods, nodes, chips, MindIO) has its own format; `hajob.sources` and the
coordinator's reports turn each observation into a `Fact`. The planner sees nothing else, so that a fault seen as a
taint, as a condition or by an agent gives the same incident.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hajob.domain.actions import Action


class FactKind(StrEnum):
    """Kind of observation. The first ones have the names of `FactKind` in sidecar.proto."""

    PROCESS_EXITED = "ProcessExited"
    AGENT_SILENT = "AgentSilent"
    MEMORY_FAULT = "MemoryFault"
    COMMUNICATION_FAULT = "CommunicationFault"
    PROCESS_FAULT = "ProcessFault"
    HANG = "Hang"
    LOG_RULE = "LogRule"
    HEARTBEAT_SILENT = "HeartbeatSilent"
    SCRIPT_ENDED = "ScriptEnded"
    CONTROLLER_LOST = "ControllerLost"
    PORT_TAKEN = "PortTaken"
    DATA_CORRUPTED = "DataCorrupted"
    POD_LOST = "PodLost"
    POD_FAILED = "PodFailed"
    POD_UNSTARTABLE = "PodUnstartable"
    NODE_NOT_READY = "NodeNotReady"
    NODE_DELETED = "NodeDeleted"
    CHIP_FAULT = "ChipFault"
    CHIP_ERROR = "ChipError"
    SUB_HEALTH = "SubHealth"
    CORDONED = "Cordoned"


class Source(StrEnum):
    """Observer of a fact."""

    AGENT = "Agent"
    COORDINATOR = "Coordinator"
    MINDIO = "MindIO"
    POD = "Pod"
    NODE = "Node"
    DEVICE = "Device"
    SWITCH = "Switch"
    NODE_HARDWARE = "NodeD"
    PUBLIC = "Public"
    OPERATOR = "Operator"


class Origin(StrEnum):
    """Origin of a fault, whose budget it spends: the machine's or the program's."""

    INFRASTRUCTURE = "Infrastructure"
    PROGRAM = "Program"


FIRST_ACTION: Final = {
    FactKind.PROCESS_EXITED: Action.IN_PLACE,
    FactKind.AGENT_SILENT: Action.REPLACE,
    FactKind.MEMORY_FAULT: Action.RETRY,
    FactKind.COMMUNICATION_FAULT: Action.RETRY,
    FactKind.PROCESS_FAULT: Action.IN_PLACE,
    FactKind.HANG: Action.IN_PLACE,
    FactKind.LOG_RULE: Action.RESTART,
    FactKind.HEARTBEAT_SILENT: Action.IN_PLACE,
    FactKind.SCRIPT_ENDED: Action.REPLACE,
    FactKind.CONTROLLER_LOST: Action.RESTART,
    FactKind.PORT_TAKEN: Action.REPLACE,
    FactKind.DATA_CORRUPTED: Action.RETRY,
    FactKind.POD_LOST: Action.REPLACE,
    FactKind.POD_FAILED: Action.REPLACE,
    FactKind.POD_UNSTARTABLE: Action.RESTART,
    FactKind.NODE_NOT_READY: Action.REPLACE,
    FactKind.NODE_DELETED: Action.REPLACE,
    FactKind.CHIP_FAULT: Action.REPLACE,
    FactKind.CHIP_ERROR: Action.IN_PLACE,
    FactKind.SUB_HEALTH: Action.REPLACE,
    FactKind.CORDONED: Action.REPLACE,
}
"""The smallest action that can cure a fact of this kind, before anything else (docs/internals/state-machine.md)."""

TAKES_THE_NODE: Final = frozenset(kind for kind, action in FIRST_ACTION.items() if action is Action.REPLACE)
"""Kinds after which every rank of the node is lost."""

GONE_NODE: Final = frozenset({FactKind.AGENT_SILENT, FactKind.NODE_NOT_READY, FactKind.NODE_DELETED})
"""Of these, kinds after which the machine may be off: no pod would start there, whatever Kubernetes still reports."""

NO_SUCCESSOR: Final = "NoSuccessor"
"""Code of a lost controller that no other can replace: only a new start protects the job again."""
CONTAINER_ENDED: Final = "ContainerEnded"
"""Code of the same fact when its container has ended and its pod is about to; another pod's coordinator takes over."""

HARMLESS_SO_FAR: Final = frozenset(
    {FactKind.CHIP_FAULT, FactKind.CHIP_ERROR, FactKind.LOG_RULE, FactKind.SUB_HEALTH, FactKind.CORDONED}
)
"""Kinds during which the training may go on: what they end is told by a fact of its own."""

INFORMATION: Final = frozenset({FactKind.POD_UNSTARTABLE, FactKind.CONTROLLER_LOST})
"""Kinds that lose no rank: a note for people, or the loss of the controller alone."""

NAMES_ITS_RANKS: Final = frozenset(
    {
        FactKind.PROCESS_EXITED,
        FactKind.MEMORY_FAULT,
        FactKind.COMMUNICATION_FAULT,
        FactKind.PROCESS_FAULT,
        FactKind.HANG,
        FactKind.LOG_RULE,
        FactKind.HEARTBEAT_SILENT,
        FactKind.DATA_CORRUPTED,
    }
)
"""Kinds about processes: one without ranks is no fault of its node's ranks, whatever its sender wanted to say."""

SICK_NODE: Final = frozenset({FactKind.SUB_HEALTH, FactKind.CORDONED})
"""Kinds about nodes that still work; the policy decides what follows."""

PROCESS_LIVES: Final = frozenset(
    {FactKind.MEMORY_FAULT, FactKind.COMMUNICATION_FAULT, FactKind.DATA_CORRUPTED, FactKind.CHIP_ERROR}
)
"""Kinds that leave the process alive, so that no incarnation tells an old observation from a new one."""

ENDS_PROCESSES: Final = frozenset(
    {
        FactKind.PROCESS_EXITED,
        FactKind.SCRIPT_ENDED,
        FactKind.AGENT_SILENT,
        FactKind.POD_LOST,
        FactKind.POD_FAILED,
        FactKind.NODE_NOT_READY,
        FactKind.NODE_DELETED,
    }
)
"""Kinds after which the processes are gone, or must be taken for it; all others leave them at work."""

EVICTIONS: Final = frozenset({"Evicted", "Preempting", "NodeShutdown", "Terminated", "NodeLost"})
"""Reasons of failed pods that the kubelet ended because of the node, whatever their containers' exit codes say."""

_REFUSALS: Final = frozenset(
    {"UnexpectedAdmissionError", "TopologyAffinityError", "NodeAffinity", "NodePorts", "TaintToleration"}
)
_OUT_OF: Final = "OutOf"  # cpu, memory, pods, or a resource such as chips


def is_refusal_code(code: str) -> bool:
    """Return whether the code is a kubelet's reason for refusing a pod that the scheduler has placed on its node."""
    return code in _REFUSALS or code.startswith(_OUT_OF)


DISRUPTIONS: Final = frozenset({"EvictionByEvictionAPI", "PreemptionByScheduler", "NodeShutdown", "Terminated"})
"""Codes of pods that were ended on purpose: drained, preempted, or on a node in graceful shutdown."""

DELETED: Final = "PodDeleted"
"""Code of a pod that was deleted without a stated reason."""

TAKEN_PODS: Final = (
    EVICTIONS
    | DISRUPTIONS
    | {"TerminationByKubelet", "DeletionByTaintManager", "DeletionByPodGC", "OOMKilled", "DeadlineExceeded"}
)
"""Codes that tell why a pod or its container was ended; others only repeat that it has ended."""

_AFTER_SILENCE: Final = frozenset({"DeletionByTaintManager", "DeletionByPodGC", "NodeLost"})
"""Codes of pods that were ended because their node does not report."""

CONTAINER_STOPPED: Final = "ContainerStopped"
CONTAINER_KILLED: Final = "ContainerKilled"
OF_THE_CONTAINER: Final = {CONTAINER_STOPPED: FactKind.POD_LOST, CONTAINER_KILLED: FactKind.POD_FAILED}
"""Agent codes of processes that ended with their container, and the kind of each: no new process can start there. The
pod itself tells why, a moment before or after."""

_BY_PROGRAM: Final = frozenset({FactKind.LOG_RULE, FactKind.SCRIPT_ENDED})
_ORIGIN: Final = {kind: Origin.PROGRAM if kind in _BY_PROGRAM else Origin.INFRASTRUCTURE for kind in FactKind}
_WITH_EXIT_CODE: Final = frozenset({FactKind.PROCESS_EXITED, FactKind.POD_FAILED})
_BY_THE_RANK: Final = frozenset({FactKind.MEMORY_FAULT})
_CANNOT_EXECUTE: Final = frozenset({126, 127})
"""Exit codes of shells, and of the launcher, for a command that may not be executed, or does not exist."""
_NOT_EXECUTED: Final = frozenset({"ContainerCannotRun", "StartError"})
"""Reasons of a kubelet for a container whose command could not be executed."""
_RUNS_A_COMMAND: Final = frozenset({FactKind.SCRIPT_ENDED, FactKind.POD_FAILED, FactKind.PROCESS_EXITED})
_FORCED_EXIT: Final = 2  # MindIO's own exit code for every process it ends
_PROGRAM_SIGNALS: Final = frozenset({4, 6, 8, 11})  # ILL, ABRT, FPE, SEGV: the program did it to itself
_SHELL_SIGNAL_BASE: Final = 128  # a shell reports "ended by signal n" as 128 + n


@dataclass(frozen=True, slots=True)
class Fact:
    """One observation, in job terms.

    Attributes:
        id: the same observation has the same id, from every stream and after every reconnect.
        kind: what was observed.
        source: who observed it.
        node_rank: the node rank it concerns, None where it concerns none.
        ranks: the ranks it concerns; empty with a node rank means every rank of that node.
        incarnation: of the process or pod that was observed, not of the observer; -1 when unknown.
        code: a short code of the source's own (MindIO's error code, a rule's name).
        message: a sentence, or the last lines of output.
        step: last finished step of the rank, None when unknown.
        time_ms: when it happened, in milliseconds of the operator's clock.
        node_name: the Kubernetes node, where known.
        exit_code: of a process; negative: minus the signal.
        unexplained: the fact says that something ended, and not why.
        load_failed: the process was to load a checkpoint and says that it could not.
    """

    id: str
    kind: FactKind
    source: Source = Source.AGENT
    node_rank: int | None = None
    ranks: tuple[int, ...] = ()
    incarnation: int = -1
    code: str = ""
    message: str = ""
    step: int | None = None
    time_ms: int = 0
    node_name: str = ""
    exit_code: int | None = None
    unexplained: bool = False
    load_failed: bool = False

    @property
    def origin(self) -> Origin:
        """Origin of the fault, as far as the observation tells."""
        if self.exit_code is not None and self.kind in _WITH_EXIT_CODE:
            return origin_of_exit(self.exit_code)
        return _ORIGIN[self.kind]

    @property
    def tells_why(self) -> bool:
        """Whether the fact tells why something ended: a rank's own output, or the end of its pod."""
        if self.kind in {FactKind.POD_LOST, FactKind.POD_FAILED}:
            return self.code == DELETED or self.code in TAKEN_PODS
        return self.kind is FactKind.PROCESS_EXITED and self.origin is Origin.PROGRAM and not self.unexplained

    @property
    def tells_why_silent(self) -> bool:
        """Whether the fact tells why an agent is silent: its pod was ended with everything in it."""
        of_pod = self.kind in {FactKind.POD_LOST, FactKind.POD_FAILED}
        return of_pod and self.code in TAKEN_PODS and self.code not in _AFTER_SILENCE

    @property
    def refused_by_node(self) -> bool:
        """Whether the node refused the pod: nothing in it was started, and the node would refuse it again."""
        return self.kind is FactKind.POD_FAILED and self.exit_code is None and is_refusal_code(self.code)

    @property
    def takes_only_the_pod(self) -> bool:
        """Whether the cluster took the pod, or its node, before anything in it could be at fault."""
        evicted = self.kind is FactKind.POD_FAILED and self.code in EVICTIONS
        return (
            evicted
            or self.refused_by_node
            or self.kind in {FactKind.POD_LOST, FactKind.NODE_NOT_READY, FactKind.NODE_DELETED}
        )

    @property
    def takes_no_node(self) -> bool:
        """Whether the pod was deleted before it had a node."""
        return self.kind is FactKind.POD_LOST and self.source is Source.POD and not self.node_name

    @property
    def is_missing_command(self) -> bool:
        """Whether what was to be run does not exist or may not be executed: the next start finds the same."""
        if self.kind is FactKind.POD_FAILED and self.code in _NOT_EXECUTED:
            return True
        return self.kind in _RUNS_A_COMMAND and self.exit_code in _CANNOT_EXECUTE

    @property
    def first_action(self) -> Action:
        """Smallest action that can cure the fact.

        Retry cures a memory fault only when the rank itself has reported it: otherwise its process still trusts its
        memory, and only a new process can be repaired (docs/protocols/mindio.md, "Retry").
        """
        if self.kind in _BY_THE_RANK and self.source is not Source.MINDIO:
            return Action.IN_PLACE
        return FIRST_ACTION[self.kind]


def origin_of_exit(exit_code: int) -> Origin:
    """Distinguish a program that failed from a process that was killed.

    A positive code is the program's, except the one MindIO forces and those of a shell for a signal; a signal is
    the machine's, except those a program raises against itself. Exit 0 in the middle of a training is the program's.
    """
    # A process ended by a signal has a negative code; where a shell is in between, it turns it into 128 + signal.
    signal = max(-exit_code, exit_code - _SHELL_SIGNAL_BASE)
    if signal > 0:
        return Origin.PROGRAM if signal in _PROGRAM_SIGNALS else Origin.INFRASTRUCTURE
    return Origin.INFRASTRUCTURE if exit_code == _FORCED_EXIT else Origin.PROGRAM
