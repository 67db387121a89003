"""What is news of a job's incidents, as events for the outside: CloudEvents 1.0, or texts for a chat's robot.

A status says how incidents stand; the news is the difference of two. Pure: who sends it is hajob.app.webhook.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from string import Template
from typing import Final

from hajob.api.base import Json, JsonValue, format_time
from hajob.api.job import Metadata
from hajob.api.status import IncidentEntry
from hajob.domain.incidents import IncidentOutcome
from hajob.domain.text import harmless_text

EVENT_TYPES: Final = {False: "io.hajob.incident.begun", True: "io.hajob.incident.ended"}
"""`type` of the CloudEvent, by whether the incident is over."""
CLOUD_EVENTS_VERSION: Final = "1.0"


@dataclass(frozen=True, slots=True)
class IncidentNews:
    """One thing that happened: an incident of a job has begun, or is over.

    Attributes:
        job: metadata of the job.
        entry: the incident as the status tells it.
        ended: it is over.
    """

    job: Metadata
    entry: IncidentEntry
    ended: bool

    @property
    def event_id(self) -> str:
        """Return what names this event for ever, so that who gets it twice knows it."""
        return f"{self.job.uid}/{self.entry.incarnation}/{'ended' if self.ended else 'begun'}"


def news_of_incidents(
    job: Metadata, before: Iterable[IncidentEntry], after: Iterable[IncidentEntry]
) -> Iterator[IncidentNews]:
    """Yield what has begun and what has ended from one status to the next, oldest first.

    Args:
        job: metadata of the job.
        before: incidents of the status before.
        after: of the status after it.
    """
    known = {one.incarnation: one.outcome for one in before}
    # One that left the list was pushed out by newer ones: it is no news when it is seen again.
    oldest = min(known, default=0)
    for one in sorted(after, key=lambda each: each.incarnation):
        if one.incarnation < oldest:
            continue
        if one.incarnation not in known:
            yield IncidentNews(job, one, ended=False)
        if one.outcome is not IncidentOutcome.OPEN and known.get(one.incarnation, IncidentOutcome.OPEN) != one.outcome:
            yield IncidentNews(job, one, ended=True)


def cloud_event(news: IncidentNews, cluster: str) -> Json:
    """Return the event in CloudEvents' JSON format; `cluster`: name of the cluster, empty for none."""
    entry = news.entry
    time = entry.end_time if news.ended and entry.end_time is not None else entry.start_time
    where = f"namespaces/{news.job.namespace}/hatrainingjobs/{news.job.name}"
    return {
        "specversion": CLOUD_EVENTS_VERSION,
        "id": news.event_id,
        "source": f"/{cluster}/{where}" if cluster else f"/{where}",
        "type": EVENT_TYPES[news.ended],
        "subject": f"{news.job.namespace}/{news.job.name}",
        "time": _time_in_words(time),
        "datacontenttype": "application/json",
        "data": _data_of_event(news, cluster),
    }


def _data_of_event(news: IncidentNews, cluster: str) -> Json:
    entry = news.entry
    told: Json = {
        "cluster": cluster,
        "namespace": news.job.namespace,
        "job": news.job.name,
        "incident": entry.incarnation,
        "action": str(entry.action or ""),
        "outcome": str(entry.outcome),
        "cause": entry.cause.code,
        "message": entry.message,
        "step": entry.step,
        "fromNodes": list(entry.from_nodes),
        "toNodes": list(entry.to_nodes),
        "startTime": _time_in_words(entry.start_time),
        "endTime": _time_in_words(entry.end_time),
    }
    if news.ended:
        told |= {"outageSeconds": _outage_seconds(entry), "lostSteps": entry.lost_steps}
    return {name: value for name, value in told.items() if value not in ("", None, [])}


def _time_in_words(moment: datetime | None) -> str:
    return format_time(moment.astimezone(UTC).replace(microsecond=0)) if moment is not None else ""


def _outage_seconds(entry: IncidentEntry) -> float:
    return sum(phase.milliseconds for phase in entry.phases) / 1000


def words_of_news(news: IncidentNews, cluster: str) -> Mapping[str, str]:
    """Return the words that a text for a robot may have, by the names of `WORDS`."""
    entry = news.entry
    state = str(entry.outcome) if news.ended else "Begun"
    job = f"{news.job.namespace}/{news.job.name}"
    return {
        "cluster": cluster,
        "namespace": news.job.namespace,
        "job": news.job.name,
        "state": state,
        "action": str(entry.action or ""),
        "cause": entry.cause.code,
        "message": _as_chat_text(entry.message),
        "step": "" if entry.step is None else str(entry.step),
        "outage": f"{_outage_seconds(entry):.1f} s" if news.ended else "",
        "nodes": ", ".join((*entry.from_nodes, *entry.to_nodes)),
        "time": _time_in_words(entry.end_time or entry.start_time),
        "title": f"Hajob: {job} {state}",
    }


_OF_CHATS: Final = str.maketrans("<>[]`*@", "＜＞［］｀＊＠")
"""What robots read as links, mentions and mark-up, and what it looks like."""


def _as_chat_text(message: str) -> str:
    """Return a message in one line that a chat shows and does not obey: the words of an exception are in it."""
    return " ".join(harmless_text(message).split()).translate(_OF_CHATS)


WORDS: Final = (
    *("cluster", "namespace", "job", "state", "action", "cause"),
    *("message", "step", "outage", "nodes", "time", "title"),
)
"""Names that a text for a robot may use, as `$name`."""


def check_words(body: JsonValue) -> None:
    """Raise ValueError where a text uses a name that there is not; names it."""
    for text in _texts_of(body):
        template = Template(text)
        if not template.is_valid():
            raise ValueError(f"{text!r}: a $ that begins no name; write $$ for a dollar")
        if unknown := sorted(set(template.get_identifiers()) - set(WORDS)):
            raise ValueError(f"{text!r}: there is no ${unknown[0]}; there are {', '.join(WORDS)}")


def _texts_of(value: JsonValue) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts_of(part)


def fill_words(body: JsonValue, words: Mapping[str, str]) -> JsonValue:
    """Return a robot's body with the words in its texts; whatever they hold, it stays the same JSON."""
    if isinstance(body, str):
        return Template(body).safe_substitute(words)
    if isinstance(body, dict):
        return {name: fill_words(value, words) for name, value in body.items()}
    return [fill_words(value, words) for value in body] if isinstance(body, list) else body
