"""Requests to the API server of a kubeconfig, with the rights of the person who types.

The package kubernetes takes longer to load than most commands run. It is asked only for what a kubeconfig rarely
holds, plugins and proxies; certificates, tokens and passwords need no more than the standard library.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

import yaml

from hajob.cli.cluster import ClusterError, load_kubeconfig

if TYPE_CHECKING:
    from hajob.api.base import Json

REQUEST_SECONDS: Final = 30.0
_USUAL_FILE: Final = "~/.kube/config"
_PLAIN_CLUSTER: Final = frozenset(
    {
        "server",
        "certificate-authority",
        "certificate-authority-data",
        "insecure-skip-tls-verify",
        "disable-compression",
        "extensions",
    }
)
_PLAIN_USER: Final = frozenset(
    {
        "token",
        "tokenFile",
        "client-certificate",
        "client-certificate-data",
        "client-key",
        "client-key-data",
        "extensions",
    }
)
"""Fields of a kubeconfig that are read here; with any other one the package kubernetes makes the requests."""
PROXY_VARIABLES: Final = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server has answered."""

    status: int
    reason: str
    content: bytes


class Connection(Protocol):
    """An API server; `default_namespace` is the one that is meant where none is named."""

    @property
    def default_namespace(self) -> str:
        """Return the namespace of the context."""

    def send_request(self, method: str, path: str, headers: Mapping[str, str], body: Json | None) -> Reply:
        """Send a request and return the whole reply; OSError: the server cannot be reached."""


@dataclass(frozen=True, slots=True)
class _Context:
    """One context of a kubeconfig: its parts as they are written, and the directory that their paths begin at."""

    namespace: str
    cluster: Mapping[str, Any]
    user: Mapping[str, Any]
    directory: Path

    @property
    def is_plain(self) -> bool:
        """Return whether the standard library is enough."""
        return self.cluster.keys() <= _PLAIN_CLUSTER and self.user.keys() <= _PLAIN_USER

    def content_of(self, part: Mapping[str, Any], name: str) -> bytes:
        """Return a field that holds base64, or the file that its other form names; empty: neither is there."""
        if data := part.get(f"{name}-data"):
            return base64.b64decode("".join(str(data).split()), validate=True)
        return (self.directory / str(path)).read_bytes() if (path := part.get(name)) else b""


def open_connection(
    kubeconfig: str | None = None, context: str | None = None, seconds: float = REQUEST_SECONDS
) -> Connection:
    """Return a connection to the cluster of a kubeconfig, as kubectl chooses it; nothing is sent yet.

    Args:
        kubeconfig: a file; None: `$KUBECONFIG` or the usual one.
        context: of the kubeconfig; None: the current one.
        seconds: how long an answer is waited for.

    Raises:
        ClusterError: there is no kubeconfig, or it cannot be used.
    """
    named = kubeconfig or os.environ.get("KUBECONFIG") or _USUAL_FILE
    # Several files are merged, and proxies have rules of their own: both are left to whoever knows all of it.
    if os.pathsep in named or any(os.environ.get(name) for name in PROXY_VARIABLES):
        return LibraryConnection(kubeconfig, context, seconds)
    try:
        found = _read_context(Path(named).expanduser(), context)
        return PlainConnection(found, seconds) if found.is_plain else LibraryConnection(kubeconfig, context, seconds)
    except OSError as problem:
        what = f"{problem.filename}: " if problem.filename and str(problem.filename) != named else ""
        raise ClusterError(f"no kubeconfig can be used: {named}: {what}{problem.strerror or problem}") from None
    except (yaml.YAMLError, ValueError, TypeError, AttributeError) as problem:
        raise ClusterError(f"no kubeconfig can be used: {named}: {problem}") from None


def _read_context(path: Path, context: str | None) -> _Context:
    """Read a context; ValueError: it is not there, or lacks a part."""
    # libyaml is several times faster, and a wheel of PyYAML always has it.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    whole = yaml.load(path.read_bytes(), loader) or {}
    name = context or whole.get("current-context")
    if not name:
        raise ValueError("current-context is not set; choose one with --context")
    chosen = _part_named(whole, "contexts", "context", name)
    user = chosen.get("user")
    return _Context(
        chosen.get("namespace") or "default",
        _part_named(whole, "clusters", "cluster", chosen.get("cluster")),
        _part_named(whole, "users", "user", user) if user else {},
        path.parent,
    )


