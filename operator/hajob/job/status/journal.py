"""The journal: what the operator remembers of a job across restarts, as one text in the status.

It holds everything that a decision depends on and that cannot be read off the cluster. Pydantic reads and writes it
by the types of the fields; values equal to their defaults are left out.

The text may be from an older operator, or from a newer one after a roll-back (docs/decisions/0009-one-journal.md): an
unknown key is left out, and so is an unknown word on which no decision depends; both are reported to the caller.
Anything else that cannot be read is a `JournalError`: acting on half a state is worse than not acting.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from pydantic_core import ErrorDetails

from hajob.api.conditions import Reason
from hajob.domain.goodput import Account
from hajob.domain.timeline import Mark
from hajob.job.status.incidents import Record, Restoration
from hajob.plan.effects import SendOrder
from hajob.plan.state import Deadline, JobState

VERSION: Final = 2
"""Version that an operator must know to read this journal (`status.journalVersion`).

It rises only when an older operator would do harm by leaving out what it does not know.
"""
SKEW_MILLISECONDS: Final = 60_000
"""Greatest difference expected between the clocks of two leaders."""
MOVING_MARK: Final = ',"written_ms":'
"""Start of the last part of a journal, which moves with the clock and alone is not worth a write."""

Place = tuple[int | str, ...]

_UNKNOWN_KEY: Final = frozenset({"extra_forbidden", "unexpected_keyword_argument"})
_DISPENSABLE: Final[tuple[Place, ...]] = (
    ("marks",),
    ("restoration",),
    ("account",),
    ("state", "stalls"),
    ("state", "failures"),
    ("state", "incident", "cause"),
    ("state", "incident", "milestones"),
    ("state", "incident", "refused"),
    ("state", "incident", "escalated_from"),
    ("state", "incident", "restored_from"),
)
"""Parts that only explain and count: what cannot be read in them is left out without harm."""


class JournalError(ValueError):
    """A journal that this operator cannot read, with the reason of the condition."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@with_config(ConfigDict(extra="forbid", strict=True))
@dataclass(frozen=True, slots=True)
class Journal:
    """Memory of one job across restarts of the operator.

    Attributes:
        state: of the planner.
        order: the newest order sent to the coordinator.
        failed_reason: why the job was given up, empty while it was not.
        failed_message: the same in words.
        marks: when things happened in the open incident, in milliseconds.
        restoration: where the state after the open incident comes from.
        restart_seen: the newest `spec.restartRequestTime` that was carried out.
        written_ms: time of the write, from which the remaining time of a deadline follows.
        account: where the job's time went.
    """

    state: JobState = field(default_factory=JobState)
    order: SendOrder | None = None
    failed_reason: str = ""
    failed_message: str = ""
    marks: Mapping[Mark, int] = field(default_factory=dict)
    restoration: Restoration = field(default_factory=Restoration)
    restart_seen: str = ""
    written_ms: int = 0
    account: Account | None = None

    def to_text(self, now_ms: int, record: Record | None = None) -> str:
        """Return compact JSON, as of now.

        Args:
            now_ms: the time of the write.
            record: of the newest incident; it is remembered while the incident is open.
        """
        written = replace(self, written_ms=now_ms)
        if self.state.incident is None:
            written = replace(written, marks={}, restoration=Restoration())
        elif record is not None:
            written = replace(written, marks=record.marks, restoration=record.restoration)
        return _FORM.dump_json(written, exclude_defaults=True).decode()

    def for_new_leader(self, now_ms: int) -> Journal:
        """Return the journal for a new leader: a deadline is kept, or its remaining time where that ends later.

        Args:
            now_ms: job time by the clock of that leader, never before `written_ms`.
        """
        deadlines = {
            name: max(at_ms, now_ms + min(at_ms - self.written_ms, SKEW_MILLISECONDS))
            for name, at_ms in self.state.deadlines.items()
        }
        return replace(self, state=replace(self.state, deadlines=deadlines))

    def record_of_open(self) -> Record | None:
        """Return the record of the incident that was open; None where none was."""
        if self.state.incident is None:
            return None
        return Record(self.state.incident, self.marks, restoration=self.restoration)


_FORM: Final = TypeAdapter(Journal)


@dataclass(frozen=True, slots=True)
class JournalReading:
    """A journal as it was read, and the places in it that were left out."""

    journal: Journal
    left_out: tuple[str, ...] = ()


