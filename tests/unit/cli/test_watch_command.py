"""`kubectl hajob watch`: the picture of a job, and what a pipe gets of its changes."""

from __future__ import annotations

import pytest

from hajob.api.base import Json
from hajob.cli import watch
from hajob.cli.cluster import ClusterError
from hajob.cli.output import plain_lines, style_of
from hajob.plan.state import JobPhase
from tests.rigs.told_job import NAME, NAMESPACE, NOW_MS, told_job
from tests.rigs.told_server import PODS, READY, ToldServer, rank_pod_object

RUNNING = [rank_pod_object(0, **READY), rank_pod_object(1, **READY), rank_pod_object(2, phase="Pending")]
INCIDENT = "node-0 fell silent; ranks 0-1 go to another node (Replace); training again after 6.2 s, no step lost"


def watching(*pods: Json, job: Json | None = None) -> tuple[ToldServer, watch.Watching]:
    server = ToldServer(job or told_job(), **{PODS: {"items": list(pods)}})
    return server, watch.Watching(server, NAMESPACE, NAME, lambda: NOW_MS)


def test_the_picture_shows_what_each_node_rank_does() -> None:
    _, seen = watching(*RUNNING)
    assert list(plain_lines(seen.look_at_job())) == [
        "quickstart Running step 212, 1.42s a step, seen 5s ago",
        "Replace would not work: no free node fits (FreeNode)",
        "RANKS   NODE          STATE",
        "0-1     node-0   ■■   training",
        "2-3     node-1   ■■   training",
        "4-5     node-2   ▒▒   starts",
        "6-7     -        ✕✕   lost",
        f"#2 {INCIDENT}  (Detection 3.2s, StartUp 2.3s, Recovery 600ms)",
    ]


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        (JobPhase.RUNNING, ["training", "lost"]),
        (JobPhase.GATHERING, ["stands", "lost"]),
        (JobPhase.PAUSED, ["stands", "lost"]),
        (JobPhase.SUSPENDED, ["training", "none"]),
    ],
)
def test_ranks_of_a_job_that_stands_do_not_train(phase: JobPhase, expected: list[str]) -> None:
    _, seen = watching(RUNNING[0], job=told_job(phase))
    table = next(block for block in seen.look_at_job() if not isinstance(block, str))
    assert [row[-1] for row in table.rows[:2]] == expected


def test_pods_that_may_not_be_read_are_unknown() -> None:
    server, seen = watching(*RUNNING)
    server.forbidden = {PODS}
    assert "pods: unknown, needs the right to list pods in team-a" in list(plain_lines(seen.look_at_job()))


def test_a_pipe_gets_what_changes_until_the_job_ends(capsys: pytest.CaptureFixture[str]) -> None:
    server, seen = watching(*RUNNING)
    path = next(path for path in server.found if path.endswith(NAME))
    states = [told_job(), told_job(JobPhase.GATHERING, step=250), told_job(JobPhase.COMPLETE)]

    def next_state() -> None:
        server.found[path] = states.pop(0)

    assert seen.draw_until_ended(next_state, is_terminal=False) == 0
    said = [line.removeprefix("00:05:00  ") for line in capsys.readouterr().out.splitlines()]
    assert said[0] == "quickstart is Running: Replace would not work: no free node fits (FreeNode)"
    assert [line for line in said if line.startswith("step")] == ["step 212, 1.42s a step, seen 5s ago"]
    assert [line for line in said if line.startswith("node rank 0")] == [
        "node rank 0: training on node-0",
        "node rank 0: stands on node-0",
        "node rank 0: training on node-0",
    ]
    assert sum(line.startswith("incident 2") for line in said) == 1
    assert any(line.startswith("quickstart is Complete") for line in said)


def test_a_job_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ClusterError, match="there is no HATrainingJob other"):
        watch.Watching(ToldServer(), NAMESPACE, "other", lambda: NOW_MS).look_at_job()


def test_what_a_rank_does_has_a_colour_and_a_sign_of_its_own() -> None:
    shown = {does: (style_of(does), style_of(sign * 8)) for does, sign in watch.SIGNS.items()}
    assert all(word == sign for word, sign in shown.values()), "cells and words look alike"
    assert (shown["training"], shown["lost"]) == (("green", "green"), ("bold red", "bold red"))
    assert len(set(watch.SIGNS.values())) == len(watch.SIGNS), "without colours, too"
