"""What the test client asks again, and how its watches end, against a server that counts and breaks off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import pytest

from e2e.cluster.rest import TRIES, ApiClient, ApiError


@contextmanager
def server(refusals: int, status: int, *, later: bool) -> Iterator[tuple[ApiClient, list[str]]]:
    """Serve a client that is refused so often before it has its way; `later`: and told to come again at once."""
    asked: list[str] = []
    is_over = Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            asked.append(self.path)
            refused = len(asked) <= refusals
            self.send_response(status if refused else 201)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", "2")
            if refused and later:
                self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(b"{}")

        def do_GET(self) -> None:
            """Tell two events, then break off amid a third; of `/silent` nothing, not even that it is there."""
            self.close_connection = True
            if self.path.startswith("/silent"):
                is_over.wait()
                return
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for event in (b'{"n": 1}\n', b'{"n": 2}\n'):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            self.wfile.write(b"ff\r\n{")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        Thread(target=listener.serve_forever, args=(0.01,), daemon=True).start()
        nowhere = Path("/nowhere")
        yield ApiClient(f"http://127.0.0.1:{listener.server_port}", nowhere, nowhere, nowhere), asked
        is_over.set()
        listener.shutdown()


def refused(client: ApiClient) -> int:
    """Create something in vain; returns the status."""
    with pytest.raises(ApiError) as caught:
        client.create("/pods/a/eviction", {})
    return caught.value.status


def test_what_shall_be_asked_again_later_is() -> None:
    with server(TRIES - 1, 429, later=True) as (client, asked):
        client.create("/pods/a/eviction", {})
        assert len(asked) == TRIES


def test_it_is_asked_as_often_as_client_go_asks() -> None:
    with server(TRIES, 429, later=True) as (client, asked):
        assert (refused(client), len(asked)) == (429, TRIES)


@pytest.mark.parametrize(("status", "later"), [(429, False), (503, True), (409, True)])
def test_what_is_refused_is_asked_once(status: int, later: bool) -> None:
    with server(1, status, later=later) as (client, asked):
        assert (refused(client), len(asked)) == (status, 1)


def test_a_watch_that_the_server_breaks_off_ends() -> None:
    with server(0, 429, later=False) as (client, _):
        assert list(client.watch("/pods", 60)) == [{"n": 1}, {"n": 2}]


def test_a_watch_that_hears_nothing_ends() -> None:
    with server(0, 429, later=False) as (client, _):
        assert list(client.watch("/silent", 0.1)) == []


def test_silence_is_a_timeout_and_a_closed_door_is_not() -> None:
    with server(0, 429, later=False) as (client, _), pytest.raises(TimeoutError):
        client.request("GET", "/silent", timeout=0.1)
    with pytest.raises(OSError, match="refused") as caught:
        client.get("/pods")
    assert not isinstance(caught.value, TimeoutError)
