"""Collectives of the toy training, each with one fixed order of its sums.

Everybody sends its part to the first of its group, the hub, which adds the parts up in the order of their place and
sends the result back. So messages grow with the ranks and not with their square, and the result has the same bits
whatever came first. A hub takes long when its group is large; trainings here are small.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from e2e.trainer.layout import Layout, shares
from e2e.trainer.summation import add_up, root, subtrees

if TYPE_CHECKING:
    from collections.abc import Mapping

    from e2e.trainer.transport import Transport

Array = NDArray[np.float32]
_PATIENCE_SECONDS = 0.1


class Collectives:
    """Sums and exchanges of one rank."""

    def __init__(self, transport: Transport, layout: Layout, micro_batches: int) -> None:
        self.rank = transport.rank
        self._transport = transport
        self._layout = layout
        self._micro_batches = micro_batches
        self._data = layout.coordinate(self.rank).data
        self._data_group = layout.data_group(self.rank)
        self._tensor_group = layout.tensor_group(self.rank)
        self._decided: dict[bytes, bytes] = {}
        self._sums = 0
        self.active = tuple(range(layout.data))
        transport.query = self._answer

    @property
    def active(self) -> tuple[int, ...]:
        """Data indices that take part."""
        return self._active

    @active.setter
    def active(self, active: tuple[int, ...]) -> None:
        """Work out once what every step needs; raises LookupError when they don't hold every shard."""
        layout, leaves = self._layout, self._micro_batches
        self._active = active
        self._members = [rank for rank in range(layout.world) if layout.coordinate(rank).data in active]
        self._shares = shares(leaves, active)
        self._subtrees = {data: subtrees(part, leaves) for data, part in self._shares.items()}
        self._takers: dict[tuple[int, ...], list[int]] = {}
        for data in active:
            self._takers.setdefault(tuple(layout.sources(data, active)), []).append(data)

    def share(self) -> range:
        """Micro batches this rank computes in a step."""
        return self._shares[self._data]

    @property
    def leads(self) -> bool:
        """Whether the others of the data-parallel group wait for this rank, and need no clock of their own."""
        return self._data == self._active[0]

    def members(self) -> list[int]:
        """All ranks that take part, in ascending order."""
        return self._members

    def begin_step(self, step: int) -> None:
        """Number the following tensor sums from 0 again, so that a repeated step has the same names."""
        self._step = step
        self._sums = 0

    def sum_over_tensor(self, part: Array) -> Array:
        """Sum of an array over the tensor group, added up from tensor index 0 upwards."""
        hub, *others = self._tensor_group
        if not others:
            return part
        self._sums += 1
        name = b"tensor.%d.%d.%%d" % (self._step, self._sums)
        if self.rank != hub:
            self._transport.send(hub, name % self.rank, part.tobytes())
            return self._array(name % hub, part.shape)
        total = part
        for peer in others:
            total = total + self._array(name % peer, part.shape)
        self._send_all(others, name % hub, total.tobytes())
        return total

    def send_stage(self, stages: int, kind: bytes, micro_batch: int, values: Array) -> None:
        """Send values to the rank `stages` pipeline stages further on."""
        peer = self._layout.neighbour(self.rank, stages)
        self._transport.send(peer, b"%b.%d.%d" % (kind, self._step, micro_batch), values.tobytes())

    def receive_stage(self, kind: bytes, micro_batch: int, shape: tuple[int, ...]) -> Array:
        """Take the values a neighbouring stage sent."""
        return self._array(b"%b.%d.%d" % (kind, self._step, micro_batch), shape)

    def reduce_gradients(self, gradients: Mapping[int, Array]) -> Array:
        """Sum over the global batch of this rank's optimizer shard (order: docs/internals/toy-trainer.md, "Sums").

        `gradients` has a flat vector for every micro batch of `share()`. Both copies of a shard get the same bits.
        """
        mine, hub, leaves, group = self._data, self.active[0], self._micro_batches, self._data_group
        known = {(index, 1): vector for index, vector in gradients.items()}
        sums = [add_up(node, known, leaves) for node in self._subtrees[mine]]
        size = len(sums[0])
        name = b"gradient.%d.%%d" % self._step
        if mine != hub:
            self._transport.send(group[hub], name % mine, b"".join(vector.tobytes() for vector in sums))
            return self._array(name % hub, (size // self._layout.shards,))
        nodes = dict(zip(self._subtrees[mine], sums, strict=True))
        for data in self.active[1:]:
            theirs = self._subtrees[data]
            nodes.update(zip(theirs, self._array(name % data, (len(theirs), size)), strict=True))
        total = np.split(add_up(root(leaves), nodes, leaves), self._layout.shards)
        for data in self.active[1:]:
            self._transport.send(group[data], name % hub, total[self._layout.shard_of(data)].tobytes())
        return total[self._layout.shard_of(mine)]

    def gather_parameters(self, master: Array, step: int) -> Array:
        """Flat parameters of this stage from the shards of the own half (or of whoever still has a shard)."""
        mine, group = self._data, self._data_group
        name = b"parameters.%d.%%d" % step
        for sources, takers in self._takers.items():
            if mine in sources and mine != takers[0]:
                self._transport.send(group[takers[0]], name % mine, master.tobytes())
        sources, takers = next(one for one in self._takers.items() if mine in one[1])
        hub = takers[0]
        if mine != hub:
            return self._array(name % hub, (len(master) * len(sources),)).copy()
        pieces = [master if source == mine else self._array(name % source, master.shape) for source in sources]
        whole = np.concatenate(pieces)
        self._send_all([group[taker] for taker in takers[1:]], name % hub, whole.tobytes())
        return whole

    def agree(self, name: bytes, contribution: Mapping[str, float]) -> dict[str, float]:
        """Meet with every active rank; returns all contributions in one dict.

        After it either nobody or everybody who lives on gets an answer: who was told answers those who ask, also when
        the rank that told it is gone by then. The optimizer's update stands behind this gate, so that no survivor is
        left one step behind the others (docs/internals/toy-trainer.md, "Agreement").
        """
        transport = self._transport
        members = self.members()
        hub = members[0]
        answer_tag = b"agreed." + name
        if self.rank != hub:
            arrival = b"arrived." + name + b".%d" % self.rank
            transport.send(hub, arrival, json.dumps(contribution).encode())
            answer = self._await_answer(answer_tag, members)
        else:
            answer = self._collect(name, members, contribution)
        self._decided = dict(list(self._decided.items())[-3:])
        self._decided[answer_tag] = answer
        if self.rank == hub:
            self._send_all(members[1:], answer_tag, answer)
        result: dict[str, float] = json.loads(answer)
        return result

    def meet(self, name: bytes, ranks: list[int], *, from_handler: bool = False) -> None:
        """Wait until all of `ranks` are here; the first of them counts."""
        transport = self._transport
        if self.rank != ranks[0]:
            transport.send(ranks[0], b"here." + name + b".%d" % self.rank, b"")
            transport.receive(b"all here." + name, from_handler=from_handler)
            return
        for rank in ranks[1:]:
            transport.receive(b"here." + name + b".%d" % rank, from_handler=from_handler)
        for rank in ranks[1:]:
            transport.send(rank, b"all here." + name, b"")

    def forget(self) -> None:
        """Answer no more questions about agreements of the generation that ends."""
        self._decided = {}

    def _collect(self, name: bytes, members: list[int], contribution: Mapping[str, float]) -> bytes:
        together = dict(contribution)
        for rank in members[1:]:
            part = self._transport.receive(b"arrived." + name + b".%d" % rank)
            together.update(json.loads(part or b"{}"))
        return json.dumps(together).encode()

    def _await_answer(self, tag: bytes, members: list[int]) -> bytes:
        """Wait for the hub's answer; ask for it when it does not come.

        The hub tells the others in order, so whoever is asked first is most likely to know. Only when nobody does are
        more asked: on a slow machine a hub is often late, and then questions to all would grow with the ranks' square.
        """
        transport, hub = self._transport, members[0]
        patience, asked = _PATIENCE_SECONDS, 1
        while (answer := transport.receive(tag, 0.0 if transport.is_lost(hub) else patience)) is None:
            others = [rank for rank in members[1:] if rank != self.rank and not transport.is_lost(rank)]
            self._send_all(others[:asked], b"?" + tag, b"")
            if (answer := transport.receive(tag, patience)) is not None:
                return answer
            patience, asked = min(patience * 2, 5.0), asked * 2
        return answer

    def _send_all(self, ranks: list[int], tag: bytes, payload: bytes) -> None:
        for rank in ranks:
            self._transport.send(rank, tag, payload)

    def _answer(self, sender: int, tag: bytes, _payload: bytes) -> None:
        if (answer := self._decided.get(tag[1:])) is not None:
            self._transport.send(sender, tag[1:], answer)

    def _array(self, tag: bytes, shape: tuple[int, ...]) -> Array:
        data = self._transport.receive(tag)
        assert data is not None, "a wait without a limit ends with a message"
        return np.frombuffer(data, dtype=np.float32).reshape(shape)
