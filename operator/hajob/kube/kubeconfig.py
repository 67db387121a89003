"""Kubeconfigs as kubectl reads them: several files as one, the programs that print credentials, and on whose behalf.

The package `kubernetes` takes the current context of the last file where kubectl takes that of the first, goes on as
nobody where a program fails or a user is missing, and knows nothing of impersonation. So a context is read here, and
the package gets one that holds nothing of that kind. What cannot be used is an error: a request as somebody else than
the kubeconfig says would be refused for a wrong cause, or not be refused.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import yaml

USUAL_FILE: Final = "~/.kube/config"
_SCHEMES: Final = ("http", "https")
_OF_CREDENTIALS: Final = "client.authentication.k8s.io/"
_PATHS_OF_CLUSTER: Final = ("certificate-authority",)
_PATHS_OF_USER: Final = ("client-certificate", "client-key", "tokenFile")
_SAFE_IN_HEADERS: Final = "!#$&'*+-.^_`|~"
"""What a header's name may hold beside letters and digits; the percent sign is what escapes the rest."""
_LONGEST_COMPLAINT: Final = 500
"""Characters of what a program says of its failure; the end of it says why."""

Headers = tuple[tuple[str, str], ...]
"""Names and values; a name may come again."""


class KubeconfigError(ValueError):
    """A kubeconfig cannot be used; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class KubeconfigContext:
    """One context of a kubeconfig, with absolute paths.

    Attributes:
        namespace: that is meant where none is named.
        cluster: its fields, as they are written.
        user: the same; empty: there is none.
        expires: until when what a program has printed is good, in RFC 3339; empty: it does not say.
    """

    namespace: str
    cluster: Mapping[str, Any]
    user: Mapping[str, Any]
    expires: str = ""

    @property
    def needs_program(self) -> bool:
        """Return whether a program prints the credentials: kubectl asks it only where none are written down."""
        return "exec" in self.user and not any(self.user.get(name) for name in ("token", "tokenFile", "username"))

    def as_kubeconfig(self) -> dict[str, Any]:
        """Return a whole kubeconfig with this one context, for the package kubernetes."""
        user = {key: one for key, one in self.user.items() if one and key != "exec"}
        if user.get("username") or user.get("password"):
            # the package takes no half of them
            user = {"username": "", "password": "", **user}
        return {
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it", "namespace": self.namespace}}],
            "clusters": [{"name": "it", "cluster": dict(self.cluster)}],
            "users": [{"name": "it", "user": user}],
        }


def read_context(files: str, context: str | None = None) -> KubeconfigContext:
    """Read a context, as kubectl chooses it; nothing is run.

    Args:
        files: paths, as `$KUBECONFIG` has them: of several the first one that has a cluster, a user or a context of a
            name counts, and files that are not there are passed over.
        context: its name; None: the current one.

    Raises:
        KubeconfigError: it is not there, lacks a part, or cannot be read.
    """
    wholes = [whole for path in files.split(os.pathsep) if path for whole in _read_file(Path(path).expanduser(), files)]
    if not wholes:
        raise KubeconfigError(f"{files}: {os.strerror(2)}")
    name = context or next((one for _, whole in wholes if (one := whole.get("current-context"))), None)
    if not name:
        raise KubeconfigError(f"{files}: current-context is not set; choose one with --context")
    _, chosen = _part_named(wholes, files, "context", name)
    beside_cluster, cluster = _part_named(wholes, files, "cluster", chosen.get("cluster"))
    user: Mapping[str, Any] = {}
    if chosen.get("user"):
        beside_user, written = _part_named(wholes, files, "user", chosen["user"])
        user = _with_absolute_paths(written, _PATHS_OF_USER, beside_user)
        if isinstance(program := user.get("exec"), Mapping):
            user = {**user, "exec": _with_absolute_command(program, beside_user)}
    url = urlsplit(str(cluster.get("server") or ""))
    if url.scheme not in _SCHEMES or not url.hostname:
        raise KubeconfigError(f"{files}: server {cluster.get('server')!r} is no URL")
    made = KubeconfigContext(
        str(chosen.get("namespace") or "default"),
        _with_absolute_paths(cluster, _PATHS_OF_CLUSTER, beside_cluster),
        user,
    )
    impersonation_of(user)
    return made


def _read_file(path: Path, files: str) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield the directory of a file and what it holds; nothing for one of several that is not there."""
    # libyaml is several times faster, and a wheel of PyYAML always has it.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        whole = yaml.load(path.read_bytes(), loader) or {}
    except FileNotFoundError:
        return
    except OSError as problem:
        raise KubeconfigError(f"{path}: {problem.strerror or problem}") from None
    except (yaml.YAMLError, ValueError) as problem:
        raise KubeconfigError(f"{path}: {problem}") from None
    if not isinstance(whole, dict):
        raise KubeconfigError(f"{path if os.pathsep in files else files}: it is no kubeconfig, which is a mapping")
    yield path.absolute().parent, whole


