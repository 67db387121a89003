"""`kubectl hajob drain`: what is said of each job on a node, and how long the command waits."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import yaml

from hajob.api.base import Json
from hajob.cli import drain
from hajob.cli.cluster import ClusterError
from hajob.cli.main import build_parser
from hajob.plan.state import JobPhase
from tests.rigs.fake_clock import FakeClock
from tests.rigs.told_job import NAME, NAMESPACE, told_job
from tests.rigs.told_server import READY, ToldServer, rank_pod_object

NODE, ALL_PODS = "/api/v1/nodes/node-1", "/api/v1/pods"
ON_IT = f"{NAMESPACE}/{NAME}: node rank 1 (pod {NAME}-1-aa); "
HELD = "A fault waits until a MindIO controller protects the job again; the training may stand still meanwhile."
MOVES = f"{ON_IT}will be moved while the training goes on, as soon as there is a free node"


def server(job: Json | None = None, *, pods: list[Json] | None = None, **spec: Any) -> ToldServer:
    found = {NODE: {"metadata": {"name": "node-1"}, "spec": spec}}
    there = [rank_pod_object(0, **READY), rank_pod_object(1, **READY)] if pods is None else pods
    return ToldServer(job or told_job(), **{**found, ALL_PODS: {"items": there}})


def job_with_recovery(**recovery: str) -> Json:
    made = told_job()
    made["spec"]["recovery"] = {**made["spec"].get("recovery", {}), **recovery}
    return made


def test_a_node_is_cordoned_and_its_jobs_are_named() -> None:
    there = server()
    assert list(drain.cordon_node(there, "node-1")) == ["node-1 is cordoned: no new pod is placed there", MOVES]
    assert there.written == [(NODE, {"spec": {"unschedulable": True}})]


def test_a_cordoned_node_is_not_written_again() -> None:
    there = server(unschedulable=True)
    assert list(drain.cordon_node(there, "node-1")) == ["node-1 is cordoned already", MOVES]
    assert there.written == []


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (told_job(JobPhase.MIGRATING), "moving while the training goes on"),
        (told_job(JobPhase.SUSPENDED), "waits: the job is Suspended"),
        (job_with_recovery(cordonPolicy="Ignore"), "stays: spec.recovery.cordonPolicy is Ignore"),
        (job_with_recovery(mode="Observe"), "stays: spec.recovery.mode is Observe"),
        (told_job(JobPhase.HELD), f"waits: {HELD}"),
    ],
    ids=["moves", "suspended", "ignored", "observed", "held"],
)
def test_what_keeps_a_job_there_is_said(job: Json, said: str) -> None:
    assert [one.sentence for one in drain.residents_of_node(server(job), "node-1").jobs] == [ON_IT + said]


def test_pods_of_a_job_that_is_gone_are_ending() -> None:
    there = server()
    there.found = {ALL_PODS: there.found[ALL_PODS]}
    (one,) = drain.residents_of_node(there, "node-1").jobs
    assert one.outlook == "the job is gone, its pods are ending"


def test_without_the_right_to_read_pods_nothing_is_claimed() -> None:
    there = server()
    there.forbidden = {ALL_PODS}
    with pytest.raises(ClusterError, match=r"is unknown: needs the right to list pods .*; the node is left as it is"):
        list(drain.cordon_node(there, "node-1", must_know=True))
    assert there.written == []
    said = list(drain.cordon_node(there, "node-1"))
    assert said[1] == "which jobs are on it is unknown: needs the right to list pods in all namespaces"


def test_without_the_right_to_read_jobs_their_end_is_unknown() -> None:
    there = server()
    there.forbidden = {path for path in there.found if path.endswith(NAME)}
    (one,) = drain.residents_of_node(there, "node-1").jobs
    assert one.outlook.endswith(f"is unknown: needs the right to get hatrainingjobs in {NAMESPACE}")


def test_a_node_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ClusterError, match="there is no node node-9: kubectl get nodes names them"):
        list(drain.cordon_node(server(), "node-9"))


def test_a_drain_is_taken_back() -> None:
    there = server(unschedulable=True)
    assert drain.uncordon_node(there, "node-1") == "node-1 takes pods again"
    assert there.written == [(NODE, {"spec": {"unschedulable": None}})]
    assert drain.uncordon_node(server(), "node-1") == "nothing changes: node-1 is not cordoned"


@pytest.mark.parametrize("output", ["json", "yaml", "name"])
def test_a_program_gets_one_answer_of_a_drain(
    output: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = server(unschedulable=True)
    monkeypatch.setattr(drain, "KubernetesObjects", lambda **_: there)
    parser = build_parser(["drain"])
    arguments = parser.parse_args(["drain", "node-1", "-o", output])
    assert arguments.run(arguments) == 0
    said = capsys.readouterr()
    assert said.err.splitlines() == ["node-1 is cordoned already", MOVES]
    if output == "name":
        assert said.out == "node/node-1\n"
        return
    told = yaml.safe_load(said.out)
    assert (told["node"], told["empty"], told["unknown"]) == ("node-1", False, [])
    assert [(job["name"], job["pods"]) for job in told["jobs"]] == [(NAME, [f"{NAME}-1-aa"])]
    assert told["cordoned"] is True


class Pauses(threading.Event):
    """Waits on a clock that nobody looks at, and does something before each look."""

    def __init__(self, clock: FakeClock, *then: Any) -> None:
        super().__init__()
        self.clock, self.then = clock, list(then)

    def wait(self, timeout: float | None = None) -> bool:
        self.clock.freeze(timeout or 0)
        if self.then:
            self.then.pop(0)()
        return False


def test_a_wait_says_each_change_once(capsys: pytest.CaptureFixture[str]) -> None:
    there, clock = server(), FakeClock()
    moving = told_job(JobPhase.MIGRATING)
    path = next(path for path in there.found if path.endswith(NAME))
    pauses = Pauses(
        clock, lambda: None, lambda: there.found.update({path: moving}), lambda: there.found[ALL_PODS].update(items=[])
    )
    assert drain.NodeWait(there, "node-1", clock, pauses).until_empty() == 0
    assert capsys.readouterr().out.splitlines() == [
        f"   0s  {MOVES}",
        f"   4s  {ON_IT}moving while the training goes on",
        "node-1 is empty of Hajob's pods after 6s",
    ]


def test_a_wait_ends_at_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    clock = FakeClock()
    assert drain.NodeWait(server(), "node-1", clock, Pauses(clock)).until_empty(70) == 1
    said = capsys.readouterr().out.splitlines()
    assert said == [f"   0s  {MOVES}", f"  60s  {MOVES}", "1 job still on node-1 after 70s; it stays cordoned"]
