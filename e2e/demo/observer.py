"""Takes the pictures: reads the API server and the ranks' logs a few times per second, and waits for what must come.

It only reads. Logs are read on from where the last look ended, because a machine with two cores has better things to do
than to parse them from the start ten times per second. What keeps pods out of nodes is read as `kubectl hajob nodes`
does, more rarely: that is a dozen requests.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from e2e.cluster.rest import ApiClient, ApiError
from e2e.demo.board import (
    CHIPS,
    STANDS,
    Board,
    LostProcess,
    Object,
    ShownRank,
    dropped_after,
    incidents_of,
    nodes_of,
    problem_of,
    rank_after,
    rank_now,
)
from e2e.demo.screen import Screen
from e2e.harness.job import GROUP, Job
from e2e.trainer.events import EventReader
from hajob.api import constants as names
from hajob.cli.cluster import ClusterError
from hajob.cli.job_view import JobView
from hajob.cli.nodes import NodeRow, read_nodes

LOOK_SECONDS = 0.2
TROUBLES_SECONDS = 2.0
TROUBLED = frozenset({"not ready", "quarantined", "sick", "cordoned"})
REPLACING = frozenset({"InPlace", "Replace", "Shrink"})
"""Actions whose ranks have lost their processes."""


class DemoError(RuntimeError):
    """What must come did not come; the message says what."""


@dataclass(frozen=True)
class _Reader:
    """An API server as the commands read it."""

    api: ApiClient

    def find_object(self, path: str) -> dict[str, object] | None:
        """The object or list at a path, or None."""
        try:
            return self.api.find(path)
        except (ApiError, OSError) as error:
            raise ClusterError(str(error)) from error


class Observer:
    """Watches one job and shows what it sees.

    Attributes:
        lost: What the demo has done to processes: pid → word. They cannot say it themselves.
        off: Nodes it has powered off.
    """

    def __init__(self, job: Job, screen: Screen, goal: int) -> None:
        self._job, self._screen = job, screen
        self._logs = EventReader(job.logs)
        self._ranks: dict[int, ShownRank] = {}
        self._gone: dict[int, LostProcess] = {}
        self._noted: set[int] = set()
        self._troubles: dict[str, str] = {}
        self._troubles_due = 0.0
        self.lost: dict[int, str] = {}
        self.off: set[str] = set()
        self.board = Board(goal=goal)

    def look(self) -> Board:
        """Take a picture and show it; a request that fails leaves that part as it was."""
        before, dropped = self.board, self.board.dropped
        for event in self._logs.read():
            number = int(event["rank"])
            self._ranks[number] = rank_after(self._ranks.get(number), event)
            dropped = dropped_after(dropped, event)
        board = replace(before, dropped=dropped)
        with contextlib.suppress(ApiError, OSError):
            board = self._ask(board)
        if before.uid and board.uid and board.uid != before.uid:
            # Another job of the same name: what the ranks of the one before did is over.
            self._ranks, self._gone, self._noted = {}, {}, set()
            board = replace(board, dropped=frozenset())
        self._note_lost(before, board)
        board = replace(
            board, ranks={number: rank_now(rank, board, self._gone) for number, rank in self._ranks.items()}
        )
        self.board = board
        self._screen.show(board)
        return board

    def wait(self, what: str, ready: Callable[[Board], bool], seconds: float) -> Board:
        """Look until a picture is `ready`.

        Raises:
            DemoError: The job failed, or it took longer than `seconds`.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            board = self.look()
            if ready(board):
                return board
            if board.problem:
                raise DemoError(f"the job failed while waiting for {what}: {board.problem}")
            time.sleep(LOOK_SECONDS)
        state = (
            f"the job is {self.board.state}" if self.board.state else "the operator has not said a word about the job"
        )
        raise DemoError(f"waited {seconds:.0f} s in vain for {what}; {state}, at step {self.board.step}")

    def _note_lost(self, before: Board, board: Board) -> None:
        """Note which processes are lost, with the pod that they were in: another pod is a new beginning."""
        pods = before.pods_of_ranks or board.pods_of_ranks
        for pid, word in self.lost.items():
            rank = next((each for each in self._ranks.values() if each.pid == pid), None)
            if rank is not None:
                self._gone.setdefault(pid, LostProcess(word, pods.get(rank.number, "")))
        if board.state not in STANDS:
            return
        # An incident names its ranks once: later their successors have the same numbers.
        hit = {
            number: each.started
            for each in board.incidents
            if each.outcome == "Open" and each.action in REPLACING and each.number not in self._noted
            for number in each.ranks
        }
        self._noted |= {each.number for each in board.incidents if each.action in REPLACING}
        # A pod that was made anew elsewhere has none of the processes of the one before.
        after = board.pods_of_ranks
        moved = {number for number, pod in pods.items() if pod and after.get(number, pod) != pod}
        for number in hit.keys() | moved:
            rank = self._ranks.get(number)
            # One that starts already is the successor, and so is one that began after the fault: an operator that
            # comes late opens the incident when the rank may train again.
            is_successor = rank is not None and (
                rank.does in {"starting", "ready"} or rank.began > hit.get(number, rank.began)
            )
            if rank is not None and not is_successor:
                self._gone.setdefault(rank.pid, LostProcess("lost", pods.get(number, "")))

    def _ask(self, board: Board) -> Board:
        api = self._job.plane.api
        raw = self._find_job()
        status = raw.get("status", {})
        summary = status.get("summary", {})
        return replace(
            board,
            state=summary.get("state", "") if raw else "deleted",
            problem=problem_of(status),
            incidents=incidents_of(status),
            goodput=summary.get("goodput", ""),
            step_time=summary.get("stepTime", ""),
            uid=str(raw.get("metadata", {}).get("uid", "")),
            others=tuple(_other_jobs(api.items(f"{GROUP}/hatrainingjobs"), self._job)),
            nodes=nodes_of(
                api.items("/api/v1/nodes"),
                api.items("/api/v1/pods"),
                self.off,
                job=self._job.name,
                troubles=self._read_troubles(api),
            ),
        )

    def _find_job(self) -> Object:
        """The job's object; empty once somebody has deleted it."""
        try:
            return self._job.get()
        except ApiError as error:
            if error.status != 404:
                raise
            return {}

    def _read_troubles(self, api: ApiClient) -> Mapping[str, str]:
        """What keeps pods out of nodes, a few seconds old at most."""
        if time.monotonic() >= self._troubles_due:
            self._troubles_due = time.monotonic() + TROUBLES_SECONDS
            namespaces = ("hajob-system", *names.FAULT_NAMESPACES.split(","))
            with contextlib.suppress(ClusterError):
                rows = read_nodes(_Reader(api), CHIPS, namespaces, time.time_ns() // 1_000_000).rows
                self._troubles = {row.view.name: _trouble_in_words(row) for row in rows}
        return self._troubles


def _trouble_in_words(row: NodeRow) -> str:
    """Short enough for a column of the grid."""
    if row.state not in TROUBLED:
        return ""
    codes = ", ".join(dict.fromkeys(fact.code for fact in row.faults if fact.code))
    return f"{row.state} {codes}".rstrip()


def _other_jobs(jobs: Iterable[Object], shown: Job) -> Iterable[str]:
    """The jobs beside the one that is shown, a line each."""
    for raw in jobs:
        view = JobView(dict(raw), 0)
        if (view.namespace, view.name) != (shown.namespace, shown.name):
            step = "" if view.step is None else f", step {view.step}"
            why = view.why() if view.state != "Running" else ""
            yield f"{view.namespace}/{view.name}: {view.state_with_reason}{step}" + (f"; {why}" if why else "")
