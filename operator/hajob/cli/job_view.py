"""What a HATrainingJob says of itself, read from the raw object, of which any field may be missing. Pure.

Commands share these readings, so that a job is called the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from hajob.cli.language import in_language
from hajob.cli.output import resource_name_of_job
from hajob.sources.reading import items, mapping, parse_whole_number, text

if TYPE_CHECKING:
    from hajob.api.base import Json

HEALTHY: Final = frozenset({"Running", "Complete", "Suspended"})
"""States in which a job needs no explanation."""
_MESSAGE_OF: Final = {
    "Refused": ("Accepted",),
    "OnHold": ("Accepted",),
    "Pending": ("Accepted", "Scheduled", "Running"),
    "Starting": ("Scheduled", "Running"),
    "Held": ("Held",),
    "Failed": ("Failed",),
    "Unprotected": ("CoordinatorReady",),
}
"""The conditions that say why a job is in a state, in the order in which they are asked."""
_QUIET: Final = ("NoRankStarted", "NoStepEnded")
"""Reasons of a job whose pods run and end no step; `hajob.api.conditions` takes too long to load for each command."""
_SIZES: Final = ("tensor", "pipeline", "context", "expert")
_GOOD: Final = {"Held": "False", "Failed": "False", "Degraded": "False", "Shrunk": "False"}
"""The status of a condition that has nothing to say, where it is not True."""


class JobView:
    """One job as commands show it."""

    def __init__(self, raw: Json, now_ms: int) -> None:
        self.raw, self.now_ms = raw, now_ms
        self.metadata, self.spec, self.status = (mapping(raw.get(part)) for part in ("metadata", "spec", "status"))
        self.summary = mapping(self.status.get("summary"))
        self.progress = mapping(self.status.get("progress"))
        self.incidents = [mapping(one) for one in items(self.status.get("incidents"))]

    @property
    def name(self) -> str:
        """Return the job's name."""
        return text(self.metadata.get("name"))

    @property
    def namespace(self) -> str:
        """Return its namespace."""
        return text(self.metadata.get("namespace"))

    @property
    def state(self) -> str:
        """Return the state, as the column has it; `New` before an operator has seen the job."""
        return text(self.summary.get("state")) or "New"

    @property
    def resource_name(self) -> str:
        """Return the name that `kubectl -o name` prints."""
        return resource_name_of_job(self.name)

    @property
    def state_with_reason(self) -> str:
        """Return the state, and behind it the word for why."""
        return f"{self.state} ({self.summary['reason']})" if self.summary.get("reason") else self.state

    @property
    def step(self) -> int | None:
        """Return the newest finished step; None before the first."""
        step = self.progress.get("step")
        return step if isinstance(step, int) and step >= 0 else None

    @property
    def open_incident(self) -> Mapping[str, Any]:
        """Return the newest incident while it is open, else an empty one."""
        newest: Mapping[str, Any] = self.incidents[0] if self.incidents else {}
        return newest if newest.get("outcome") == "Open" else {}

    def parallel_sizes(self) -> Json:
        """Return the sizes of the job's layout that are more than 1, by their names."""
        sizes = mapping(self.spec.get("parallelism"))
        return {name: sizes[name] for name in _SIZES if parse_whole_number(sizes.get(name)) not in {None, 1}}

    def seconds_by_bucket(self) -> dict[str, int]:
        """Return where the time of the job went since its start."""
        return {
            text(one.get("name")): parse_whole_number(one.get("seconds")) or 0
            for one in map(mapping, items(mapping(self.status.get("goodput")).get("buckets")))
        }

    def working_actions(self) -> list[str]:
        """Return the actions of recovery that would work now, as far as anybody has looked."""
        evaluated = map(mapping, items(self.status.get("recoverability")))
        return [text(one.get("action")) for one in evaluated if one.get("status") != "False"]

    def ranks_of_node(self, node_rank: int) -> range:
        """Return the ranks of a node rank; one where nobody has told how many chips a node has."""
        chips = parse_whole_number(mapping(self.status.get("effective")).get("chipsPerNode")) or 1
        return range(node_rank * chips, node_rank * chips + chips)

    def ranks_in_words(self, node_rank: int) -> str:
        """Return the ranks of a node rank: `8-15`, or `3`."""
        ranks = self.ranks_of_node(node_rank)
        return f"{ranks[0]}-{ranks[-1]}" if len(ranks) > 1 else str(ranks[0])

    def condition(self, kind: str) -> Mapping[str, Any]:
        """Return a condition; empty where there is none."""
        return next((one for one in self.conditions() if one.get("type") == kind), {})

    def conditions(self) -> Iterator[Mapping[str, Any]]:
        """Yield all conditions."""
        return map(mapping, items(self.status.get("conditions")))

    def unmet_preconditions(self) -> Iterator[tuple[str, str]]:
        """Yield what keeps actions from working, the actions first, and what to change."""
        for one in map(mapping, items(mapping(self.status.get("protection")).get("unmet"))):
            actions = ", ".join(map(text, items(one.get("actions"))))
            yield f"not {actions}: {text(one.get('message'))}", text(one.get("remedy"))

    @property
    def is_well(self) -> bool:
        """Whether the job needs no explanation: one that is called Running may have ended no step for minutes."""
        return self.state in HEALTHY and not self._quiet_message

    @property
    def _quiet_message(self) -> str:
        """Return what is said of a job whose pods run and end no step; empty of any other."""
        running = self.condition("Running")
        return text(running.get("message")) if running.get("reason") in _QUIET else ""

    @property
    def degradation(self) -> str:
        """Return what keeps Hajob from serving the job as its spec says; empty where nothing does."""
        degraded = self.condition("Degraded")
        return text(degraded.get("message")) if degraded.get("status") == "True" else ""

    def why(self) -> str:
        """Return why the job is in its state, in the words of its status; empty where nothing is to be said."""
        if self._quiet_message:
            return self._quiet_message
        # While an incident is open its sentence says more than any condition.
        if message := self.open_incident.get("message"):
            return text(message)
        for kind in _MESSAGE_OF.get(self.state, ()):
            found = self.condition(kind)
            if found and found.get("status") != _GOOD.get(kind, "True"):
                return text(found.get("message"))
        if not self.status:
            return "no operator has seen it yet"
        if self.degradation:
            return self.degradation
        # A job that trains has one thing left to say: that the next fault would hurt.
        recoverable = self.condition("Recoverable")
        return text(recoverable.get("message")) if recoverable.get("status") == "False" else ""

    def age(self) -> str:
        """Return how old the job is."""
        return age_since(self.metadata.get("creationTimestamp"), self.now_ms)

    def row(self) -> tuple[str, ...]:
        """Return the job as a line of a table, under `COLUMNS`."""
        told = self.summary
        return (
            *(self.namespace, self.name, self.state, text(told.get("reason"))),
            *(text(told.get("size")), "" if self.step is None else str(self.step), text(told.get("stepTime"))),
            *(text(told.get("protected")), text(told.get("goodput")), text(told.get("restarts")), self.age()),
            one_line(in_language(self.why()), MESSAGE_WIDTH),  # first: no catalogue knows half a sentence
        )

    def data(self) -> Json:
        """Return the same as JSON types."""
        names = [name.lower().replace("-", "_") for name in COLUMNS[:-1]]
        made: Json = dict(zip(names, self.row()[:-1], strict=True))
        return {**made, "step": self.step, "message": self.why()}


