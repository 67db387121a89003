"""The webhook: news of incidents, posted to one address outside of the cluster.

Best effort, and never in the way of a recovery: news are queued by a call that does not wait, once the server has the
status that they come from. What cannot be delivered is dropped and counted. Neither address nor key is ever logged:
the address of a chat's robot is a secret.

It is signed as Standard Webhooks says: `webhook-signature` is `v1,` and the base64 of the HMAC-SHA256 of
`ID.TIMESTAMP.BODY`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import logging
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import aiohttp
import certifi
import orjson

from hajob import metrics
from hajob.api.base import Json
from hajob.backoff import Backoff
from hajob.clock import Clock, timeout
from hajob.job.incident_feed import IncidentFeed
from hajob.job.status.incident_news import IncidentNews, cloud_event, fill_words, words_of_news
from hajob.version import VERSION

log = logging.getLogger(__name__)

MOST_WAITING: Final = 100
"""Enough for a rack that fails at once; what comes beside it nobody reads in a chat."""
TRIES: Final = 6
"""With the pauses between them some two minutes: a receiver may be restarted meanwhile."""
REQUEST_SECONDS: Final = 10.0
PACE_SECONDS: Final = 3.0
"""Between two deliveries: robots of WeCom and DingTalk refuse more than twenty messages a minute."""
ANSWER_BYTES: Final = 4096
"""Of an answer: robots say in its body whether they took the message."""
PASSING: Final = frozenset({408, 425, 429})
"""Refusals that another try may not meet; so may any answer from 500 on."""
_KEY_PREFIX: Final = "whsec_"
_PROBLEMS: Final = ("errcode", "code", "StatusCode")
"""Fields in which robots say what is wrong, with status 200; 0: nothing."""


class NotDeliveredError(Exception):
    """A receiver did not take an event; the message has no secret in it.

    Attributes:
        may_pass: another try may succeed.
    """

    def __init__(self, message: str, *, may_pass: bool) -> None:
        super().__init__(message)
        self.may_pass = may_pass


@dataclass(frozen=True, slots=True)
class Receiver:
    """Where news go.

    Attributes:
        url: of the receiver; a file `url` in the directory counts more.
        directory: of a mounted Secret with files `url`, `key` (HMAC) and `ca.crt`; empty: none. Read for each event,
            so that a new key counts at once.
        body: what a robot is sent, with names such as `$message` in its texts; empty: a CloudEvent.
        cluster: its name in each event.
    """

    url: str = ""
    directory: str = ""
    body: Json | None = None
    cluster: str = ""

    @property
    def is_set(self) -> bool:
        """Whether there is a receiver."""
        return bool(self.url or self.directory)

    def read_url(self) -> str:
        """Return where to post to; empty: nowhere yet."""
        return self._read_file("url").decode(errors="replace") or self.url

    def read_key(self) -> bytes:
        """Return the key of the signature; empty: nothing is signed."""
        found = self._read_file("key")
        if not found.startswith(_KEY_PREFIX.encode()):
            return found
        try:
            return base64.b64decode(found[len(_KEY_PREFIX) :], validate=True)
        except binascii.Error:
            raise NotDeliveredError(f"the key begins with {_KEY_PREFIX} and is no base64", may_pass=True) from None

    def trust_context(self) -> ssl.SSLContext:
        """Return the authorities that are trusted: the usual ones, and that of the directory."""
        context = ssl.create_default_context(cafile=certifi.where())
        if own := self._read_file("ca.crt"):
            try:
                context.load_verify_locations(cadata=own.decode())
            except (ssl.SSLError, ValueError):
                raise NotDeliveredError("ca.crt is no certificate", may_pass=True) from None
        return context

    def _read_file(self, name: str) -> bytes:
        if not self.directory:
            return b""
        try:
            return (Path(self.directory) / name).read_bytes().strip()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise NotDeliveredError(f"{name} cannot be read: {type(error).__name__}", may_pass=True) from None


class Message(NamedTuple):
    """What is posted."""

    event_id: str
    body: bytes
    content_type: str


def build_message(news: IncidentNews, receiver: Receiver) -> Message:
    """Return what the receiver is sent."""
    if receiver.body is not None:
        filled = fill_words(receiver.body, words_of_news(news, receiver.cluster))
        return Message(news.event_id, orjson.dumps(filled), "application/json; charset=utf-8")
    body = orjson.dumps(cloud_event(news, receiver.cluster))
    return Message(news.event_id, body, "application/cloudevents+json; charset=utf-8")


def signature_headers(message: Message, key: bytes, seconds: int) -> dict[str, str]:
    """Return the headers that prove who sent it; `seconds`: since 1970."""
    headers = {"webhook-id": message.event_id, "webhook-timestamp": str(seconds)}
    if key:
        signed = f"{message.event_id}.{seconds}.".encode() + message.body
        headers["webhook-signature"] = "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    return headers


class Webhook(IncidentFeed):
    """Delivers news one after the other, in the background.

    Args:
        receiver: of the news.
        clock: for times and pauses.
    """

    def __init__(self, receiver: Receiver, clock: Clock) -> None:
        self._receiver, self._clock = receiver, clock
        self._queue: asyncio.Queue[IncidentNews] = asyncio.Queue(MOST_WAITING)
        for outcome in ("delivered", "failed", "dropped"):
            metrics.WEBHOOK_EVENTS.labels(outcome)

    def queue_news(self, news: Iterable[IncidentNews]) -> None:
        """Queue news; never wait, never fail: beyond `MOST_WAITING` they are dropped and counted."""
        if not self._receiver.is_set:
            return
        for one in news:
            try:
                self._queue.put_nowait(one)
            except asyncio.QueueFull:
                metrics.WEBHOOK_EVENTS.labels("dropped").inc()
                log.warning("webhook: %s is dropped, too many wait", one.event_id)

    async def deliver_for_ever(self) -> None:
        """Deliver until cancelled."""
        while True:
            news = await self._queue.get()
            try:
                await self._deliver_news(news)
            except Exception as error:  # news that cannot be told must not end the process
                # Its own words and trace stay out of the log: they may hold the address.
                log.error("webhook: %s is dropped: %s", news.event_id, type(error).__name__)  # noqa: TRY400
                metrics.WEBHOOK_EVENTS.labels("failed").inc()
            await self._clock.sleep(PACE_SECONDS)

    async def _deliver_news(self, news: IncidentNews) -> None:
        backoff = Backoff(first=2.0, longest=60.0)
        message = build_message(news, self._receiver)
        for attempt in range(1, TRIES + 1):
            try:
                await self._post_message(message)
            except NotDeliveredError as error:
                if not error.may_pass or attempt == TRIES:
                    log.warning("webhook: %s is not delivered: %s", message.event_id, error)
                    break
                await self._clock.sleep(backoff.next_delay())
            else:
                metrics.WEBHOOK_EVENTS.labels("delivered").inc()
                return
        metrics.WEBHOOK_EVENTS.labels("failed").inc()

    async def _post_message(self, message: Message) -> None:
        """Post it once.

        Raises:
            NotDeliveredError: the receiver has not taken it.
        """
        url, key = self._receiver.read_url(), self._receiver.read_key()
        if not url:
            raise NotDeliveredError("the Secret has no url yet", may_pass=True)
        headers = {
            "Content-Type": message.content_type,
            "User-Agent": f"hajob-operator/{VERSION}",
            **signature_headers(message, key, self._clock.now_milliseconds() // 1000),
        }
        connector = aiohttp.TCPConnector(ssl=self._receiver.trust_context())
        try:
            # A connection of its own: there is one event now and then, and proxies of the environment are for it.
            async with (
                timeout(self._clock, REQUEST_SECONDS),
                aiohttp.ClientSession(connector=connector, trust_env=True) as session,
                session.post(url, data=message.body, headers=headers, allow_redirects=False) as answer,
            ):
                said = await answer.content.read(ANSWER_BYTES)
        except TimeoutError:
            raise NotDeliveredError(f"no answer within {REQUEST_SECONDS:g} s", may_pass=True) from None
        except (aiohttp.InvalidURL, ValueError):
            raise NotDeliveredError("its url is none", may_pass=False) from None
        except (aiohttp.ClientError, OSError) as error:
            raise NotDeliveredError(f"it cannot be reached ({type(error).__name__})", may_pass=True) from None
        if problem := problem_of_answer(answer.status, said):
            raise NotDeliveredError(problem, may_pass=answer.status in PASSING or answer.status >= 500)


def problem_of_answer(status: int, said: bytes) -> str:
    """Return what is wrong by an answer; empty: the message was taken."""
    if not 200 <= status < 300:
        return f"the receiver answers {status}"
    found: object = None
    with contextlib.suppress(orjson.JSONDecodeError):
        found = orjson.loads(said)
    if isinstance(found, dict):
        codes = {name: found[name] for name in _PROBLEMS if isinstance(found.get(name), int)}
        wrong = next((f"{name} {code}" for name, code in codes.items() if code), "")
        return f"the robot refuses it ({wrong})" if wrong else ""
    return ""
