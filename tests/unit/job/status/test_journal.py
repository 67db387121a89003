"""The journal: what was written is read, by whom ever, or nothing is done."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from hajob.api import constants as names
from hajob.api.conditions import Reason
from hajob.domain.actions import Action
from hajob.domain.facts import FactKind, Source
from hajob.domain.goodput import Account
from hajob.job.status.build import is_worth_a_write
from hajob.job.status.journal import VERSION, Journal, JournalError, read_journal
from hajob.plan import events as e
from hajob.plan.placements import CoordinatorPlacement, Placement, PodPurpose, placements
from hajob.plan.state import JobPhase, Shrunk
from tests.rigs.kept import KeptJournal, kept_journals
from tests.rigs.plan_rig import Rig, from_dict, to_dict

RELEASED = kept_journals()
IDS = [f"{kept.version}-{kept.situation}" for kept in RELEASED]


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
    assert from_dict(to_dict(state)) == state
    assert from_dict(to_dict(replace(state, problem="a note"))) != state


def test_numbers_are_keys_again() -> None:
    state = replace(Rig.running().state, renewed={5: 2, 7: 3}, pods={2: 4}, deadlines={"Recovery": 9})
    assert to_dict(state)["renewed"] == {"5": 2, "7": 3}
    assert from_dict(to_dict(state)) == state


def test_what_a_healthy_job_does_not_have_is_left_out() -> None:
    text = Journal(Rig.running().state).to_text(0)
    state = (
        '{"phase":"Running","incarnation":1,"attempt":1,"base":1,"coordinator":1,"step":5,"active_since_ms":1000000}'
    )
    assert text == f'{{"state":{state}}}'
    assert set(to_dict(Rig.naming().state)["incident"]).isdisjoint({"corrupted", "escalated_from", "replaced_nodes"})
    assert from_dict({"incident": None, "shrunk": {}}).shrunk == Shrunk()


# ------------------------------------------------------------------------------------------- other versions


@pytest.mark.parametrize("kept", RELEASED, ids=IDS)
def test_the_journal_of_a_released_version_is_read(kept: KeptJournal) -> None:
    reading, told = read_journal(kept.text, kept.journal_version), kept.told
    journal = reading.journal
    assert reading.left_out == ()
    assert (journal.state.phase, journal.state.incarnation) == (told["phase"], told["incarnation"])
    assert (journal.state.attempt, journal.state.apart) == (told["attempt"], told["coordinatorApart"])
    found = placements(journal.state, told["numNodes"])
    pods = [as_recorded(one) for one in found if getattr(one, "purpose", None) is not PodPurpose.SECOND_PLACE]
    assert pods == told["pods"]


def as_recorded(one: Placement | CoordinatorPlacement) -> dict[str, object]:
    if isinstance(one, CoordinatorPlacement):
        return {"role": names.ROLE_COORDINATOR, "nodeRank": -1, "incarnation": one.incarnation, "avoid": []}
    return {
        "role": names.ROLE_RANK,
        "nodeRank": one.node_rank,
        "incarnation": one.incarnation,
        "avoid": list(one.avoid),
    }


@pytest.mark.parametrize("kept", RELEASED, ids=IDS)
def test_a_released_journal_survives_being_written_anew(kept: KeptJournal) -> None:
    journal = read_journal(kept.text, kept.journal_version).journal
    assert read_journal(journal.to_text(7)).journal == replace(journal, written_ms=7)


def test_everything_that_0_1_kept_is_there() -> None:
    journals = {kept.situation: read_journal(kept.text, 1).journal for kept in RELEASED if kept.version == "0.1"}
    assert journals["failed"].failed_reason == "ImageUnusable"
    assert journals["restarting"].restart_seen == "2026-11-22T10:00:00Z"
    assert journals["restarting"].restoration.before == 5
    assert journals["replacing"].order is not None
    assert journals["replacing"].order.replaced_nodes == (2,)
    assert len(journals["replacing"].marks) == 2
    account = journals["expanding"].account
    assert account is not None
    assert (account.missing, account.desired, account.total_ms) == (1, 4, 492_000)


def test_everything_that_version_2_keeps_is_there() -> None:
    states = {kept.situation: read_journal(kept.text).journal.state for kept in RELEASED if kept.version == "version-2"}
    assert (states["paused"].pause_seen, states["paused"].holds_still) == ("2026-11-22T10:00:00Z", True)
    assert states["smaller"].smaller is not None
    assert states["waiting"].waiting is not None
    assert states["relieved"].relieved == 1
    assert states["spares"].places == {0: "spare-a"}
    assert states["unreachable"].unreachable.keys() == {"node-1"}


def changed_text(change: Any) -> str:
    raw = json.loads(Journal(widened().state, account=Account(5)).to_text(9))
    change(raw)
    return json.dumps(raw)


@pytest.mark.parametrize(
    ("change", "left_out"),
    [
        (lambda raw: raw.update(wings=2), "wings"),
        (lambda raw: raw["state"].update(wings=[{}]), "state.wings"),
        (lambda raw: raw["state"]["incident"].update(wings=None), "state.incident.wings"),
        (lambda raw: raw["state"]["incident"]["cause"].update(kind="Comet"), "state.incident.cause.kind"),
        (lambda raw: raw["state"]["deadlines"].update(Comet=5), "state.deadlines.Comet"),
        (lambda raw: raw["state"]["stalls"][0].update(action="Fly"), "state.stalls.0"),
        (lambda raw: raw["state"]["incident"]["milestones"].insert(0, {"name": "a"}), "state.incident.milestones.0"),
        (
            lambda raw: raw["state"]["incident"].update(refused=[{"action": "Fly", "unmet": []}]),
            "state.incident.refused.0",
        ),
        (lambda raw: raw.update(marks={"comet": 4}), "marks.comet"),
        (lambda raw: raw["account"].update(booked={"Comets": 4}), "account.booked.Comets"),
        (lambda raw: raw["account"].pop("since_ms"), "account"),
        (lambda raw: raw.update(restoration={"before": "x"}), "restoration.before"),
    ],
)
def test_of_a_newer_version_what_can_be_read_is_used(change: Any, left_out: str) -> None:
    reading = read_journal(changed_text(change))
    assert left_out in reading.left_out
    assert reading.journal.state.phase is widened().state.phase
    assert reading.journal.state.incident is not None
    assert reading.journal.state.incident.lost_ranks == widened().incident.lost_ranks


@pytest.mark.parametrize(
    ("text", "version", "reason", "place"),
    [
        (changed_text(lambda _: None), VERSION + 1, Reason.JOURNAL_NEWER, f"version {VERSION + 1}"),
        ('{"state":{"phase":"Draining"}}', VERSION, Reason.JOURNAL_NEWER, "state.phase"),
        ('{"order":{"command":"Fly","incarnation":1,"revision":1}}', VERSION, Reason.JOURNAL_NEWER, "order.command"),
        ('{"state":{"phase":"Run', VERSION, Reason.JOURNAL_UNREADABLE, "not JSON"),
        ("[]", VERSION, Reason.JOURNAL_UNREADABLE, "not an object"),
        ('{"state":{"incarnation":"2"}}', VERSION, Reason.JOURNAL_UNREADABLE, "state.incarnation"),
        ('{"state":{"incarnation":true}}', VERSION, Reason.JOURNAL_UNREADABLE, "state.incarnation"),
        ('{"state":{"renewed":{"five":2}}}', VERSION, Reason.JOURNAL_UNREADABLE, "state.renewed.five"),
        ('{"state":{"spent":[{"budget":"Retry"}]}}', VERSION, Reason.JOURNAL_UNREADABLE, "state.spent.0.time_ms"),
        ('{"state":{"incident":[]}}', VERSION, Reason.JOURNAL_UNREADABLE, "state.incident"),
        ('{"pods":{}}', 1, Reason.JOURNAL_UNREADABLE, "state"),
        ('{"plan":[],"pods":7}', 1, Reason.JOURNAL_UNREADABLE, "state"),
        (changed_text(lambda raw: raw["state"]["incident"].pop("cause")), VERSION, Reason.JOURNAL_UNREADABLE, "cause"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_place(text: str, version: int, reason: Reason, place: str) -> None:
    with pytest.raises(JournalError) as error:
        read_journal(text, version)
    assert error.value.reason is reason
    assert place in str(error.value)


def test_a_job_without_a_journal_is_a_new_one() -> None:
    assert read_journal("", VERSION + 1).journal == Journal()


# ------------------------------------------------------------------------------------------------ the moving part


def test_a_journal_whose_clock_alone_moved_is_no_news() -> None:
    from hajob.api.status import HATrainingJobStatus

    journal = Journal(Rig.running().state, account=Account(5))
    later = replace(journal, account=Account(6)).to_text(60)
    assert not is_worth_a_write(HATrainingJobStatus(journal=journal.to_text(50)), HATrainingJobStatus(journal=later))
    other = replace(journal, state=replace(journal.state, phase=JobPhase.SHRUNK))
    assert is_worth_a_write(
        HATrainingJobStatus(journal=journal.to_text(50)), HATrainingJobStatus(journal=other.to_text(50))
    )


def test_a_deadline_says_how_long_it_still_was() -> None:
    rig = Rig.running()
    rig.exits(5)
    journal = read_journal(Journal(rig.state).to_text(rig.now + 4_000)).journal
    whole = rig.policy.limits[Action.IN_PLACE].deadline_seconds * 1000
    assert journal.state.deadlines["Recovery"] - journal.written_ms == whole - 4_000