def _part_named(whole: Mapping[str, Any], plural: str, singular: str, name: object) -> Mapping[str, Any]:
    found = next((one for one in whole.get(plural) or () if one.get("name") == name), None)
    if found is None:
        raise ValueError(f"it has no {singular} {name}")
    return found.get(singular) or {}


class PlainConnection:
    """A connection of the standard library, which stays open between requests."""

    def __init__(self, context: _Context, seconds: float) -> None:
        self._context = context
        url = urlsplit(str(context.cluster.get("server") or ""))
        if url.scheme not in {"http", "https"} or not url.hostname:
            raise ValueError(f"server {context.cluster.get('server')!r} is no URL")
        self._prefix = url.path.rstrip("/")
        self._connection = (
            http.client.HTTPSConnection(url.hostname, url.port, timeout=seconds, context=_tls_context_of(context))
            if url.scheme == "https"
            else http.client.HTTPConnection(url.hostname, url.port, timeout=seconds)
        )
        token = context.user.get("token") or context.content_of(
            {"token": context.user.get("tokenFile")}, "token"
        ).decode("ascii")
        self._authorization = {"Authorization": f"Bearer {token.strip()}"} if token else {}

    @property
    def default_namespace(self) -> str:
        """Return the namespace of the context."""
        return self._context.namespace

    def send_request(self, method: str, path: str, headers: Mapping[str, str], body: Json | None) -> Reply:
        """Send a request and return the whole reply; OSError: the server cannot be reached."""
        # Only a request that changes nothing may be sent twice.
        if self._connection.sock is not None and method == "GET":
            try:
                return self._send_once(method, path, headers, body)
            except (http.client.HTTPException, OSError):
                pass  # the server has closed a connection that was idle
        return self._send_once(method, path, headers, body)

    def _send_once(self, method: str, path: str, headers: Mapping[str, str], body: Json | None) -> Reply:
        try:
            content = None if body is None else json.dumps(body).encode()
            self._connection.request(method, self._prefix + path, content, {**headers, **self._authorization})
            response = self._connection.getresponse()
            return Reply(response.status, response.reason, response.read())
        except (http.client.HTTPException, OSError) as problem:
            self._connection.close()
            raise OSError(str(problem) or type(problem).__name__) from problem


def _tls_context_of(context: _Context) -> ssl.SSLContext:
    authority = context.content_of(context.cluster, "certificate-authority")
    made = ssl.create_default_context(cadata=authority.decode() if authority else None)
    # Python 3.13 refuses authorities without a key usage, which kubectl and older clusters' tools do not mind.
    made.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if context.cluster.get("insecure-skip-tls-verify"):
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    certificate = context.content_of(context.user, "client-certificate")
    if certificate:
        # OpenSSL reads a certificate from a file only; nobody else can read this one.
        with tempfile.NamedTemporaryFile() as both:
            both.write(certificate + b"\n" + context.content_of(context.user, "client-key"))
            both.flush()
            made.load_cert_chain(both.name)
    return made


class LibraryConnection:
    """A connection of the package kubernetes, which knows every form of a kubeconfig."""

    def __init__(self, kubeconfig: str | None, context: str | None, seconds: float) -> None:
        self._seconds = seconds
        self._api, self._namespace = load_kubeconfig(kubeconfig, context)

    @property
    def default_namespace(self) -> str:
        """Return the namespace of the context."""
        return self._namespace

    def send_request(self, method: str, path: str, headers: Mapping[str, str], body: Json | None) -> Reply:
        """Send a request and return the whole reply; OSError: the server cannot be reached."""
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        try:
            asked = self._api.param_serialize(
                method, path, header_params=dict(headers), body=body, auth_settings=["BearerToken"]
            )
            response = self._api.call_api(*asked, _request_timeout=self._seconds)
            return Reply(response.status, str(response.reason), response.read())
        except ApiException as refusal:
            content = refusal.body.encode() if isinstance(refusal.body, str) else refusal.body or b""
            return Reply(refusal.status or 0, str(refusal.reason), content)
        except HTTPError as problem:
            raise OSError(str(problem)) from problem
