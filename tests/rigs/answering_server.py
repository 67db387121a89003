"""An HTTP server that answers every request with what it is told to, and remembers what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class AnsweringServer(ThreadingHTTPServer):
    """The server.

    Attributes:
        asked: method, path, headers and body of each request.
        headers: of each request, with those that come more than once.
        status: of its answers.
        content: of its answers.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.headers: list[list[tuple[str, str]]] = []
        self.status, self.content = 200, b"{}"

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_port}"


class _Answering(BaseHTTPRequestHandler):
    server: AnsweringServer
    protocol_version = "HTTP/1.1"

    def _answer_request(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.command, self.path, dict(self.headers), body))
        self.server.headers.append(self.headers.items())
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        self.wfile.write(self.server.content)
        self.close_connection = True  # without a word, as a server does with a connection that is idle

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _answer_request  # noqa: N815

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def serve_answers() -> Iterator[AnsweringServer]:
    """Serve until the context ends."""
    made = AnsweringServer()
    threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield made
    finally:
        made.shutdown()
        made.server_close()
