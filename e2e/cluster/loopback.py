"""A loopback address and ports of this process's own, for servers that tests and the trainer start without a run.

A port that was "free a moment ago" is somebody else's by the time it is used. So a process claims a loopback block as a
run does (`claim_block`) and counts the ports of one address in it: nobody else listens there, and the kernel gives no
outgoing connection a port of it, because connections to 127.0.0.0/8 leave from 127.0.0.1.
"""

from __future__ import annotations

import functools
import itertools
import socket
from collections.abc import Iterator
from typing import Final

from e2e.cluster.run import claim_block

FIRST_PORT: Final = 10000
"""Of block 0."""
PORTS: Final = 80
"""Each block begins so many further on, below the range of outgoing connections: some programs listen on every
address of the machine (torch's store before 2.0), and two of them must not meet either."""


class Loopback:
    """The claim of one process.

    Attributes:
        address: Of the form 127.R.0.1.
    """

    def __init__(self) -> None:
        self._claim, block = claim_block()  # held, and not inherited, until the process ends
        self.address = f"127.{block}.0.1"
        self._ports: Iterator[int] = itertools.count(FIRST_PORT + PORTS * block)

    def port(self) -> int:
        """A port of the address that this process has not given out before, and that can be listened on.

        One is skipped only where a program listens on it on every address of the machine.
        """
        for port in self._ports:
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((self.address, port))
                except OSError:
                    continue
                return port
        raise AssertionError("the count of ports has no end")


@functools.cache
def _own() -> Loopback:
    return Loopback()


def own_address() -> str:
    """This process's address; the first call claims it. Raises RunError when every block is taken."""
    return _own().address


def own_port() -> int:
    """A port of `own_address` that nobody else uses."""
    return _own().port()
