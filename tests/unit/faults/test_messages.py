"""Messages of public faults: out of order, twice, once, too many."""

from __future__ import annotations

import time
from typing import Any

import pytest

from hajob.faults.rules.cluster_faults import ClusterFaults
from hajob.faults.rules.messages import Messages, ReadingTurns
from hajob.sources import registry
from hajob.sources.reading import Reading, RejectionReason, Terms
from tests.rigs import hardware_objects as objects

TERMS = Terms(objects.FAULT_TIME + 1000)
OCCUR, RECOVER, ONCE = "occur", "recover", "once"


def message(*assertions: str, now_ms: int = TERMS.now_ms, resource: str = "CCAE", **more: Any) -> Reading:
    faults = [objects.public_fault(assertion=one, **more) for one in assertions]
    return registry.read_object(objects.public(*faults, resource=resource), Terms(now_ms))


def standing(*told: tuple[int, Reading], at_ms: int) -> int:
    """How many faults stand at a time, after these messages."""
    faults = ClusterFaults({"node-1"})
    for when, reading in told:
        faults.take_changed_nodes(when)
        faults.store_object("any", reading, when, keeps=True)
    faults.take_changed_nodes(at_ms)
    return len(faults)


@pytest.mark.parametrize(
    ("told", "left"),
    [
        ([(0, OCCUR)], 2),
        ([(0, OCCUR), (9_000, OCCUR)], 2),
        ([(0, OCCUR), (1_000, RECOVER)], 0),
        ([(0, RECOVER), (1_000, OCCUR)], 0),
        ([(0, RECOVER), (6_000, OCCUR)], 2),
        ([(0, OCCUR), (1_000, RECOVER), (2_000, OCCUR)], 2),
        ([(0, OCCUR), (1_000, RECOVER), (2_000, RECOVER), (9_000, OCCUR)], 2),
        ([(0, ONCE)], 0),
        ([(9_000, ONCE)], 2),
        ([(0, ONCE), (9_000, ONCE)], 0),
        ([(9_000, ONCE), (9_500, RECOVER)], 0),
    ],
)
def test_what_stands_ten_seconds_later(told: list[tuple[int, str]], left: int) -> None:
    assert standing(*[(when, message(one)) for when, one in told], at_ms=10_000) == left


def test_what_happened_once_wakes_by_itself_and_is_told() -> None:
    faults = ClusterFaults({"node-1"})
    faults.store_object("any", message(ONCE), 0, keeps=True)
    node = frozenset({"node-1"})
    assert (faults.take_changed_nodes(0), faults.wakes_in_ms(1_000)) == (node, 4_000)
    assert (faults.take_changed_nodes(5_000), len(faults.faults_on_node("node-1", 5_000))) == (node, 0)


def test_a_message_that_is_read_again_long_after_is_over() -> None:
    late = message(ONCE, now_ms=objects.FAULT_TIME + 11 * 60_000)
    assert (late.facts, len(late.over)) == ([], 1)


def test_a_sender_ends_only_faults_of_its_own() -> None:
    told = [(0, message(OCCUR)), (1_000, message(RECOVER, resource="pingmesh"))]
    assert standing(*told, at_ms=10_000) == 2


def test_no_more_than_so_many_stand_and_the_rest_is_said() -> None:
    messages, many = Messages(most=3), message(OCCUR)
    first, refused = messages.accept_message(many, 0)
    assert (len(first.facts), refused) == (2, [])
    second, refused = messages.accept_message(message(OCCUR, faultId="fault-00002"), 0)
    assert (len(second.facts), [one.reason for one in refused]) == (1, [RejectionReason.TOO_MANY])
    assert "1 beyond 3" in refused[0].rejection_message
    again, refused = messages.accept_message(many, 0)
    assert (len(again.facts), refused) == (2, [])
    messages.accept_message(message(RECOVER), 0)
    third, refused = messages.accept_message(message(OCCUR, faultId="fault-00003"), 0)
    assert (len(third.facts), refused) == (2, [])


def test_a_message_of_a_mebibyte_is_bounded() -> None:
    places = [{"nodeName": f"n{number}", "deviceIds": list(range(32))} for number in range(1000)]
    faults = [objects.public_fault(faultId=f"fault-{number:05}", influence=places) for number in range(12)]
    began = time.process_time()
    found = registry.read_object(objects.public(*faults), TERMS)
    assert len(found.facts) <= 50_000 + 32_000
    assert [one.reason for one in found.rejected] == [RejectionReason.TOO_MANY]
    assert time.process_time() - began < 20


def test_a_recovery_ends_a_fault_on_every_chip_of_its_node() -> None:
    both = [{"nodeName": "node-1", "deviceIds": [0, 3]}, {"nodeName": "node-2", "deviceIds": [0]}]
    one_chip = message(RECOVER, influence=[{"nodeName": "node-1", "deviceIds": [7]}])
    assert standing((0, message(OCCUR, influence=both)), (9_000, one_chip), at_ms=10_000) == 1


@pytest.mark.parametrize(
    ("told", "left"), [((OCCUR, RECOVER), 0), ((RECOVER, OCCUR), 2), ((OCCUR, RECOVER, OCCUR), 2), ((ONCE, RECOVER), 0)]
)
@pytest.mark.parametrize("stood", [True, False])
def test_the_last_word_of_a_message_counts(told: tuple[str, ...], left: int, stood: bool) -> None:
    before = [(0, message(OCCUR))] if stood else []
    faults = [objects.public_fault(assertion=one) for one in told]
    assert standing(*before, (9_000, registry.read_object(objects.public(*faults), TERMS)), at_ms=10_000) == left


# ------------------------------------------------------------------ how many messages


def numbered(number: int, resource: str = "CCAE") -> Reading:
    return message(OCCUR, resource=resource, faultId=f"fault-{number:05}")


def test_a_sender_has_a_burst_and_then_one_a_second() -> None:
    turns = ReadingTurns()
    assert all(turns.has_turn(f"map-{number}", numbered(number), 0) for number in range(100))
    assert not turns.has_turn("map-100", numbered(100), 0)
    assert turns.has_turn("other", numbered(0, "pingmesh"), 0)
    assert (turns.wakes_in_ms(0), turns.take_due(999)) == (1_000, [])
    assert [origin for origin, _ in turns.take_due(1_000)] == ["map-100"]
    assert (turns.wakes_in_ms(1_000), turns.has_turn("map-101", numbered(101), 1_500)) == (None, False)
    assert turns.has_turn("map-102", numbered(102), 1_000_000) is False  # behind the one that waits
    assert [origin for origin, _ in turns.take_due(1_000_000)] == ["map-101", "map-102"]


def test_a_burst_fills_again_and_no_further() -> None:
    turns = ReadingTurns()
    for now_ms in (0, 1_000_000):
        assert sum(turns.has_turn(f"map-{number}", numbered(number), now_ms) for number in range(150)) == 100
        turns.take_due(now_ms + 50_000)


def test_of_an_object_that_waits_the_newest_message_is_read() -> None:
    turns = ReadingTurns()
    for number in range(100):
        turns.has_turn("map", numbered(number), 0)
    assert not any(turns.has_turn("map", numbered(number), 0) for number in (100, 101))
    ((_, newest),) = turns.take_due(60_000)
    assert [fact.id for fact in newest.facts] == [fact.id for fact in numbered(101).facts]


def test_nobodys_message_costs_no_sender_a_turn() -> None:
    turns = ReadingTurns()
    assert all(turns.has_turn("map", message(OCCUR, resource="me"), 0) for _ in range(1000))
