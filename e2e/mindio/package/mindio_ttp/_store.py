"""A controller hosted by rank 0 looks for the rendezvous store before it saves (docs/protocols/mindio.md §7.6)."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from . import _settings as settings

if TYPE_CHECKING:
    from ._controller import Controller


def probe_store(controller: Controller) -> bool:
    """Whether a save can go on: always for a host outside the training, else when something listens there."""
    if controller.flags.rank < 0 or not settings.on("store_probe"):
        return True
    try:
        socket.create_connection(settings.master_address(), 2.0).close()
    except OSError as error:
        settings.log(f"no store, and none can be opened on rank 0: {error}")
        return False
    return True
