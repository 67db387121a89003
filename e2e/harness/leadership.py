"""How long nobody leads while operators are exchanged: the Lease, looked at all the time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.rest import ApiError
from e2e.harness.operator import NAME

LOOK_SECONDS: Final = 0.02


class Leadership:
    """Who held the Lease when, as somebody sees it who looks all the time."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{NAME}"
        self._api = plane.api
        self.seen: list[tuple[float, str]] = []

    def look(self) -> None:
        """Ask once. ApiError, OSError: the API server does not answer."""
        holder = (self._api.find(self._path) or {"spec": {}})["spec"].get("holderIdentity") or ""
        if not self.seen or self.seen[-1][1] != holder:
            self.seen.append((time.monotonic(), holder))

    def without_leader(self) -> float:
        """The longest time in which nobody held it, in seconds."""
        ends = [at for at, _ in self.seen[1:]]
        return max((end - at for (at, holder), end in zip(self.seen, ends, strict=False) if not holder), default=0.0)


@contextmanager
def watched(plane: ControlPlane, namespace: str) -> Iterator[Leadership]:
    """Look while the block runs; what was seen can be asked for after it. A look that fails is made again."""
    found, over = Leadership(plane, namespace), threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_SECONDS):
            with suppress(ApiError, OSError):
                found.look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
