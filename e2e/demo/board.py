"""The picture of a moment: what nodes, ranks, job and incidents look like. Pure, made from raw objects and log lines.

Two sources that know nothing of each other: the API server says where pods are and what Hajob thinks, the ranks' own
event logs say what each process does. The third is the demo itself, which knows what it has just killed. A process that
was lost says nothing more, so what its rank does now follows from the job's state and its pod.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hajob.sources.reading import milliseconds_of

Object = Mapping[str, Any]

LABEL = "training.hajob.io"
CHIPS = "huawei.com/Ascend910"
# What a rank does after it has written an event; events that say nothing about that are not listed.
DOES_AFTER = {
    "exec": "starting",
    "first_call": "starting",
    "registered": "ready",
    "step_end": "training",
    "left": "stopped",
    "stop": "stopped",
    "clean": "stopped",
    "rebuild": "rejoining",
    "downgrade": "rejoining",
    "upgrade": "rejoining",
    "repair": "restoring",
    "rollback": "restoring",
    "resume": "resuming",
    "finish": "finished",
}
STARTING = frozenset({"exec", "first_call", "registered"})
STANDS = frozenset({"Recovering", "Restarting", "Held", "OnHold", "Saving", "Paused", "Starting", "Pending"})
"""States in which no rank takes a step, whatever the last line of its log says."""


@dataclass(frozen=True)
class ShownRank:
    """One rank: its newest process, the newest step it has finished (0: none yet), and what it does.

    `began` is when the process first said something, in milliseconds since 1970; 0: not told.
    """

    number: int
    pid: int
    step: int = 0
    does: str = "starting"
    began: int = 0


@dataclass(frozen=True)
class LostProcess:
    """A process of a rank that is known to be lost.

    Attributes:
        does: What is said of its rank.
        pod: That it was in; empty: not known.
    """

    does: str
    pod: str = ""


@dataclass(frozen=True)
class ShownNode:
    """One node.

    Attributes:
        name: Of the node.
        chips: It has so many.
        guests: What is placed there, in words.
        node_rank: Of the rank pod there; -1: none.
        is_off: It is known to be powered off.
        pod: Name of the rank pod.
        is_reserved: A pod holds it as a spare.
        trouble: What keeps pods out, in words; empty: nothing.
        other_job: Name of another job with ranks there.
    """

    name: str
    chips: int
    guests: tuple[str, ...] = ()
    node_rank: int = -1
    is_off: bool = False
    pod: str = ""
    is_reserved: bool = False
    trouble: str = ""
    other_job: str = ""

    @property
    def vacancy(self) -> str:
        """What it is, where no rank of the job is on it."""
        if self.is_off:
            return "powered off"
        if self.trouble or self.other_job:
            return self.trouble or f"job {self.other_job}"
        return "reserved" if self.is_reserved else "free"


@dataclass(frozen=True)
class ShownIncident:
    """One incident as the status tells it.

    Attributes:
        number: Its incarnation.
        cause: Its code and ranks.
        action: What is done.
        outcome: How it stands.
        phases: Names and milliseconds.
        message: All of it in a sentence; empty where an older operator wrote it.
        started: When, in milliseconds since 1970; 0: not told.
        ranks: That it hit.
        lost_steps: Steps that were done again.
    """

    number: int
    cause: str
    action: str
    outcome: str
    phases: tuple[tuple[str, int], ...] = ()
    message: str = ""
    started: int = 0
    ranks: range = range(0)
    lost_steps: int = 0

    @property
    def words(self) -> str:
        """What happened and what was done about it."""
        if self.message:
            return self.message
        return f"{self.cause}: {self.action}, {self.outcome}"

    @property
    def happened(self) -> str:
        """What happened alone."""
        return self.message.partition("; ")[0] or self.cause

    @property
    def milliseconds(self) -> int:
        """All phases together."""
        return sum(length for _, length in self.phases)


@dataclass(frozen=True)
class Board:
    """Everything there is to see at a moment.

    Attributes:
        state: The job's state in one word, as `kubectl get hajobs` shows it.
        problem: Why the job has failed; empty as long as it has not.
        nodes: By name.
        ranks: By number.
        incidents: Oldest first.
        ranks_per_node: To find the ranks of a node rank.
        goal: The last step of the training; 0: it goes on until somebody ends it.
        dropped: Ranks that the training goes on without.
        goodput: As the column of kubectl has it.
        step_time: As the column of kubectl has it.
        others: Other jobs, a line each.
        uid: Of the job; another one of the same name has another.
    """

    state: str = ""
    problem: str = ""
    nodes: tuple[ShownNode, ...] = ()
    ranks: Mapping[int, ShownRank] = field(default_factory=dict)
    incidents: tuple[ShownIncident, ...] = ()
    ranks_per_node: int = 2
    goal: int = 0
    dropped: frozenset[int] = frozenset()
    goodput: str = ""
    step_time: str = ""
    others: tuple[str, ...] = ()
    uid: str = ""

    @property
    def step(self) -> int:
        """The newest step that every rank that takes part has finished."""
        return min((rank.step for number, rank in self.ranks.items() if number not in self.dropped), default=0)

    def numbers_of(self, node: ShownNode) -> range:
        """Numbers of the ranks that are placed on a node."""
        if node.node_rank < 0:
            return range(0)
        first = node.node_rank * self.ranks_per_node
        return range(first, first + self.ranks_per_node)

    def ranks_of(self, node: ShownNode) -> list[ShownRank]:
        """Ranks that are placed on a node, as far as they have shown up."""
        return [self.ranks[number] for number in self.numbers_of(node) if number in self.ranks]

    @property
    def pods_of_ranks(self) -> dict[int, str]:
        """Name of the pod of each rank that is placed, by the rank's number."""
        return {number: node.pod for node in self.nodes for number in self.numbers_of(node)}

    def incident(self, number: int) -> ShownIncident | None:
        """The incident with this number."""
        return next((each for each in self.incidents if each.number == number), None)


