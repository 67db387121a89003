"""The webhook against a receiver: what it gets, who proves to have sent it, retries, bounds, no secret in the log."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from aiohttp import web

from e2e.bootstrap.paths import CHECKOUT
from hajob.api.job import HATrainingJob
from hajob.app import webhook
from hajob.app.settings import Settings
from hajob.app.webhook import MOST_WAITING, Receiver, Webhook, problem_of_answer
from hajob.clock import SystemClock
from hajob.job.status.incident_news import IncidentNews
from tests.rigs.metrics import sample
from tests.rigs.told_job import told_job

KEY = "a-key-that-nobody-may-read"
ROBOTS = sorted((CHECKOUT / "examples/webhook").glob("*.yaml"))


class QuickClock(SystemClock):
    """The machine's clock, on which pauses take no time; requests keep their limit."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


class Target:
    """A receiver on the loopback that answers as it is told, and keeps what it gets."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, bytes]] = []
        self.got: list[tuple[Mapping[str, str], bytes]] = []
        self.url = ""
        self.hangs: asyncio.Event | None = None

    async def take_event(self, request: web.Request) -> web.Response:
        self.got.append((request.headers, await request.read()))
        if self.hangs is not None:
            await self.hangs.wait()
        status, body = self.answers.pop(0) if self.answers else (200, b"{}")
        return web.Response(status=status, body=body, headers={"Location": "/elsewhere"})


@pytest.fixture
async def target() -> AsyncIterator[Target]:
    made = Target()
    app = web.Application()
    app.router.add_post("/hook/{token}", made.take_event)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook/token-of-a-robot"
    yield made
    await runner.cleanup()


def news(*, ended: bool = True) -> IncidentNews:
    job = HATrainingJob.from_object(told_job())
    return IncidentNews(job.metadata, job.status.incidents[0], ended=ended)


async def delivered(receiver: Receiver, *told: IncidentNews) -> None:
    """Queue these, and wait until each was delivered or given up."""
    before = {one: sample("hajob_webhook_events_total", outcome=one) for one in ("delivered", "failed")}
    sender = Webhook(receiver, QuickClock())
    sender.queue_news(told)
    task = asyncio.create_task(sender.deliver_for_ever())
    while sum(  # noqa: ASYNC110  # a counter wakes nobody
        sample("hajob_webhook_events_total", outcome=one) - was for one, was in before.items()
    ) < len(told):
        await asyncio.sleep(0.001)
    task.cancel()


async def test_a_cloud_event_comes_signed(target: Target, tmp_path: Path) -> None:
    (tmp_path / "url").write_text(f"{target.url}\n")
    (tmp_path / "key").write_text(KEY)
    await delivered(Receiver(directory=str(tmp_path), cluster="prod-a"), news())
    ((headers, body),) = target.got
    assert headers["Content-Type"].startswith("application/cloudevents+json")
    event = orjson.loads(body)
    assert {name for name in ("specversion", "id", "source", "type") if not event[name]} == set()
    assert (event["specversion"], event["type"]) == ("1.0", "io.hajob.incident.ended")
    assert event["source"] == "/prod-a/namespaces/team-a/hatrainingjobs/quickstart"
    assert event["data"]["outcome"] == "Recovered"
    assert event["data"]["outageSeconds"] == 6.2
    signed = f"{event['id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.digest(KEY.encode(), signed, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"


async def test_a_new_key_counts_at_once(target: Target, tmp_path: Path) -> None:
    (tmp_path / "url").write_text(target.url)
    receiver = Receiver(directory=str(tmp_path))
    await delivered(receiver, news())
    (tmp_path / "key").write_text("whsec_" + base64.b64encode(b"another").decode())
    await delivered(receiver, news())
    (first, _), (second, body) = target.got
    assert "webhook-signature" not in first
    signed = f"{second['webhook-id']}.{second['webhook-timestamp']}.".encode() + body
    assert base64.b64encode(hmac.digest(b"another", signed, hashlib.sha256)).decode() in second["webhook-signature"]


@pytest.mark.parametrize("file", ROBOTS, ids=lambda path: path.stem)
async def test_a_robot_gets_its_text(target: Target, file: Path) -> None:
    values = yaml.safe_load(file.read_text(encoding="utf-8"))["webhook"]
    given = {"HAJOB_WEBHOOK_URL": target.url, "HAJOB_WEBHOOK_BODY": orjson.dumps(values["body"]).decode()}
    await delivered(Settings.from_environment(given).webhook_receiver(), news(ended=False), news())
    texts = [orjson.loads(body) for _, body in target.got]
    kind = {"wecom": "msgtype", "dingtalk": "msgtype", "feishu": "msg_type"}[file.stem]
    assert all(one[kind] in {"text", "markdown"} for one in texts)
    begun, ended = (orjson.dumps(one).decode() for one in texts)
    assert "Hajob: team-a/quickstart Begun" in begun
    assert "Hajob: team-a/quickstart Recovered" in ended
    assert "node-0 fell silent" in ended
    assert "6.2 s" in ended
    assert "$" not in begun + ended


def test_there_is_a_text_for_each_robot() -> None:
    assert [path.stem for path in ROBOTS] == ["dingtalk", "feishu", "wecom"]


@pytest.mark.parametrize(("answers", "posts"), [([(503, b""), (429, b"")], 3), ([(400, b"")], 1), ([(302, b"")], 1)])
async def test_only_what_may_pass_is_tried_again(target: Target, answers: list[Any], posts: int) -> None:
    target.answers = answers
    await delivered(Receiver(target.url), news())
    assert len(target.got) == posts


async def test_it_gives_up_after_some_tries(target: Target) -> None:
    target.answers = [(500, b"")] * 50
    await delivered(Receiver(target.url), news())
    assert len(target.got) == webhook.TRIES


async def test_no_secret_is_in_the_log(target: Target, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    target.answers = [(400, KEY.encode())]
    (tmp_path / "key").write_text(KEY)
    for url in (target.url, "https://[token-of-a-robot", "http://127.0.0.1:1/token-of-a-robot", "token-of-a-robot"):
        (tmp_path / "url").write_text(url)
        await delivered(Receiver(directory=str(tmp_path)), news())
    told = "\n".join(record.getMessage() + str(record.exc_text) for record in caplog.records if "hajob" in record.name)
    assert told.count("is not delivered") == 4
    assert "token-of-a-robot" not in told
    assert KEY not in told


async def test_what_nobody_takes_is_dropped_and_counted() -> None:
    sender = Webhook(Receiver("http://127.0.0.1:1/"), SystemClock())
    before = sample("hajob_webhook_events_total", outcome="dropped")
    sender.queue_news(news() for _ in range(MOST_WAITING + 7))
    assert sample("hajob_webhook_events_total", outcome="dropped") == before + 7


async def test_a_receiver_that_hangs_is_left(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "REQUEST_SECONDS", 0.05)
    monkeypatch.setattr(webhook, "TRIES", 1)
    target.hangs = asyncio.Event()
    before = sample("hajob_webhook_events_total", outcome="failed")
    await delivered(Receiver(target.url), news())
    assert sample("hajob_webhook_events_total", outcome="failed") == before + 1
    target.hangs.set()


async def test_nobody_asked_for_it_nothing_waits() -> None:
    sender = Webhook(Receiver(), SystemClock())
    before = sample("hajob_webhook_events_total", outcome="dropped")
    sender.queue_news(news() for _ in range(MOST_WAITING + 7))
    assert sample("hajob_webhook_events_total", outcome="dropped") == before


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        (b'{"errcode":0,"errmsg":"ok"}', ""),
        (b'{"errcode":310000,"errmsg":"keywords not in content"}', "errcode 310000"),
        (b'{"code":19024,"msg":"Key Words Not Found"}', "code 19024"),
        (b'{"StatusCode":0,"StatusMessage":"success","code":0}', ""),
        (b"ok", ""),
        (b'["code", 1]', ""),
        (b'{"code":true}', "code"),
        (b'{"code":"none"}', ""),
    ],
)
def test_a_robot_says_in_the_body_what_is_wrong(said: bytes, wrong: str) -> None:
    found = problem_of_answer(200, said)
    assert wrong in found
    assert bool(found) == bool(wrong)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"HAJOB_WEBHOOK_BODY": "no json"}, "HAJOB_WEBHOOK_BODY"),
        ({"HAJOB_WEBHOOK_BODY": '{"a": "$nothing"}'}, "there is no \\$nothing"),
        ({"HAJOB_WEBHOOK_BODY": '{"a": ["100 $"]}'}, "write \\$\\$"),
        ({"HAJOB_WEBHOOK_URL": "robot/token"}, "neither https"),
    ],
)
def test_a_wrong_setting_ends_the_start_in_a_sentence(given: dict[str, str], word: str) -> None:
    with pytest.raises(SystemExit, match=word) as raised:
        Settings.from_environment(given)
    assert "token" not in str(raised.value)
