"""Where the state after an outage came from, and what it cost, for every action."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hajob.domain.actions import Action
from hajob.domain.checkpoints import CheckpointRefusal, RefusalReason
from hajob.domain.facts import Origin
from hajob.domain.incidents import Cause, Incident, IncidentOutcome, Purpose, RestoredFrom
from hajob.domain.layout import Layout
from hajob.domain.timeline import Mark
from hajob.job.incident_recorder import IncidentRecorder
from hajob.job.status.incidents import Loaded, Record, Restoration, build_entry
from hajob.job.status.journal import Journal, read_journal
from hajob.plan.effects import CloseIncident, ExplainIncident
from hajob.plan.events import JobEvent, ResultReported, Resumed
from hajob.plan.state import JobPhase, JobState

LAYOUT = Layout(num_nodes=4, chips_per_node=2, tensor=2)
REFUSED = CheckpointRefusal("iter_0000040", RefusalReason.TRUNCATED_FILE, "mp_rank_01/distrib_optim.pt (17 bytes)")


def incident(action: Action, source: RestoredFrom | None = None, **more: Any) -> Incident:
    blank = Incident(
        2, 2, 1, Purpose.FAULT, Origin.INFRASTRUCTURE, action, Cause(step=47), 0, restored_from=source, lost_ranks=(3,)
    )
    return replace(blank, **more)


class Recording:
    """A recorder of incidents, told what happens."""

    def __init__(self, begun: Incident) -> None:
        self.recorder = IncidentRecorder(None)
        self.recorder.record_incident(begun, JobEvent(), 48)

    @property
    def said(self) -> list[tuple[str, str]]:
        """What people were told since this was read last."""
        return [(told.reason, told.message) for told in self.recorder.take_announcements()]

    def stood_at(self, step: int) -> Recording:
        self.recorder.record_mark(Mark.STEP_BEFORE, 1, step)
        return self

    def loads(self, step: int, *refused: CheckpointRefusal) -> Recording:
        self.recorder.record_loaded_checkpoint(Loaded(step, refused, len(refused)))
        return self

    def resumes(self, step: int, incarnation: int = 2) -> dict[str, Any]:
        """The first step ends the incident; the entry of the status."""
        self.recorder.record_incident(None, Resumed(incarnation, step))
        self.recorder.record_effect(CloseIncident(2, IncidentOutcome.RECOVERED), 0)
        assert self.recorder.record is not None
        found = build_entry(self.recorder.record, LAYOUT).to_json()
        keys = ("restoredFrom", "loadedStep", "lostSteps", "stateSources", "refusedCheckpoints")
        return {key: found[key] for key in keys if found.get(key)}


def place(name: str, number: int, *ranks: Any) -> dict[str, Any]:
    shown = [{"rank": one[0], "giver": one[1]} if isinstance(one, tuple) else {"rank": one} for one in ranks]
    return {"name": name, "numRanks": number, "firstRanks": shown}


EVERYBODY = tuple(range(8))


@pytest.mark.parametrize("action", [Action.RETRY, Action.IN_PLACE, Action.REPLACE])
def test_from_a_copy_nothing_is_lost_and_the_giver_is_named(action: Action) -> None:
    recording = Recording(incident(action, RestoredFrom.OPTIMIZER_COPY, lost_ranks=(3, 6)))
    sources = [place("OptimizerCopy", 2, (3, 7), (6, 2)), place("LiveRank", 6)]
    assert recording.stood_at(47).resumes(48) == {"restoredFrom": "OptimizerCopy", "stateSources": sources}


def test_a_repair_from_the_checkpoint_counts_back_to_it() -> None:
    recording = Recording(incident(Action.IN_PLACE, RestoredFrom.PERIODIC_CHECKPOINT))
    assert recording.stood_at(47).resumes(41) == {
        "restoredFrom": "PeriodicCheckpoint",
        "loadedStep": 40,
        "lostSteps": 7,
        "stateSources": [place("PeriodicCheckpoint", 8, *EVERYBODY)],
    }


@pytest.mark.parametrize(
    ("told", "loaded"),
    [
        pytest.param(41, 40, id="by the line of the first"),
        pytest.param(63, 40, id="by a heartbeat of a later one"),
        pytest.param(31, 30, id="of a start from an older one"),
    ],
)
def test_a_repair_is_from_the_checkpoint_that_was_there(told: int, loaded: int) -> None:
    planned = incident(Action.IN_PLACE, RestoredFrom.PERIODIC_CHECKPOINT)
    recording = Recording(planned).stood_at(62)
    recording.recorder.record_incident(planned, JobEvent(), 62, 20)  # the newest one is not told yet
    recording.recorder.record_incident(replace(planned, named=True), JobEvent(), 62, 30)
    recording.recorder.record_incident(
        replace(planned, named=True), ResultReported(2), 62, 40
    )  # its save was under way
    recording.recorder.record_incident(replace(planned, named=True), JobEvent(), 62, 60)  # it trains again, and saves
    assert recording.resumes(told)["loadedStep"] == loaded


def test_a_repair_from_the_checkpoint_is_seen_by_its_step() -> None:
    found = Recording(incident(Action.REPLACE, RestoredFrom.OPTIMIZER_COPY)).stood_at(47).resumes(41)
    assert (found["restoredFrom"], found["loadedStep"], found["lostSteps"]) == ("PeriodicCheckpoint", 40, 7)


def test_a_step_of_another_incident_says_nothing() -> None:
    recording = Recording(incident(Action.IN_PLACE, RestoredFrom.OPTIMIZER_COPY)).stood_at(47)
    assert "loadedStep" not in recording.resumes(1, incarnation=1)


def test_a_restart_from_an_older_checkpoint_names_the_refused() -> None:
    recording = Recording(incident(Action.RESTART, RestoredFrom.PERIODIC_CHECKPOINT)).loads(20, REFUSED)
    assert recording.resumes(21, incarnation=3) == {
        "restoredFrom": "PeriodicCheckpoint",
        "loadedStep": 20,
        "lostSteps": 27,
        "stateSources": [place("PeriodicCheckpoint", 8, *EVERYBODY)],
        "refusedCheckpoints": [
            {"name": "iter_0000040", "reason": "TruncatedFile", "message": REFUSED.refusal_message},
        ],
    }
    ((reason, text),) = [said for said in recording.said if said[0] == "CheckpointRefused"]
    assert reason
    assert text.startswith("resumes from step 20; refused: iter_0000040 (TruncatedFile")


@pytest.mark.parametrize(
    ("told", "newest", "stood"),
    [
        pytest.param(47, 48, 47, id="the rank prints"),
        pytest.param(48, 48, 48, id="it had finished the newest"),
        pytest.param(29, 48, 47, id="its heartbeat is two seconds old"),
        pytest.param(-1, 48, 47, id="nothing is known of it"),
        pytest.param(29, -1, 29, id="nothing else is known"),
    ],
)
def test_without_a_coordinators_word_the_newest_step_tells(told: int, newest: int, stood: int) -> None:
    begun = incident(Action.RESTART, RestoredFrom.PERIODIC_CHECKPOINT, cause=Cause(step=told))
    assert Restoration().with_restart_step(begun, newest).before == stood


def test_the_coordinators_word_counts_before_the_decisions() -> None:
    recording = (
        Recording(incident(Action.RESTART, RestoredFrom.PERIODIC_CHECKPOINT)).loads(20).stood_at(48).stood_at(21)
    )
    assert recording.resumes(21, incarnation=3)["lostSteps"] == 28


@pytest.mark.parametrize(
    ("loaded", "source", "lost"),
    [(48, "SavedCheckpoint", 0), (47, "SavedCheckpoint", 0), (20, "PeriodicCheckpoint", 27)],
)
def test_what_an_incident_saved_counts_only_if_loaded(loaded: int, source: str, lost: int) -> None:
    found = Recording(incident(Action.RESTART, RestoredFrom.SAVED_CHECKPOINT)).loads(loaded).resumes(loaded + 1, 3)
    assert (found["restoredFrom"], found["loadedStep"], found.get("lostSteps", 0)) == (source, loaded, lost)


def test_from_nothing_every_step_is_lost() -> None:
    found = Recording(incident(Action.RESTART, RestoredFrom.PERIODIC_CHECKPOINT)).loads(-1).resumes(1, 3)
    assert found == {"lostSteps": 47, "stateSources": [place("Nowhere", 8, *EVERYBODY)]}


def test_what_nobody_could_tell_counts_nothing() -> None:
    recording = Recording(incident(Action.RESTART, RestoredFrom.PERIODIC_CHECKPOINT))
    recording.recorder.record_loaded_checkpoint(Loaded(-1, problem="the agent may not read them"))
    assert recording.resumes(21, 3)["restoredFrom"] == "PeriodicCheckpoint"
    assert ("CheckpointsNotVerified", "the agent may not read them") in recording.said


def test_a_shrink_brings_nobody_back() -> None:
    recording = Recording(incident(Action.SHRINK, RestoredFrom.OPTIMIZER_COPY, lost_ranks=(6, 7)))
    assert recording.stood_at(47).resumes(48)["stateSources"] == [place("LiveRank", 6)]


def test_the_account_stays_small_whatever_the_size_of_the_job() -> None:
    big = Layout(num_nodes=512, chips_per_node=8, tensor=8)
    many = incident(Action.REPLACE, RestoredFrom.OPTIMIZER_COPY, lost_ranks=tuple(range(64)))
    record = Record(many, restoration=Restoration(before=5, told=True))
    (copies, live) = build_entry(record, big).state_sources
    assert (copies.num_ranks, len(copies.first_ranks), live.num_ranks) == (64, 16, 4032)
    refusals = tuple(replace(REFUSED, name=f"iter_{step:07d}") for step in range(100))
    assert len(Restoration().with_loaded(Loaded(-1, refusals, 100)).refused) == 8


def test_a_new_operator_knows_what_the_one_before_knew() -> None:
    restart = incident(Action.RESTART, RestoredFrom.PERIODIC_CHECKPOINT)
    restoration = Restoration().with_last_step(47).with_loaded(Loaded(20, (REFUSED,), 1))
    record = Record(restart, {Mark.NOTICED: 5}, restoration=restoration)
    state = JobState(phase=JobPhase.STARTING, incident=restart)
    assert read_journal(Journal(state=state).to_text(0, record)).journal.record_of_open() == record


def test_an_incident_closed_by_the_next_one_has_its_outcome() -> None:
    begun = Recording(incident(Action.IN_PLACE)).stood_at(47).recorder
    begun.record_incident(incident(Action.CHECKPOINT, number=3, incarnation=3), JobEvent(), 50)
    begun.record_effect(CloseIncident(2, IncidentOutcome.RECOVERED), 0)
    assert begun.settled is not None
    assert (begun.settled.incident.number, begun.settled.outcome) == (2, IncidentOutcome.RECOVERED)
    assert begun.record is not None
    assert (begun.record.incident.number, begun.record.outcome) == (3, IncidentOutcome.OPEN)


def test_a_reason_told_while_an_incident_closes_is_its_cause() -> None:
    begun = Recording(incident(Action.RESTART)).recorder
    begun.record_effect(ExplainIncident(2, Cause(message="could not load the checkpoint")), 0)
    begun.record_effect(CloseIncident(2, IncidentOutcome.FAILED), 0)
    assert begun.record is not None
    assert build_entry(begun.record, LAYOUT).cause.message == "could not load the checkpoint"
