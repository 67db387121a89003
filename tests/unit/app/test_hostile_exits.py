"""Text of users in what leaves the operator: Events, logs, metrics, robots, the page."""

from __future__ import annotations

import html
import json
import logging
import re
from html.parser import HTMLParser
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from hajob.api.job import HATrainingJob
from hajob.domain.incidents import IncidentOutcome
from hajob.job.status.incident_news import cloud_event, fill_words, news_of_incidents, words_of_news
from hajob.kube.events import EventType, build_event
from hajob.log_format import begin_logging
from hajob.web.team_door import login_page
from tests.rigs.told_job import NOW_MS, told_job

JOB = HATrainingJob.from_object(told_job())
(ENTRY,) = JOB.status.incidents
HOSTILE = st.one_of(
    st.text(max_size=80),
    st.text(st.sampled_from("\x1b[]2J\x07\r\n\u2028\u202e'\"`$\\{}<>&/@*_|#()!a= "), max_size=60),
    st.sampled_from(["[now](https://evil.example)", '<at user_id="all">', "<@all>", "</p><script>alert(1)</script>"]),
)
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
ROBOT = {"msgtype": "markdown", "markdown": {"content": "**$title**\n> $message\n> $nodes"}}


@given(HOSTILE)
def test_an_event_is_text_that_the_api_takes(note: str) -> None:
    made = build_event(JOB.metadata, NOW_MS, "Recovering", note * 30, type_=EventType.WARNING, instance="a")
    assert not OBEYED.search(made["message"])
    assert len(made["message"].encode()) <= 1024


@given(HOSTILE, HOSTILE)
def test_a_log_in_json_is_one_object_a_line(message: str, name: str) -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers[:] = []
    try:
        begin_logging("json", "")
        formatter = root.handlers[0].formatter
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    assert formatter is not None
    line = formatter.format(logging.LogRecord("hajob", logging.INFO, "", 1, "%s: %s", (name, message), None))
    assert "\n" not in line
    assert "\r" not in line
    assert json.loads(line)["msg"] == f"{name}: {message}"


@given(HOSTILE, HOSTILE)
def test_a_label_of_a_metric_is_read_as_it_was(name: str, reason: str) -> None:
    registry = CollectorRegistry()
    Gauge("hajob_job_held", "Help.", ("job", "reason"), registry=registry).labels(name, reason).set(1)
    (family,) = text_string_to_metric_families(generate_latest(registry).decode())
    (sample,) = family.samples
    assert (sample.labels, sample.value) == ({"job": name, "reason": reason}, 1.0)


@given(HOSTILE)
def test_a_robot_shows_what_a_program_printed(message: str) -> None:
    entry = ENTRY.model_copy(update={"outcome": IncidentOutcome.OPEN, "message": message})
    (begun,) = news_of_incidents(JOB.metadata, [], [entry])
    body: Any = fill_words(ROBOT, words_of_news(begun, ""))
    content = body["markdown"]["content"]
    assert len(content.split("\n")) == 3, "it opens no line of its own"
    second = content.split("\n")[1].removeprefix("> ")
    assert not re.search(r"[<>\[\]`*@]", second), "it is neither link nor mention nor mark-up"
    assert json.loads(json.dumps(cloud_event(begun, "")))["data"].get("message", "") == message


class Tags(HTMLParser):
    """The elements of a page and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def tags_of(page: bytes) -> Tags:
    read = Tags()
    read.feed(page.decode())
    return read


@given(HOSTILE)
def test_a_refusal_on_the_page_is_text(problem: str) -> None:
    harmless, hostile = (login_page(one).body for one in ("no", f"no {problem}"))
    assert isinstance(harmless, bytes)
    assert isinstance(hostile, bytes)
    assert tags_of(hostile).tags == tags_of(harmless).tags
    assert html.unescape(html.escape(problem)) in tags_of(hostile).text or "\r" in problem
