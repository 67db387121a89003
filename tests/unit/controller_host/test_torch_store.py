"""The rendezvous store with real torch: Debian's python3-torch, or the Python in HAJOB_TORCH_PYTHON; else skipped."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from tests.rigs.controller_host import HostClient, children_of_host
from tests.rigs.torch_store import NEEDS_TORCH, PATIENCE, TorchRank

pytestmark = [NEEDS_TORCH, pytest.mark.slow]


def test_ranks_go_on_when_controller_and_coordinator_are_lost(
    store: tuple[HostClient, int, int], rank: Callable[..., TorchRank]
) -> None:
    """torch's clients connect once: the same connection must serve before and after."""
    client, port, store_port = store
    first = rank(store_port)
    assert first.ask("raw", "set", "default_pg/0", "root info") is None
    os.kill(int(children_of_host(client)[1]), signal.SIGKILL)
    client.state(controller="lost")
    client.socket.close()
    assert first.ask("raw", "get", "default_pg/0") == "root info"
    client.connect()
    client.socket.settimeout(PATIENCE)
    client.start(port, store_port)
    client.state(controller="serving", store="listening")
    assert first.ask("raw", "get", "default_pg/0") == "root info"


def test_another_attempt_reads_nothing_of_the_dead_one(
    store: tuple[HostClient, int, int], rank: Callable[..., TorchRank]
) -> None:
    """Version 2.6 and newer put no attempt before their keys: only an empty store keeps them apart."""
    client, port, store_port = store
    first = rank(store_port)
    for which in ("raw", "elastic"):
        first.ask(which, "set", "0", "of the dead attempt")
    assert first.ask("raw", "add", "store_based_barrier_key:1", 2) == 2
    client.start(port, store_port, number=2)
    client.state(controller="serving", store="listening")
    second = rank(store_port, 0, 2)
    assert second.ask("raw", "add", "store_based_barrier_key:1", 1) == 1, "a repeated name would pass at once"
    for which in ("raw", "elastic"):
        assert str(second.ask(which, "wait", ["0"], 0.5)).startswith("error")


def test_prefixes_by_version_meet_whoever_is_replaced(
    store: tuple[HostClient, int, int], rank: Callable[..., TorchRank]
) -> None:
    """1.13 and 2.1 put the attempt before every key: a replaced rank has the number of the others, and meets them."""
    _, _, store_port = store
    survivor, replaced, wrong = rank(store_port, 0, 3), rank(store_port, 1, 3), rank(store_port, 1, 4)
    survivor.ask("elastic", "set", "default_pg/0", "root info")
    assert replaced.ask("elastic", "get", "default_pg/0") == "root info"
    has_prefix = survivor.ask("raw", "wait", ["/worker/attempt_3/default_pg/0"], 0.5) is True
    met = wrong.ask("elastic", "wait", ["default_pg/0"], 0.5) is True
    assert met is not has_prefix, "without a prefix (2.6 and newer) the number does not matter"


def test_root_info_is_deleted_by_all_before_it_is_set(
    store: tuple[HostClient, int, int], rank: Callable[..., TorchRank]
) -> None:
    """As a rebuild does: all delete key "0", a barrier, group rank 0 sets it, the others get it."""
    _, _, store_port = store
    survivor, replaced = rank(store_port, 0), rank(store_port, 1)
    survivor.ask("raw", "set", "0", "old")
    assert replaced.ask("raw", "get", "0") == "old", "too early: nothing tells the store that this is over"
    assert survivor.ask("raw", "delete_key", "0") is True
    assert replaced.ask("raw", "delete_key", "0") is False
    replaced.begin("raw", "get", "0")
    survivor.ask("raw", "set", "0", "new")
    assert replaced.answer() == "new"
    assert replaced.ask("raw", "delete_key", "0") is True, "a late delete …"
    assert str(survivor.ask("raw", "wait", ["0"], 0.5)).startswith("error"), "… takes it from those who come later"


def test_a_barrier_whose_name_is_repeated_is_passed_at_once(
    store: tuple[HostClient, int, int], rank: Callable[..., TorchRank]
) -> None:
    """Why MindIO puts the repair's number into the names of groups: the store keeps what was counted."""
    _, _, store_port = store
    one = rank(store_port)
    key = "store_based_barrier_key:abc_1"
    assert [one.ask("raw", "add", key, 1) for _ in range(3)] == [1, 2, 3]
    assert one.ask("raw", "add", "store_based_barrier_key:abc_2", 1) == 1
