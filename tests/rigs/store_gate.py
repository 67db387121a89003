"""The agent's gate to the rendezvous store, with rules that a test sets."""

from __future__ import annotations


class StoreGateRules:
    """What the agent would decide."""

    def __init__(self) -> None:
        self.open = False
        self.address = self.name = ""
        self.kept = False
        self.problems: list[int] = []
        self.strangers: list[int] = []

    def may_reach_store(self) -> bool:
        return self.open

    def store_address(self) -> str:
        return self.address

    def store_name(self) -> str:
        return self.name

    def is_store_kept(self) -> bool:
        return self.kept

    def report_taken_port(self, port: int, _: OSError) -> None:
        self.problems.append(port)

    def report_foreign_connection(self, port: int, _: str) -> None:
        self.strangers.append(port)
