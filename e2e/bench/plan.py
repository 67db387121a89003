"""How fast the planner decides, and that it does not grow.

Everything is done in one thread, with the garbage collector as it is in the operator. Time is processor time of that
thread, because the machine may be shared; it still depends on the machine, instruction counts repeat, so they are
taken beside it where valgrind can be found. Run as `python -m e2e.bench.plan [--json FILE]`.
"""

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from hajob.domain.facts import Fact, FactKind, Source
from hajob.domain.layout import Layout
from hajob.domain.loss import isolate_loss
from hajob.job.status.journal import Journal, read_journal
from hajob.plan import events
from hajob.plan.machine import advance_job
from hajob.plan.policy import Policy
from hajob.plan.state import JobPhase, JobState
from hajob.plan.view import ClusterView

BIG: Final = Layout(num_nodes=512, chips_per_node=8, tensor=8, pipeline=4)
STEP_MS: Final = 3_600_000
SEED: Final = 20_261
WARM_UP: Final = 500
BATCHES: Final = 40


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table; `limit` is what was promised, empty where nothing was."""

    name: str
    value: float
    unit: str
    limit: str = ""
    met: bool = True


def running() -> JobState:
    """A job that trains."""
    return JobState(phase=JobPhase.RUNNING, incarnation=1, attempt=1, base=1, step=100)


def faults(count: int, layout: Layout) -> list[events.FactSeen]:
    """Faults at random places: three of four lose a process, one a node, some a memory cell."""
    dice = random.Random(SEED)
    found = []
    for number in range(count):
        rank = dice.randrange(layout.world_size)
        kind = dice.choice(
            (FactKind.PROCESS_EXITED, FactKind.PROCESS_EXITED, FactKind.AGENT_SILENT, FactKind.MEMORY_FAULT)
        )
        node = layout.node_of_rank(rank) if kind is FactKind.AGENT_SILENT else None
        ranks = () if node is not None else (rank,)
        found.append(events.FactSeen(fact=Fact(f"{number}", kind, Source.MINDIO, node, ranks, step=number)))
    return found


def decisions(count: int) -> tuple[float, float, float]:
    """Incidents opened and decided per second, and the median and 99th percentile of one, in microseconds.

    The rate is that of the best of some batches: the others shared caches and clock with strangers. The percentiles
    are over all.
    """
    view = ClusterView(BIG, step=100, free_nodes=3, checkpoint_step=90)
    policy, state, spans = Policy(), running(), []
    for place, event in enumerate(faults(count + WARM_UP, BIG)):
        begin = time.thread_time_ns()
        outcome = advance_job(state, event, view, policy, STEP_MS * place)
        spans.append(time.thread_time_ns() - begin)
        assert outcome.state.incident is not None
    spans = spans[WARM_UP:]
    size = max(1, len(spans) // BATCHES)
    batches = [spans[at : at + size] for at in range(0, len(spans) - size + 1, size)]
    best = max(1e9 * len(batch) / sum(batch) for batch in batches)
    spans.sort()
    return best, spans[len(spans) // 2] / 1e3, spans[len(spans) * 99 // 100] / 1e3


def whole_incidents(count: int) -> tuple[float, int, int]:
    """Incidents from the fact to MindIO's result per second; bytes held after a third of them, and after all."""
    view, policy, state = ClusterView(BIG, step=100, free_nodes=3, checkpoint_step=90), Policy(), running()
    sizes, now, spent = [], 0, 0
    for place, event in enumerate(faults(count, BIG)):
        now += STEP_MS
        begin = time.thread_time_ns()
        state = advance_job(state, replace(event, fact=replace(event.fact, time_ms=now)), view, policy, now).state
        number = state.incarnation
        for answer in (events.Named(number), events.Resumed(number, place), events.ResultReported(number, 0)):
            state = advance_job(state, answer, view, policy, now + 1).state
        spent += time.thread_time_ns() - begin
        assert state.phase is JobPhase.RUNNING
        if place + 1 in {count // 3, count}:
            sizes.append(held(state))
    assert len(Journal(state).to_text(0)) < 64_000
    return 1e9 * count / spent, sizes[0], sizes[1]


def held(state: JobState) -> int:
    """Bytes that a state holds, by copying it through its journal."""
    tracemalloc.start()
    copy = read_journal(Journal(state).to_text(0)).journal.state
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert copy == state
    return size


def best_of(rounds: int, work: Callable[[], object]) -> float:
    """Shortest of some rounds, in milliseconds: the others waited for somebody."""
    spans = []
    for _ in range(rounds):
        begin = time.thread_time_ns()
        work()
        spans.append(time.thread_time_ns() - begin)
    return min(spans) / 1e6


def build_huge() -> int:
    """The layout of 100,000 ranks and its whole report group list."""
    return sum(1 for _ in huge().report_group_list())


def huge() -> Layout:
    """100,000 ranks."""
    return Layout(num_nodes=12_500, chips_per_node=8, tensor=8, pipeline=5)


def instructions(count: int) -> int | None:
    """Instructions of one decision, by valgrind's count of twice as many minus once; None without valgrind."""
    if shutil.which("valgrind") is None:
        return None
    taken = [_count_instructions(count * times) for times in (1, 2)]
    return None if None in taken else (taken[1] - taken[0]) // count  # type: ignore[operator]


def _count_instructions(count: int) -> int | None:
    command = ["valgrind", "--tool=none", "--log-fd=2", sys.executable, "-m", "e2e.bench.plan", "--only", str(count)]
    command[1:3] = ["--tool=callgrind", "--callgrind-out-file=/dev/null", "--log-fd=2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PYTHONHASHSEED": "0"})
    found = re.search(r"Collected : (\d+)", done.stderr)
    return int(found.group(1)) if found else None


