"""A small blocking client of the API server for tests and the demo: JSON in, JSON out, connections kept.

Not the `kubernetes` package, because tests count what that package writes and must not mix with it, because it reads
proxies and kubeconfigs from the surroundings, and because a test wants objects exactly as the server sent them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3
from urllib3.exceptions import HTTPError, ProtocolError, ReadTimeoutError

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

KEPT_CONNECTIONS = 64
"""More than the threads that ask at once in any test."""
TRIES = 10
"""As many as client-go makes."""
Object = dict[str, Any]
Query = Mapping[str, str | int | bool]


class ApiError(RuntimeError):
    """The API server refused a request.

    Attributes:
        status: HTTP status.
        reason: The API's word for it, for example NotFound.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason


class _AskAgain(urllib3.Retry):
    """Repeats what is to be asked again later, and nothing else: an eviction that is refused for good is a 429, too."""

    RETRY_AFTER_STATUS_CODES = frozenset({429})


_RETRIES = _AskAgain(
    TRIES - 1, connect=False, read=False, redirect=False, other=False, allowed_methods=None, raise_on_status=False
)


class ApiClient:
    """Speaks to one API server as one user."""

    def __init__(self, server: str, authority: Path, certificate: Path, key: Path, agent: str = "hajob-rig") -> None:
        self.server = server
        self.agent = agent
        self._pool = urllib3.PoolManager(
            maxsize=KEPT_CONNECTIONS, ca_certs=str(authority), cert_file=str(certificate), key_file=str(key)
        )

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = JSON,
        timeout: float = 30.0,
        query: Query | None = None,
    ) -> Object:
        """One request; returns the JSON answer (text answers under "text").

        A server that asks to come again later is asked again: a kind whose definition has just changed is not served
        for a moment.

        Raises:
            ApiError: The server answered with a status of 400 or more.
            OSError: It could not be reached.
        """
        response = self._send(method, _target(path, query), timeout, body, content_type)
        answer: Object
        if response.headers.get("Content-Type", "").startswith(JSON):
            answer = json.loads(response.data)
        else:
            answer = {"text": response.data.decode(errors="replace")}
        if response.status >= 400:
            message = answer.get("message") or answer.get("text", "")
            raise ApiError(response.status, str(answer.get("reason", response.reason)), message)
        return answer

    def get(self, path: str, **query: str | int | bool) -> Object:
        """The object or list at `path`."""
        return self.request("GET", path, query=query)

    def find(self, path: str) -> Object | None:
        """The object at `path`, or None when there is none."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def items(self, path: str, **query: str | int | bool) -> list[Object]:
        """The objects of the list at `path`."""
        found: list[Object] = self.get(path, **query)["items"]
        return found

    def create(self, path: str, body: Mapping[str, object]) -> Object:
        """Create `body` in the collection at `path`."""
        return self.request("POST", path, body)

    def merge(self, path: str, body: Mapping[str, object]) -> Object:
        """Merge-patch the object at `path`."""
        return self.request("PATCH", path, body, content_type=MERGE_PATCH)

    def apply(self, path: str, body: Mapping[str, object]) -> Object:
        """Server-side apply `body` at `path`, taking over fields of other managers."""
        return self.request(
            "PATCH", path, body, content_type=APPLY_PATCH, query={"fieldManager": self.agent, "force": "true"}
        )

    def delete(self, path: str, **query: str | int | bool) -> None:
        """Delete the object at `path`; that it is not there is no error."""
        try:
            self.request("DELETE", path, query=query)
        except ApiError as error:
            if error.status != 404:
                raise

    def watch(self, path: str, timeout: float, **query: str | int | bool) -> Iterator[Object]:
        """Watch events of the collection at `path` for `timeout` seconds, or until the server ends the watch."""
        limits: Query = {"watch": "1", "timeoutSeconds": max(1, int(timeout))}
        target, ended = _target(path, {**limits, **query}), (TimeoutError, ReadTimeoutError, ProtocolError)
        with suppress(*ended), closing(self._send("GET", target, timeout, stream=True)) as response:
            for line in response:
                yield json.loads(line)

    def _send(
        self,
        method: str,
        target: str,
        timeout: float,
        body: object = None,
        content_type: str = JSON,
        *,
        stream: bool = False,
    ) -> urllib3.BaseHTTPResponse:
        try:
            return self._pool.request(
                method,
                self.server + target,
                body=None if body is None else json.dumps(body),
                headers={"User-Agent": self.agent, "Accept": JSON, "Content-Type": content_type},
                timeout=timeout,
                retries=_RETRIES,
                preload_content=not stream,
            )
        except ReadTimeoutError as error:
            raise TimeoutError(f"{method} {target}: {error}") from error
        except HTTPError as error:
            raise OSError(f"{method} {target}: {error}") from error


def _target(path: str, query: Query | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path
