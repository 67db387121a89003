"""What the page shows of jobs, as functions of their objects."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from hajob.api.base import Json
from hajob.cli.cluster import ClusterError
from hajob.cli.job_view import JobView
from hajob.domain.errors import HajobInputError
from hajob.plan.state import JobPhase
from hajob.web.jobs import DAY_MS, goodput_of_day, list_of_jobs, row_of_job
from hajob.web.one_job import copies_of_job, loss_of_node, whole_job
from hajob.web.steps import MOST_POINTS, StepHistory, points_of_status
from tests.rigs.page_town import chip_node
from tests.rigs.told_job import NAME, NAMESPACE, NOW_MS, told_job
from tests.rigs.told_server import PODS, READY, ToldServer, rank_pod_object

PLACES = ("hajob-system", "kube-system")
ALL_RANKS = [rank_pod_object(number, **READY) for number in range(4)]


PAUSED = {
    "action": "Pause",
    "startTime": "2026-01-01T00:00:00Z",
    "phases": [{"name": "Stop", "milliseconds": DAY_MS // 2}],
}
"""A planned pause of half a day."""


def at(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()


def shown(job: Json | None = None, *pods: Json) -> Json:
    server = ToldServer(job or told_job(), **{PODS: {"items": list(pods)}})
    return whole_job(server, StepHistory(), NAMESPACE, NAME, NOW_MS)


def old_job(**incident: Any) -> JobView:
    """A job of three days that trains, with one incident."""
    job = told_job()
    job["status"]["startTime"] = at(NOW_MS - 3 * DAY_MS)
    job["status"]["incidents"][0].update(incident)
    return JobView(job, NOW_MS)


def test_jobs_in_trouble_come_first() -> None:
    sick = told_job(JobPhase.GATHERING)
    sick["metadata"] = {**sick["metadata"], "name": "zebra"}
    found = list_of_jobs(ToldServer(told_job(), sick), "", NOW_MS)["jobs"]
    assert [(one["name"], one["trains"]) for one in found] == [("zebra", False), (NAME, True)]


def test_a_job_that_nobody_has_seen_has_a_row() -> None:
    row = row_of_job(JobView({"metadata": {"name": "new", "namespace": "team"}}, NOW_MS))
    assert (row["state"], row["step"], row["goodput"], row["trains"]) == ("New", None, None, False)


@pytest.mark.parametrize(
    ("incident", "told"),
    [
        ({}, (100.0, True)),
        ({"lostSteps": 6085}, (90.0, True)),
        (
            {"startTime": at(NOW_MS - 2 * DAY_MS), "endTime": at(NOW_MS - 2 * DAY_MS + 6_200), "lostSteps": 9999},
            (100.0, True),
        ),
        ({"action": "Shrink"}, (93.3, False)),
        # Half of the day was a pause, of which nobody wanted training; a tenth of the rest was lost.
        ({**PAUSED, "lostSteps": 0}, (100.0, True)),
        ({**PAUSED, "lostSteps": 3042}, (90.0, True)),
        # After these a job may wait for nodes, and no incident tells how long.
        ({"cause": {"code": "SuspendRequested"}}, (93.3, False)),
        ({"cause": {"code": "Evicted"}}, (93.3, False)),
        ({"cause": {"code": "ExpandDue"}}, (93.3, False)),
    ],
)
def test_a_day_loses_what_its_incidents_cost(incident: Json, told: tuple[float, bool]) -> None:
    found = goodput_of_day(old_job(**incident))
    assert found is not None
    assert (found["percent"], found["ofDay"]) == told


def test_a_young_job_has_its_goodput_since_the_start() -> None:
    assert goodput_of_day(JobView(told_job(), NOW_MS)) == {"percent": 93.3, "ofDay": False}


def test_incidents_that_are_not_all_known_are_no_day() -> None:
    job = old_job()
    job.incidents.extend([job.incidents[0]] * 15)
    found = goodput_of_day(job)
    assert found is not None
    assert not found["ofDay"]


def test_the_grid_says_what_each_rank_does() -> None:
    seats = shown(None, *ALL_RANKS[:2], rank_pod_object(2, phase="Pending"))["seats"]
    assert [(seat["nodeRank"], seat["first"], seat["number"], seat["does"]) for seat in seats] == [
        (0, 0, 2, "training"),
        (1, 2, 2, "training"),
        (2, 4, 2, "starts"),
        (3, 6, 2, "lost"),
    ]


def test_a_rank_that_died_in_its_pod_is_lost_alone() -> None:
    job = told_job(JobPhase.GATHERING)
    cause = {"code": "SIGKILL", "firstRank": 3, "numRanks": 1}
    job["status"]["incidents"][0] |= {"outcome": "Open", "action": "InPlace", "cause": cause}
    seats = shown(job, *ALL_RANKS)["seats"]
    assert [(seat["does"], seat["lost"]) for seat in seats] == [
        ("stands", []),
        ("stands", [3]),
        ("stands", []),
        ("stands", []),
    ]


def test_ranks_of_a_pod_that_was_made_anew_start() -> None:
    job = told_job(JobPhase.GATHERING)
    job["status"]["incidents"][0]["outcome"] = "Open"
    new = rank_pod_object(0, **READY)
    new["metadata"]["labels"]["training.hajob.io/incarnation"] = "2"
    seats = shown(job, new, *ALL_RANKS[1:])["seats"]
    assert [seat["does"] for seat in seats] == ["starts", "stands", "stands", "stands"]
    assert {seat["does"] for seat in shown(told_job(JobPhase.STARTING), *ALL_RANKS)["seats"]} == {"starts"}


def test_a_rank_that_moves_trains_where_it_was() -> None:
    second = rank_pod_object(0, phase="Pending")
    second["metadata"]["name"] += "-second"
    second["metadata"]["labels"]["training.hajob.io/incarnation"] = "2"
    pods = [*ALL_RANKS, second]
    assert shown(told_job(JobPhase.MIGRATING), *pods)["seats"][0]["does"] == "training"
    assert shown(None, *pods)["seats"][0]["does"] == "starts"


def test_pods_that_may_not_be_read_are_unknown() -> None:
    server = ToldServer(told_job())
    server.forbidden = {PODS}
    found = whole_job(server, StepHistory(), NAMESPACE, NAME, NOW_MS)
    assert (found["seats"], found["unknown"]) == ([], ["needs the right to list pods in team-a"])


def test_incidents_have_phases_and_refused_actions_in_words() -> None:
    newest = shown()["incidents"][0]
    assert newest["milliseconds"] == sum(part["milliseconds"] for part in newest["phases"]) == 6_200
    assert newest["refused"][0]["action"] == "Retry"
    assert newest["refused"][0]["unmet"][0]["need"] == "Retry and InPlace need the pod"


def test_the_curve_has_a_corner_at_each_incident() -> None:
    job = told_job()
    job["status"]["startTime"] = at(NOW_MS - 300_000)
    points = points_of_status(JobView(job, NOW_MS))
    assert points[0] == (NOW_MS - 300_000, 0)
    assert points[-1] == (NOW_MS - 5_000, 212)
    assert (NOW_MS - 90_000, 41) in points
    assert points == sorted(points)


def test_a_watched_job_keeps_its_points_within_bounds() -> None:
    history = StepHistory()
    for number in range(3 * MOST_POINTS):
        job = told_job()
        job["status"]["progress"] |= {"step": number, "observedTime": at(NOW_MS + number * 1000)}
        history.note_job(job, NOW_MS)
    found = history.points_of_job(JobView(told_job(), NOW_MS))
    assert len(found) <= MOST_POINTS + 8
    assert found[-1][1] == 3 * MOST_POINTS - 1


def test_copies_are_the_ranks_that_hold_the_same() -> None:
    assert copies_of_job(ToldServer(told_job()), NAMESPACE, NAME) == {
        "groups": [[0, 4], [2, 6], [1, 5], [3, 7]],
        "tooMany": False,
    }


def test_the_loss_of_a_node_is_answered_by_the_planner() -> None:
    server = ToldServer(told_job())
    server.forbidden = {"/api/v1/nodes"}
    told = loss_of_node(server, PLACES, (NAMESPACE, NAME), 3, NOW_MS)
    assert (told["action"], told["freeNodes"], told["cost"]) == ("Shrink", 0, "Shrink")
    refused = {one["action"]: one["message"] for one in told["considered"] if not one["taken"]}
    assert "node" in refused["Replace"]
    assert told["notes"], "nodes cannot be read: none is taken for free, and it is said"


def test_a_replacement_without_a_copy_costs_steps() -> None:
    """One copy only: what is lost comes from the checkpoint, whatever the action is called."""
    job = told_job()
    job["spec"]["optimizer"] = {"copies": 1}
    nodes = {"items": [chip_node(f"node-{number}") for number in range(5)]}
    server = ToldServer(job, **{"/api/v1/nodes": nodes, "/api/v1/pods": {"items": ALL_RANKS}})
    told = loss_of_node(server, PLACES, (NAMESPACE, NAME), 3, NOW_MS)
    assert told["fromCheckpoint"] > 0
    assert told["cost"] == "Restart"


def test_a_node_rank_that_is_not_there_is_refused() -> None:
    with pytest.raises(HajobInputError):
        loss_of_node(ToldServer(told_job()), PLACES, (NAMESPACE, NAME), 44, NOW_MS)
    with pytest.raises(ClusterError, match="there is no HATrainingJob"):
        loss_of_node(ToldServer(told_job()), PLACES, (NAMESPACE, "other"), 0, NOW_MS)
