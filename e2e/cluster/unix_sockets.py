"""Unix sockets below directories of any depth: an address has room for 107 bytes, a checkout or cache may need more."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Yield a name of `path` that fits an address; it holds as long as the context, and in this process only."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def connect_unix(connection: socket.socket, path: Path) -> None:
    """Connect to the socket at `path`."""
    with short_path(path) as name:
        connection.connect(name)


def bind_unix(path: Path) -> socket.socket:
    """Return a socket bound at `path`, in the place of one that was left there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with short_path(path) as name:
        listener.bind(name)
    return listener
