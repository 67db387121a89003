"""Requests to an API server: which kubeconfig needs no library, and what is sent."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hajob.cli import connection
from hajob.cli.cluster import ClusterError, Container, ForbiddenError, KubernetesCluster, Streams
from hajob.cli.objects import KubernetesObjects
from tests.rigs.answering_server import AnsweringServer, serve_answers


@pytest.fixture
def server() -> Iterator[AnsweringServer]:
    with serve_answers() as made:
        yield made


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


def test_a_token_goes_with_every_request(server: AnsweringServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-a-file\n")
    for user in ({"token": "secret"}, {"tokenFile": "token"}):
        objects = KubernetesObjects(write_kubeconfig(tmp_path, user, server=f"{server.url}/behind/"))
        assert objects.namespace == "team"
        objects.find_object("/api/v1/nodes?limit=1")
    assert [(method, path, headers.get("Authorization")) for method, path, headers, _ in server.asked] == [
        ("GET", "/behind/api/v1/nodes?limit=1", "Bearer secret"),
        ("GET", "/behind/api/v1/nodes?limit=1", "Bearer from-a-file"),
    ]


def test_a_write_names_who_writes(server: AnsweringServer, tmp_path: Path) -> None:
    objects = KubernetesObjects(write_kubeconfig(tmp_path, {}, server=server.url))
    objects.patch_object("/api/v1/nodes/a", {"spec": {"unschedulable": True}})
    ((method, path, headers, body),) = server.asked
    assert (method, path) == ("PATCH", "/api/v1/nodes/a?fieldManager=kubectl-hajob")
    assert headers["Content-Type"] == "application/merge-patch+json"
    assert body == b'{"spec": {"unschedulable": true}}'


def test_a_connection_that_the_server_closed_is_opened_again(server: AnsweringServer, tmp_path: Path) -> None:
    objects = KubernetesObjects(write_kubeconfig(tmp_path, {}, server=server.url))
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
    server: AnsweringServer, tmp_path: Path, status: int, content: bytes, kind: type[ClusterError], said: str
) -> None:
    server.status, server.content = status, content
    objects = KubernetesObjects(write_kubeconfig(tmp_path, {}, server=server.url))
    with pytest.raises(kind) as refused:
        objects.find_object("/api")
    assert str(refused.value) == said


def test_what_is_absent_is_none(server: AnsweringServer, tmp_path: Path) -> None:
    server.status = 404
    assert KubernetesObjects(write_kubeconfig(tmp_path, {}, server=server.url)).find_object("/api") is None


def test_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"the API server cannot be reached: .*refused"):
        KubernetesObjects(write_kubeconfig(tmp_path, {})).find_object("/api")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{}", "current-context is not set"),
        ("{current-context: a}", "it has no context a"),
        ("[1]", "it is no kubeconfig"),
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
    [
        ({"auth-provider": {"name": "oidc"}}, {}),
        ({}, {"proxy-url": "http://proxy"}),
        ({}, {"tls-server-name": "api"}),
    ],
)
def test_other_forms_are_left_to_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: dict[str, Any], cluster: dict[str, Any]
) -> None:
    left: list[str] = []
    monkeypatch.setattr(connection, "LibraryConnection", lambda found, _: left.append(found.namespace))
    file = write_kubeconfig(tmp_path, user, **cluster)
    connection.open_connection(file, "here")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    connection.open_connection(write_kubeconfig(tmp_path, {}), None)
    assert left == ["team", "team"]


JANE = {
    "token": "mine",
    "as": "jane",
    "as-uid": "7",
    "as-groups": ["a", "b"],
    "as-user-extra": {"Some key": ["x", "ü"]},
}
"""A user who acts as somebody else."""
AS_JANE = [
    ("Authorization", "Bearer mine"),
    ("Impersonate-Extra-Some%20key", "x"),
    ("Impersonate-Extra-Some%20key", "ü"),
    ("Impersonate-Group", "a"),
    ("Impersonate-Group", "b"),
    ("Impersonate-Uid", "7"),
    ("Impersonate-User", "jane"),
]


def identity_in(asked: Any) -> list[tuple[str, str]]:
    """What a request says of who asks; a server decodes headers as latin-1."""
    found = ((name.title(), value.encode("latin-1").decode()) for name, value in asked)
    wanted = [(name, value) for name, value in found if name.startswith(("Authorization", "Impersonate"))]
    return sorted((name.replace("Some%20Key", "Some%20key"), value) for name, value in wanted)


@pytest.mark.parametrize("way", ["plain", "library"])
def test_who_acts_as_somebody_else_says_so(
    server: AnsweringServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    file = write_kubeconfig(tmp_path, JANE, server=server.url)
    if way == "library":  # as where a proxy is on the way
        monkeypatch.setattr(connection, "PlainConnection", connection.LibraryConnection)
    objects = KubernetesObjects(file)
    objects.patch_object("/api/v1/nodes/a", {})
    objects.find_object("/api/v1/nodes")
    assert [identity_in(headers) for headers in server.headers] == [AS_JANE, AS_JANE]


def test_a_stream_is_opened_as_somebody_else(server: AnsweringServer, tmp_path: Path) -> None:
    server.status, server.content = 403, b'{"message": "jane may not"}'
    cluster = KubernetesCluster(write_kubeconfig(tmp_path, JANE, server=server.url))
    nowhere = Streams(lambda _: None, lambda _: None)
    with pytest.raises(ForbiddenError, match=r"pods/exec is needed\): jane may not$"):
        cluster.execute_in_container(Container("team", "pod", "trainer"), ["true"], nowhere, hold=False)
    server.status = 200
    server.content = b'{"items": []}'
    cluster.list_pods("team", "")
    assert [identity_in(headers) for headers in server.headers] == [AS_JANE, AS_JANE]


def test_a_program_is_asked_once_and_again_after_401(server: AnsweringServer, tmp_path: Path) -> None:
    program, calls = tmp_path / "login", tmp_path / "calls"
    program.write_text(f"""#!{sys.executable}
import json, pathlib, os
calls = pathlib.Path({str(calls)!r})
number = int(calls.read_text() or 0) + 1
calls.write_text(str(number))
told = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
status = {{"token": f"{{told['spec']['cluster']['server'][:4]}}-{{number}}"}}
print(json.dumps({{"apiVersion": told["apiVersion"], "kind": "ExecCredential", "status": status}}))
""")
    program.chmod(0o700)
    calls.write_text("")
    asked = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./login", "provideClusterInfo": True}
    objects = KubernetesObjects(write_kubeconfig(tmp_path, {"exec": asked}, server=server.url))
    for _ in range(2):
        objects.find_object("/api")
    assert calls.read_text() == "1"
    server.status = 401
    with pytest.raises(ClusterError):
        objects.find_object("/api")
    said = [headers.get("Authorization") for _, _, headers, _ in server.asked]
    assert said == ["Bearer http-1", "Bearer http-1", "Bearer http-1", "Bearer http-2"]
