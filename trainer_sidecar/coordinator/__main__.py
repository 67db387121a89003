"""Entry of the coordinator sidecar: `python3 -m trainer_sidecar.coordinator`."""

from __future__ import annotations

from trainer_sidecar import signals

if __name__ == "__main__":
    signals.block_signals()  # hold signals first: the other imports take long

import asyncio
import os
import sys

from hajob import log_format, version
from hajob.protocol import descriptors
from trainer_sidecar.coordinator.shell import garbage
from trainer_sidecar.coordinator.shell.hub import Hub
from trainer_sidecar.coordinator.shell.settings import read_settings
from trainer_sidecar.environment import SettingsError


async def serve_until_signal(hub: Hub) -> None:
    """Serve until SIGTERM or SIGINT."""
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in signals.ENDING:
        loop.add_signal_handler(number, ending.set)
    signals.unblock_signals()
    await hub.serve_until(ending)


def main() -> int:
    """Run the coordinator; return 2 when the environment is incomplete, 1 when the port is not available."""
    if version.print_if_asked("coordinator", sys.argv[1:]):
        return 0
    log_format.begin_logging(
        os.environ.get(log_format.VARIABLE, ""),
        "%(asctime)s.%(msecs)03d %(levelname)s %(message)s",
        level=os.environ.get("HAJOB_LOG_LEVEL", "INFO"),
        time_format="%H:%M:%S",
    )
    try:
        settings = read_settings(os.environ)
    except SettingsError as error:
        print(f"hajob coordinator: {error}", file=sys.stderr)
        return 2
    descriptors.raise_limit()
    garbage.freeze_survivors()
    try:
        asyncio.run(serve_until_signal(Hub(settings)))
    except (RuntimeError, OSError) as error:
        where = f"{settings.endpoint.address}:{settings.port} (spec.network.coordinatorPort)"
        print(f"hajob coordinator: cannot serve on {where}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
