"""The toy's store and its clients: as unkind as torch's."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable

import pytest

from e2e.cluster.loopback import own_address, own_port
from e2e.trainer.relay import forward
from e2e.trainer.store import serve
from e2e.trainer.store_client import Client, StoreLostError, Value
from e2e.trainer.store_wire import NEW, OLD, UNHEARD_OF, VARIABLE, Version, string, strings, version_from

VERSIONS = pytest.mark.parametrize("version", [OLD, NEW, UNHEARD_OF], ids=["1.13", "2.1", "unheard-of"])


@pytest.fixture(scope="module")
def port() -> int:
    number = own_port()
    threading.Thread(target=serve, args=(own_address(), number), daemon=True).start()
    return number


def clients(port: int, version: Version = NEW, attempt: int = 0) -> tuple[Client, Client]:
    return Client(own_address(), port, attempt, version), Client(own_address(), port, attempt, version)


@VERSIONS
def test_value_is_waited_for(port: int, version: Version) -> None:
    waiting, writing = clients(port, version, 1)
    key = f"late {version.name}"
    assert waiting.get(key) is None
    assert waiting.wait(key, 0.01) is None
    threading.Thread(target=lambda: writing.set(key, ["127.0.0.1", 7]), daemon=True).start()
    assert waiting.wait(key, 30.0) == ["127.0.0.1", 7]
    assert waiting.get(key) == ["127.0.0.1", 7]


@VERSIONS
def test_all_values_are_gathered_when_the_last_one_comes(port: int, version: Version) -> None:
    waiting, writing = clients(port, version, 2)
    key = f"place {version.name}"
    writing.set(f"{key}/0", ["127.0.0.1", 7])
    assert waiting.gather(key, [0, 1], 0.01) is None
    threading.Thread(target=lambda: writing.set(f"{key}/1", ["127.0.0.2", 8]), daemon=True).start()
    assert waiting.gather(key, [1, 0], 30.0) == [["127.0.0.2", 8], ["127.0.0.1", 7]]


@VERSIONS
def test_highest_number_is_kept(port: int, version: Version) -> None:
    one, other = clients(port, version, 3)
    key = f"number {version.name}"
    assert [one.highest(key, 9), other.highest(key, 2), other.highest(key, 10), one.get(key)] == [9, 9, 10, 10]


def test_attempts_never_meet(port: int) -> None:
    first, second = Client(own_address(), port, 4), Client(own_address(), port, 5)
    first.set("address/1", "first")
    assert second.get("address/1") is None


def test_an_answer_on_its_way_is_taken_by_who_gives_up(port: int) -> None:
    """The store says that all is there while the client says that it waits no longer."""
    answers: dict[bytes, Value] = {b"\0\1" + string(b"7"): 7, b"\1": None}
    for said, expected in answers.items():
        with socket.create_server((own_address(), 0)) as listener:
            client = Client(*listener.getsockname()[:2])
            found: list[Value] = []
            asking = threading.Thread(target=lambda c=client, f=found: f.append(c.wait("key", 0.01)))
            asking.start()
            link, _ = listener.accept()
            with link:
                heard = b""
                while not heard.endswith(bytes([NEW.numbers["cancel_wait"]])):
                    heard += link.recv(100)
                link.sendall(said)
                asking.join()
            assert found == [expected]


def test_proxies_in_the_environment_play_no_part(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert Client(own_address(), port).highest("number", 4) == 4


@pytest.mark.parametrize(
    "said",
    [
        b"nonsense\n",
        NEW.greeting + b"\xff",
        NEW.greeting + bytes([NEW.numbers["get"]]) + struct.pack("<Q", 7) + b"missing",
        bytes([OLD.numbers["watch"]]),
    ],
)
def test_what_it_does_not_understand_ends_a_connection(port: int, said: bytes) -> None:
    with socket.create_connection((own_address(), port)) as connection:
        connection.sendall(said)
        assert connection.recv(1000) == b""
    assert Client(own_address(), port).highest("other", 1) == 1


def test_a_wait_ends_with_its_client(port: int) -> None:
    key = b"//worker/attempt_6/gone"
    with socket.create_connection((own_address(), port)) as connection:
        connection.sendall(NEW.greeting + bytes([NEW.numbers["wait"]]) + strings([key]))
    client = Client(own_address(), port, 6)
    client.set("gone", 1)
    assert client.get("gone") == 1


def test_store_that_is_not_there_is_named() -> None:
    with pytest.raises(StoreLostError, match=r"store at 127\.0\.0\.1:1:"):
        Client("127.0.0.1", 1, timeout=0.1).get("x")


def test_a_client_never_connects_again(port: int) -> None:
    """As torch's: a store that is there again is none to it."""
    with socket.create_server((own_address(), 0)) as listener:
        client = Client(*listener.getsockname()[:2])
        accepted: list[socket.socket] = []
        passing = threading.Thread(target=lambda: pass_on(listener, port, accepted.append))
        passing.start()
        client.set("key", 1)
        accepted[0].shutdown(socket.SHUT_RDWR)
        for _ in range(2):
            with pytest.raises(StoreLostError):
                client.get("key")
        passing.join()
        listener.settimeout(0.1)
        with pytest.raises(TimeoutError):
            listener.accept()


def pass_on(listener: socket.socket, port: int, accepted: Callable[[socket.socket], None]) -> None:
    client, _ = listener.accept()
    accepted(client)
    forward(client, (own_address(), port))


def test_a_version_that_is_not_known_is_refused() -> None:
    assert version_from({}) is NEW
    assert version_from({VARIABLE: "1.13"}) is OLD
    with pytest.raises(ValueError, match=r"TOY_TORCH=3: known are 1\.13, 2\.1, unheard-of"):
        version_from({VARIABLE: "3"})