def figures(count: int) -> list[Figure]:
    """Everything that is measured."""
    rate, middle, tail = decisions(count)
    whole, early, late = whole_incidents(max(3000, count // 4))
    build, one = best_of(5, build_huge), best_of(50, lambda: isolate_loss(huge(), [99_999]))
    return [
        Figure("decisions at 4,096 ranks, one core, best batch", rate, "1/s", "at least 4,000", rate >= 4_000),
        Figure("one decision, p50", middle, "us"),
        Figure("one decision, p99", tail, "us", "at most 1,000", tail <= 1000),
        Figure("whole incidents, fact to result", whole, "1/s"),
        Figure("layout of 100,000 ranks with its report group list", build, "ms", "at most 50", build <= 50),
        Figure("closure of one loss in 100,000 ranks", one, "ms"),
        Figure(
            "memory after all incidents, of that after a third", late / early, "x", "at most 1.2", late / early <= 1.2
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; exit code 1 when a promise is not kept."""
    parser = argparse.ArgumentParser(description="benchmarks of the planner")
    parser.add_argument("--count", type=int, default=20_000, help="decisions (20000)")
    parser.add_argument("--only", type=int, help="make so many decisions and print nothing (for instruction counts)")
    parser.add_argument("--instructions", type=int, default=2000, help="decisions under valgrind, 0 for none (2000)")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    chosen = parser.parse_args(arguments)
    if chosen.only is not None:
        decisions(chosen.only)
        return 0
    found = figures(chosen.count)
    counted = instructions(chosen.instructions) if chosen.instructions else None
    if counted is not None:
        found.append(Figure("instructions of one decision", counted, "1"))
    for figure in found:
        limit = f"   {figure.limit}: {'yes' if figure.met else 'NO'}" if figure.limit else ""
        print(f"{figure.name:<52} {figure.value:>14,.1f} {figure.unit:<4}{limit}")
    if counted is None:
        print("instruction counts are left out: valgrind was not found or not wanted")
    if chosen.json:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps([asdict(figure) for figure in found], indent=2) + "\n", encoding="utf-8")
    return 0 if all(figure.met for figure in found) else 1


if __name__ == "__main__":
    sys.exit(main())
