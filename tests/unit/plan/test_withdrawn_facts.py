"""A fault that is over before anything was done for it leads to nothing."""

from __future__ import annotations

from hajob.domain.facts import Fact, FactKind, Source
from hajob.domain.incidents import IncidentOutcome
from hajob.plan import events as e
from hajob.plan.effects import Announce, CloseIncident
from hajob.plan.policy import Mode, Policy
from hajob.plan.state import JobPhase
from tests.rigs.plan_rig import Rig


def seen(name: str, kind: FactKind = FactKind.CHIP_FAULT, node: int = 1) -> e.FactSeen:
    return e.FactSeen(fact=Fact(name, kind, Source.DEVICE, node_rank=node, time_ms=10**12))


def held(*names: str) -> Rig:
    rig = Rig.running(policy=Policy(mode=Mode.HOLD))
    for name in names:
        rig.tell(seen(name))
    return rig


def test_what_was_held_is_let_go() -> None:
    rig = held("a")
    done = rig.tell(e.FactsWithdrawn(ids=("a",)))
    assert rig.at(JobPhase.RUNNING)
    assert done == (CloseIncident(2, IncidentOutcome.RECOVERED, "its faults are gone; no action was taken"),)
    rig.policy = Policy()
    rig.tell(e.PolicyChanged())
    assert rig.at(JobPhase.RUNNING)


def test_a_fault_that_comes_again_counts_again() -> None:
    rig = held("a")
    rig.tell(e.FactsWithdrawn(ids=("a",)))
    rig.tell(seen("a"))
    assert rig.at(JobPhase.HELD)


def test_the_other_facts_still_count() -> None:
    rig = held("a", "b")
    rig.tell(e.FactsWithdrawn(ids=("a", "unknown")))
    assert rig.at(JobPhase.HELD)
    assert rig.incident.fact_ids == ("b",)
    rig.tell(e.FactsWithdrawn(ids=("b",)))
    assert rig.at(JobPhase.RUNNING)


def test_a_move_off_a_node_that_is_well_again_is_given_up() -> None:
    rig = Rig.running()
    rig.tell(seen("sick", FactKind.SUB_HEALTH))
    assert rig.at(JobPhase.MIGRATING)
    done = rig.tell(e.FactsWithdrawn(ids=("sick",)))
    assert rig.at(JobPhase.RUNNING)
    assert any(isinstance(one, Announce) and "is healthy again" in one.message for one in done)
    assert rig.served == dict.fromkeys(range(4), 1)


def test_what_has_been_done_is_not_undone() -> None:
    rig = Rig.running()
    rig.tell(seen("a"))
    rig.tell(e.FactsWithdrawn(ids=("a",)))
    assert rig.at(JobPhase.GATHERING)