def rank_now(rank: ShownRank, board: Board, gone: Mapping[int, LostProcess]) -> ShownRank:
    """A rank as it is shown: what its log says last is old as soon as its process or its job stands still.

    Args:
        rank: As its log has it.
        board: The moment, before its ranks are shown.
        gone: Processes that are known to be lost, by process ID.
    """
    if (lost := gone.get(rank.pid)) is not None:
        # Its successor writes nothing before it is started: that its pod is there is all there is to know.
        has_moved = board.pods_of_ranks.get(rank.number, "") not in {"", lost.pod}
        return replace(rank, does="starting" if has_moved else lost.does)
    if board.state in STANDS and rank.does == "training":
        return replace(rank, does="waits")
    return rank


def rank_after(rank: ShownRank | None, event: Object) -> ShownRank:
    """A rank after one more line of its event log; a line of a new process starts it anew, with the steps kept."""
    number, pid, name = int(event["rank"]), int(event["pid"]), str(event["event"])
    began = int(event.get("t", 0)) // 1_000_000
    if rank is None:
        rank = ShownRank(number, pid, began=began)
    elif rank.pid != pid and name in STARTING:
        rank = replace(rank, pid=pid, began=began)
    if rank.pid != pid:
        return rank  # a process that has a successor
    step = int(event["step"]) if name == "step_end" else rank.step
    return replace(rank, step=max(rank.step, step), does=DOES_AFTER.get(name, rank.does))


def dropped_after(dropped: frozenset[int], event: Object) -> frozenset[int]:
    """Ranks that do not take part after one more line of anybody's event log."""
    if event["event"] == "downgrade":
        return frozenset(map(int, event["ranks"]))
    return frozenset() if event["event"] == "upgrade" else dropped


