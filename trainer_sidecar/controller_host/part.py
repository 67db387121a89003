"""One process of the host's: the MindIO controller or the rendezvous store.

It speaks to the host by one pipe, is spoken to by another, and ends when the host closes that.
"""

from __future__ import annotations

import os
import threading
from typing import Callable

from trainer_sidecar.controller_host.problems import StartError
from trainer_sidecar.controller_protocol import OTHER, LineBuffer, Message, encode, now_nanoseconds

CONTROLLER, STORE = "controller", "store"


class Part:
    """What both have in common: `part` is the name under which the host shows its state.

    Attributes:
        request: What the coordinator asked for with `start`.
    """

    def __init__(self, part: str, request: Message, read_end: int, write_end: int) -> None:
        self.request = request
        self._part = part
        self._read_end = read_end
        self._write_end = write_end
        self._lock = threading.Lock()

    def tell_state(self, state: str, problem: str = "", kind: str = "") -> None:
        """The part is in this state now."""
        self.send({"event": "part", "part": self._part, "state": state, "problem": problem, "kind": kind})

    def send(self, message: Message) -> None:
        """A line for the host; from any thread."""
        message["t"] = now_nanoseconds()
        line = encode(message)
        with self._lock:
            while line:
                line = line[os.write(self._write_end, line) :]

    def open(self, good_state: str, opener: Callable[[], None]) -> None:
        """Do what makes the part serve, and tell whether it does."""
        try:
            opener()
        except StartError as problem:
            self.tell_state("failed", problem.text, problem.kind)
        except BaseException as error:  # a start that fails silently would look like a slow one
            self.tell_state("failed", "%s: %s" % (type(error).__name__, error), OTHER)
        else:
            self.tell_state(good_state)

    def serve(self, take: Callable[[Message], None]) -> None:
        """Hand on what the host says, until it closes the pipe."""
        buffer = LineBuffer()
        while True:
            data = os.read(self._read_end, 65536)
            if not data:
                return
            for message in buffer.feed(data):
                take(message)
