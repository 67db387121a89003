"""Verbs about jobs and nodes, typed at a real server: with all rights, with none, for nothing, into a closed pipe."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from e2e.cluster.control_plane import ControlPlane
from hajob.cli.exits import DONE, NOBODY_READS, NOT_DONE
from hajob.cli.main import main
from hajob.cli.objects import path_of_job

Json = dict[str, Any]
VERBS = [
    ("status", "{job}"),
    ("why", "{job}"),
    ("timeline", "{job}"),
    ("watch", "{job}", "--once"),
    ("report", "{job}"),
    ("survive", "{job}", "--nodes", "2"),
    ("bundle", "{job}", "--filename", "/dev/null"),
    ("suspend", "{job}"),
    ("resume", "{job}"),
    ("restart", "{job}"),
    ("migrate", "{job}", "--off", "{node}"),
    ("doctor", "{job}"),
    ("quarantine", "add", "{node}"),
    ("quarantine", "release", "{node}"),
    ("inject", "sub-health", "{node}", "0"),
    ("inject", "recover", "{node}"),
    ("drain", "{node}", "--wait"),
    ("drain", "{node}", "--undo"),
]
NAMES = [" ".join(words).translate(str.maketrans("", "", "{}")) for words in VERBS]


@pytest.fixture(scope="module")
def place(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Json]:
    """A namespace with a job, a node, and the kubeconfigs of somebody who may do anything and of nobody."""
    name = f"verbs-{secrets.token_hex(4)}"
    directory = tmp_path_factory.mktemp("verbs")
    control_plane.kubectl("create", "namespace", name)
    control_plane.kubectl("create", "serviceaccount", "nobody", "-n", name)
    token = control_plane.kubectl("create", "token", "nobody", "-n", name).stdout.strip()
    known = yaml.safe_load(control_plane.kubeconfig.read_text())
    known["contexts"][0]["context"]["namespace"] = name
    (directory / "admin").write_text(yaml.safe_dump(known))
    known["users"][0]["user"] = {"token": token}
    (directory / "nobody").write_text(yaml.safe_dump(known))
    node = f"node-{name}"
    control_plane.api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
    yield {"namespace": name, "node": node, "admin": str(directory / "admin"), "nobody": str(directory / "nobody")}
    control_plane.api.delete(f"/api/v1/nodes/{node}")
    control_plane.api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def job_name(control_plane: ControlPlane, place: Json, job: Json, crd: Json) -> Iterator[str]:
    assert crd
    name = job["metadata"]["name"]
    path = path_of_job(place["namespace"], name)
    control_plane.api.create(
        path.rpartition("/")[0], {**job, "metadata": {"name": name, "namespace": place["namespace"]}}
    )
    yield name
    control_plane.api.delete(path)


def filled(words: tuple[str, ...], job: str, node: str) -> list[str]:
    return [word.format(job=job, node=node) for word in words]


@pytest.mark.parametrize("words", VERBS, ids=NAMES)
def test_a_verb_does_what_it_says(
    words: tuple[str, ...],
    place: Json,
    job_name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KUBECONFIG", place["admin"])
    expected = NOT_DONE if words[0] == "doctor" else DONE  # there is no operator, which it finds
    assert main(filled(words, job_name, place["node"])) == expected
    told = capsys.readouterr()
    assert (bool(told.out.strip()), told.err) == (True, "")


@pytest.mark.parametrize("words", VERBS, ids=NAMES)
def test_what_is_not_there_is_said_in_a_sentence(
    words: tuple[str, ...], place: Json, crd: Json, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert crd
    monkeypatch.setenv("KUBECONFIG", place["admin"])
    left_over = "recover" in words  # faults may outlive the node that they were injected into
    assert main(filled(words, "absent", "absent")) == (DONE if left_over else NOT_DONE)
    told = capsys.readouterr()
    if left_over:
        return
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert told.err.startswith("error: there is no ")


@pytest.mark.parametrize("words", VERBS, ids=NAMES)
def test_without_a_right_nothing_is_claimed(
    words: tuple[str, ...],
    place: Json,
    job_name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KUBECONFIG", place["nobody"])
    assert main(filled(words, job_name, place["node"])) == 1
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert "cannot get resource" in told.err


@pytest.mark.parametrize("words", VERBS, ids=NAMES)
def test_a_closed_pipe_is_no_error(words: tuple[str, ...], place: Json, job_name: str) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run(
        [sys.executable, "-m", "hajob.cli.main", *filled(words, job_name, place["node"])],
        env={**os.environ, "KUBECONFIG": place["admin"]},
        stdout=writes,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writes)
    assert (done.returncode, done.stderr) == (NOBODY_READS, "")