def nodes_of(
    nodes: Iterable[Object],
    pods: Iterable[Object],
    off: Collection[str] = (),
    *,
    job: str = "",
    troubles: Mapping[str, str] | None = None,
) -> tuple[ShownNode, ...]:
    """Nodes with their guests, from the objects of nodes and of all pods.

    A node rank is where its newest pod is, however long the former one stays on a dead node.

    Args:
        nodes: Raw.
        pods: Raw, of all namespaces.
        off: Names of those that are known to be powered off.
        job: Name of the job whose ranks are shown; empty: there is only one.
        troubles: By name, what keeps pods out of nodes.
    """
    guests: dict[str, list[str]] = {}
    homes: dict[int, tuple[str, str]] = {}
    others: dict[str, str] = {}
    reserved: set[str] = set()
    for pod in sorted(pods, key=_incarnation):
        name, labels = pod["spec"].get("nodeName", ""), pod["metadata"].get("labels", {})
        role, owner = labels.get(f"{LABEL}/role"), labels.get(f"{LABEL}/job-name", "")
        if not name:
            continue
        if role == "rank" and (not job or owner in {"", job}):
            homes[int(labels[f"{LABEL}/node-rank"])] = (name, pod["metadata"].get("name", ""))
        elif role == "rank":
            others[name] = owner
        else:
            guests.setdefault(name, []).append(_guest(labels))
            reserved |= {name} if role == "spare" else set()
    ranks = {name: (node_rank, pod) for node_rank, (name, pod) in homes.items()}
    return tuple(
        ShownNode(
            name=name,
            chips=int(capacity.get(CHIPS, 0)),
            guests=tuple(guests.get(name, [])),
            node_rank=ranks.get(name, (-1, ""))[0],
            is_off=name in off,
            pod=ranks.get(name, (-1, ""))[1],
            is_reserved=name in reserved,
            trouble=(troubles or {}).get(name, ""),
            other_job=others.get(name, ""),
        )
        for name, capacity in sorted(map(_capacity, nodes), key=lambda found: _place(found[0]))
    )


def incidents_of(status: Object) -> tuple[ShownIncident, ...]:
    """The incidents of a job's status, oldest first."""
    return tuple(_incident(each) for each in reversed(status.get("incidents", [])))


def problem_of(status: Object) -> str:
    """Reason and message of a failed job."""
    failed = next((each for each in status.get("conditions", []) if each["type"] == "Failed"), None)
    return f"{failed['reason']}: {failed['message']}" if failed and failed["status"] == "True" else ""


def _capacity(node: Object) -> tuple[str, Object]:
    return node["metadata"]["name"], node.get("status", {}).get("capacity", {})


def _guest(labels: Object) -> str:
    return str(labels.get(f"{LABEL}/role") or labels.get("app.kubernetes.io/name", "pod")).removeprefix("hajob-")


def _incarnation(pod: Object) -> int:
    return int(pod["metadata"].get("labels", {}).get(f"{LABEL}/incarnation", 0))


def _place(name: str) -> tuple[int, int, str]:
    """Nodes with a number come first, in order of it."""
    number = name.rpartition("-")[2]
    return (0, int(number), name) if number.isdigit() else (1, 0, name)


def _incident(incident: Object) -> ShownIncident:
    ranks = _ranks_of_cause(incident["cause"])
    return ShownIncident(
        number=int(incident["incarnation"]),
        cause=_cause_in_words(str(incident["cause"]["code"]), ranks),
        action=incident["action"],
        outcome=incident["outcome"],
        phases=tuple((each["name"], int(each["milliseconds"])) for each in incident.get("phases", [])),
        message=str(incident.get("message", "")),
        started=milliseconds_of(incident.get("startTime")) or 0,
        ranks=ranks,
        lost_steps=int(incident.get("lostSteps", 0)),
    )


def _ranks_of_cause(cause: Object) -> range:
    first, number = int(cause.get("firstRank", -1)), int(cause.get("numRanks", 0))
    return range(first, first + number) if first >= 0 else range(0)


def _cause_in_words(code: str, ranks: range) -> str:
    """Its code, and the ranks where it hit any: what was planned, or hit the whole job, names none."""
    if not ranks:
        return code
    return f"{code}, rank {ranks[0]}" if len(ranks) == 1 else f"{code}, ranks {ranks[0]} to {ranks[-1]}"
