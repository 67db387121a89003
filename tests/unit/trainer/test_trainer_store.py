import socket
import threading

import pytest

from e2e.cluster.loopback import own_address, own_port
from e2e.trainer.store import NOBODY, Client, Entries, StoreError, serve


def test_older_incarnation_of_a_rank_is_refused() -> None:
    entries = Entries()
    entries.write("address/1", "old", 1, (0, 3))
    entries.write("address/1", "new", 1, (0, 4))
    with pytest.raises(StoreError, match="rank 1, attempt 0, incarnation 3 may not write"):
        entries.write("address/1", "old again", 1, (0, 3))
    assert entries.read("address/1", 0) == "new"


def test_older_attempt_is_refused_and_attempts_never_meet() -> None:
    entries = Entries()
    entries.write("address/1", "first", 1, (0, 9))
    entries.write("generation", 2, 1, (1, 10))
    assert entries.read("address/1", 1) is None
    with pytest.raises(StoreError):
        entries.write("address/1", "late", 1, (0, 9))


def test_other_ranks_and_tools_are_not_fenced() -> None:
    entries = Entries()
    entries.write("a", 1, 1, (0, 9))
    entries.write("b", 2, 2, (0, 1))
    entries.write("c", 3, NOBODY, (0, 0))
    entries.write("c", 4, NOBODY, (0, 0))


def test_larger_number_is_kept() -> None:
    entries = Entries()
    assert entries.write("generation", 3, 1, (0, 0), keep_larger=True) == 3
    assert entries.write("generation", 2, 2, (0, 0), keep_larger=True) == 3


@pytest.fixture(scope="module")
def port() -> int:
    number = own_port()
    threading.Thread(target=serve, args=(own_address(), number), daemon=True).start()
    return number


def test_value_is_waited_for(port: int) -> None:
    waiting, writing = Client(own_address(), port, 0), Client(own_address(), port, 1)
    assert waiting.get("late") is None
    threading.Thread(target=lambda: writing.set("late", ["127.0.0.1", 7]), daemon=True).start()
    assert waiting.wait("late", 30.0) == ["127.0.0.1", 7]
    assert waiting.wait("never", 0.01) is None


def test_refusal_reaches_the_client(port: int) -> None:
    Client(own_address(), port, 5, (0, 2)).set("address/5", "new")
    with pytest.raises(StoreError, match="has taken over"):
        Client(own_address(), port, 5, (0, 1)).set("address/5", "old")


def test_proxies_in_the_environment_play_no_part(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert Client(own_address(), port).maximum("number", 4) == 4


def test_nonsense_is_answered_not_fatal(port: int) -> None:
    with socket.create_connection((own_address(), port)) as connection:
        connection.sendall(b"nonsense\n")
        assert b"error" in connection.recv(1000)
    assert Client(own_address(), port).maximum("other", 1) == 1


def test_store_that_is_not_there_is_named() -> None:
    with pytest.raises(StoreError, match=r"store at 127\.0\.0\.1:1:"):
        Client("127.0.0.1", 1, timeout=0.1).get("x")


def test_all_values_are_gathered_when_the_last_one_comes(port: int) -> None:
    waiting, writing = Client(own_address(), port, 0), Client(own_address(), port, 1)
    writing.set("place/0", ["127.0.0.1", 7])
    assert waiting.gather("place", [0, 1], 0.01) is None
    threading.Thread(target=lambda: writing.set("place/1", ["127.0.0.2", 8]), daemon=True).start()
    assert waiting.gather("place", [0, 1], 30.0) == ["127.0.0.1", 7, "127.0.0.2", 8]
