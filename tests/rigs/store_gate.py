"""The agent's gate to the rendezvous store, with rules that a test sets."""

from __future__ import annotations

from tests.rigs.agent_gate import GateRules


class StoreGateRules(GateRules):
    """What the agent would decide; `address` is the store's."""

    def __init__(self) -> None:
        super().__init__()
        self.name = ""
        self.kept = False

    def may_reach_store(self) -> bool:
        return self.open

    def store_address(self) -> str:
        return self.address

    def store_name(self) -> str:
        return self.name

    def is_store_kept(self) -> bool:
        return self.kept