def _part_named(
    wholes: Sequence[tuple[Path, Mapping[str, Any]]], files: str, kind: str, name: object
) -> tuple[Path, Mapping[str, Any]]:
    """Return a cluster, user or context, and the directory that its paths begin at."""
    for directory, whole in wholes:
        listed = whole.get(f"{kind}s") or ()
        if not isinstance(listed, Sequence):
            raise KubeconfigError(f"{files}: its {kind}s are no list")
        found = [one for one in listed if isinstance(one, Mapping) and one.get("name") == name]
        if len(found) > 1:
            raise KubeconfigError(f"{files}: it has more than one {kind} {name}")
        if found:
            part = found[0].get(kind) or {}
            if not isinstance(part, Mapping):
                raise KubeconfigError(f"{files}: its {kind} {name} is no mapping")
            return directory, part
    raise KubeconfigError(f"{files}: it has no {kind} {name}")


def _with_absolute_paths(part: Mapping[str, Any], fields: Sequence[str], directory: Path) -> Mapping[str, Any]:
    return {**part, **{name: str(directory / str(part[name])) for name in fields if part.get(name)}}


def _with_absolute_command(program: Mapping[str, Any], directory: Path) -> Mapping[str, Any]:
    """Return a program whose command, where it is a path, begins at the root: others are looked for in `$PATH`."""
    command = str(program.get("command") or "")
    return {**program, "command": str(directory / command)} if os.sep in command else program


def content_of(part: Mapping[str, Any], name: str) -> bytes:
    """Return a field that holds base64, or the file that its other form names; empty: neither is there.

    Raises:
        ValueError: it is no base64.
        OSError: the file cannot be read.
    """
    if data := part.get(f"{name}-data"):
        return base64.b64decode("".join(str(data).split()), validate=True)
    return Path(str(path)).read_bytes() if (path := part.get(name)) else b""


def authorization_of(user: Mapping[str, Any]) -> str:
    """Return the Authorization header of a user with a token or a password; empty: there is none.

    Raises:
        ValueError: it cannot be sent.
        OSError: the file with the token cannot be read.
    """
    token = str(user.get("token") or "") or content_of({"token": user.get("tokenFile")}, "token").decode("ascii")
    if token := token.strip():
        if not token.isascii() or not token.isprintable():
            raise KubeconfigError("token of its user cannot be sent")
        return f"Bearer {token}"
    if user.get("username") or user.get("password"):
        both = f"{user.get('username') or ''}:{user.get('password') or ''}"
        return f"Basic {base64.b64encode(both.encode()).decode()}"
    return ""


def impersonation_of(user: Mapping[str, Any]) -> Headers:
    """Return the headers by which a user acts as somebody else: `as`, `as-uid`, `as-groups`, `as-user-extra`.

    Raises:
        KubeconfigError: they cannot be read, or name no user, without whom a server takes none of the others.
    """
    name, uid = user.get("as") or "", user.get("as-uid") or ""
    groups, extra = user.get("as-groups") or [], user.get("as-user-extra") or {}
    if not isinstance(groups, list):
        raise KubeconfigError("as-groups of its user is no list")
    if not isinstance(extra, Mapping) or not all(isinstance(values, list) for values in extra.values()):
        raise KubeconfigError("as-user-extra of its user is no mapping of lists")
    if not name and (uid or groups or extra):
        raise KubeconfigError("its user has as-uid, as-groups or as-user-extra, but names nobody in as")
    if not name:
        return ()
    made = [("Impersonate-User", name), *([("Impersonate-Uid", uid)] if uid else [])]
    made += [("Impersonate-Group", group) for group in groups]
    for key, values in extra.items():
        named = f"Impersonate-Extra-{quote(str(key), safe=_SAFE_IN_HEADERS)}"
        made += [(named, value) for value in values]
    for header, value in made:
        if not isinstance(value, str) or not value or not value.isprintable():
            raise KubeconfigError(f"{value!r} of its user cannot be sent as {header}")
    return tuple(made)


