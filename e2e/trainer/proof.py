"""Was a recovery what it promised to be? Answers from the event logs of the ranks alone.

Times are nanoseconds of the real-time clock, durations seconds. The outage runs from the end of the last step all ranks
had in common to the end of the first step all of them finished after it (docs/internals/toy-trainer.md, "Proof").
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.trainer.events import read_events

Event = dict[str, Any]


@dataclass(frozen=True)
class Outage:
    """One interruption of the training, as the ranks themselves saw it.

    `begin_ns` and `end_ns` bound the outage; `startup_seconds` is the longest time of a new process that trained in the
    end from exec to its first call of the processor (0 without one); `restored` says which rank got its shard from
    where. `first_ns` and `last_ns` give the first and the last time of each kind of event in between, over all ranks.
    With `is_restart` a new attempt went on: it may repeat steps, so `next_step` may be smaller than `last_step`.
    """

    last_step: int
    next_step: int
    begin_ns: int
    end_ns: int
    new_ranks: tuple[int, ...]
    startup_seconds: float
    restored: dict[int, str]
    first_ns: dict[str, int]
    last_ns: dict[str, int]
    is_restart: bool = False

    @property
    def seconds(self) -> float:
        """Length of the outage."""
        return (self.end_ns - self.begin_ns) / 1e9

    @property
    def control_seconds(self) -> float:
        """Outage without the start-up of the new processes."""
        return self.seconds - self.startup_seconds


def load(directory: Path) -> list[Event]:
    """All events of a run's log directory, in order of time."""
    return read_events(directory)


def of(events: Iterable[Event], *names: str) -> list[Event]:
    """Events with one of these names."""
    return [event for event in events if event["event"] in names]


def processes(events: Iterable[Event]) -> dict[int, list[int]]:
    """Processes of each rank in order of their first event."""
    found: dict[int, list[int]] = {}
    for event in events:
        pids = found.setdefault(int(event["rank"]), [])
        if event["pid"] not in pids:
            pids.append(event["pid"])
    return found


def survivors_kept(events: Sequence[Event], restarted: Iterable[int]) -> list[str]:
    """Sentences about ranks that were not to be restarted and have more than one process."""
    expected = set(restarted)
    return [
        f"rank {rank} has processes {pids}, but was not to be restarted"
        for rank, pids in sorted(processes(events).items())
        if len(pids) > 1 and rank not in expected
    ]


def steps_went_back(events: Sequence[Event]) -> list[str]:
    """Sentences about steps that were done twice.

    Within a process steps only rise. A new process may repeat the step its predecessor died in, but none that a rank
    which lives on had finished when the new process was started. Where the events begin in the middle of a training, a
    process whose start they do not hold was there before.
    """
    found, last = [], dict[int, int]()
    started = {event["pid"] for event in of(events, "exec")}
    for event in of(events, "step_end"):
        pid, step = int(event["pid"]), int(event["step"])
        if pid not in last:
            step_before = _finished_by_survivors(events, pid) if pid in started else None
            last[pid] = step_before if step_before is not None else 0
        if step <= last[pid]:
            found.append(f"rank {event['rank']} finished step {step} when step {last[pid]} was already done")
        last[pid] = step
    return found


def _finished_by_survivors(events: Sequence[Event], pid: int) -> int | None:
    """Highest step finished before process `pid` started by a process that was still there after that."""
    started = min(int(event["t"]) for event in events if event["pid"] == pid)
    alive = {event["pid"] for event in events if int(event["t"]) > started and event["pid"] != pid}
    before = [event for event in of(events, "step_end") if int(event["t"]) < started and event["pid"] in alive]
    return max((int(event["step"]) for event in before), default=None)


def checkpoints_opened(events: Iterable[Event]) -> list[str]:
    """Sentences about checkpoints that were opened."""
    return [f"rank {event['rank']} opened {event['path']}" for event in of(events, "load_checkpoint")]


def restored_elsewhere(events: Iterable[Event], partners: dict[int, int]) -> list[str]:
    """Sentences about shards that did not come from the partner; `partners` gives the partner of each new rank."""
    found, seen = [], set()
    for event in of(events, "repair"):
        for source, target in zip(event["src"], event["dst"], strict=True):
            if target == event["rank"] and target in partners:
                seen.add(target)
                if event["source"] != "optimizer copy" or source != partners[target]:
                    found.append(f"rank {target} got its shard from {event['source']} of rank {source}")
    missing = sorted(set(partners) - seen)
    return found + [f"rank {rank} got no shard at all" for rank in missing]


