"""When a spare is made, handed over and given up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hajob.api import constants as names
from hajob.capacity.spares import spare_changes
from hajob.plan.state import JobPhase, JobState
from hajob.sources.pod import PodView

SPARE = PodView("ns", "spare-0", "u0", "job", names.ROLE_SPARE, -1, 0, node_name="n9", phase="Running", ready=True)
NEXT = PodView("ns", "next", "u1", "job", names.ROLE_RANK, 0, 2, place="n9")
FULL = "0/5 nodes are available"


def turn(*pods: PodView, phase: JobPhase = JobPhase.RUNNING, usable: bool = True) -> tuple[list[str], ...]:
    """Names of what goes, is made, is nominated; two spares are asked for."""
    found = spare_changes(
        JobState(phase=phase), ["spare-0", "spare-1"], {pod.name: pod for pod in pods}, lambda _: usable
    )
    return [pod.name for pod in found.surplus], list(found.missing), [pod.name for pod in found.nominate]


@pytest.mark.parametrize("phase", [JobPhase.PENDING, JobPhase.GATHERING, JobPhase.SHRUNK, JobPhase.MIGRATING])
def test_none_is_made_while_the_job_may_need_nodes(phase: JobPhase) -> None:
    assert turn(SPARE, phase=phase) == ([], [], [])


def test_a_training_job_makes_what_is_missing() -> None:
    assert turn(SPARE) == ([], ["spare-1"], [])


def test_one_without_a_node_asks_only_while_nothing_else_does() -> None:
    waiting = replace(SPARE, node_name="", ready=False)
    assert turn(waiting) == ([], ["spare-1"], [])
    assert turn(waiting, phase=JobPhase.SHRUNK) == (["spare-0"], [], [])


@pytest.mark.parametrize("phase", [JobPhase.SUSPENDED, JobPhase.COMPLETE, JobPhase.FAILED])
def test_a_job_without_ranks_holds_no_spare(phase: JobPhase) -> None:
    assert turn(SPARE, phase=phase) == (["spare-0"], [], [])


def test_a_node_that_is_not_well_is_held_no_longer() -> None:
    assert turn(SPARE, usable=False) == (["spare-0"], ["spare-1"], [])


def test_one_kept_from_a_node_that_is_well_is_made_anew() -> None:
    waiting = replace(SPARE, node_name="", ready=False, phase="Pending", excluded=frozenset({"n8"}))
    assert turn(waiting) == ([], ["spare-1"], []), "the scheduler may have a node for it"
    assert turn(replace(waiting, unschedulable=FULL)) == (["spare-0"], ["spare-1"], [])
    assert turn(replace(waiting, unschedulable=FULL), usable=False) == ([], ["spare-1"], [])


def test_one_that_ended_makes_room_for_another() -> None:
    assert turn(replace(SPARE, phase="Failed")) == (["spare-0"], ["spare-1"], [])


@pytest.mark.parametrize(
    ("successor", "told"),
    [
        (NEXT, ([], [], [])),
        (replace(NEXT, unschedulable=FULL), ([], [], ["next"])),
        (replace(NEXT, unschedulable=FULL, nominated="n9"), (["spare-0"], [], [])),
        (replace(NEXT, unschedulable=FULL, nominated="n9", gate=0, place="n1"), ([], [], [])),
        (replace(NEXT, node_name="n9"), ([], [], [])),
    ],
)
def test_a_spare_goes_once_its_node_is_kept(successor: PodView, told: tuple[list[str], ...]) -> None:
    assert turn(SPARE, successor, phase=JobPhase.GATHERING) == told
