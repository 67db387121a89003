"""Requests to an API server: which kubeconfig needs no library, and what is sent."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from hajob.cli import connection
from hajob.cli.cluster import ClusterError, ForbiddenError
from hajob.cli.objects import KubernetesObjects


class Server(ThreadingHTTPServer):
    """Answers with what it is told to, and remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.status, self.content = 200, b"{}"


class Answering(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def _answer_request(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.command, self.path, dict(self.headers), body))
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        self.wfile.write(self.server.content)
        self.close_connection = True  # without a word, as a server does with a connection that is idle

    do_GET = do_POST = do_PATCH = do_DELETE = _answer_request  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in connection.PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def write_kubeconfig(path: Path, user: dict[str, Any], **cluster: Any) -> str:
    whole = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1", **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    file = path / "config"
    file.write_text(yaml.safe_dump(whole))
    return str(file)


def url_of_server(server: Server) -> str:
    return f"http://127.0.0.1:{server.server_port}"


def test_a_token_goes_with_every_request(server: Server, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-a-file\n")
    for user in ({"token": "secret"}, {"tokenFile": "token"}):
        objects = KubernetesObjects(write_kubeconfig(tmp_path, user, server=f"{url_of_server(server)}/behind/"))
        assert objects.namespace == "team"
        objects.find_object("/api/v1/nodes?limit=1")
    assert [(method, path, headers.get("Authorization")) for method, path, headers, _ in server.asked] == [
        ("GET", "/behind/api/v1/nodes?limit=1", "Bearer secret"),
        ("GET", "/behind/api/v1/nodes?limit=1", "Bearer from-a-file"),
    ]


def test_a_write_names_who_writes(server: Server, tmp_path: Path) -> None:
    objects = KubernetesObjects(write_kubeconfig(tmp_path, {}, server=url_of_server(server)))
    objects.patch_object("/api/v1/nodes/a", {"spec": {"unschedulable": True}})
    ((method, path, headers, body),) = server.asked
    assert (method, path) == ("PATCH", "/api/v1/nodes/a?fieldManager=kubectl-hajob")
    assert headers["Content-Type"] == "application/merge-patch+json"
    assert body == b'{"spec": {"unschedulable": true}}'


def test_a_connection_that_the_server_closed_is_opened_again(server: Server, tmp_path: Path) -> None:
    objects = KubernetesObjects(write_kubeconfig(tmp_path, {}, server=url_of_server(server)))
    assert [objects.find_object("/api") for _ in range(3)] == [{}, {}, {}]


@pytest.mark.parametrize(
    ("status", "content", "kind", "said"),
    [
        (403, b'{"message": "jane may not"}', ForbiddenError, "GET /api: jane may not"),
        (500, b"<html>", ClusterError, "GET /api: 500 Internal Server Error"),
        (200, b"<html>", ClusterError, "GET /api: the answer is no JSON"),
    ],
)
def test_a_refusal_is_a_sentence(
    server: Server, tmp_path: Path, status: int, content: bytes, kind: type[ClusterError], said: str
) -> None:
    server.status, server.content = status, content
    objects = KubernetesObjects(write_kubeconfig(tmp_path, {}, server=url_of_server(server)))
    with pytest.raises(kind) as refused:
        objects.find_object("/api")
    assert str(refused.value) == said


def test_what_is_absent_is_none(server: Server, tmp_path: Path) -> None:
    server.status = 404
    assert KubernetesObjects(write_kubeconfig(tmp_path, {}, server=url_of_server(server))).find_object("/api") is None


def test_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"the API server cannot be reached: .*refused"):
        KubernetesObjects(write_kubeconfig(tmp_path, {})).find_object("/api")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{}", "current-context is not set"),
        ("{current-context: a}", "it has no context a"),
        ("[1]", "no attribute"),
        ("a: [", "while parsing"),
    ],
)
def test_a_bad_kubeconfig_is_a_sentence(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "config"
    file.write_text(content)
    with pytest.raises(ClusterError, match=f"(?s)no kubeconfig can be used: {file}.*{said}"):
        KubernetesObjects(str(file))


@pytest.mark.parametrize(
    ("user", "cluster"),
    [
        ({"client-certificate-data": "%%%"}, {}),
        ({"client-certificate": "absent.crt"}, {}),
        ({}, {"certificate-authority-data": base64.b64encode(b"none").decode()}),
        ({}, {"server": "no-url"}),
    ],
)
def test_unreadable_parts_are_told_at_once(tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any]) -> None:
    with pytest.raises(ClusterError, match="no kubeconfig can be used"):
        KubernetesObjects(write_kubeconfig(tmp_path, user, **{"server": "https://127.0.0.1:1", **cluster}))


@pytest.mark.parametrize(
    ("user", "cluster"),
    [({"exec": {"command": "login"}}, {}), ({}, {"proxy-url": "http://proxy"}), ({}, {"tls-server-name": "api"})],
)
def test_other_forms_are_left_to_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: dict[str, Any], cluster: dict[str, Any]
) -> None:
    left: list[tuple[object, ...]] = []
    monkeypatch.setattr(connection, "LibraryConnection", lambda *asked: left.append(asked[:2]))
    file = write_kubeconfig(tmp_path, user, **cluster)
    connection.open_connection(file, "here")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    connection.open_connection(write_kubeconfig(tmp_path, {}), None)
    assert left == [(file, "here"), (file, None)]
