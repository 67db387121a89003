"""Which context of which file counts, as kubectl chooses it, and what of it cannot be used."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from hajob.kube.kubeconfig import KubeconfigError, authorization_of, impersonation_of, read_context
from hajob.kube.kubeconfig import with_printed_credentials as printed

V1 = "client.authentication.k8s.io/v1"
ANSWER = f'{{"apiVersion": "{V1}", "kind": "ExecCredential", "status": %s}}'


def write_file(path: Path, context: str, user: object, **cluster: object) -> str:
    """A kubeconfig whose context, cluster and user have one name."""
    whole = {
        "current-context": context,
        "contexts": [{"name": context, "context": {"cluster": "c", "user": "u", "namespace": path.name}}],
        "clusters": [{"name": "c", "cluster": {"server": f"https://{path.name}", **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    path.mkdir(exist_ok=True)
    file = path / "config"
    file.write_text(yaml.safe_dump(whole))
    return str(file)


def test_of_several_files_the_first_one_counts(tmp_path: Path) -> None:
    first = write_file(tmp_path / "first", "a", {"tokenFile": "t"}, **{"certificate-authority": "ca"})
    second = write_file(tmp_path / "second", "b", {"token": "other"})
    (tmp_path / "first" / "t").write_text("mine\n")
    files = os.pathsep.join([str(tmp_path / "absent"), first, "", second])
    found = read_context(files)
    assert (found.namespace, found.cluster["server"]) == ("first", "https://first")
    assert found.cluster["certificate-authority"] == str(tmp_path / "first" / "ca")
    assert authorization_of(found.user) == "Bearer mine"
    found = read_context(files, "b")
    assert (found.namespace, found.cluster["server"]) == ("second", "https://first"), "names are those of all files"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"users": []}, "it has no user u"),
        ({"users": [{"name": "u"}] * 2}, "more than one user u"),
        ({"users": {"u": 1}}, "its users are no list"),
        ({"users": [{"name": "u", "user": "me"}]}, "its user u is no mapping"),
        ({"clusters": []}, "it has no cluster c"),
        ({"clusters": [{"name": "c", "cluster": {"server": "ftp://x"}}]}, "'ftp://x' is no URL"),
        ({"current-context": "z"}, "it has no context z"),
        ({"users": [{"name": "u", "user": {"as-groups": ["a"]}}]}, "names nobody in as"),
    ],
)
def test_a_part_that_is_missing_is_no_nobody(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    file = Path(write_file(tmp_path, "a", {}))
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **change}))
    with pytest.raises(KubeconfigError, match=said):
        read_context(str(file))


@pytest.mark.parametrize(
    "user",
    [
        {"as": ["jane"]},
        {"as": "jane\nImpersonate-Group: system:masters"},
        {"as": "jane", "as-groups": "a"},
        {"as": "jane", "as-groups": [1]},
        {"as": "jane", "as-groups": [""]},
        {"as": "jane", "as-user-extra": {"a": "b"}},
        {"as": "jane", "as-user-extra": ["a"]},
        {"as-uid": "7"},
    ],
)
def test_a_person_that_cannot_be_named_is_an_error(user: dict[str, Any]) -> None:
    with pytest.raises(KubeconfigError):
        impersonation_of(user)


@pytest.mark.parametrize(
    ("user", "said"),
    [
        ({}, ""),
        ({"token": "a", "username": "me"}, "Bearer a"),
        ({"username": "me", "password": "secret"}, "Basic bWU6c2VjcmV0"),
        ({"password": "secret"}, "Basic OnNlY3JldA=="),
    ],
)
def test_what_authorizes_a_user(user: dict[str, Any], said: str) -> None:
    assert authorization_of(user) == said


def program_that_prints(answer: str, **more: object) -> dict[str, Any]:
    return {"exec": {"apiVersion": V1, "command": sys.executable, "args": ["-c", f"print({answer!r})"], **more}}


def test_a_program_prints_a_certificate(tmp_path: Path) -> None:
    answer = ANSWER % '{"clientCertificateData": "PEM", "clientKeyData": "KEY", "expirationTimestamp": "2026-01-01"}'
    found = printed(read_context(write_file(tmp_path, "a", program_that_prints(answer))))
    assert (found.user["client-certificate-data"], found.user["client-key-data"]) == ("UEVN", "S0VZ")
    assert found.expires == "2026-01-01"


def test_a_token_that_is_written_down_needs_no_program(tmp_path: Path) -> None:
    user = {"token": "mine", **program_that_prints("nothing")}
    assert authorization_of(printed(read_context(write_file(tmp_path, "a", user))).user) == "Bearer mine"


@pytest.mark.parametrize(
    ("user", "said"),
    [
        (program_that_prints("nothing"), "printed no JSON"),
        (program_that_prints("[]"), "printed no ExecCredential"),
        (program_that_prints(ANSWER % "{}"), "neither a token nor a certificate"),
        (program_that_prints(ANSWER % "null"), "neither a token nor a certificate"),
        (program_that_prints(ANSWER % '{"clientCertificateData": "PEM"}'), "without its key"),
        (program_that_prints(ANSWER.replace("/v1", "/v9") % '{"token": "a"}'), "/v1 was asked for"),
        (program_that_prints("", interactiveMode="Always"), "wants a terminal"),
        (program_that_prints("", args=["-c", "import sys; sys.exit('log in\\nfirst')"]), "returned 1. log in first"),
        (program_that_prints("", command="no-such-login", installHint="get\n it"), "no-such-login is not .*. get it"),
        (program_that_prints("", command="./no-such-login"), "/no-such-login is not there"),
        (program_that_prints("", command=""), "names no command"),
        (program_that_prints("", apiVersion="v1"), "'v1' in exec of its user is not of client.authentication"),
        ({"exec": "login"}, "exec of its user is no mapping"),
    ],
)
def test_a_program_that_fails_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: dict[str, Any], said: str
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(KubeconfigError, match=said):
        printed(read_context(write_file(tmp_path, "a", user)))
