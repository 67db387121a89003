"""What `list`, `status`, `why` and `timeline` say of a job, word for word, and what they cannot know."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.conditions import Reason
from hajob.cli import control, jobs, language, status, timeline, why
from hajob.cli.catalogue import chinese_catalogue
from hajob.cli.cluster import ClusterError
from hajob.cli.job_view import age_in_words, short_duration, time_of_day
from hajob.cli.objects import path_of_job
from hajob.cli.output import Answer, Table, plain_lines, print_answer, style_of
from hajob.domain.incidents import IncidentOutcome
from hajob.job.status.build import CoordinatorView
from hajob.job.status.incidents import Record
from hajob.plan.state import JobPhase
from tests.rigs.told_job import MARKS, NAME, NAMESPACE, NOW_MS, SILENT, told_job
from tests.rigs.told_server import EVENTS, PODS, READY, ToldServer, rank_pod_object


def told(answer: Answer) -> str:
    return "\n".join(plain_lines(answer.told))


def ask(command: Any, server: ToldServer, *more: Any) -> str:
    return told(command(server, NAMESPACE, NAME, NOW_MS, *more))


LIST_HEAD = (
    "NAMESPACE   NAME         STATE     REASON   SIZE   STEP   STEP-TIME   PROTECTED   GOODPUT   RESTARTS   AGE   "
    "MESSAGE"
)
LIST_LINE = (
    "team-a      quickstart   Running            4/4    212    1.42s       Partial     93%       0          5m    "
    "Replace would not work: no free node fits (FreeNode)"
)
TOLD = "node-0 fell silent; ranks 0-1 go to another node (Replace); training again after 6.2 s, no step lost"


def test_the_list_has_a_line_for_each_job() -> None:
    shown = told(jobs.table_of_jobs(ToldServer(told_job()), NAMESPACE, now=lambda: NOW_MS))
    assert shown.splitlines() == [
        LIST_HEAD,
        LIST_LINE,
    ]


def test_those_in_trouble_come_first_on_top() -> None:
    troubled = told_job(JobPhase.FAILED, failed_reason="ProgramFailures", failed_message="ValueError: shape\nTraceback")
    troubled["metadata"] = {**troubled["metadata"], "name": "zebra"}
    shown = jobs.table_of_jobs(ToldServer(told_job(), troubled), "", worst_first=True, now=lambda: NOW_MS)
    table = shown.told[0]
    assert isinstance(table, Table)
    assert [row[1] for row in table.rows] == ["zebra", NAME]
    assert table.rows[0][2:4] + table.rows[0][-1:] == ("Failed", "ProgramFailed", "ValueError: shape")


def test_an_empty_namespace_says_so() -> None:
    assert told(jobs.table_of_jobs(ToldServer(), "empty")) == "there is no HATrainingJob in namespace empty"


def test_a_job_on_one_screen() -> None:
    server = ToldServer(
        told_job(), **{PODS: {"items": [rank_pod_object(0, **READY), rank_pod_object(1, phase="Pending")]}}
    )
    assert ask(status.screen_of_job, server).splitlines() == [
        "quickstart  team-a   Running   5m   A2, 4 nodes x 2 chips, tensor 2, data 4/4",
        "step      212   1.42s a step   seen 5s ago   checkpoint 200, 5s ago",
        "goodput   93%   not training: StartUp 20s",
        "protected Partial   works: Retry, InPlace, Restart",
        "          not Replace: no free node fits",
        "          -> Keep a node free for replacements; quarantines and taints may exclude nodes that look free.",
        "RANKS   NODE     POD               STATE",
        "0-1     node-0   quickstart-0-aa   ready",
        "2-3     node-1   quickstart-1-aa   starts",
        f"incidents 1, 0 open, 0 steps done again   newest: 00:03:30 {TOLD}",
        "          kubectl hajob timeline quickstart -n team-a",
    ]


def test_what_may_not_be_read_is_unknown_with_the_right() -> None:
    server = ToldServer(told_job())
    server.forbidden |= {PODS, EVENTS}
    right = f"unknown: needs the right to list pods in {NAMESPACE}"
    assert f"nodes     {right}" in ask(status.screen_of_job, server)
    assert f"pods        {right}" in ask(why.explanation_of_job, server)
    assert f"Events: unknown, needs the right to list events in {NAMESPACE}" in ask(timeline.history_of_job, server)


def test_why_names_what_was_refused_and_what_to_change() -> None:
    assert ask(why.explanation_of_job, ToldServer(told_job())).splitlines()[1:] == [
        "state       Replace would not work: no free node fits (FreeNode)",
        f"incident    00:03:30 {TOLD}",
        "refused     Retry: PodAlive was not met (Retry and InPlace need the pod)",
        "protection  not Replace: no free node fits",
        "            -> Keep a node free for replacements; quarantines and taints may exclude nodes that look free.",
        "pace        1.42s a step; all ranks wait for the slowest in each step, so steps do not tell which one that is",
        "            -> if it is slow: `kubectl hajob stacks JOB --times 5` names who keeps the others waiting",
    ]


def test_why_reads_what_the_kubelet_says_of_a_pod() -> None:
    mount = {
        "involvedObject": {"kind": "Pod", "name": f"{NAME}-0-aa"},
        "type": "Warning",
        "reason": "FailedMount",
        "message": 'configmap "corpus" not found',
        "lastTimestamp": "2026-01-01T00:04:00Z",
    }
    waits = told_job(JobPhase.PENDING, record=None, recoverability=())
    server = ToldServer(waits, **{PODS: {"items": [rank_pod_object(0, phase="Pending")]}, EVENTS: {"items": [mount]}})
    found = f'pod         {NAME}-0-aa on node-0: FailedMount: configmap "corpus" not found'
    assert found in ask(why.explanation_of_job, server)


QUIET = "no step has ended for more than 6 min since the ranks were started; not registered with MindIO: rank 2"


@pytest.mark.parametrize("phase", [JobPhase.WARMING, JobPhase.RUNNING])
def test_a_start_that_ends_no_step_is_explained(phase: JobPhase) -> None:
    coordinator = CoordinatorView(connected=True, serving=True, problems={"NoStepEnded": QUIET})
    server = ToldServer(told_job(phase, coordinator=coordinator, record=None))
    shown = ask(status.screen_of_job, server)
    assert f"why       {QUIET}" in shown
    explained = ask(why.explanation_of_job, server)
    assert f"Running     {QUIET}" in explained
    assert "kubectl hajob stacks" in explained
    assert "(NoStepEnded)" in shown


def test_why_of_a_failed_job_begins_with_its_end() -> None:
    failed = told_job(JobPhase.FAILED, failed_reason="ProgramFailures", failed_message="ValueError: shape\nTraceback")
    lines = ask(why.explanation_of_job, ToldServer(failed)).splitlines()
    assert lines[1:4] == [
        "Failed      ValueError: shape",
        "            Traceback",
        f"            -> {Reason.PROGRAM_FAILED.remedy}",
    ]
    assert lines[-1].endswith(f"kubectl hajob logs {NAME} -n {NAMESPACE} --failed")


FULL = "the volume of checkpoint.path (/ckpt) is full: 0 B of 1.0 TiB are free"


def test_a_full_volume_is_told_by_every_command() -> None:
    coordinator = CoordinatorView(connected=True, serving=True, problems={"CheckpointVolumeFull": FULL})
    server = ToldServer(told_job(coordinator=coordinator))
    assert f"degraded  {FULL}" in ask(status.screen_of_job, server).splitlines()
    explained = ask(why.explanation_of_job, server).splitlines()
    assert explained[1:3] == [f"Degraded    {FULL}", f"            -> {Reason.CHECKPOINT_VOLUME_FULL.remedy}"]
    assert FULL in told(jobs.table_of_jobs(server, NAMESPACE, now=lambda: NOW_MS))


def test_a_job_that_failed_with_a_full_volume_says_both() -> None:
    coordinator = CoordinatorView(problems={"CheckpointVolumeFull": FULL})
    hidden = "RuntimeError: PytorchStreamWriter failed writing file data/12: file write failed"
    failed = told_job(JobPhase.FAILED, coordinator=coordinator, failed_reason="ProgramFailures", failed_message=hidden)
    for command in (status.screen_of_job, why.explanation_of_job):
        shown = ask(command, ToldServer(failed))
        assert hidden in shown
        assert FULL in shown


def test_why_of_a_refused_job_is_the_servers_answer() -> None:
    refused = told_job(
        JobPhase.PENDING,
        accepted=Reason.POD_REFUSED,
        accepted_message="image is required",
        record=None,
        recoverability=(),
    )
    assert "Accepted    image is required" in ask(why.explanation_of_job, ToldServer(refused))


def test_the_timeline_is_in_order_and_counts() -> None:
    event = {
        "involvedObject": {"kind": names.KIND, "name": NAME},
        "type": "Normal",
        "reason": "CoordinatorMoving",
        "message": "cpu-0 is drained",
        "eventTime": "2026-01-01T00:04:30.000000Z",
    }
    shown = ask(timeline.history_of_job, ToldServer(told_job(), **{EVENTS: {"items": [event]}})).splitlines()
    assert [line[:8] for line in shown[:5]] == ["TIME    ", "00:00:00", "00:03:30", "00:04:30", "00:04:55"]
    assert "#2 node-0 fell silent" in shown[2]
    assert shown[2].endswith("Replace   6.2s     0      node-0 -> node-7")
    assert shown[-1].startswith("total: 1 incident, 1 recovered, 6.2s outage, 6.2s on average, 0 steps done again")


def test_one_incident_is_told_whole() -> None:
    lines = ask(timeline.history_of_job, ToldServer(told_job()), 2).splitlines()
    assert lines[0].startswith("incident 2: node-0 fell silent")
    assert "  Detection     3.2s  ████████████████████" in lines
    assert "action: Replace" in lines
    with pytest.raises(ClusterError, match="has no incident 9; its status has 2"):
        ask(timeline.history_of_job, ToldServer(told_job()), 9)


def test_a_job_that_no_operator_has_seen() -> None:
    raw = told_job()
    del raw["status"]
    assert "status      no operator has seen the job yet" in ask(why.explanation_of_job, ToldServer(raw))
    assert "no incident" in ask(timeline.history_of_job, ToldServer(raw))
    assert "step      none yet" in ask(status.screen_of_job, ToldServer(raw))


@pytest.mark.parametrize("part", ["status", "spec", "metadata"])
def test_an_object_of_any_form_is_shown(part: str) -> None:
    raw = {**told_job(), part: [1, "odd"]}
    server = ToldServer(told_job())
    server.found[path_of_job(NAMESPACE, NAME)] = raw
    assert all(
        ask(command, server) for command in (status.screen_of_job, why.explanation_of_job, timeline.history_of_job)
    )


# -------------------------------------------------------------------------------------------------- steering


def test_a_job_is_suspended_and_resumed_once() -> None:
    server, raw = ToldServer(told_job()), told_job()
    path = path_of_job(NAMESPACE, NAME)
    assert "is not suspended" in control.resume_job(server, NAMESPACE, NAME, NOW_MS)
    assert "saves its last step" in control.suspend_job(server, NAMESPACE, NAME, NOW_MS)
    raw["spec"]["suspend"] = True
    suspended = ToldServer(raw)
    assert control.suspend_job(suspended, NAMESPACE, NAME, NOW_MS).startswith("nothing changes")
    assert "goes on" in control.resume_job(suspended, NAMESPACE, NAME, NOW_MS)
    assert (server.written, suspended.written) == (
        [(path, {"spec": {"suspend": True}})],
        [(path, {"spec": {"suspend": False}})],
    )


def test_a_restart_is_a_request_of_now() -> None:
    server = ToldServer(told_job())
    assert "starts anew" in control.restart_job(server, NAMESPACE, NAME, NOW_MS)
    asked = {"restartRequestTime": "2026-01-01T00:05:00Z", "restartCheckpointPolicy": "IfPossible"}
    assert server.written[0][1] == {"spec": asked}
    with pytest.raises(ValueError, match="is complete"):
        control.restart_job(ToldServer(told_job(JobPhase.COMPLETE)), NAMESPACE, NAME, NOW_MS)
    with pytest.raises(ClusterError, match="there is no HATrainingJob other"):
        control.restart_job(server, NAMESPACE, "other", NOW_MS)


# ---------------------------------------------------------------------------------------------------- output


@pytest.mark.parametrize("output", ["json", "yaml", "name", "text"])
def test_every_format_says_the_same(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_answer(jobs.table_of_jobs(ToldServer(told_job()), NAMESPACE, now=lambda: NOW_MS), output)
    printed = capsys.readouterr().out
    if output == "name":
        assert printed == f"hatrainingjobs.training.hajob.io/{NAME}\n"
    elif output == "text":
        assert "\x1b" not in printed, "no colour in a pipe"
    else:
        (row,) = json.loads(printed) if output == "json" else yaml.safe_load(printed)
        assert (row["name"], row["state"], row["step"], row["protected"]) == (NAME, "Running", 212, "Partial")


def test_words_have_colours() -> None:
    assert (style_of("Failed"), style_of("Running"), style_of("error: x"), style_of("quickstart")) == (
        *("bold red", "green", "bold red"),
        "",
    )


@pytest.mark.parametrize(
    ("number", "shown"), [(42, "42s"), (300, "5m"), (12_000, "3h20m"), (400_000, "4d"), (-5, "0s")]
)
def test_ages_are_those_of_kubectl(number: int, shown: str) -> None:
    assert age_in_words(number) == shown


def test_times_are_short() -> None:
    assert [short_duration(850), short_duration(6_200), short_duration(300_000)] == ["850ms", "6.2s", "5m"]
    assert time_of_day("2025-12-31T23:00:00Z", NOW_MS) == "12-31 23:00:00"
    assert time_of_day(None, NOW_MS) == ""


@pytest.mark.parametrize(
    ("output", "printed"),
    [
        ("text", "team-a/quickstart goes on"),
        ("name", "hatrainingjobs.training.hajob.io/quickstart"),
        ("json", '"name": "quickstart"'),
    ],
)
def test_an_order_is_answered_for_programs_too(capsys: pytest.CaptureFixture[str], output: str, printed: str) -> None:
    print_answer(control.answer_of_order(NAMESPACE, NAME, f"{NAMESPACE}/{NAME} goes on"), output)
    assert printed in capsys.readouterr().out


class NewServer(ToldServer):
    """A server whose CRD knows every field."""

    def patch_object(self, path: str, body: Mapping[str, Any]) -> Json:
        super().patch_object(path, body)
        return dict(body)


def test_a_checkpoint_is_a_restart_that_must_save() -> None:
    server = NewServer(told_job())
    assert "saves its step" in control.checkpoint_job(server, NAMESPACE, NAME, NOW_MS)
    assert server.written[-1][1]["spec"] == {
        "restartRequestTime": "2026-01-01T00:05:00Z",
        "restartCheckpointPolicy": "Required",
    }


def test_an_older_crd_is_asked_for_no_checkpoint() -> None:
    server = ToldServer(told_job())
    with pytest.raises(ClusterError, match="upgrade it"):
        control.checkpoint_job(server, NAMESPACE, NAME, NOW_MS)
    assert all("restartRequestTime" not in body["spec"] for _, body in server.written), "it would lose steps"


@pytest.mark.parametrize("phase", [JobPhase.STARTING, JobPhase.FAILED, JobPhase.COMPLETE])
def test_a_job_without_a_step_has_none_to_save(phase: JobPhase) -> None:
    with pytest.raises(ValueError, match="no rank has a step"):
        control.checkpoint_job(NewServer(told_job(phase)), NAMESPACE, NAME, NOW_MS)


def test_restarts_within_an_incident_are_counted() -> None:
    job = told_job()
    job["status"]["incidents"][0]["restarts"] = 10
    (row,) = [
        one for one in timeline.history_of_job(ToldServer(job), NAMESPACE, NAME, NOW_MS).data if "incident" in one
    ]
    assert row["what"] == "node-0 fell silent (10 restarts)"
    del job["status"]["incidents"][0]["restarts"]
    assert "restarts" not in ask(timeline.history_of_job, ToldServer(job))


def test_a_sentence_is_translated_before_it_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language, "catalogue_of_person", chinese_catalogue)
    told = f"{QUIET}{' and more' * 30}"
    quiet = CoordinatorView(connected=True, serving=True, problems={"NoStepEnded": told})
    listed = jobs.table_of_jobs(ToldServer(told_job(coordinator=quiet)), NAMESPACE, now=lambda: NOW_MS).told[0]
    assert isinstance(listed, Table)
    assert "no step has ended" not in listed.rows[0][-1]
    record = Record(SILENT, MARKS, IncidentOutcome.OPEN)
    history = timeline.history_of_job(ToldServer(told_job(record=record)), NAMESPACE, NAME, NOW_MS)
    shown = next(block for block in history.told if isinstance(block, Table))
    assert not [row for row in shown.rows if "fell silent" in row[2]]
    assert "fell silent" in json.dumps(history.data)