def read_journal(text: str, version: int = VERSION) -> JournalReading:
    """Read a journal, the inverse of `Journal.to_text`; an empty text is a job that is seen for the first time.

    Args:
        text: `status.journal`.
        version: `status.journalVersion`.

    Raises:
        JournalError: the journal must not be acted upon; the message names the place.
    """
    if not text:
        return JournalReading(Journal())
    if version > VERSION:
        raise JournalError(
            Reason.JOURNAL_NEWER, f"status.journal is of version {version}, this operator knows up to {VERSION}"
        )
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise JournalError(Reason.JOURNAL_UNREADABLE, f"status.journal is not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise JournalError(Reason.JOURNAL_UNREADABLE, "status.journal is not an object")
    return _read_tolerantly(_from_version_1(raw) if version < 2 else raw)


def _read_tolerantly(raw: dict[str, Any]) -> JournalReading:
    """Leave out dispensable parts until the rest can be read."""
    left_out = _deadlines_left_out(raw)
    while True:
        try:
            return JournalReading(_FORM.validate_json(json.dumps(raw)), tuple(left_out))
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_context=False)
        places = [_dispensable_part(one) for one in wrong]
        essential = [one for one, place in zip(wrong, places, strict=True) if place is None]
        if essential:
            raise _error_of_damage(essential)
        for place in reversed(
            _outermost_places(places)
        ):  # last items of a list first, so that the others keep their places
            left_out.append(_place_in_words(place))
            _remove_part(raw, place)


def _outermost_places(places: Iterable[Place | None]) -> list[Place]:
    """Return each place once, and none inside another one."""
    known = dict.fromkeys(place for place in places if place is not None)
    return [place for place in known if not any(place[:length] in known for length in range(len(place)))]


def _deadlines_left_out(raw: dict[str, Any]) -> list[str]:
    """Leave out deadlines that this version does not know, and return their places."""
    state = raw.get("state")
    deadlines = state.get("deadlines") if isinstance(state, dict) else None
    if not isinstance(deadlines, dict):
        return []
    unknown = sorted(deadlines.keys() - set(Deadline))
    for name in unknown:
        del deadlines[name]
    return [f"state.deadlines.{name}" for name in unknown]


def _dispensable_part(wrong: ErrorDetails) -> Place | None:
    """Return the part that can be left out to cure this error, if any."""
    place: Place = tuple(part for part in wrong["loc"] if part != "[key]")
    if wrong["type"] in _UNKNOWN_KEY:
        return place
    if wrong["type"] == "missing":  # without it the enclosing object says nothing
        place = place[:-1]
    return place if any(place[: len(root)] == root for root in _DISPENSABLE) else None


def _error_of_damage(wrong: list[ErrorDetails]) -> JournalError:
    """Build the error: an unknown word is from a newer operator; anything else is damage."""
    newer = any(one["type"] == "enum" for one in wrong)
    told = "; ".join(
        f"{_place_in_words(one['loc'])}: {one['msg']}, found {str(one['input'])[:80]!r}" for one in wrong[:3]
    )
    return JournalError(Reason.JOURNAL_NEWER if newer else Reason.JOURNAL_UNREADABLE, f"status.journal: {told}")


def _place_in_words(place: Place) -> str:
    return ".".join(str(part) for part in place if part != "[key]")


def _remove_part(raw: Any, place: Place) -> None:  # noqa: ANN401  # JSON
    *parents, last = place
    for part in parents:
        raw = raw[part]
    del raw[last]


def _from_version_1(raw: dict[str, Any]) -> dict[str, Any]:
    """Convert a journal of 0.1 to the form of version 2; errors in it are found afterwards."""
    made: dict[str, Any] = {"state": _state_of_version_1(raw.get("plan"), raw.get("pods"))}
    for old, new in (("order", "order"), ("restart", "restart_seen"), ("moments", "marks"), ("restoration",) * 2):
        if old in raw:
            made[new] = raw[old]
    if isinstance(failed := raw.get("failed"), list) and len(failed) == 2:
        made["failed_reason"], made["failed_message"] = failed
    if isinstance(account := raw.get("account"), dict):
        missing, desired = account.get("size") or (0, 1)
        made["account"] = {
            "since_ms": account.get("since"),
            "bucket": account.get("bucket") or None,
            "missing": missing,
            "desired": desired,
            "booked": account.get("booked"),
        }
    return made


def _state_of_version_1(state: Any, pods: Any) -> Any:  # noqa: ANN401  # JSON
    """Merge the two places in which 0.1 stored the pods into the state."""
    if not isinstance(state, dict) or not isinstance(pods, dict):
        return None
    return {
        **state,
        "pods": {str(rank): number for rank, number in pods.get("replaced", ())} | state.get("pods", {}),
        "released": pods.get("released", []),
        "avoided": {str(row[0]): row[1:] for row in pods.get("avoided", ())},
        "coordinator": pods.get("coordinator", 0),
        "apart": pods.get("apart", True),
    }
