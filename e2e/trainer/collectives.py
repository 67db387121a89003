"""Collectives of the toy training, each with one fixed order of its sums.

Everybody sends its part to everybody who needs it and adds the parts up in the order of their place in the group. That
is more traffic than a ring and right for a few kilobytes; above all the result has the same bits whatever came first.
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
    """Sums and exchanges of one rank; `active` are the data indices that take part."""

    def __init__(self, transport: Transport, layout: Layout, micro_batches: int) -> None:
        self.active: tuple[int, ...] = tuple(range(layout.data))
        self.rank = transport.rank
        self._transport = transport
        self._layout = layout
        self._micro_batches = micro_batches
        self._place = layout.coordinate(self.rank)
        self._decided: dict[bytes, bytes] = {}
        self._sums = 0
        transport.query = self._answer

    def share(self) -> range:
        """Micro batches this rank computes in a step."""
        return shares(self._micro_batches, self.active)[self._place.data]

    def members(self) -> list[int]:
        """All ranks that take part, in ascending order."""
        layout = self._layout
        place = layout.coordinate
        return [rank for rank in range(layout.world) if place(rank).data in self.active]

    def begin_step(self, step: int) -> None:
        """Number the following tensor sums from 0 again, so that a repeated step has the same names."""
        self._step = step
        self._sums = 0

    def sum_over_tensor(self, part: Array) -> Array:
        """Sum of an array over the tensor group, added up from tensor index 0 upwards."""
        group = self._layout.tensor_group(self.rank)
        if len(group) == 1:
            return part
        self._sums += 1
        name = b"tensor.%d.%d." % (self._step, self._sums)
        data = part.tobytes()
        for peer in group:
            if peer != self.rank:
                self._transport.send(peer, name + b"%d" % self.rank, data)
        total: Array | None = None
        for peer in group:
            one = part if peer == self.rank else self._array(name + b"%d" % peer, part.shape)
            total = one if total is None else total + one
        assert total is not None, "a group has members"
        return total

    def send_stage(self, stages: int, kind: bytes, micro_batch: int, values: Array) -> None:
        """Send values to the rank `stages` pipeline stages further on."""
        peer = self._layout.neighbour(self.rank, stages)
        self._transport.send(peer, b"%b.%d.%d" % (kind, self._step, micro_batch), values.tobytes())

    def receive_stage(self, kind: bytes, micro_batch: int, shape: tuple[int, ...]) -> Array:
        """Take the values a neighbouring stage sent."""
        return self._array(b"%b.%d.%d" % (kind, self._step, micro_batch), shape)

    def reduce_gradients(self, gradients: Mapping[int, Array]) -> Array:
        """Sum over the global batch of this rank's optimizer shard, in the order of docs/toy-trainer.md ("Sums").

        `gradients` has a flat vector for every micro batch of `share()`. Both copies of a shard get the same bits.
        """
        layout, leaves = self._layout, self._micro_batches
        mine = self._place.data
        parts = shares(leaves, self.active)
        known = {(index, 1): vector for index, vector in gradients.items()}
        sums = [add_up(node, known, leaves) for node in subtrees(parts[mine], leaves)]
        group = layout.data_group(self.rank)
        length = len(next(iter(gradients.values()))) // layout.shards
        name = b"gradient.%d.%%d" % self._step
        for data in self.active:
            if data != mine:
                start = layout.shard_of(data) * length
                cut = b"".join(vector[start : start + length].tobytes() for vector in sums)
                self._transport.send(group[data], name % mine, cut)
        start = layout.shard_of(mine) * length
        nodes: dict[tuple[int, int], Array] = {}
        for data in self.active:
            theirs = subtrees(parts[data], leaves)
            if data == mine:
                nodes.update(zip(theirs, (vector[start : start + length] for vector in sums), strict=True))
            else:
                nodes.update(zip(theirs, self._array(name % data, (len(theirs), length)), strict=True))
        return add_up(root(leaves), nodes, leaves)

    def gather_parameters(self, master: Array, step: int) -> Array:
        """Flat parameters of this stage from the shards of the own half (or of whoever still has a shard)."""
        layout = self._layout
        mine = self._place.data
        group = layout.data_group(self.rank)
        name = b"parameters.%d.%%d" % step
        data = master.tobytes()
        for peer in self.active:
            if peer != mine and mine in layout.sources(peer, self.active):
                self._transport.send(group[peer], name % mine, data)
        pieces = [
            master if source == mine else self._array(name % source, master.shape)
            for source in layout.sources(mine, self.active)
        ]
        return np.concatenate(pieces)

    def agree(self, name: bytes, contribution: Mapping[str, float]) -> dict[str, float]:
        """Meet with every active rank; returns all contributions in one dict.

        After it either nobody or everybody who lives on gets an answer: who was told answers those who ask, also when
        the rank that told it is gone by then. The optimizer's update stands behind this gate, so that no survivor is
        left one step behind the others (docs/toy-trainer.md, "Agreement").
        """
        transport = self._transport
        members = self.members()
        hub = members[0]
        answer_tag = b"agreed." + name
        if self.rank != hub:
            arrival = b"arrived." + name + b".%d" % self.rank
            transport.send(hub, arrival, json.dumps(contribution).encode())
            answer = self._await_answer(answer_tag, hub, members)
        else:
            answer = self._collect(name, members, contribution)
        self._decided = dict(list(self._decided.items())[-3:])
        self._decided[answer_tag] = answer
        if self.rank == hub:
            for member in members[1:]:
                transport.send(member, answer_tag, answer)
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

    def _await_answer(self, tag: bytes, hub: int, members: list[int]) -> bytes:
        patience = _PATIENCE_SECONDS
        while (answer := self._transport.receive(tag, 0.0 if self._transport.is_lost(hub) else patience)) is None:
            for rank in members:
                if rank not in {hub, self.rank}:
                    self._transport.send(rank, b"?" + tag, b"")
            if (answer := self._transport.receive(tag, patience)) is not None:
                return answer
            patience = min(patience * 2, 5.0)
        return answer

    def _answer(self, sender: int, tag: bytes, _payload: bytes) -> None:
        if (answer := self._decided.get(tag[1:])) is not None:
            self._transport.send(sender, tag[1:], answer)

    def _array(self, tag: bytes, shape: tuple[int, ...]) -> Array:
        data = self._transport.receive(tag)
        assert data is not None, "a wait without a limit ends with a message"
        return np.frombuffer(data, dtype=np.float32).reshape(shape)
