"""The stand-in does what a stock TaskD was seen to do; with a trait left off, its vector fails."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from e2e.bootstrap.paths import CHECKOUT
from e2e.taskd.plugins import AgentMessage, Deed, Plugins, Signal
from e2e.taskd.traits import LEFT_OUT, TRAITS

VECTORS: list[dict[str, Any]] = yaml.safe_load((CHECKOUT / "e2e/taskd/vectors.yaml").read_text())
OF_PROCESSES = frozenset(
    {
        "reports_lost",
        "report_codes_ignored",
        "backoff",
        "fault_told_twice",
        "late_exits",
        "agents_register_once",
        "newest_agent_counts",
        "empty_trace_kills",
        "aborts_without_stdout",
        "needs_all_variables",
        "manager_stays",
    }
)
"""Traits of connections and processes, which the scenarios play; the vectors are about signals."""
NOW = 1_000_000.0
SWITCHED = (
    "token",
    "fault_uuid",
    "same_strategy",
    "elastic_dedup",
    "switch_dedup",
    "exit_blocks",
    "old_fault_ends_all",
)


def deed_in_words(deed: Deed) -> str:
    if isinstance(deed, AgentMessage):
        return " ".join(["agent", deed.node, str(deed.code), *deed.ranks])
    return " ".join([deed.name, *(str(one) for one in deed.arguments)])


def play_vector(vector: dict[str, Any]) -> list[tuple[list[str], list[str]]]:
    """What was wanted and what came, for each step."""
    plugins = Plugins(vector.get("process_recover", True))
    plugins.registered.update({"0", "1"})
    played = []
    for step in vector["steps"]:
        if "registered" in step:
            plugins.note_registered(step["registered"])
        elif "fault" in step:
            plugins.note_fault(step["fault"]["node"], NOW - step["fault"]["seconds_ago"])
        else:
            given = dict(step["signal"])
            for name in ("actions", "nodes"):
                given[name] = tuple(given.get(name, ()))
            plugins.take_signal(Signal(**given))
        ticks = 0 if step.get("at_once") else 2
        came = [deed_in_words(deed) for _ in range(ticks) for deed in plugins.tick(NOW)]
        played.append((step["do"], came))
    return played


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["trait"] or "others")
def test_a_signal_does_what_was_observed(vector: dict[str, Any]) -> None:
    for wanted, came in play_vector(vector):
        assert came == wanted


@pytest.mark.parametrize("trait", SWITCHED)
def test_without_its_trait_a_vector_fails(monkeypatch: pytest.MonkeyPatch, trait: str) -> None:
    monkeypatch.setenv("TASKD_WITHOUT", trait)
    (vector,) = [one for one in VECTORS if one["trait"] == trait]
    assert any(wanted != came for wanted, came in play_vector(vector))


def test_every_trait_of_signals_has_a_vector() -> None:
    assert {vector["trait"] for vector in VECTORS} - {""} == TRAITS.keys() - OF_PROCESSES
    assert not LEFT_OUT.keys() & TRAITS.keys()
