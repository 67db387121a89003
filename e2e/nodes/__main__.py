"""``python -m e2e.nodes --config FILE``: run the nodes of one configuration until SIGTERM or Ctrl-C.

Prints one line, ``ready``, when all nodes are registered, and serves the control socket from then on.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
from pathlib import Path

from pydantic import ValidationError

from e2e.nodes.config import NodeSetSettings, read_settings
from e2e.nodes.control_server import ControlServer
from e2e.nodes.node_set import NodeSet


async def serve(settings: NodeSetSettings) -> None:
    """Run the node set until a signal ends it."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    nodes = NodeSet(settings)
    control = ControlServer(nodes)
    try:
        starting = asyncio.create_task(nodes.start())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await starting
            return
        await starting
        await control.start(settings.control_socket)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await stop.wait()
    finally:
        await control.close()
        await nodes.close()


def main() -> int:
    """Parse the command line and serve; 2 for a configuration that cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m e2e.nodes", description="simulated Kubernetes nodes")
    parser.add_argument("--config", type=Path, required=True, help="the node set's YAML or JSON file")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        settings = read_settings(arguments.config)
    except (OSError, ValidationError) as error:
        sys.stderr.write(f"{arguments.config}: {error}\n")
        return 2
    asyncio.run(serve(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
