"""The webhook of a real operator: a receiver that is away during an incident hears of its begin and its end later."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from e2e.harness.job import Job
from e2e.harness.rig import Rig, RigLayout

Json = dict[str, Any]
SMALL: Json = {"tensor": 1, "nodes": 2, "chips": 1, "iterations": 100_000}
FIRST_KEY, SECOND_KEY = b"the-first-key", b"the-second-key"
DELIVERED_SECONDS = 120.0
"""Six tries are over after some two minutes; on a busy machine the last pause is the longest."""


class Received(NamedTuple):
    """A request, and what it was answered."""

    headers: Message
    body: bytes
    answer: int

    @property
    def event(self) -> Json:
        found: Json = json.loads(self.body)
        return found

    def is_signed_with(self, key: bytes) -> bool:
        """Whether its signature is that of Standard Webhooks with this key."""
        signed = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode() + self.body
        expected = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
        return str(self.headers["webhook-signature"]) == f"v1,{expected}"


class Target:
    """A receiver whose port is its own from the beginning, and which refuses connections until it comes.

    Attributes:
        answers: what the next requests are answered; then 204.
        got: each request.
    """

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.got: list[Received] = []
        target = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answer = target.answers.pop(0) if target.answers else 204
                target.got.append(Received(self.headers, body, answer))
                self.send_response(answer)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self._server.server_bind()
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook/secret-of-a-robot"

    def begin_to_listen(self) -> None:
        """Come: connections are taken from now on."""
        self._server.server_activate()
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def taken(self, number: int) -> list[Received]:
        """The events of an incident that were answered with success."""
        return [one for one in self.got if one.answer < 300 and one.event["data"]["incident"] == number]

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def away() -> Iterator[Target]:
    """A receiver that has not come yet."""
    target = Target()
    try:
        yield target
    finally:
        target.close()


def counted(rig: Rig) -> dict[str, float]:
    """What the operator has counted of its news, by outcome."""
    pods = rig.plane.api.items(f"/api/v1/namespaces/{rig.operator_namespace}/pods")
    (address,) = (one["status"]["podIP"] for one in pods if one["metadata"]["name"].startswith("hajob-operator"))
    with urllib.request.urlopen(f"http://{address}:8080/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    told = (line.rpartition(" ") for line in lines if line.startswith("hajob_webhook_events_total{"))
    return {name.partition('outcome="')[2].rstrip('"}'): float(value) for name, _, value in told}


def wait_taken(rig: Rig, target: Target, number: int) -> list[Received]:
    """The begin and the end of an incident, once both are there."""
    what = f"news of incident {number}"
    rig.plane.wait(what, lambda: len(target.taken(number)) == 2 or None, DELIVERED_SECONDS)
    return target.taken(number)


def assert_tells(job: Job, told: list[Received], entry: Json) -> None:
    """The two events tell what the status tells of the incident."""
    uid = job.get()["metadata"]["uid"]
    begun, ended = (one.event for one in told)
    number = entry["incarnation"]
    assert [begun["id"], ended["id"]] == [f"{uid}/{number}/begun", f"{uid}/{number}/ended"]
    assert [begun["type"], ended["type"]] == ["io.hajob.incident.begun", "io.hajob.incident.ended"]
    for one, received in zip((begun, ended), told, strict=True):
        assert one["specversion"] == "1.0"
        assert one["source"] == f"/prod-a/namespaces/{job.namespace}/hatrainingjobs/{job.name}"
        assert received.headers["Content-Type"].startswith("application/cloudevents+json")
        assert received.headers["webhook-id"] == one["id"]
        assert one["data"]["cause"] == entry["cause"]["code"]
        assert one["data"]["startTime"] == begun["time"] == f"{entry['startTime'][:19]}Z"
    assert begun["data"]["outcome"] == "Open"
    assert "outageSeconds" not in begun["data"]
    assert ended["data"]["outcome"] == entry["outcome"] == "Recovered"
    assert ended["data"]["action"] == entry["action"]
    assert ended["data"]["outageSeconds"] > 0
    assert ended["data"]["lostSteps"] == entry.get("lostSteps", 0)


def test_a_receiver_that_comes_late_hears_of_all(start_rig: Callable[[RigLayout], Rig], tmp_path: Path) -> None:
    secret = tmp_path / "webhook"
    secret.mkdir()
    with away() as target:
        (secret / "url").write_text(target.url)
        (secret / "key").write_bytes(FIRST_KEY)
        settings = {"HAJOB_WEBHOOK_DIRECTORY": str(secret), "HAJOB_WEBHOOK_CLUSTER": "prod-a"}
        rig = start_rig(RigLayout(chip_nodes=3, chips=1, operator_environment=settings))
        job = rig.submit(**SMALL)
        job.wait_step(20)

        rig.nodes.control.kill(namespace=rig.namespace, rank=1)
        entry = job.wait_incident(2)
        assert target.got == [], "it is away, and nothing waits for it"
        target.answers = [503]
        target.begin_to_listen()
        told = wait_taken(rig, target, 2)
        assert_tells(job, told, entry)
        assert all(one.is_signed_with(FIRST_KEY) for one in target.got)
        refused, again = target.got[:2]
        assert (refused.answer, refused.headers["webhook-id"]) == (503, again.headers["webhook-id"])

        (secret / "key").write_bytes(SECOND_KEY)
        job.wait_step(job.common_step() + 10)
        rig.nodes.control.kill(namespace=rig.namespace, rank=0)
        entry = job.wait_incident(3)
        told = wait_taken(rig, target, 3)
        assert_tells(job, told, entry)
        assert [one.is_signed_with(SECOND_KEY) for one in told] == [True, True]
        assert counted(rig) == {"delivered": 4, "failed": 0, "dropped": 0}
        log = "".join(path.read_text() for path in operator_logs(rig))
        assert "secret-of-a-robot" not in log
        assert FIRST_KEY.decode() not in log


def operator_logs(rig: Rig) -> list[Path]:
    """The files with what the operator has logged."""
    logs = rig.plane.run.directory / f"nodes-{rig.name}" / "logs"
    found = sorted(logs.glob("*/*hajob-operator*/*/*.log"))
    assert found
    return found
