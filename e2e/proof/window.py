"""The ranks' event logs, read on and on, with only the window kept that a cell is about.

A training of the proof goes through many cells; parsing its logs from the start at each look would cost more than the
training does.
"""

from __future__ import annotations

from pathlib import Path

from e2e.trainer.events import Event, EventReader, read_events


class EventWindow:
    """Events of a log directory since `begin`, in order of time.

    Attributes:
        events: Of the window; call `read` first.
        newest: The newest step that each rank has finished with its present process.
        processes: The present process of each rank, by its pid.
    """

    def __init__(self, directory: Path) -> None:
        self._reader = EventReader(directory)
        self.events: list[Event] = []
        self.newest: dict[int, int] = {}
        self.processes: dict[int, int] = {}

    def read(self) -> list[Event]:
        """Take in what has been written since the last time; returns the window."""
        for event in self._reader.read():
            rank, pid = int(event["rank"]), int(event["pid"])
            if event["event"] == "exec" or rank not in self.processes:
                self.processes[rank] = pid
            if event["event"] == "step_end" and pid == self.processes[rank]:
                self.newest[rank] = int(event["step"])
            self.events.append(event)
        self.events.sort(key=lambda one: int(one["t"]))
        return self.events

    def common_step(self, world: int) -> int:
        """The newest step that every rank's present process has finished or passed; 0 before the first."""
        self.read()
        return min(self.newest.values()) if len(self.newest) == world else 0

    def begin(self, step: int) -> None:
        """Forget the events before `step`, the first one of the new window."""
        since = [int(one["t"]) for one in self.events if one["event"] == "step_end" and one["step"] >= step]
        first = min(since, default=0)
        self.events = [one for one in self.events if int(one["t"]) >= first]


class Reference:
    """Digests of the state that an undisturbed training had after each step."""

    def __init__(self, directory: Path) -> None:
        self._digests: dict[tuple[int, int], str] = {}
        for event in read_events(directory):
            if event["event"] == "state":
                self._digests[int(event["rank"]), int(event["step"])] = event["digest"]
        self.steps = max((step for _, step in self._digests), default=0)

    def differences(self, events: list[Event]) -> list[str]:
        """Sentences about steps of these events after which a rank's state was another one."""
        found: dict[int, list[int]] = {}
        for event in events:
            if event["event"] == "state":
                rank, step = int(event["rank"]), int(event["step"])
                if self._digests.get((rank, step)) != event["digest"]:
                    found.setdefault(rank, []).append(step)
        return [f"rank {rank}: another state after step {min(steps)}" for rank, steps in sorted(found.items())]
