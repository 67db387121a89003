"""`kubectl hajob watch`: one job live: its nodes and ranks as a grid on a terminal, a line for each change in a pipe.

The picture is made of the job's status and its pods. Which step each rank is at only the ranks know; what is shown is
the step that all of them have finished.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from hajob.cli.exits import DONE, run_reported
from hajob.cli.job_view import JobView, age_since, one_line, short_duration
from hajob.cli.language import say
from hajob.cli.objects import ReadObjects, find_job, job_asked_for
from hajob.cli.options import Commands, add_context_option, add_job, add_verb
from hajob.cli.output import UNKNOWN, Block, Table, live_screen, plain_lines
from hajob.cli.status import pod_state, pods_of
from hajob.cli.timeline import what_of
from hajob.clock import SystemClock
from hajob.sources.pod import PodView
from hajob.sources.reading import items, mapping, parse_whole_number, text

_ENDED: Final = frozenset({"Complete", "Failed"})
_MOST_INCIDENTS: Final = 3
_STEP: Final = "step"
_STEP_EVERY_MS: Final = 60_000
"""A line for each step would hide what happens; one a minute shows that it goes on."""
_MOST_CELLS: Final = 16
"""Ranks of a node that are drawn one by one."""
_STANDS: Final = frozenset({"Recovering", "Restarting", "Held", "OnHold", "Saving", "Starting", "Pending", "Paused"})
_STARTS: Final = frozenset({"Pending", "Starting", "Restarting"})
_WITHOUT_RANKS: Final = frozenset({"New", "Refused", "Suspended", "Complete", "Failed", "Deleting"})
"""States of a job that has no ranks, or none that shall train."""
_HAS_PODS: Final = frozenset(
    {"Running", "Recovering", "Migrating", "Expanding", "Paused", "Held", "Unprotected", "Saving"}
)
"""States in which a node rank without a pod has lost it."""
SIGNS: Final = {"training": "■", "stands": "□", "starts": "▒", "waits": "·", "lost": "✕", "ended": "-", "none": " "}
"""What a rank does, as one character: it must be told apart without colours, too."""


@dataclass(frozen=True, slots=True)
class Seat:
    """A node rank: its newest pod, what its ranks do, and which of them are lost though their pod is there."""

    node_rank: int
    pod: PodView | None
    does: str
    lost: tuple[int, ...] = ()


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_verb(commands, "watch")
    add_job(parser)
    parser.add_argument(
        "--every", type=float, default=2.0, metavar="SECONDS", help="look so often (default: %(default)s)"
    )
    parser.add_argument("--once", action="store_true", help="print one picture and end")
    add_context_option(parser)
    parser.set_defaults(run=run_watch)


def run_watch(arguments: argparse.Namespace) -> int:
    """Show the job until it has ended."""

    def watch() -> int:
        objects, namespace, name, _ = job_asked_for(arguments)
        watching = Watching(objects, namespace, name, SystemClock().now_milliseconds)
        if arguments.once:
            print("\n".join(plain_lines(watching.look_at_job())))
            return DONE
        pause = threading.Event()
        every = max(arguments.every, 0.5)
        return watching.draw_until_ended(lambda: pause.wait(every), is_terminal=sys.stdout.isatty())

    return run_reported(watch)


class Watching:
    """Looks at one job again and again."""

    def __init__(self, objects: ReadObjects, namespace: str, name: str, now: Callable[[], int]) -> None:
        self._objects, self._namespace, self._name, self._now = objects, namespace, name, now
        self._job: JobView | None = None
        self._pods: Sequence[PodView] = ()
        self._unread = ""

    def look_at_job(self) -> list[Block]:
        """Look once; return the picture."""
        job = JobView(find_job(self._objects, self._namespace, self._name), self._now())
        self._job = job
        self._pods, self._unread = pods_of(self._objects, job)
        return list(picture_of_job(job, self._pods, self._unread))

    def draw_until_ended(self, wait: Callable[[], object], *, is_terminal: bool) -> int:
        """Show pictures over each other on a terminal, print what changes elsewhere; return 0 at the job's end."""
        if not is_terminal:
            return self._print_changes(wait)
        with live_screen() as draw:
            while True:
                draw(self.look_at_job())
                if self._has_ended():
                    break
                wait()
        # The live screen leaves nothing behind; how it ended stays.
        print("\n".join(plain_lines(self.look_at_job())))
        return DONE

    def _print_changes(self, wait: Callable[[], object]) -> int:
        said: dict[str, str] = {}
        next_step_ms = 0
        while True:
            self.look_at_job()
            assert self._job is not None
            now_ms = self._job.now_ms
            for about, line in changes_of_job(self._job, self._pods, self._unread):
                if said.get(about) == line or (about == _STEP and now_ms < next_step_ms):
                    continue
                say(f"{time_of_day_of(now_ms)}  {line}")
                said[about] = line
                next_step_ms = now_ms + _STEP_EVERY_MS if about == _STEP else next_step_ms
            if self._has_ended():
                return DONE
            wait()

    def _has_ended(self) -> bool:
        return self._job is not None and self._job.state in _ENDED