def common_steps(events: Iterable[Event], world: int) -> list[tuple[int, int]]:
    """Steps that all ranks finished, with the time the last of them did, in order.

    A process that was taken for dead and comes to life again may still finish the step it stood in. That counts only
    until its successor has finished one. While the training is shrunk, the ranks that were dropped are not waited for.
    """
    ends: dict[int, dict[int, int]] = {}
    dropped: dict[int, int] = {}
    replaced: dict[int, set[int]] = {}
    working: dict[int, int] = {}
    gone = 0
    for event in of(events, "step_end", "downgrade", "upgrade"):
        if event["event"] != "step_end":
            gone = len(event["ranks"]) if event["event"] == "downgrade" else 0
            continue
        rank, pid = int(event["rank"]), int(event["pid"])
        former = replaced.setdefault(rank, set())
        if pid in former:
            continue
        if working.setdefault(rank, pid) != pid:
            former.add(working[rank])
            working[rank] = pid
        ends.setdefault(int(event["step"]), {}).setdefault(rank, int(event["t"]))
        dropped[int(event["step"])] = gone
    whole = {step for step, by_rank in ends.items() if len(by_rank) >= world - dropped[step]}
    return [(step, max(by_rank.values())) for step, by_rank in sorted(ends.items()) if step in whole]


def outages(events: Sequence[Event], world: int) -> list[Outage]:
    """All interruptions of a run, in order of time.

    They are the places between two common steps where ranks stopped or were replaced, and those between two attempts:
    there it ends with the first step that all ranks of the new attempt have finished, whatever its number.
    """
    attempts = sorted({int(event.get("attempt", 0)) for event in events})
    by_attempt = [[event for event in events if int(event.get("attempt", 0)) == attempt] for attempt in attempts]
    trained = [steps for found in by_attempt if (steps := common_steps(found, world))]
    marks = [int(event["t"]) for event in of(events, "stop", "repair", "rollback", "rebuild", "downgrade", "upgrade")]
    found = []
    for number, steps in enumerate(trained):
        if number:
            found.append(_outage(events, trained[number - 1][-1], steps[0], is_restart=True))
        for before, after in itertools.pairwise(steps):
            if any(before[1] <= mark <= after[1] for mark in marks):
                found.append(_outage(events, before, after))
    return found


def _outage(
    events: Sequence[Event], before: tuple[int, int], after: tuple[int, int], *, is_restart: bool = False
) -> Outage:
    """The outage between two common steps, each given with the time of its end."""
    (last, begin), (next_step, end) = before, after
    inside = [event for event in events if begin <= int(event["t"]) <= end]
    during = [event for event in inside if int(event["t"]) > begin]
    starts = {event["pid"]: int(event["t"]) for event in of(events, "exec")}
    trains = {event["pid"] for event in of(events, "step_end") if int(event["t"]) >= end}
    calls = [event for event in of(inside, "first_call") if event["pid"] in starts and event["pid"] in trains]
    restored = {
        int(event["rank"]): f"{event['source']} of rank {event['src'][event['dst'].index(event['rank'])]}"
        for event in of(inside, "repair")
        if event["rank"] in event["dst"]
    }
    return Outage(
        last_step=last,
        next_step=next_step,
        begin_ns=begin,
        end_ns=end,
        new_ranks=tuple(sorted({int(event["rank"]) for event in calls})),
        startup_seconds=max((int(event["t"]) - starts[event["pid"]] for event in calls), default=0) / 1e9,
        restored=restored,
        first_ns={str(event["event"]): int(event["t"]) for event in reversed(during)},
        last_ns={str(event["event"]): int(event["t"]) for event in during},
        is_restart=is_restart,
    )


def failures(events: Sequence[Event], partners: dict[int, int]) -> list[str]:
    """Everything that contradicts the promise of a recovery from optimizer copies; empty when it was kept."""
    return [
        *survivors_kept(events, partners),
        *steps_went_back(events),
        *checkpoints_opened(events),
        *restored_elsewhere(events, partners),
    ]
