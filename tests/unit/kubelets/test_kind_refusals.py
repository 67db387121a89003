"""Where Docker or kind is missing one sentence says so, and nothing is begun."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path

import pytest
import yaml

from e2e.cluster.components import RunLayout
from e2e.kubelets.configuration import DIRECTORY
from e2e.kubelets.kind import __main__ as kind
from e2e.kubelets.kind import nodes


def programs(directory: Path, monkeypatch: pytest.MonkeyPatch, **contents: str) -> None:
    """Nothing but these is on the PATH, and we are root."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for name, content in contents.items():
        path = directory / name
        path.write_text(f"#!/bin/sh\n{content}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(directory))


@pytest.mark.parametrize(
    ("there", "words"),
    [
        ({}, "needs docker and kind on the PATH"),
        ({"docker": "exit 0"}, "needs kind on the PATH; kind comes by"),
        ({"docker": "echo Cannot connect to the Docker daemon >&2; exit 1", "kind": ""}, "refuses: Cannot connect"),
        ({"docker": "exit 0", "kind": ""}, ""),
    ],
)
def test_what_lacks_for_kind_is_named(
    there: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    programs(tmp_path, monkeypatch, **there)
    said = nodes.refusal()
    assert words in said
    assert bool(words) == bool(said)


def test_another_user_than_root_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "needs root" in nodes.refusal()


def test_without_docker_nothing_is_begun(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    programs(tmp_path, monkeypatch)
    monkeypatch.delenv(DIRECTORY, raising=False)
    assert kind.main([]) == 1
    assert "nodes of kind's are left out: PROVIDER=kind needs docker and kind" in capsys.readouterr().err
    assert DIRECTORY not in os.environ
    assert not kind.is_chosen()


def test_a_refused_command_is_told_with_its_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    programs(tmp_path, monkeypatch, kind="echo ERROR: no such image >&2; exit 1")
    with pytest.raises(nodes.KindError, match="kind load image-archive: ERROR: no such image"):
        nodes.run_command(["kind", "load", "image-archive"])


def test_the_admins_certificate_is_taken_from_kubeconfig(tmp_path: Path) -> None:
    layout = RunLayout(tmp_path, "127.2.0.1", {"apiserver": 6443})
    coded = {name: base64.b64encode(name.encode()).decode() for name in ("authority", "certificate", "key")}
    content = {
        "clusters": [{"cluster": {"certificate-authority-data": coded["authority"]}}],
        "users": [{"user": {"client-certificate-data": coded["certificate"], "client-key-data": coded["key"]}}],
    }
    layout.kubeconfig("admin").write_text(yaml.safe_dump(content))
    nodes.write_credentials(layout)
    found = {path.name: path.read_text() for path in layout.pki.iterdir()}
    assert found == {"ca.crt": "authority", "admin.crt": "certificate", "admin.key": "key"}
