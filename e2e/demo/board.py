"""The picture of a moment: what nodes, ranks, job and incidents look like. Pure, made from raw objects and log lines.

Two sources that know nothing of each other: the API server says where pods are and what Hajob thinks, the ranks' own
event logs say what each process does. The third is the demo itself, which knows what it has just killed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

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


@dataclass(frozen=True)
class ShownRank:
    """One rank: its newest process, the newest step it has finished (0: none yet), and what it does."""

    number: int
    pid: int
    step: int = 0
    does: str = "starting"


@dataclass(frozen=True)
class ShownNode:
    """One node: chips it has, what is placed there in words, node rank of a rank pod (-1: none)."""

    name: str
    chips: int
    guests: tuple[str, ...] = ()
    node_rank: int = -1
    is_off: bool = False


@dataclass(frozen=True)
class ShownIncident:
    """One incident as the status tells it; `phases` are names and milliseconds."""

    number: int
    cause: str
    action: str
    outcome: str
    phases: tuple[tuple[str, int], ...] = ()

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
        goal: The last step of the training.
        dropped: Ranks that the training goes on without.
    """

    state: str = ""
    problem: str = ""
    nodes: tuple[ShownNode, ...] = ()
    ranks: Mapping[int, ShownRank] = field(default_factory=dict)
    incidents: tuple[ShownIncident, ...] = ()
    ranks_per_node: int = 2
    goal: int = 0
    dropped: frozenset[int] = frozenset()

    @property
    def step(self) -> int:
        """The newest step that every rank that takes part has finished."""
        return min((rank.step for number, rank in self.ranks.items() if number not in self.dropped), default=0)

    def ranks_of(self, node: ShownNode) -> list[ShownRank]:
        """Ranks that are placed on a node, as far as they have shown up."""
        if node.node_rank < 0:
            return []
        first = node.node_rank * self.ranks_per_node
        return [self.ranks[number] for number in range(first, first + self.ranks_per_node) if number in self.ranks]

    def incident(self, number: int) -> ShownIncident | None:
        """The incident with this number."""
        return next((each for each in self.incidents if each.number == number), None)


def rank_after(rank: ShownRank | None, event: Object) -> ShownRank:
    """A rank after one more line of its event log; a line of a new process starts it anew, with the steps kept."""
    number, pid, name = int(event["rank"]), int(event["pid"]), str(event["event"])
    if rank is None:
        rank = ShownRank(number, pid)
    elif rank.pid != pid and name in STARTING:
        rank = replace(rank, pid=pid)
    if rank.pid != pid:
        return rank  # a process that has a successor
    step = int(event["step"]) if name == "step_end" else rank.step
    return replace(rank, step=max(rank.step, step), does=DOES_AFTER.get(name, rank.does))


def dropped_after(dropped: frozenset[int], event: Object) -> frozenset[int]:
    """Ranks that do not take part after one more line of anybody's event log."""
    if event["event"] == "downgrade":
        return frozenset(map(int, event["ranks"]))
    return frozenset() if event["event"] == "upgrade" else dropped


def nodes_of(nodes: Iterable[Object], pods: Iterable[Object], off: Iterable[str] = ()) -> tuple[ShownNode, ...]:
    """Nodes with their guests, from the objects of nodes and of all pods; `off` are known to be powered off.

    A node rank is where its newest pod is, however long the former one stays on a dead node.
    """
    guests: dict[str, list[str]] = {}
    homes: dict[int, str] = {}
    for pod in sorted(pods, key=_incarnation):
        name, labels = pod["spec"].get("nodeName", ""), pod["metadata"].get("labels", {})
        if name and labels.get(f"{LABEL}/role") == "rank":
            homes[int(labels[f"{LABEL}/node-rank"])] = name
        elif name:
            guests.setdefault(name, []).append(_guest(labels))
    node_ranks = {name: node_rank for node_rank, name in homes.items()}
    return tuple(
        ShownNode(
            name=name,
            chips=int(capacity.get(CHIPS, 0)),
            guests=tuple(guests.get(name, [])),
            node_rank=node_ranks.get(name, -1),
            is_off=name in set(off),
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
    return ShownIncident(
        number=int(incident["incarnation"]),
        cause=_cause_in_words(incident["cause"]),
        action=incident["action"],
        outcome=incident["outcome"],
        phases=tuple((each["name"], int(each["milliseconds"])) for each in incident.get("phases", [])),
    )


def _cause_in_words(cause: Object) -> str:
    """Its code, and the ranks where it hit any: what was planned, or hit the whole job, names none."""
    code, first, number = str(cause["code"]), int(cause.get("firstRank", -1)), int(cause.get("numRanks", 0))
    if number < 1:
        return code
    return f"{code}, rank {first}" if number == 1 else f"{code}, ranks {first} to {first + number - 1}"
