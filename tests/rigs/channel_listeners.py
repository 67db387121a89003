"""Who listens to a coordinator's channel."""

from __future__ import annotations

from hajob.protocol import sidecar_pb2 as wire


class DeafListener:
    """A listener that welcomes every coordinator and does nothing with what it says."""

    async def greeted(self, _hello: wire.Hello) -> bool:
        return True

    def reported(self, _report: wire.Report) -> None:
        pass

    def connected_changed(self, up: bool, reason: str) -> None:
        pass
