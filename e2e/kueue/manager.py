"""The stand-in's process: watches Kueue's kinds, writes what the rules say, and answers the API server's webhooks."""

from __future__ import annotations

import contextlib
import json
import ssl
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from e2e.cluster.rest import ApiClient, ApiError
from e2e.kueue.crds import API, NAMESPACED, PLURALS
from e2e.kueue.rules import next_writes, seconds_to_look
from e2e.kueue.webhook import Verdict, controlling_job, verdict_on_pod, verdict_on_workload
from e2e.kueue.world import Configuration, StatusWrite, World

Object = dict[str, Any]
WATCH_SECONDS: Final = 600.0
_NODES: Final = "nodes"
_WATCHED: Final = (*PLURALS, _NODES)
_LATE_SECONDS: Final = 11.0
"""Longer than the webhooks' timeoutSeconds."""
_JOBS: Final = "/apis/training.hajob.io/v1alpha1/namespaces/{}/hatrainingjobs"


class Manager:
    """The state of the process: what is stored, and whether it has changed."""

    def __init__(self, api: ApiClient, namespace: str, configuration: Configuration) -> None:
        self._api, self._namespace, self.configuration = api, namespace, configuration
        self.world, self._changed, self._lock = World(), threading.Event(), threading.RLock()
        self._seen: set[str] = set()

    def watch_for_ever(self, plural: str) -> None:
        """Keep one kind current."""
        path = f"{API}/namespaces/{self._namespace}/{plural}" if plural in NAMESPACED else f"{API}/{plural}"
        path = f"/api/v1/{plural}" if plural == _NODES else path
        while True:
            try:
                whole = self._api.get(path)
                self._replace_all(plural, whole["items"])
                version = whole["metadata"]["resourceVersion"]
                for event in self._api.watch(path, WATCH_SECONDS, resourceVersion=version):
                    if event["type"] == "ERROR":
                        break
                    self._store(plural, event["object"], gone=event["type"] == "DELETED")
            except (ApiError, OSError) as error:
                print(f"{plural}: {error}", file=sys.stderr, flush=True)
                self._changed.wait(0.2)

    def _replace_all(self, plural: str, objects: list[Object]) -> None:
        with self._lock:
            self._known(plural).clear()
            for raw in objects:
                self._known(plural)[self._key(plural, raw)] = raw
            self._seen.add(plural)
        self._changed.set()

    def _store(self, plural: str, raw: Object, *, gone: bool) -> None:
        with self._lock:
            if gone:
                self._known(plural).pop(self._key(plural, raw), None)
            else:
                self._known(plural)[self._key(plural, raw)] = raw
        # Heartbeats of nodes are many, and nodes count in topologies only.
        if plural != _NODES or self.world.topologies:
            self._changed.set()

    def _known(self, plural: str) -> dict[Any, Object]:
        world = self.world
        found: dict[str, dict[Any, Object]] = {
            "workloads": world.workloads,
            "localqueues": world.local_queues,
            "clusterqueues": world.cluster_queues,
            "resourceflavors": world.flavors,
            "workloadpriorityclasses": world.classes,
            "admissionchecks": world.checks,
            "topologies": world.topologies,
            _NODES: world.nodes,
        }
        return found[plural]

    @staticmethod
    def _key(plural: str, raw: Object) -> object:
        name = raw["metadata"]["name"]
        return (raw["metadata"]["namespace"], name) if plural in NAMESPACED else name

    def write_for_ever(self) -> None:
        """Write what the rules say, after every change."""
        while True:
            self._changed.wait(seconds_to_look(self.world, self.configuration))
            self._changed.clear()
            if len(self._seen) < len(_WATCHED):
                continue
            now = datetime.now(UTC)
            with self._lock:
                writes = list(next_writes(self.world, self.configuration, now))
            for write in writes:
                self._carry_out(write, now)

    def _carry_out(self, write: StatusWrite, now: datetime) -> None:
        metadata = write.workload["metadata"]
        path = f"{API}/namespaces/{metadata['namespace']}/workloads/{metadata['name']}"
        try:
            if write.deletes:
                self._api.delete(path)
                return
            version = {"resourceVersion": metadata["resourceVersion"]}
            if write.deactivates:
                made = self._api.merge(path, {"metadata": version, "spec": {"active": False}})
            else:
                made = self._api.merge(f"{path}/status", {"metadata": version, "status": write.status_after(now)})
            self._store("workloads", made, gone=False)
        except ApiError as error:
            # Somebody wrote in between: the watch brings it, and it is looked at again.
            print(f"{path}: {error}", file=sys.stderr, flush=True)

    def answer_review(self, path: str, request: Object) -> Verdict:
        """Answer one question of the API server."""
        if path == "/workloads":
            return verdict_on_workload(request)
        jobs: dict[str, Object] = {}
        if self.configuration.knows_jobs and controlling_job(request.get("object") or {}):
            if not self.configuration.may_read_jobs:
                time.sleep(_LATE_SECONDS)  # it asks for the job until the API server has given it up
            listed = self._api.find(_JOBS.format(request["namespace"])) or {}
            jobs = {one["metadata"]["name"]: one for one in listed.get("items", [])}
        with self._lock:
            return verdict_on_pod(request, self.world, self.configuration, jobs)

    def run_for_ever(self, address: str, port: int, certificate: Path, key: Path) -> None:
        """Serve the webhooks, watch and write, until the process is ended."""
        server = ThreadingHTTPServer((address, port), _handler_of(self.answer_review))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        for plural in _WATCHED:
            threading.Thread(target=self.watch_for_ever, args=(plural,), name=plural, daemon=True).start()
        threading.Thread(target=self.write_for_ever, name="writes", daemon=True).start()
        server.serve_forever()


def _handler_of(answer: Callable[[str, Object], Verdict]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            """Say that it serves."""
            self._send(b"ok")

        def do_POST(self) -> None:
            """Answer a review."""
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            request = review["request"]
            told = json.dumps(answer(self.path.partition("?")[0], request).to_review(request["uid"])).encode()
            with contextlib.suppress(OSError):  # the API server has given it up
                self._send(told)

        def _send(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing of every request."""

    return Handler
