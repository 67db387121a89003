"""Takes the pictures: reads the API server and the ranks' logs a few times per second, and waits for what must come.

It only reads. Logs are read on from where the last look ended, because a machine with two cores has better things to do
than to parse them from the start ten times per second.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace

from e2e.cluster.rest import ApiError
from e2e.demo.board import Board, ShownRank, dropped_after, incidents_of, nodes_of, problem_of, rank_after
from e2e.demo.screen import Screen
from e2e.harness.job import Job
from e2e.trainer.events import EventReader

LOOK_SECONDS = 0.2


class DemoError(RuntimeError):
    """What must come did not come; the message says what."""


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
        self.lost: dict[int, str] = {}
        self.off: set[str] = set()
        self.board = Board(goal=goal)

    def look(self) -> Board:
        """Take a picture and show it; a request that fails leaves that part as it was."""
        dropped = self.board.dropped
        for event in self._logs.read():
            number = int(event["rank"])
            self._ranks[number] = rank_after(self._ranks.get(number), event)
            dropped = dropped_after(dropped, event)
        ranks = {number: self._seen(rank) for number, rank in self._ranks.items()}
        board = replace(self.board, ranks=ranks, dropped=dropped)
        with contextlib.suppress(ApiError, OSError):
            board = self._ask(board)
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

    def _seen(self, rank: ShownRank) -> ShownRank:
        return replace(rank, does=self.lost[rank.pid]) if rank.pid in self.lost else rank

    def _ask(self, board: Board) -> Board:
        api = self._job.plane.api
        status = self._job.status()
        return replace(
            board,
            state=status.get("summary", {}).get("state", ""),
            problem=problem_of(status),
            incidents=incidents_of(status),
            nodes=nodes_of(api.items("/api/v1/nodes"), api.items("/api/v1/pods"), self.off),
        )
