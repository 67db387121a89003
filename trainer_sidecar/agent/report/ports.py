"""Ports out of the node's rules, set by the code that connects the parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.agent.gate.rules import LinkPhase


@dataclass
class AgentPorts:
    """The functions of launcher, gate, coordinator and checkpoint reader that the rules call."""

    send_launcher: Callable[[dict[str, Any]], object] = lambda _: None
    wake_report: Callable[[], None] = lambda: None
    wake_gate: Callable[[], None] = lambda: None
    end_links: Callable[[int], None] = lambda _: None
    link_phase: Callable[[int], LinkPhase] = lambda _: LinkPhase.NONE
    gate_state: Callable[[], pb.GateState] = pb.GateState
    store_content: Callable[[str], Iterable[pb.StoreContent]] = lambda _: ()
    write_rank_table: Callable[[pb.RankTable], str] = lambda _: ""
    look_at_checkpoints: Callable[[pb.CheckpointOrder | None], None] = lambda _: None
    begin_controller_lines: Callable[[], None] = lambda: None
    apply_controller_line: Callable[[str], None] = lambda _: None
    take_controller_lines: Callable[[], Iterable[str]] = lambda: ()
