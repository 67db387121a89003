"""Collectives of several ranks in threads of one process, over real sockets."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import pytest

from e2e.trainer.collectives import Collectives
from e2e.trainer.layout import Layout
from e2e.trainer.model import Array
from e2e.trainer.transport import Transport

T = TypeVar("T")


class Ranks:
    """All ranks of a layout; `each` runs a function on some of them at once."""

    def __init__(self, layout: Layout, micro_batches: int) -> None:
        self.transports = [Transport(rank, "127.0.0.1", self._find) for rank in range(layout.world)]
        self.collectives = [Collectives(one, layout, micro_batches) for one in self.transports]
        self._pool = ThreadPoolExecutor(layout.world)

    def _find(self, rank: int) -> tuple[str, int]:
        return self.transports[rank].address

    def start(self, ranks: list[int], work: Callable[[Collectives], T]) -> dict[int, Future[T]]:
        return {rank: self._pool.submit(work, self.collectives[rank]) for rank in ranks}

    def each(self, work: Callable[[Collectives], T]) -> list[T]:
        futures = self.start(list(range(len(self.transports))), work)
        return [future.result(60) for future in futures.values()]

    def close(self) -> None:
        for transport in self.transports:
            transport.stop("the test is over")
            transport.close()
        self._pool.shutdown()


@pytest.fixture
def ranks() -> Iterator[Callable[[Layout, int], Ranks]]:
    made: list[Ranks] = []

    def make(layout: Layout, micro_batches: int) -> Ranks:
        made.append(Ranks(layout, micro_batches))
        return made[-1]

    yield make
    for one in made:
        one.close()


Make = Callable[[Layout, int], Ranks]


def gradient(index: int, size: int) -> Array:
    return np.random.default_rng(index).standard_normal(size).astype(np.float32)


def reduced(one: Collectives, size: int) -> bytes:
    one.begin_step(1)
    return one.reduce_gradients({index: gradient(index, size) for index in one.share()}).tobytes()


def test_both_copies_of_a_shard_get_the_same_bits(ranks: Make) -> None:
    found = ranks(Layout(1, 4, 1), 8).each(lambda one: reduced(one, 6))
    assert found[0] == found[2]
    assert found[1] == found[3]
    assert found[0] != found[1]


def test_sum_has_the_same_bits_with_fewer_ranks(ranks: Make) -> None:
    whole = ranks(Layout(1, 4, 1), 8).each(lambda one: reduced(one, 6))
    shrunk = ranks(Layout(1, 4, 1), 8)
    for one in shrunk.collectives:
        one.active = (0, 1, 3)
    futures = shrunk.start([0, 1, 3], lambda one: reduced(one, 6))
    assert [futures[rank].result(60) for rank in (0, 1, 3)] == [whole[0], whole[1], whole[3]]


def test_sum_over_tensor_adds_in_order_of_the_group(ranks: Make) -> None:
    def work(one: Collectives) -> bytes:
        one.begin_step(1)
        return b"".join(one.sum_over_tensor(gradient(one.rank + 10 * again, 5)).tobytes() for again in range(3))

    found = ranks(Layout(3, 1, 1, copies=1), 1).each(work)
    expected = b"".join(
        (gradient(10 * again, 5) + gradient(1 + 10 * again, 5) + gradient(2 + 10 * again, 5)).tobytes()
        for again in range(3)
    )
    assert found == [expected] * 3


def test_parameters_are_gathered_in_the_order_of_shards(ranks: Make) -> None:
    def work(one: Collectives) -> bytes:
        shard = np.full(2, one.rank % 2, dtype=np.float32)
        return one.gather_parameters(shard, 1).tobytes()

    expected = np.array([0, 0, 1, 1], dtype=np.float32).tobytes()
    assert ranks(Layout(1, 4, 1), 4).each(work) == [expected] * 4


@pytest.mark.parametrize("layout", [Layout(2, 4, 1), Layout(4, 4, 1), Layout(2, 8, 1)])
def test_messages_of_a_step_grow_with_the_ranks_only(ranks: Make, layout: Layout) -> None:
    group = ranks(layout, 16)
    sent = [count_messages(transport) for transport in group.transports]

    def step(one: Collectives) -> None:
        one.begin_step(1)
        one.sum_over_tensor(gradient(one.rank, 5))
        one.reduce_gradients({index: gradient(index, 8) for index in one.share()})
        one.agree(b"step.1", {})
        one.gather_parameters(gradient(one.rank, 2), 1)

    group.each(step)
    assert sum(len(tags) for tags in sent) < 8 * layout.world


def count_messages(transport: Transport) -> list[bytes]:
    sent: list[bytes] = []
    send = transport.send

    def counted(to: int, tag: bytes, payload: bytes) -> None:
        if not tag.startswith(b"?"):  # on a slow machine somebody may have asked
            sent.append(tag)
        send(to, tag, payload)

    transport.send = counted  # type: ignore[method-assign, assignment]
    return sent


def test_lost_peer_makes_the_others_wait_until_they_are_stopped(ranks: Make) -> None:
    group = ranks(Layout(1, 2, 1), 2)
    future = group.start([0], lambda one: reduced(one, 2))[0]
    with pytest.raises(TimeoutError):
        future.result(0.3)
    group.transports[0].stop("for the test")
    with pytest.raises(RuntimeError, match="FORCE STOP"):
        future.result(60)


def test_answer_reaches_a_rank_the_hub_did_not_tell_any_more(ranks: Make) -> None:
    group = ranks(Layout(1, 4, 1), 4)
    hub = group.transports[0]
    told = threading.Event()
    send = hub.send

    def die_after_one(to: int, tag: bytes, payload: bytes) -> None:
        if tag.startswith(b"agreed"):
            if told.is_set():
                raise SystemExit
            told.set()
        send(to, tag, payload)

    hub.send = die_after_one  # type: ignore[method-assign, assignment]
    group.start([0], lambda one: one.agree(b"step.1", {"0": 0.5}))
    others = group.start([1, 2, 3], lambda one: one.agree(b"step.1", {str(one.rank): 1.0}))
    expected = {"0": 0.5, "1": 1.0, "2": 1.0, "3": 1.0}
    assert [future.result(60) for future in others.values()] == [expected] * 3


def test_late_answer_is_asked_for_where_it_is_told_first(ranks: Make) -> None:
    group = ranks(Layout(1, 8, 1), 8)
    asked = []
    send = group.transports[7].send

    def note(to: int, tag: bytes, payload: bytes) -> None:
        if tag.startswith(b"?"):
            asked.append(to)
        send(to, tag, payload)

    group.transports[7].send = note  # type: ignore[method-assign, assignment]
    waiting = group.start([7], lambda one: one.agree(b"step.1", {}))
    while len(asked) < 3:
        threading.Event().wait(0.01)
    assert asked[:3] == [1, 1, 2]
    group.start(list(range(7)), lambda one: one.agree(b"step.1", {}))
    assert waiting[7].result(60) == {}


def test_messages_of_an_older_generation_are_dropped(ranks: Make) -> None:
    group = ranks(Layout(1, 2, 1), 2)
    old, new = group.transports
    old.send(1, b"x", b"old")
    assert new.receive(b"x", 10.0) == b"old"
    new.regroup(1)
    old.send(1, b"x", b"old")
    assert new.receive(b"x", 0.3) is None
    old.regroup(1)
    old.send(1, b"x", b"new")
    assert new.receive(b"x", 10.0) == b"new"
