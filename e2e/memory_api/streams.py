"""Open watches."""

from __future__ import annotations

import asyncio

from e2e.memory_api.errors import status_of
from e2e.memory_api.history import Change, History
from e2e.memory_api.resources import Target
from e2e.memory_api.selectors import Predicate
from hajob.api.base import Json
from hajob.kube.client import END_OF_LIST, ApiError, WatchEvent

Line = WatchEvent | ApiError | None
"""What a client reads: an event, a broken connection, or the end."""


class Stream:
    """One watch of one client.

    Attributes:
        lines: what the client has not read yet.
        silent: nothing more arrives, and the connection stays.
    """

    def __init__(self, history: History, target: Target, matches: Predicate, client: str) -> None:
        self.target = target
        self.client = client
        self.lines: asyncio.Queue[Line] = asyncio.Queue()
        self.silent = False
        self._after = 0
        self._history = history
        self._matches = matches

    def open(self, version: str, *, with_list: bool = False) -> None:
        """Begin after a version, or with all that is there now; `with_list`: a bookmark tells where that ends."""
        if version in {"", "0"}:
            for body in self._history.all(self.target.resource.plural):
                if self._concerns(body):
                    self._send("ADDED", body)
            if with_list:
                self.bookmark({END_OF_LIST: "true"})
        else:
            self._after = int(version)
            try:
                for change in self._history.since(int(version)):
                    self._changed(change)
            except ApiError as error:  # the server says so within a stream that it has opened
                self.refuse(error)
                return
        self._history.observers.append(self._changed)

    def bookmark(self, annotations: Json | None = None) -> None:
        """Tell the present version."""
        resource = self.target.resource
        metadata: Json = {"resourceVersion": str(self._history.version)}
        if annotations:
            metadata["annotations"] = annotations
        self._send("BOOKMARK", {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata})

    def refuse(self, error: ApiError) -> None:
        """An ERROR event, and the end."""
        self._send("ERROR", status_of(error))
        self.end()

    def end(self, error: ApiError | None = None) -> None:
        """Nothing more comes: as a server ends a watch, or as a connection breaks."""
        if self._changed in self._history.observers:
            self._history.observers.remove(self._changed)
        if not self.silent:
            self.lines.put_nowait(error)

    def _concerns(self, body: Json) -> bool:
        namespace, name = self.target.namespace, self.target.name
        metadata = body["metadata"]
        return (
            (not namespace or metadata.get("namespace") == namespace)
            and (not name or metadata["name"] == name)
            and self._matches(body)
        )

    def _changed(self, change: Change) -> None:
        if change.plural != self.target.resource.plural or change.version <= self._after:
            return
        before = change.old is not None and self._concerns(change.old)
        after = change.new is not None and self._concerns(change.new)
        if after and change.new is not None:
            self._send("MODIFIED" if before else "ADDED", change.new)
        elif before and change.old is not None:
            metadata = {**change.old["metadata"], "resourceVersion": str(change.version)}
            self._send("DELETED", {**change.old, "metadata": metadata})

    def _send(self, type_: str, body: Json) -> None:
        if not self.silent:
            self.lines.put_nowait(WatchEvent(type_, body))
