"""What a Workload of Kueue says of its job."""

from __future__ import annotations

from typing import Any

import pytest

from hajob.api.base import Json
from hajob.capacity.queues import NOT_SERVED, UNANSWERED, UNREAD, Queues, wait_in_words
from hajob.sources.workload import Placing, QueueTurn, flavor_view_of, workload_view_of
from tests.rigs.example_jobs import example_job
from tests.rigs.workloads import (
    ADMITTED,
    EVICTED,
    FLAVOR,
    PREEMPTED,
    SHORT,
    WAITING,
    kueue_condition,
    queues_with,
    view_of,
    workload_of,
)

RETURNED = [
    kueue_condition("QuotaReserved", "False", "Pending", PREEMPTED),
    kueue_condition("Admitted", "False", "NoReservation"),
    kueue_condition("Evicted", "True", "Preempted", PREEMPTED),
]
RESERVED = [kueue_condition("QuotaReserved", "True", "QuotaReserved")]


@pytest.mark.parametrize(
    ("conditions", "turn", "has_quota", "owes"),
    [
        ([], QueueTurn.UNKNOWN, False, False),
        (WAITING, QueueTurn.WAITING, False, False),
        (RESERVED, QueueTurn.UNKNOWN, True, False),
        (ADMITTED, QueueTurn.ADMITTED, True, False),
        (EVICTED, QueueTurn.EVICTED, True, True),
        ([*RESERVED, kueue_condition("Evicted", "True", "AdmissionCheck")], QueueTurn.EVICTED, True, True),
        (RETURNED, QueueTurn.EVICTED, False, False),
        ([*ADMITTED, kueue_condition("Evicted", "False", "QuotaReserved")], QueueTurn.ADMITTED, True, False),
        ([*EVICTED, kueue_condition("Finished", "True", "Succeeded")], QueueTurn.UNKNOWN, True, False),
    ],
)
def test_conditions_say_whose_turn_it_is(conditions: list[Json], turn: QueueTurn, has_quota: bool, owes: bool) -> None:
    view = view_of(*conditions)
    assert (view.queue_turn, view.has_quota, view.owes_quota) == (turn, has_quota, owes)


def test_an_unknown_flavor_says_nothing_of_nodes() -> None:
    raw = workload_of(example_job("quickstart"), ADMITTED)
    known, unknown = queues_with(raw), queues_with(raw, flavors=())
    assert known.turn_of_workload(workload_view_of(raw)) is QueueTurn.ADMITTED
    assert unknown.turn_of_workload(workload_view_of(raw)) is QueueTurn.UNKNOWN
    told = wait_in_words(unknown, "team-a", "user-queue", workload_view_of(raw))
    assert told == "queue user-queue: the ResourceFlavor a2 is not known"


def test_flavors_and_checks_are_merged() -> None:
    update: Json = {
        "name": "rank",
        "labels": {"l": "1"},
        "annotations": {"a": "1"},
        "nodeSelector": {"pool": "reserved"},
        "tolerations": [{"key": "reserved", "operator": "Exists"}],
    }
    checks = [{"name": "prov", "state": "Ready", "podSetUpdates": [update]}]
    raw = workload_of(example_job("quickstart"), ADMITTED, admissionChecks=checks)
    queues = queues_with(raw)
    view = workload_view_of(raw)
    assert queues.placing_of_pod_set(view, "rank") == Placing(
        {"pool": "reserved"}, (*FLAVOR.tolerations, update["tolerations"][0]), {"l": "1"}, {"a": "1"}
    )
    assert queues.placing_of_pod_set(view, "coordinator") == Placing(), "nothing of it is covered"


@pytest.mark.parametrize(
    ("conditions", "more", "words"),
    [
        ([], {}, UNANSWERED),
        (WAITING, {}, SHORT),
        (EVICTED, {}, f"evicted (Preempted): {PREEMPTED}"),
        (RETURNED, {}, f"evicted (Preempted): {PREEMPTED}"),
        ([*WAITING, RETURNED[2]], {}, f"{SHORT} (it was evicted: Preempted)"),
        (
            RESERVED,
            {"admissionChecks": [{"name": "prov", "state": "Pending", "message": "waiting for nodes"}]},
            "quota is reserved; waiting for admission checks: prov (Pending: waiting for nodes)",
        ),
    ],
)
def test_waits_are_told_in_kueues_words(conditions: list[Json], more: dict[str, Any], words: str) -> None:
    raw = workload_of(example_job("quickstart"), conditions, **more)
    assert wait_in_words(queues_with(raw), "team-a", "x", workload_view_of(raw)) == f"queue user-queue: {words}"


def test_a_deactivated_workload_tells_how_to_go_on() -> None:
    limit = kueue_condition("Evicted", "True", "DeactivatedDueToRequeuingLimitExceeded", "The limit is exceeded")
    raw = workload_of(example_job("quickstart"), [*WAITING[:0], limit], spec={"active": False})
    told = wait_in_words(queues_with(raw), "team-a", "x", workload_view_of(raw))
    assert "kubectl patch workload" in told
    assert '{"spec":{"active":true}}' in told


def test_what_cannot_be_known_is_told() -> None:
    assert wait_in_words(Queues(), "team-a", "q", None) == f"queue q: {NOT_SERVED}"
    assert wait_in_words(Queues(served=True), "team-a", "q", None) == f"queue q: {UNREAD}"
    assert wait_in_words(Queues(served=True, listed={"team-a"}), "team-a", "q", None) == f"queue q: {UNANSWERED}"


def test_another_owners_workload_is_not_the_jobs() -> None:
    raw = workload_of(example_job("quickstart"), ADMITTED)
    raw["metadata"]["ownerReferences"][0]["uid"] = "another"
    assert queues_with(raw).find_workload("team-a", raw["metadata"]["name"], "7f9e7fc7") is None


@pytest.mark.parametrize("damage", [{}, {"status": 3}, {"spec": []}, {"metadata": {"ownerReferences": [7]}}])
def test_damaged_objects_are_read(damage: Json) -> None:
    assert workload_view_of(damage).queue_turn is QueueTurn.UNKNOWN
    assert flavor_view_of(damage).node_labels == ()