COLUMNS: Final = (
    *("NAMESPACE", "NAME", "STATE", "REASON", "SIZE", "STEP", "STEP-TIME"),
    *("PROTECTED", "GOODPUT", "RESTARTS", "AGE", "MESSAGE"),
)
MESSAGE_WIDTH: Final = 100


def one_line(told: str, most: int) -> str:
    """Return the first line of a text, cut to a width."""
    line = told.strip().partition("\n")[0]
    return line if len(line) <= most else f"{line[: most - 1]}…"


def read_time(value: object) -> datetime | None:
    """Read a time of an object; None where there is none."""
    try:
        return datetime.fromisoformat(text(value))
    except ValueError:
        return None


def age_since(value: object, now_ms: int) -> str:
    """Return the age of a time as kubectl shows it; empty where there is no time."""
    at = read_time(value)
    return age_in_words((now_ms - int(at.timestamp() * 1000)) // 1000) if at is not None else ""


def age_in_words(seconds: int) -> str:
    """Return a time as kubectl shows it: 42s, 5m, 3h20m, 4d."""
    seconds = max(seconds, 0)
    if seconds < 120:
        return f"{seconds}s"
    if seconds < 3 * 3600:
        return f"{seconds // 60}m"
    if seconds < 48 * 3600:
        return f"{seconds // 3600}h{seconds % 3600 // 60:02}m"
    return f"{seconds // 86400}d"


def time_of_day(value: object, now_ms: int) -> str:
    """Return a time in UTC: the time of day, with its date where it was not today."""
    at = read_time(value)
    if at is None:
        return ""
    at, now = at.astimezone(UTC), datetime.fromtimestamp(now_ms / 1000, UTC)
    return at.strftime("%H:%M:%S" if at.date() == now.date() else "%m-%d %H:%M:%S")


def outage_milliseconds(incident: Mapping[str, Any]) -> int:
    """Return the milliseconds of an incident so far."""
    return sum(parse_whole_number(mapping(one).get("milliseconds")) or 0 for one in items(incident.get("phases")))


def short_duration(milliseconds: int) -> str:
    """Return a short time: 850ms, 6.2s, 4m."""
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    return f"{milliseconds / 1000:.1f}s" if milliseconds < 120_000 else age_in_words(milliseconds // 1000)
