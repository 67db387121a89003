"""A link fault that MindIO reports (type 2): the step is repeated, then processes come anew, then pods."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hajob.domain.actions import Action, OrderCommand
from hajob.domain.facts import FactKind, Source
from hajob.plan import events as e
from hajob.plan.state import JobPhase
from tests.rigs.plan_rig import Rig
from tests.rigs.plan_worlds import VIEW


def broken_link(rank: int = 5) -> Rig:
    """MindIO has found it."""
    rig = Rig.running()
    rig.see(FactKind.COMMUNICATION_FAULT, ranks=(rank,), source=Source.MINDIO)
    return rig


def test_a_link_fault_is_retried_in_place() -> None:
    rig = broken_link()
    assert (rig.action, rig.incident.restart_ranks, rig.incident.replaced_nodes) == (Action.RETRY, (), ())
    assert rig.state.deadlines["Recovery"] == rig.now + 60_000
    rig.recover()
    assert (rig.state.phase, rig.state.renewed, rig.state.pods) == (JobPhase.RUNNING, {}, {})


def test_a_retry_that_is_never_named_restarts_the_process() -> None:
    rig = broken_link()
    order = rig.order(rig.deadline("Recovery"))
    assert (order.command, order.restart_ranks, order.replaced_nodes) == (OrderCommand.IN_PLACE, (5,), ())
    assert rig.incident.escalated_from == (Action.RETRY,)


def test_a_retry_that_mindio_refuses_restarts_the_process() -> None:
    rig = broken_link()
    rig.tell(e.Named(2, 1))
    order = rig.order(rig.tell(e.ResultReported(2, 405, "notify device clean failed", "retry")))
    assert (order.command, order.restart_ranks) == (OrderCommand.IN_PLACE, (5,))


def test_a_process_that_does_not_come_after_it_is_replaced() -> None:
    rig = broken_link()
    rig.deadline("Recovery")
    order = rig.order(rig.deadline("Recovery"))
    assert (order.command, order.replaced_nodes) == (OrderCommand.REPLACE, (2,))
    assert rig.incident.escalated_from == (Action.RETRY, Action.IN_PLACE)


def test_a_link_that_breaks_again_and_again_gets_more_each_time() -> None:
    """At the same step the same action is taken three times; a step that was finished begins anew."""
    rig = Rig.running()
    taken = []
    for _ in range(9):
        rig.see(FactKind.COMMUNICATION_FAULT, ranks=(5,), source=Source.MINDIO)
        taken.append(rig.action)
        rig.recover()
        rig.now += 700_000  # no budget ends it
    assert taken == [Action.RETRY] * 3 + [Action.IN_PLACE] * 3 + [Action.REPLACE] * 3
    rig.view = replace(VIEW, step=9)
    rig.see(FactKind.COMMUNICATION_FAULT, ranks=(5,), source=Source.MINDIO)
    assert rig.action is Action.RETRY


@pytest.mark.parametrize("seconds", [10, 650])
def test_more_retries_than_its_window_allows_restart_a_process(seconds: int) -> None:
    rig = Rig.running()
    for step in range(6, 9):
        rig.view = replace(VIEW, step=step)
        rig.see(FactKind.COMMUNICATION_FAULT, ranks=(5,), source=Source.MINDIO)
        assert rig.action is Action.RETRY
        rig.recover()
    rig.view, rig.now = replace(VIEW, step=9), rig.now + 1000 * seconds
    rig.see(FactKind.COMMUNICATION_FAULT, ranks=(5,), source=Source.MINDIO)
    assert rig.action is (Action.IN_PLACE if seconds < 600 else Action.RETRY)
