"""One child process of the host: the MindIO controller or the rendezvous store.

It writes to the host on one pipe, reads from it on another, and ends when the host closes the latter.
"""

from __future__ import annotations

import os
import threading
from typing import Callable

from trainer_sidecar.controller_host.problems import StartError
from trainer_sidecar.controller_protocol import OTHER, LineBuffer, Message, encode_message, now_nanoseconds

CONTROLLER, STORE = "controller", "store"


class Part:
    """Common base of both; `part` is the name under which the host shows its state.

    Attributes:
        request: The coordinator's `start` request.
    """

    def __init__(self, part: str, request: Message, read_end: int, write_end: int) -> None:
        self.request = request
        self._part = part
        self._read_end = read_end
        self._write_end = write_end
        self._lock = threading.Lock()

    def tell_state(self, state: str, problem: str = "", kind: str = "") -> None:
        """Report the part's state to the host."""
        self.send_to_host({"event": "part", "part": self._part, "state": state, "problem": problem, "kind": kind})

    def send_to_host(self, message: Message) -> None:
        """Send a line to the host; from any thread."""
        message["t"] = now_nanoseconds()
        line = encode_message(message)
        with self._lock:
            while line:
                line = line[os.write(self._write_end, line) :]

    def open_and_report(self, good_state: str, opener: Callable[[], None]) -> None:
        """Run `opener`, which makes the part serve, and report whether it does."""
        try:
            opener()
        except StartError as problem:
            self.tell_state("failed", problem.text, problem.kind)
        except BaseException as error:  # a start that fails silently would look like a slow one
            self.tell_state("failed", "%s: %s" % (type(error).__name__, error), OTHER)
        else:
            self.tell_state(good_state)

    def serve_until_closed(self, take: Callable[[Message], None]) -> None:
        """Pass on the host's messages until it closes the pipe."""
        buffer = LineBuffer()
        while True:
            data = os.read(self._read_end, 65536)
            if not data:
                return
            for message in buffer.cut_messages(data):
                take(message)
