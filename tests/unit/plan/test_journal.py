"""The journal: whatever a job has gone through, the state that is read is the state that was written."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from hajob.domain.actions import Action
from hajob.domain.errors import JournalError
from hajob.domain.facts import FactKind, Source
from hajob.plan import events as e
from hajob.plan.journal import from_dict, to_dict
from hajob.plan.state import JobPhase, JobState, Shrunk
from tests.unit.plan.plan_rig import Rig


def through_json(state: JobState) -> JobState:
    return from_dict(json.loads(json.dumps(to_dict(state))))


def widened() -> Rig:
    rig = Rig.running()
    rig.exits(5, exit_code=1, code="E1", message="boom")
    rig.silent(0)
    rig.tell(e.ReplacementsReady(2, 2))
    return rig


def corrupted() -> Rig:
    rig = Rig.running()
    rig.see(FactKind.DATA_CORRUPTED, ranks=(3,), source=Source.MINDIO)
    rig.tell(e.Named(2, 1))
    rig.tell(e.ResultReported(2, 406, "words", "retry"))
    return rig


@pytest.mark.parametrize("made", [Rig.naming, Rig.shrunk, widened, corrupted])
def test_a_state_is_read_as_it_was_written(made: Any) -> None:
    state = made().state
    assert through_json(state) == state
    assert through_json(replace(state, problem="a note")) != state


def test_numbers_are_keys_again() -> None:
    state = replace(Rig.running().state, renewed={5: 2, 7: 3}, pods={2: 4}, deadlines={"Recovery": 9})
    assert to_dict(state)["renewed"] == {"5": 2, "7": 3}
    assert through_json(state) == state


def test_nothing_where_something_may_be_missing() -> None:
    assert from_dict({"incident": None, "shrunk": None}) == JobState()
    assert from_dict({"shrunk": {}}) == JobState(shrunk=Shrunk())


def incident(**more: object) -> dict[str, Any]:
    journal = to_dict(Rig.naming().state)
    journal["incident"] |= more
    return journal


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"renewed": {"5": "two"}}, "journal.renewed.5 is 'two'; it must be int"),
        ({"deadlines": {"Recovery": None}}, "journal.deadlines.Recovery is None; it must be int"),
        ({"renewed": {"five": 2}}, "journal.renewed has a key that is no int: "),
        ({"fact_ids": ["a", 2]}, "journal.fact_ids[1] is 2; it must be str"),
        ({"phase": "Running", "wings": 2, "arms": 1}, "journal has the unknown keys ['arms', 'wings']"),
        (
            {"stalls": [{"action": "Fly", "rank": 0, "step": 0, "count": 0}]},
            f"journal.stalls[0].action is 'Fly'; it must be one of {[action.value for action in Action]}",
        ),
        ({"spent": [{}]}, "journal.spent[0] lacks ['budget', 'time_ms']"),
        (incident(lost_ranks=[4, "5"]), "journal.incident.lost_ranks[1] is '5'; it must be int"),
        (incident(stopped=1), "journal.incident.stopped is 1; it must be bool"),
        (incident(cause=None), "journal.incident.cause is None; it must be an object"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_place(data: dict[str, Any], words: str) -> None:
    with pytest.raises(JournalError) as error:
        from_dict(data)
    assert str(error.value).startswith(words)


def test_what_a_healthy_job_does_not_have_is_left_out() -> None:
    journal = to_dict(Rig.naming().state)
    assert set(journal["incident"]).isdisjoint({"corrupted", "escalated_from", "replaced_nodes"})
    assert journal["phase"] == JobPhase.RESUMING.value