def time_of_day_of(milliseconds: int) -> str:
    """Return the time of day in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%H:%M:%S")


def picture_of_job(job: JobView, pods: Sequence[PodView], unread: str) -> Iterator[Block]:
    """Yield a headline, the grid of nodes and ranks, and the newest incidents."""
    yield " ".join(filter(None, (job.name, job.state_with_reason, _step_in_words(job))))
    if why := job.why():
        yield one_line(why, 150)
    if unread:
        yield f"pods: {UNKNOWN}, {unread}"
    else:
        rows = [_row_of_seat(job, seat) for seat in seats_of_job(job, pods)]
        rows += [(pod.role, pod.node_name or "-", "", pod_state(pod)) for pod in pods if not pod.is_rank_pod]
        yield Table(("RANKS", "NODE", "", "STATE"), rows)
    yield from map(line_of_incident, job.incidents[:_MOST_INCIDENTS])


def _step_in_words(job: JobView) -> str:
    if job.step is None:
        return "no step yet"
    pace = f", {job.summary['stepTime']} a step" if job.summary.get("stepTime") else ""
    seen = age_since(job.progress.get("observedTime"), job.now_ms)
    return f"step {job.step}{pace}" + (f", seen {seen} ago" if seen else "")


def seats_of_job(job: JobView, pods: Sequence[PodView]) -> list[Seat]:
    """Return all node ranks of a job: of each the newest pod, those without a pod, too."""
    newest: dict[int, PodView] = {}
    # A pod that moves trains on in its place until the second one can take over.
    moves = job.state == "Migrating"
    ranked = [pod for pod in pods if pod.is_rank_pod]
    for pod in sorted(ranked, key=lambda one: (moves and one.ready, one.incarnation)):
        newest[pod.node_rank] = pod
    # A shrunk or grown job has other node ranks than its spec says.
    number = max(parse_whole_number(job.spec.get("numNodes")) or 0, max(newest, default=-1) + 1)
    return [_seat_of_rank(job, rank, newest.get(rank)) for rank in range(number)]


def _seat_of_rank(job: JobView, node_rank: int, pod: PodView | None) -> Seat:
    does = _what_ranks_do(job, pod)
    # In a pod that stands, the processes that the incident names are gone.
    cause = mapping(job.open_incident.get("cause")) if does == "stands" else {}
    first, count = (parse_whole_number(cause.get(name)) for name in ("firstRank", "numRanks"))
    gone = range(first, first + count) if first is not None and count is not None else range(0)
    return Seat(node_rank, pod, does, tuple(rank for rank in job.ranks_of_node(node_rank) if rank in gone))


def _what_ranks_do(job: JobView, pod: PodView | None) -> str:
    if pod is None:
        return "lost" if job.state in _HAS_PODS else "none"
    if pod.deleting or (pod.trouble and not pod.has_finished):
        return "lost"
    if pod.has_finished:
        return "ended"
    if not pod.node_name:
        return "waits"
    if not pod.ready or job.state in _STARTS or (job.state == "Recovering" and _is_for_incident(job, pod)):
        return "starts"
    return "training" if is_training(job) or job.state in _WITHOUT_RANKS else "stands"


def _is_for_incident(job: JobView, pod: PodView) -> bool:
    """Return whether a pod was made for the open incident: its processes are new, those of an older one are not."""
    incident = job.open_incident
    return bool(incident) and pod.incarnation >= (parse_whole_number(incident.get("incarnation")) or 0)


def is_training(job: JobView) -> bool:
    """Return whether the ranks of a job take steps now."""
    return job.state not in _STANDS | _WITHOUT_RANKS


def _row_of_seat(job: JobView, seat: Seat) -> tuple[str, ...]:
    numbers = job.ranks_of_node(seat.node_rank)
    cells = "".join(SIGNS["lost" if rank in seat.lost else seat.does] for rank in numbers[:_MOST_CELLS])
    state = f"{seat.does}; lost: {', '.join(map(str, seat.lost))}" if seat.lost else seat.does
    if seat.pod is not None and seat.does not in {"training", "stands"} and pod_state(seat.pod) != seat.does:
        state = f"{seat.does}: {pod_state(seat.pod)}"
    return job.ranks_in_words(seat.node_rank), (seat.pod.node_name if seat.pod is not None else "") or "-", cells, state


def line_of_incident(incident: Mapping[str, Any]) -> str:
    """Return an incident as a line: what happened, and where the time of its outage went."""
    told = f"#{incident.get('incarnation')} {one_line(what_of(incident), 110)}"
    phases = [
        (parse_whole_number(part.get("milliseconds")) or 0, text(part.get("name")))
        for part in map(mapping, items(incident.get("phases")))
    ]
    shares = ", ".join(f"{name} {short_duration(took)}" for took, name in sorted(phases, reverse=True)[:3] if took)
    return f"{told}  ({shares})" if shares else told


def changes_of_job(job: JobView, pods: Sequence[PodView], unread: str) -> Iterator[tuple[str, str]]:
    """Yield what a pipe gets when it changes: what it is about, and a line."""
    why = job.why()
    yield "state", f"{job.name} is {job.state_with_reason}" + (f": {one_line(why, 200)}" if why else "")
    if job.step is not None:
        yield _STEP, _step_in_words(job)
    if unread:
        yield "pods", f"pods: {UNKNOWN}, {unread}"
    for seat in seats_of_job(job, pods):
        place = f" on {seat.pod.node_name}" if seat.pod is not None and seat.pod.node_name else ""
        yield f"seat {seat.node_rank}", f"node rank {seat.node_rank}: {seat.does}{place}"
    for one in reversed(job.incidents[:_MOST_INCIDENTS]):
        number = one.get("incarnation")
        yield f"incident {number}", f"incident {number}: {one_line(what_of(one), 200)}"
