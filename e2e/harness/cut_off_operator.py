"""The operator with a switch in its lines to the coordinators: while a file with its pod's name exists, nothing passes.

    HAJOB_CUT_OFF_DIRECTORY=DIR python -m e2e.harness.cut_off_operator

So a test cuts one operator off from every coordinator, while it goes on talking to the API server: connections stay
open, or are taken, and no byte comes through, as where a network drops packets. The operator knows nothing of it: the
channel is a subclass that dials a relay, the probe of a standby asks the switch first.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from e2e.trainer.relay import forward
from hajob.app import operator as app
from hajob.app.settings import Settings
from hajob.clock import Clock
from hajob.coordinator_link import channel
from hajob.coordinator_link.channel import Channel
from hajob.leader.probe import coordinators_to_probe, probe_coordinators
from hajob.leader.reachability import ExpectedCoordinator
from hajob.sources.pod import PodView

DIRECTORY: Final = "HAJOB_CUT_OFF_DIRECTORY"
_LOOK_SECONDS: Final = 0.05


class Switch:
    """Open while the file exists."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @property
    def is_open(self) -> bool:
        """Whether nothing passes."""
        return self._file.exists()

    def wait_until_closed(self) -> None:
        """Hold what is to pass."""
        while self.is_open:
            time.sleep(_LOOK_SECONDS)


class SwitchedRelay:
    """Takes connections on the loopback and forwards them while the switch is closed."""

    def __init__(self, target: str, switch: Switch) -> None:
        host, _, port = target.rpartition(":")
        self._target, self._switch = (host.strip("[]"), int(port)), switch
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    def close(self) -> None:
        """Take no further connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), name="relay-link", daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        self._switch.wait_until_closed()
        forward(near, self._target, hold=self._switch.wait_until_closed)


def switched_channel(switch: Switch) -> type[Channel]:
    """The channel to a coordinator, by way of a relay."""

    class SwitchedChannel(Channel):
        def __init__(self, address: str, *words: Any, **named: Any) -> None:  # noqa: ANN401 - those of Channel
            self._relay = SwitchedRelay(address, switch)
            super().__init__(self._relay.address, *words, **named)

        async def close_channel(self) -> None:
            await super().close_channel()
            self._relay.close()

    return SwitchedChannel


def main() -> int:
    """Entry point: like `hajob.app.operator`."""
    settings = Settings.from_environment()
    switch = Switch(Path(os.environ[DIRECTORY]) / settings.pod_name)

    async def switched_probe(pods: Iterable[PodView], clock: Clock) -> list[ExpectedCoordinator]:
        if switch.is_open:
            return [ExpectedCoordinator(pod.node_name, reached=False) for pod in coordinators_to_probe(pods)]
        return await probe_coordinators(pods, clock)

    setattr(channel, "Channel", switched_channel(switch))  # noqa: B010 - there is no seam there, and needs be none
    setattr(app, "probe_coordinators", switched_probe)  # noqa: B010
    app.run_operator(settings)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
