"""Groups of ranks over torch's TCPStore: communicators as HCCL has them, and gloo groups as MindIO has them named.

A communicator is made at its first collective: the first of its group writes root info under key "0" of the group's
prefix, the others wait for it. To rebuild one, every rank deletes "0" and forgets; prefix and key stay the same for
ever, so a rank that read them too early would meet the root info of a dead attempt. A gloo group gets a new name each
time, SHA1 of its ranks and the number of the repair, and a barrier in the store.

What chips do at a stop is imitated: every wait of the training thread ends with FORCE STOP. What gloo does when a peer
dies is not shown: the wait goes on, as a collective on a chip does. Groups that were given up are kept, not destroyed:
gloo cannot abort, and would wait for its stuck threads.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist

ROOT_INFO: Final = "0"
POLL_SECONDS: Final = 0.0005
GROUP_TIMEOUT: Final = timedelta(minutes=10)
"""Megatron's --distributed-timeout-minutes."""

Tensor = Any
"""torch has no types where this is checked."""


class World:
    """This process among all ranks: its store, whether it has been stopped, and the collectives it may use."""

    def __init__(self, rank: int, size: int, address: str, attempt: int) -> None:
        self.rank = rank
        self.size = size
        self._attempt = attempt
        self._address = address
        self._stopped = threading.Event()
        self._training_thread = threading.current_thread()
        self._given_up: list[object] = []
        self.is_rebooted = False
        """A rank that was started anew does no collective until the groups are rebuilt."""
        self.store = self.connect()

    def connect(self) -> Any:  # noqa: ANN401 - a store of torch
        """A client of the store, by torch's own rendezvous: address, prefix and attempt come from the environment."""
        store, _, _ = next(dist.rendezvous("env://", self.rank, self.size, timeout=GROUP_TIMEOUT))
        return store

    def agreed_number(self, what: str, ranks: int) -> int:
        """How often `what` has been done in this attempt, if each of so many ranks asks once each time; from 1."""
        return -(-int(self.store.add(f"attempt {self._attempt}: {what}", 1)) // ranks)

    def stop(self) -> None:
        """Break every wait of the training thread, now and until `resume`."""
        self._stopped.set()

    def resume(self) -> None:
        """The stop is over."""
        self._stopped.clear()

    def check(self) -> None:
        """Raise RuntimeError("FORCE STOP …") in the training thread when it has been stopped."""
        if self._stopped.is_set() and threading.current_thread() is self._training_thread:
            raise RuntimeError("FORCE STOP: stopped by MindIO")

    def pause(self, seconds: float) -> None:
        """Let time pass; a stop ends it."""
        if seconds > 0:
            self._stopped.wait(seconds)
        self.check()

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition; a stop ends it."""
        while not condition():
            self.check()
            time.sleep(POLL_SECONDS)

    def hang(self, reason: object) -> None:
        """A peer has gone: the training thread waits for the stop; a handler, whose recovery has failed, raises."""
        if threading.current_thread() is not self._training_thread:
            raise RuntimeError(f"a peer is gone: {reason}")
        self._stopped.wait()
        self.check()

    def key(self, prefix: str, name: str) -> str:
        """Wait for a key of the store."""
        found = self._apart(f"key {prefix}/{name}", lambda: dist.PrefixStore(prefix, self.connect()).get(name).decode())
        return str(found)

    def gloo(self, name: str, ranks: Sequence[int]) -> Any:  # noqa: ANN401 - a group of torch
        """Connect a gloo group under this prefix."""

        def connected() -> Any:  # noqa: ANN401 - a group of torch
            options = dist.ProcessGroupGloo._Options()
            options._devices = [dist.ProcessGroupGloo.create_device(hostname=self._address)]
            options._timeout = GROUP_TIMEOUT
            store = dist.PrefixStore(name, self.connect())
            return dist.ProcessGroupGloo(store, ranks.index(self.rank), len(ranks), options)

        return self._apart(f"connect {name}", connected)

    def _apart(self, what: str, work: Callable[[], Any]) -> Any:  # noqa: ANN401 - what `work` returns
        """Do what cannot be interrupted in a thread of its own.

        It brings a client of the store of its own: a wait holds the client's lock, and one that ends by a time-out
        leaves older clients (before 2.1) with an answer too many.
        """
        done: list[Any] = []

        def run() -> None:
            try:
                done.append(work())
            except RuntimeError as error:
                done.append(error)

        threading.Thread(target=run, name=what, daemon=True).start()
        self.until(lambda: bool(done))
        if isinstance(done[0], RuntimeError):
            self.hang(done[0])
        return done[0]

    def give_up(self, group: object) -> None:
        """Keep a group that is not used any more; destroying it would wait for its threads."""
        self._given_up.append(group)


class Communicator:
    """Ranks with collectives; connected at the first of them."""

    def __init__(self, world: World, name: str, ranks: Sequence[int]) -> None:
        self.world = world
        self.name = name
        self.ranks = list(ranks)
        self._store = dist.PrefixStore(name, world.store)
        self._group: Any = None

    def rebuild(self) -> None:
        """`reinit_process_group(rebuild_link=True)`: no communicator is built yet."""
        with contextlib.suppress(RuntimeError):  # deleting is a last resort; others delete, too
            self._store.delete_key(ROOT_INFO)
        if self._group is not None:
            self.world.give_up(self._group)
        self._group = None

    def sum(self, tensor: Tensor) -> Tensor:
        """Add up over the group, in place; a rank by itself, or one that was started anew, does nothing."""
        if not self._is_idle():
            self._finish(self._connected().allreduce([tensor], dist.AllreduceOptions()))
        return tensor

    def gather(self, tensor: Tensor) -> Tensor:
        """All parts of equal length, one after the other in order of the group."""
        if self._is_idle():
            return tensor if len(self.ranks) == 1 else tensor.repeat(len(self.ranks))
        parts = [torch.empty_like(tensor) for _ in self.ranks]
        self._finish(self._connected().allgather([parts], [tensor]))
        return torch.cat(parts)

    def broadcast(self, tensor: Tensor, source: int) -> Tensor:
        """What rank `source` holds, in place."""
        if not self._is_idle():
            options = dist.BroadcastOptions()
            options.rootRank, options.rootTensor = self.ranks.index(source), 0
            self._finish(self._connected().broadcast([tensor], options))
        return tensor

    def barrier(self) -> None:
        """Wait for everybody."""
        self.sum(torch.zeros(1))

    def _is_idle(self) -> bool:
        return len(self.ranks) == 1 or self.world.is_rebooted

    def _connected(self) -> Any:  # noqa: ANN401 - a group of torch
        if self._group is None:
            if self.world.rank == self.ranks[0]:
                root = uuid.uuid4().hex
                self._store.set(ROOT_INFO, root)
            else:
                root = self.world.key(self.name, ROOT_INFO)
            self._group = self.world.gloo(f"{self.name}/{root}", self.ranks)
        return self._group

    def _finish(self, work: Any) -> None:  # noqa: ANN401 - work of torch
        self.world.until(work.is_completed)
        try:
            work.wait()
        except RuntimeError as error:
            self.world.hang(error)


class GlooGroup(Communicator):
    """A group that is made new at each rebuild, under MindIO's name for it, behind a barrier in the store."""

    def __init__(self, world: World, ranks: Sequence[int], repair: int) -> None:
        name = mindio_name(ranks, repair)
        super().__init__(world, name, ranks)
        if world.is_rebooted or len(self.ranks) == 1:
            return
        self._barrier(name)
        self._group = world.gloo(name, self.ranks)

    def _barrier(self, name: str) -> None:
        """`store_based_barrier_key`: a name that was there before would pass at once."""
        key = f"store_based_barrier_key:{name}"
        self._store.add(key, 1)
        self.world.until(lambda: int(self._store.add(key, 0)) >= len(self.ranks))


def mindio_name(ranks: Sequence[int], repair: int) -> str:
    """How MindIO names a group: the same in old and new processes, whatever each has made before."""
    text = "_".join(str(rank) for rank in ranks)
    return f"{hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()}_{repair}"


def threads_of_torch() -> None:
    """One thread for each rank: the order of sums must not depend on the machine."""
    torch.set_num_threads(1)
    with contextlib.suppress(RuntimeError):
        torch.set_num_interop_threads(1)
    torch.use_deterministic_algorithms(True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
