"""The signals that a TaskD manager takes, in its own words, and MindIO's calls that they stand for."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hajob.protocol import taskd_pb2 as pb

STOP, GLOBAL_FAULT, STRATEGY = "stopTrain", "globalFault", "changeStrategy"
SAVE, NODES_EXIT, SWITCH, KEEP_ALIVE = "saveAndExit", "faultNodesExit", "hot-switch", "keep-alive"
IN_PLACE = "recover-in-place"
"""The word in `parameters` that alone decides that workers are started again in their pods."""
SCALE_IN, SCALE_OUT = '{"scale-in-strategy": "DP"}', '{"scale-out-strategy": "DP"}'


@dataclass(frozen=True)
class Call:
    """One of MindIO's calls as the coordinator makes it. `arguments`: those of the controller host's protocol."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def strategy(self) -> str:
        """The strategy that it chooses, empty for other calls."""
        return str(self.arguments.get("strategy", ""))

    @property
    def ranks(self) -> dict[int, int]:
        """Rank -> kind of fault."""
        return {int(rank): int(kind) for rank, kind in self.arguments.get("ranks", ())}


@dataclass(frozen=True)
class Signal:
    """One signal without its uuid, which every one gets anew. `nodes`: node ranks."""

    kind: str
    actions: tuple[str, ...] = ()
    ranks: Mapping[int, int] = field(default_factory=dict)
    strategy: str = ""
    timeout: int = 0
    nodes: tuple[int, ...] = ()
    parameters: str = ""

    def to_message(self) -> pb.ManageSignal:
        """Return the message, with a uuid that no signal had before."""
        return pb.ManageSignal(
            uuid=f"{time.time_ns():x}-{uuid.uuid4().hex}",
            type=self.kind,
            actions=self.actions,
            ranks=[pb.FaultyRank(rank=str(rank), kind=str(kind)) for rank, kind in sorted(self.ranks.items())],
            strategy=self.strategy,
            timeout=self.timeout,
            nodes=[str(node) for node in self.nodes],
            parameters=self.parameters,
        )


RELEASE = Signal(GLOBAL_FAULT)
"""Without an action it tells MindIO nothing, and frees the plugin that a stopTrain has taken."""
NOBODY_EXITS = Signal(NODES_EXIT, ("fault_nodes_exit",))
"""Frees the plugin that a downgrade has taken; without nodes nobody exits."""
TURN_OVER = Signal(SWITCH, ("new pod running",))
"""Only logged; after it a switch with the same action counts as a new one."""


def nodes_of_ranks(ranks: Iterable[int], ranks_per_node: int) -> tuple[int, ...]:
    """Return the node ranks of these ranks, each once."""
    return tuple(sorted({rank // ranks_per_node for rank in ranks}))


def signal_of_call(call: Call, ranks_per_node: int) -> Signal:
    """Return the signal that makes TaskD call MindIO so.

    Raises:
        ValueError: there is none.
    """
    if call.name == "stop_train":
        return Signal(STOP, ("stop_train",), call.ranks)
    if call.name == "pause":
        return Signal(STOP, ("pause_train",), timeout=int(call.arguments.get("timeout", 0)))
    if call.name == "on_global_rank":
        return Signal(GLOBAL_FAULT, ("on_global_rank",), call.ranks, timeout=int(call.arguments.get("time", 0)))
    if call.name == "dump":
        return Signal(SAVE, ("save_and_exit",))
    if call.name == "prepare_action":
        return Signal(SWITCH, (str(call.arguments["action"]),), call.ranks)
    if call.name == "change_strategy":
        return _signal_of_strategy(call, ranks_per_node)
    raise ValueError(f"TaskD has no signal for {call.name}")


def _signal_of_strategy(call: Call, ranks_per_node: int) -> Signal:
    in_place: Sequence[int] = [int(rank) for rank in call.arguments.get("in_place", ())]
    parameters = {"downgrade": SCALE_IN, "upgrade": SCALE_OUT}.get(call.strategy, "")
    again = call.strategy == "recover" and bool(in_place)
    return Signal(
        STRATEGY,
        ("change_strategy",),
        dict.fromkeys(in_place, 1) if again else {},
        call.strategy,
        nodes=nodes_of_ranks(in_place, ranks_per_node) if again else (),
        parameters=IN_PLACE if again else parameters,
    )
