"""What stands before an API server may answer in a way of its own: every command says so, without a traceback."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hajob.cli import connection
from hajob.cli.main import main
from tests.rigs.answering_server import AnsweringServer, serve_answers

COMMANDS = (
    *("list", "list -o json", "top --once", "status x", "why x", "timeline x", "timeline x --incident 1", "report x"),
    *("report x --since 24h", "nodes", "logs x", "logs x --failed", "stacks x", "doctor", "doctor x", "suspend x"),
    *("resume x", "restart x", "checkpoint x", "migrate x --off n", "drain n", "quarantine", "quarantine release n"),
    *("breaker", "survive x --nodes 1", "watch x --once", "inject chip n 1", "bundle x -f FILE"),
)
ANSWERS = {
    "a list": (200, b"[]"),
    "null": (200, b"null"),
    "a word": (200, b'"log in"'),
    "nothing": (200, b"{}"),
    "no items": (200, b'{"items": null, "metadata": {}}'),
    "strange items": (200, b'{"items": [null, 3, "x", {}], "metadata": {}}'),
    "a page": (200, b"<html>"),
    "not you": (401, b'{"message": "Unauthorized"}'),
    "broken": (502, b"<html>"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[AnsweringServer]:
    with serve_answers() as made:
        yield made


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_strange_answer_is_told_in_a_sentence(
    server: AnsweringServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: str,
) -> None:
    server.status, server.content = ANSWERS[answer]
    kubeconfig = tmp_path / "config"
    here = {"cluster": "c", "user": "u"}
    whole = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": here}],
        "clusters": [{"name": "c", "cluster": {"server": server.url}}],
        "users": [{"name": "u", "user": {}}],
    }
    kubeconfig.write_text(yaml.safe_dump(whole))
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    for name in connection.PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for command in COMMANDS:
        words = shlex.split(command.replace("FILE", str(tmp_path / "archive.tar.gz")))
        assert main(words) in {0, 1, 2}, command
        said = capsys.readouterr()
        assert "Traceback" not in said.err, command
