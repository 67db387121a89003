"""From two statuses what is news: each begin and each end once, whatever is in between."""

from __future__ import annotations

from typing import Any

import pytest

from hajob.api.job import HATrainingJob
from hajob.api.status import IncidentEntry
from hajob.domain.incidents import IncidentOutcome
from hajob.job.status.incident_news import cloud_event, fill_words, news_of_incidents, words_of_news
from tests.rigs.told_job import told_job

JOB = HATrainingJob.from_object(told_job())
(ENTRY,) = JOB.status.incidents
OPEN, RECOVERED = IncidentOutcome.OPEN, IncidentOutcome.RECOVERED


def entry(number: int, outcome: IncidentOutcome) -> IncidentEntry:
    return ENTRY.model_copy(update={"incarnation": number, "outcome": outcome})


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ([], [], []),
        ([], [(1, OPEN)], ["1 begun"]),
        ([(1, OPEN)], [(1, OPEN)], []),
        ([(1, OPEN)], [(1, RECOVERED)], ["1 ended"]),
        ([(1, RECOVERED)], [(1, RECOVERED)], []),
        ([], [(1, RECOVERED)], ["1 begun", "1 ended"]),
        ([(3, OPEN)], [(5, OPEN), (3, RECOVERED)], ["3 ended", "5 begun"]),
        ([(5, OPEN)], [(5, OPEN), (3, RECOVERED)], []),
    ],
)
def test_each_begin_and_each_end_is_told_once(before: list[Any], after: list[Any], told: list[str]) -> None:
    old, new = ([entry(*one) for one in each] for each in (before, after))
    found = news_of_incidents(JOB.metadata, old, new)
    assert [f"{one.entry.incarnation} {'ended' if one.ended else 'begun'}" for one in found] == told


def test_an_event_leaves_out_what_is_empty() -> None:
    (begun,) = news_of_incidents(JOB.metadata, [], [entry(1, OPEN)])
    event = cloud_event(begun, "")
    assert event["source"] == "/namespaces/team-a/hatrainingjobs/quickstart"
    assert "cluster" not in event["data"]
    assert "outageSeconds" not in event["data"]
    assert event["time"] == event["data"]["startTime"]


def test_what_a_program_printed_stays_one_text() -> None:
    """The message holds lines of programs: neither quotes nor dollars in it change the body."""
    strange = 'a "quote", a\nline, $job and ${title}'
    (begun,) = news_of_incidents(JOB.metadata, [], [entry(1, OPEN).model_copy(update={"message": strange})])
    assert fill_words({"text": ["<$message>", 1, None]}, words_of_news(begun, "")) == {
        "text": ["<{}>".format(strange.replace("\n", " ")), 1, None]
    }
