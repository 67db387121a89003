"""The operator with a bomb inside: it ends itself with SIGKILL right after the n-th thing it did for an incident.

    HAJOB_CRASH_DIRECTORY=DIR python -m e2e.harness.crashing_operator

Whether an operator can die anywhere is decided at the points where it has just changed something outside itself: after
each answered write and after each command that has left for a coordinator. So exactly these are counted, and nothing
in the operator knows of it: the API is wrapped where `serve` lets a test do that, the channel is a subclass.

DIR/fuse holds the orders of a test as JSON: {"round": name, "above": incarnation, "acts": n}. Counting begins with the
first order of a higher incarnation than `above`. What was done goes to DIR/acts as lines `round number what`; the last
line of a round that ended with a death begins with `died`. A fuse burns once: the next operator finds DIR/burnt-ROUND
and lives, until the test lays a new one.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hajob.api.base import Json
from hajob.app import operator as app
from hajob.app.settings import Settings
from hajob.coordinator_link import channel
from hajob.coordinator_link.channel import Channel, Stream
from hajob.kube.client import Kube
from hajob.protocol import sidecar_pb2 as wire

DIRECTORY = "HAJOB_CRASH_DIRECTORY"
UNCOUNTED = frozenset({"leases"})  # a heartbeat, no act
ACKNOWLEDGEMENT = "acknowledgement"  # comes with every report; of a row of them only the first counts


class Fuse:
    """Counts acts from the first order of a new incident on, and kills this process after the ordered one."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._round = ""
        self._count = 0
        self._burning = False
        self._last = ""

    def ordered(self, incarnation: int) -> None:
        """An order of this incarnation has left."""
        fuse = self._read()
        if fuse and incarnation > fuse["above"]:
            self._burning = True
        self.did(f"order of incarnation {incarnation}")

    def did(self, what: str) -> None:
        """Something outside has been changed."""
        fuse = self._read()
        if not fuse or not self._burning or (what == self._last == ACKNOWLEDGEMENT):
            return
        self._last = what
        self._count += 1
        burns = self._count >= fuse["acts"]
        with (self._directory / "acts").open("a") as acts:
            acts.write(f"{'died ' if burns else ''}{self._round} {self._count} {what}\n")
        if burns:
            (self._directory / f"burnt-{self._round}").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def _read(self) -> dict[str, Any] | None:
        try:
            fuse: dict[str, Any] = json.loads((self._directory / "fuse").read_text())
        except FileNotFoundError:
            return None
        if fuse["round"] != self._round:
            self._round, self._count, self._burning = fuse["round"], 0, False
        return None if (self._directory / f"burnt-{self._round}").exists() else fuse


class CountedKube(Kube):
    """A `Kube` whose writes are told to the fuse after they were answered; dry runs are none."""

    def __init__(self, kube: Kube, fuse: Fuse) -> None:
        super().__init__(kube.transport)
        self._fuse = fuse

    async def send_write(
        self,
        method: str,
        resource: str,
        path: str,
        body: Json | Sequence[Json],
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Json:
        """Counted, unless it is a heartbeat."""
        answer = await super().send_write(method, resource, path, body, query=query, content_type=content_type)
        if resource not in UNCOUNTED:
            self._fuse.did(f"{method} {path}")
        return answer


def counted_channel(fuse: Fuse) -> type[Channel]:
    """The channel to a coordinator, whose commands are told to the fuse when they have left."""

    class CountedChannel(Channel):
        async def _write_message(self, stream: Stream, message: wire.OperatorMessage) -> None:
            await super()._write_message(stream, message)  # comes back when gRPC has taken it
            body = message.WhichOneof("body")
            if body == "order":
                fuse.ordered(message.order.incarnation)
            elif body == "assignment":
                fuse.did(f"assignment {message.assignment.revision}")
            elif body == "acknowledge":
                fuse.did(ACKNOWLEDGEMENT)

    return CountedChannel


def main() -> int:
    """Entry point: like `hajob.app.operator`."""
    fuse = Fuse(Path(os.environ[DIRECTORY]))
    setattr(channel, "Channel", counted_channel(fuse))  # noqa: B010 - there is no seam there, and needs be none
    app.run_operator(Settings.from_environment(), lambda kube: CountedKube(kube, fuse))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