def with_printed_credentials(context: KubeconfigContext) -> KubeconfigContext:
    """Return a context with what its program has printed, which is run now; one without a program as it is.

    Raises:
        KubeconfigError: the program fails, or prints no credentials.
    """
    if not context.needs_program:
        return context
    program = context.user["exec"]
    if not isinstance(program, Mapping):
        raise KubeconfigError("exec of its user is no mapping")
    status = _status_printed_by(program, _as_exec_info(program, context.cluster))
    token, certificate, key = (status.get(name) or "" for name in ("token", "clientCertificateData", "clientKeyData"))
    if not token and not certificate:
        raise KubeconfigError(f"exec: {program['command']} printed neither a token nor a certificate")
    if bool(certificate) != bool(key):
        raise KubeconfigError(f"exec: {program['command']} printed a certificate without its key, or a key alone")
    printed = {"token": token} if token else {}
    if certificate:
        printed |= {
            "client-certificate-data": base64.b64encode(str(certificate).encode()).decode(),
            "client-key-data": base64.b64encode(str(key).encode()).decode(),
        }
    return replace(context, user={**context.user, **printed}, expires=str(status.get("expirationTimestamp") or ""))


def _as_exec_info(program: Mapping[str, Any], cluster: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a program is told of its call.

    Raises:
        KubeconfigError: the call cannot be made as the kubeconfig describes it.
    """
    version, mode = str(program.get("apiVersion") or ""), program.get("interactiveMode") or "IfAvailable"
    if not program.get("command"):
        raise KubeconfigError("exec of its user names no command")
    if not version.startswith(_OF_CREDENTIALS):
        raise KubeconfigError(f"apiVersion {version!r} in exec of its user is not of {_OF_CREDENTIALS.rstrip('/')}")
    has_terminal = sys.stdin is not None and sys.stdin.isatty()
    if mode == "Always" and not has_terminal:
        raise KubeconfigError(f"exec: {program['command']} wants a terminal, and there is none")
    spec: dict[str, Any] = {"interactive": has_terminal and mode != "Never"}
    if program.get("provideClusterInfo"):
        known = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
        told = {name: cluster[name] for name in known if cluster.get(name)}
        if (file := cluster.get("certificate-authority")) and "certificate-authority-data" not in told:
            told["certificate-authority-data"] = base64.b64encode(_content_of_file(file)).decode()
        for extension in cluster.get("extensions") or ():
            if extension.get("name") == f"{_OF_CREDENTIALS}exec":
                told["config"] = extension.get("extension")
        spec["cluster"] = told
    return {"apiVersion": version, "kind": "ExecCredential", "spec": spec}


def _content_of_file(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as problem:
        raise KubeconfigError(f"{path}: {problem.strerror or problem}") from None


def _status_printed_by(program: Mapping[str, Any], info: Mapping[str, Any]) -> Mapping[str, Any]:
    """Run a program, and return the status of the ExecCredential that it prints."""
    # most kubeconfigs name no program
    import shutil
    import subprocess

    command = str(program["command"])
    variables = {str(one["name"]): str(one["value"]) for one in program.get("env") or ()}
    environment = {**os.environ, **variables, "KUBERNETES_EXEC_INFO": json.dumps(info)}
    found = shutil.which(command, path=environment.get("PATH"))
    hint = " ".join(str(program.get("installHint") or "").split())
    if found is None:
        raise KubeconfigError(f"exec: {command} is not there, or cannot be run{f'. {hint}' if hint else ''}")
    interactive = bool(info["spec"]["interactive"])
    try:
        # The program is the one that the kubeconfig names; a person who is asked for a password must see the question.
        done = subprocess.run(
            [found, *(str(word) for word in program.get("args") or ())],
            env=environment,
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if interactive else subprocess.PIPE,
            check=False,
        )
    except OSError as problem:
        raise KubeconfigError(f"exec: {command}: {problem.strerror or problem}") from None
    if done.returncode:
        complaint = " ".join((done.stderr or b"").decode(errors="replace").split())[-_LONGEST_COMPLAINT:]
        raise KubeconfigError(f"exec: process returned {done.returncode}{f'. {complaint}' if complaint else ''}")
    try:
        printed = json.loads(done.stdout)
    except ValueError:
        raise KubeconfigError(f"exec: {command} printed no JSON") from None
    if not isinstance(printed, Mapping) or printed.get("kind") != "ExecCredential":
        raise KubeconfigError(f"exec: {command} printed no ExecCredential")
    if printed.get("apiVersion") != info["apiVersion"]:
        raise KubeconfigError(
            f"exec: {command} printed apiVersion {printed.get('apiVersion')}, and {info['apiVersion']} was asked for"
        )
    status = printed.get("status")
    return status if isinstance(status, Mapping) else {}
