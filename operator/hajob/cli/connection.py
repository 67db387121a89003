"""Requests to the API server of a kubeconfig, with the rights of the person who types.

The package kubernetes takes longer to load than most commands run. It is asked only for what a kubeconfig rarely
holds, proxies and other names of a server; certificates, tokens, passwords and programs that print them need no more
than the standard library.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

from hajob.cli.cluster import ClusterError
from hajob.cli.library_client import client_of_context, files_of_kubeconfig
from hajob.kube.kubeconfig import (
    Headers,
    KubeconfigContext,
    authorization_of,
    content_of,
    impersonation_of,
    read_context,
    with_printed_credentials,
)

if TYPE_CHECKING:
    from hajob.api.base import Json

REQUEST_SECONDS: Final = 30.0
_UNAUTHORIZED: Final = 401
_ONLY_LIBRARY: Final = (("cluster", "proxy-url"), ("cluster", "tls-server-name"), ("user", "auth-provider"))
"""Fields of a kubeconfig with which the package kubernetes makes the requests."""
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
    try:
        found = read_context(files_of_kubeconfig(kubeconfig), context)
        # Proxies have rules of their own, which are left to whoever knows all of them.
        if any(os.environ.get(name) for name in PROXY_VARIABLES) or any(
            getattr(found, part).get(name) for part, name in _ONLY_LIBRARY
        ):
            return LibraryConnection(found, seconds)
        return PlainConnection(found, seconds)
    except OSError as problem:
        what = f"{problem.filename}: " if problem.filename else ""
        raise ClusterError(f"no kubeconfig can be used: {what}{problem.strerror or problem}") from None
    except ValueError as problem:
        raise ClusterError(f"no kubeconfig can be used: {problem}") from None


class PlainConnection:
    """A connection of the standard library, which stays open between requests."""

    def __init__(self, context: KubeconfigContext, seconds: float) -> None:
        self._context, self._seconds = context, seconds
        self._connection, self._identity = self._as_printed()

    @property
    def default_namespace(self) -> str:
        """Return the namespace of the context."""
        return self._context.namespace

    def send_request(self, method: str, path: str, headers: Mapping[str, str], body: Json | None) -> Reply:
        """Send a request and return the whole reply; OSError: the server cannot be reached."""
        reply = self._send_on_open_connection(method, path, headers, body)
        if reply.status != _UNAUTHORIZED:
            return reply
        # Who looks for hours outlives a token: the program has another one then, or the file.
        before = self._identity
        try:
            connection, self._identity = self._as_printed()
        except (ValueError, OSError):
            return reply
        if self._identity == before and not self._context.needs_program:
            return reply
        self._connection.close()
        self._connection = connection
        return self._send_once(method, path, headers, body)

    def _as_printed(self) -> tuple[http.client.HTTPConnection, Headers]:
        """Return a connection and the headers of each request, by the credentials as they are now."""
        found = with_printed_credentials(self._context)
        url = urlsplit(str(found.cluster["server"]))
        self._prefix = url.path.rstrip("/")
        host = url.hostname or ""
        made = (
            http.client.HTTPSConnection(host, url.port, timeout=self._seconds, context=_tls_context_of(found))
            if url.scheme == "https"
            else http.client.HTTPConnection(host, url.port, timeout=self._seconds)
        )
        authorization = authorization_of(found.user)
        known = (("Authorization", authorization),) if authorization else ()
        return made, (*known, *impersonation_of(found.user))

    def _send_on_open_connection(self, method: str, path: str, headers: Mapping[str, str], body: Json | None) -> Reply:
        # Only a request that changes nothing may be sent twice.
        if self._connection.sock is not None and method == "GET":
            try:
                return self._send_once(method, path, headers, body)
            except (http.client.HTTPException, OSError):
                pass  # the server has closed a connection that was idle
        return self._send_once(method, path, headers, body)

    def _send_once(self, method: str, path: str, headers: Mapping[str, str], body: Json | None) -> Reply:
        content = b"" if body is None else json.dumps(body).encode()
        length = (("Content-Length", str(len(content))),) if body is not None else ()
        try:
            # `request` takes a mapping, and a header that says a group comes once for each group.
            self._connection.putrequest(method, self._prefix + path)
            for name, value in (*headers.items(), *self._identity, *length):
                self._connection.putheader(name, value.encode())
            self._connection.endheaders(content)
            response = self._connection.getresponse()
            return Reply(response.status, response.reason, response.read())
        except (http.client.HTTPException, OSError) as problem:
            self._connection.close()
            raise OSError(str(problem) or type(problem).__name__) from problem


def _tls_context_of(context: KubeconfigContext) -> ssl.SSLContext:
    authority = content_of(context.cluster, "certificate-authority")
    made = ssl.create_default_context(cadata=authority.decode() if authority else None)
    # Python 3.13 refuses authorities without a key usage, which kubectl and older clusters' tools do not mind.
    made.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if context.cluster.get("insecure-skip-tls-verify"):
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    certificate = content_of(context.user, "client-certificate")
    if certificate:
        # OpenSSL reads a certificate from a file only; nobody else can read this one.
        with tempfile.NamedTemporaryFile() as both:
            both.write(certificate + b"\n" + content_of(context.user, "client-key"))
            both.flush()
            made.load_cert_chain(both.name)
    return made


class LibraryConnection:
    """A connection of the package kubernetes, which knows every way to a server."""

    def __init__(self, context: KubeconfigContext, seconds: float) -> None:
        self._seconds, self._namespace = seconds, context.namespace
        self._api = client_of_context(context)

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
