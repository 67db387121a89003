"""`kubectl hajob logs`: in which container it is read, and what is said when it can't be."""

from __future__ import annotations

import copy
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from hajob.api.job import HATrainingJob
from hajob.cli import cluster as clusters
from hajob.cli import main
from hajob.cli.cluster import ClusterError, Container, KubernetesCluster, Streams
from hajob.cli.log_reader import build_reader_pod
from hajob.cli.logs import CULPRIT, LAST, LogQuery, check_question, pods_to_read_from, print_output, where_plogs_lie
from hajob.cli.main import build_parser
from hajob.domain.errors import HajobInputError
from hajob.pods.rank_pod import output_directory
from tests.rigs.example_jobs import EXAMPLE_MANIFEST

UID = "4711"
VOLUMES = [{"name": "data", "persistentVolumeClaim": {"claimName": "training"}}]


def job(**spec: Any) -> dict[str, Any]:
    """Four nodes with two chips, checkpoints at /ckpt on a claim."""
    trainer = {
        "name": "trainer",
        "image": "train:1",
        "command": ["bash"],
        "volumeMounts": [{"name": "data", "mountPath": "/ckpt"}],
    }
    template = {"spec": {"containers": [trainer], "volumes": VOLUMES}}
    made = {
        **EXAMPLE_MANIFEST["spec"],
        "accelerator": {"product": "A2", "chipsPerNode": 2},
        "numNodes": 4,
        "parallelism": {"tensor": 2},
        "checkpoint": {"path": "/ckpt"},
        "template": template,
        **spec,
    }
    return {**EXAMPLE_MANIFEST, "metadata": {"name": "job", "namespace": "team", "uid": UID}, "spec": made}


def pod(node_rank: int, incarnation: int = 1, *, runs: bool = True, phase: str = "Running") -> dict[str, Any]:
    state: dict[str, Any] = {"running": {}} if runs else {"terminated": {}}
    labels = {"training.hajob.io/node-rank": str(node_rank), "training.hajob.io/incarnation": str(incarnation)}
    return {
        "metadata": {"name": f"job-{node_rank}-{incarnation}", "labels": labels},
        "status": {"phase": phase, "initContainerStatuses": [{"name": "agent", "state": state}]},
    }


class FakeCluster:
    """Answers by pod: bytes to print, a number to end with, or an error; a pod that is not listed prints its name."""

    namespace = "team"

    def __init__(self, *pods: dict[str, Any], found: dict[str, Any] | None = None) -> None:
        self.found = found or job()
        self.listed = list(pods)
        self.answers: dict[str, list[bytes | int | ClusterError]] = {}
        self.log: list[bytes] = []
        self.commands: list[tuple[Container, list[str], bool]] = []
        self.refusal: ClusterError | None = None
        self.made: dict[str, Any] = {}
        self.ends: dict[str, Any] = {"phase": "Succeeded"}
        self.deleted: list[str] = []

    def get_job(self, namespace: str, name: str) -> dict[str, Any]:
        assert (namespace, name) == ("team", "job")
        return self.found

    def list_pods(self, namespace: str, selector: str) -> list[dict[str, Any]]:
        assert (namespace, selector) == ("team", f"training.hajob.io/job-uid={UID},training.hajob.io/role=rank")
        return self.listed

    def execute_in_container(self, container: Container, command: list[str], streams: Streams, *, hold: bool) -> int:
        self.commands.append((container, command, hold))
        for answer in self.answers.get(container.pod, [container.pod.encode()]):
            if isinstance(answer, ClusterError):
                raise answer
            if isinstance(answer, int):
                return answer
            streams.out(answer)
        return 0

    def container_log(self, container: Container) -> Iterator[bytes]:
        assert container.name in {"trainer", "reader"}
        return iter(self.log)

    def create_pod(self, pod: dict[str, Any]) -> str:
        if self.refusal is not None:
            raise self.refusal
        self.made = pod
        return "hajob-logs-x"

    def get_pod(self, namespace: str, name: str) -> dict[str, Any]:
        assert (namespace, name) == ("team", "hajob-logs-x")
        return {"metadata": {"name": name}, "status": self.ends}

    def delete_pod(self, namespace: str, name: str) -> None:
        self.deleted.append(name)


class Printed:
    def __init__(self) -> None:
        self.out, self.error = b"", b""
        self.streams = Streams(self._out, self._error)

    def _out(self, data: bytes) -> None:
        self.out += data

    def _error(self, data: bytes) -> None:
        self.error += data


def ask(cluster: FakeCluster, **question: Any) -> tuple[int, Printed]:
    printed = Printed()
    asked = LogQuery("job", "", **{"rank": 3, **question})
    return print_output(asked, cast("KubernetesCluster", cluster), printed.streams), printed


def test_it_is_read_in_the_ranks_own_newest_pod() -> None:
    cluster = FakeCluster(pod(0), pod(1), pod(1, 9), pod(1, 2))
    assert ask(cluster, attempt=2, tail=5)[1].out == b"job-1-9"
    container, command, held = cluster.commands[0]
    assert container == Container("team", "job-1-9", "agent")
    assert command == ["python3", "-m", "trainer_sidecar.logs", "--rank=3", "--attempt=2", "--tail=5"]
    assert not held


def test_who_follows_holds_the_readers_input_open() -> None:
    cluster = FakeCluster(pod(1))
    ask(cluster, follow=True)
    assert cluster.commands[0][1:] == (["python3", "-m", "trainer_sidecar.logs", "--rank=3", "--follow"], True)


def test_a_pod_that_does_not_answer_is_passed_over() -> None:
    cluster = FakeCluster(pod(0), pod(1, 1), pod(1, 2), pod(2, runs=False))
    cluster.answers = {"job-1-2": [ClusterError("node is gone")], "job-1-1": [ClusterError("this too")]}
    assert ask(cluster)[1].out == b"job-0-1"


def test_without_a_volume_only_its_own_pod_has_it() -> None:
    assert pods_to_read_from([pod(0), pod(2)], 1, shared=False) == []
    assert [each["metadata"]["name"] for each in pods_to_read_from([pod(0), pod(2)], 1, shared=True)] == [
        "job-0-1",
        "job-2-1",
    ]


def test_a_stream_that_is_cut_is_not_begun_anew_elsewhere() -> None:
    cluster = FakeCluster(pod(0), pod(1))
    cluster.answers = {"job-1-1": [b"some", ClusterError("cut off")]}
    with pytest.raises(ClusterError, match="cut off"):
        ask(cluster)
    assert len(cluster.commands) == 1


def test_what_the_reader_says_is_the_answer() -> None:
    cluster = FakeCluster(pod(1))
    cluster.answers = {"job-1-1": [3]}
    assert ask(cluster, attempt=9)[0] == 1
    cluster.answers = {"job-1-1": [127]}
    assert ask(cluster)[0] == 127


def test_after_the_job_the_containers_log_is_shown() -> None:
    cluster = FakeCluster(pod(1, 2, runs=False, phase="Succeeded"), pod(1, 1, runs=False, phase="Failed"))
    cluster.log = [b"begin\n", b"[rank 2] no\n", b"[rank 3] one\n", b"[rank 30] no\n", b"[rank 3] two\n"]
    code, printed = ask(cluster)
    assert (code, printed.out) == (0, b"one\ntwo\n")
    assert b"pod job-1-2 has ended" in printed.error
    assert ask(cluster, tail=1)[1].out == b"two\n"
    ask(cluster, attempt=1)
    assert cluster.deleted == ["hajob-logs-x"], "the container's log has no other attempt"


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({}, "in /ckpt/hajob-output/4711, as the container trainer sees it, on persistentVolumeClaim training"),
        ({"output": {"path": "/nowhere"}}, "/nowhere/4711 is on no volume"),
    ],
)
def test_without_any_pod_it_says_where_the_files_are(spec: dict[str, Any], text: str) -> None:
    cluster = FakeCluster(found=job(**spec))
    cluster.refusal = ClusterError("forbidden")
    with pytest.raises(ClusterError, match="no pod of job runs") as told:
        ask(cluster)
    assert text in str(told.value)


@pytest.mark.parametrize("kind", ["emptyDir", "ephemeral"])
def test_output_that_went_with_its_pod_is_not_looked_for(kind: str) -> None:
    raw = job(output={"path": "/logs"})
    template = raw["spec"]["template"]["spec"] = copy.deepcopy(raw["spec"]["template"]["spec"])
    template["containers"][0]["volumeMounts"].append({"name": "logs", "mountPath": "/logs"})
    template["volumes"].append({"name": "logs", kind: {}})
    cluster = FakeCluster(found=raw)
    with pytest.raises(ClusterError, match=f"was kept on {kind} logs in the pods only and went with them"):
        ask(cluster)
    assert not cluster.made
    cluster.listed = [pod(0)]
    with pytest.raises(ClusterError, match="went with them"):
        ask(cluster)
    assert not cluster.commands, "another pod has a volume of its own"


def test_a_mount_that_says_nowhere_where_is_named() -> None:
    raw = job()
    raw["spec"]["template"]["spec"]["containers"][0]["volumeMounts"].append({"name": "data"})
    with pytest.raises(ValueError, match="volumeMount data of container trainer has no mountPath: add it"):
        ask(FakeCluster(found=raw), rank=0)


def test_a_rank_the_job_does_not_have() -> None:
    with pytest.raises(HajobInputError, match="job has no rank 8: its ranks are 0 to 7"):
        ask(FakeCluster(), rank=8)


def test_ranks_that_somebody_else_starts() -> None:
    with pytest.raises(HajobInputError, match="launcher TaskD"):
        ask(FakeCluster(found=job(launcher="TaskD")))


def test_what_ended_cannot_be_followed() -> None:
    with pytest.raises(HajobInputError, match="leave out --previous"):
        check_question(LogQuery("job", "", 1, previous=True, follow=True))


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (b'{"status":"Success"}', 0),
        (b'{"status":"Failure","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}', 3),
    ],
)
def test_the_exit_code_of_a_command(status: bytes, code: int) -> None:
    assert clusters.exit_code_of_stream(status, "it") == code


@pytest.mark.parametrize("status", [b"", b"nonsense", b'{"status":"Failure","message":"no such container"}'])
def test_a_command_that_did_not_end_by_itself(status: bytes) -> None:
    with pytest.raises(ClusterError, match="it: "):
        clusters.exit_code_of_stream(status, "it")


def test_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["logs", "job", "--rank", "1", "--kubeconfig", "/nowhere/config"]) == 1
    assert "no kubeconfig can be used" in capsys.readouterr().err
    assert main.main(["logs", "job", "--rank", "1", "-f", "-p"]) == 2


def with_status(**status: Any) -> dict[str, Any]:
    return {**job(), "status": status}


def test_a_failed_jobs_output_is_read_by_a_pod_of_its_own() -> None:
    cluster = FakeCluster()
    cluster.log = [b"Traceback\n", b"KeyError\n"]
    code, printed = ask(cluster, attempt=1, tail=7)
    assert (code, printed.out, cluster.deleted) == (0, b"Traceback\nKeyError\n", ["hajob-logs-x"])
    assert b"hajob-logs-x" in printed.error
    container = cluster.made["spec"]["containers"][0]
    assert container["command"][-6:] == [f"/ckpt/hajob-output/{UID}", "3", "1", "7", "", ""]
    assert container["volumeMounts"] == [{"name": "data", "mountPath": "/ckpt", "readOnly": True}]
    assert (cluster.made["spec"]["volumes"], cluster.made["spec"]["restartPolicy"]) == (VOLUMES, "Never")
    assert cluster.made["metadata"]["ownerReferences"][0]["uid"] == UID
    assert "huawei.com" not in str(cluster.made)


def test_what_a_reading_pod_does_not_find_is_said() -> None:
    cluster = FakeCluster()
    cluster.log, cluster.ends = [b"nothing is kept of rank 3\n"], {"phase": "Failed"}
    code, printed = ask(cluster)
    assert (code, printed.out, cluster.deleted) == (1, b"", ["hajob-logs-x"])
    assert b"nothing is kept" in printed.error


def test_a_reading_pod_that_cannot_start_says_why() -> None:
    cluster = FakeCluster()
    waiting = {"name": "reader", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
    cluster.ends = {"phase": "Pending", "containerStatuses": [waiting]}
    with pytest.raises(ClusterError, match="no such image"):
        ask(cluster)
    assert cluster.deleted == ["hajob-logs-x"]


def test_without_the_right_the_commands_are_printed() -> None:
    cluster = FakeCluster()
    cluster.refusal = ClusterError("a pod in namespace team (the right to create pods is needed): forbidden")
    with pytest.raises(ClusterError, match=r"(?s)right to create pods.*kubectl create -n team .*kubectl logs"):
        ask(cluster)


def test_a_job_that_waits_says_why_it_has_printed_nothing() -> None:
    waits = {"type": "Scheduled", "status": "False", "reason": "WaitingForCapacity", "message": "2 nodes are missing"}
    waits["lastTransitionTime"] = "2025-11-26T03:30:00Z"
    cluster = FakeCluster(found=with_status(summary={"state": "Pending"}, conditions=[waits]))
    with pytest.raises(ClusterError, match="job is Pending and has printed nothing yet: 2 nodes are missing"):
        ask(cluster)
    assert not cluster.made


def test_a_job_that_was_suspended_has_printed_before_it_waits() -> None:
    trained = {"step": 40, "observedTime": "2025-11-26T03:30:00Z"}
    cluster = FakeCluster(found=with_status(summary={"state": "Pending"}, progress=trained))
    cluster.log = [b"iteration 40\n"]
    assert ask(cluster)[1].out == b"iteration 40\n"


def test_the_culprit_is_the_rank_of_the_newest_incident() -> None:
    incident = {
        "incarnation": 2,
        "startTime": "2025-11-26T03:30:00Z",
        "cause": {"source": "Agent", "code": "SIGKILL", "firstRank": 5},
    }
    cluster = FakeCluster(pod(2), found=with_status(incidents=[incident]))
    ask(cluster, rank=CULPRIT)
    assert cluster.commands[0][1][3] == "--rank=5"
    with pytest.raises(HajobInputError, match="name one with --rank"):
        ask(FakeCluster(pod(2)), rank=CULPRIT)


def test_without_a_rank_it_is_the_last_one() -> None:
    cluster = FakeCluster(pod(3))
    ask(cluster, rank=LAST)
    assert cluster.commands[0][1][:2] == ["env", "HAJOB_LOGS_OF_PRINTING=yes"]
    assert cluster.commands[0][1][5] == "--rank=7"
    assert build_parser().parse_args(["logs", "qwen"]).rank == LAST
    assert build_parser().parse_args(["logs", "qwen", "--failed"]).rank == CULPRIT


@pytest.mark.parametrize(
    ("asked", "printed"),
    [
        (("", "", ""), "newest\n"),
        (("1", "", ""), "older\nold\nfirst\n"),
        (("1", "1", ""), "first\n"),
        (("", "", "previous"), "before\n"),
    ],
)
def test_the_readers_script_prints_the_files(tmp_path: Path, asked: tuple[str, str, str], printed: str) -> None:
    files = {
        "1/rank-3.1.log.1": "older\n",
        "1/rank-3.1.log": "old\n",
        "1/rank-3.2.1.log": "first\n",
        "10/rank-3.9.log": "before\n",
        "10/rank-3.10.log": "newest\n",
        "11/rank-30.11.log": "another rank\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    made = build_reader_pod(HATrainingJob.from_object(job()), 3, None, None, previous=False)
    command = made["spec"]["containers"][0]["command"][:4]
    done = subprocess.run([*command, str(tmp_path), "3", *asked], capture_output=True, text=True, check=True)
    assert done.stdout == printed


def test_the_readers_script_names_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "4").mkdir()
    made = build_reader_pod(HATrainingJob.from_object(job()), 3, None, None, previous=False)
    command = made["spec"]["containers"][0]["command"][:4]
    done = subprocess.run([*command, str(tmp_path), "3", "", "", ""], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "nothing is kept of rank 3; attempts with output: 4 \n")


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (
            {"1/rank-7.1.log": "quiet\n", "1/rank-0.1.log": " iteration        5/     100 |\n"},
            " iteration        5/     100 |\n",
        ),
        (
            {"1/rank-0.1.log": "x\n", "1/rank-2.1.log": "{ Epoch:[  1/  3], step:[    5/   10]\n"},
            "{ Epoch:[  1/  3], step:[    5/   10]\n",
        ),
        ({"1/rank-7.1.log": "iteration 5/ 9\n", "1/rank-0.1.log": "iteration 5/ 9, too\n"}, "iteration 5/ 9\n"),
        ({"1/rank-7.1.log": "quiet\n", "1/rank-0.1.log": "so is this\n"}, "quiet\n"),
    ],
)
def test_the_readers_script_finds_who_prints(tmp_path: Path, printed: dict[str, str], shown: str) -> None:
    for name, text in printed.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    made = build_reader_pod(HATrainingJob.from_object(job()), 7, None, None, previous=False, is_guess=True)
    command = made["spec"]["containers"][0]["command"]
    command[4] = str(tmp_path)
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == shown


def test_plogs_are_told_by_attempt_and_node() -> None:
    made = HATrainingJob.model_validate(job())
    question = LogQuery("job", "team", rank=3, attempt=3, plog=True)
    told = where_plogs_lie(made, question)
    assert f"{output_directory(made)}/3/worker-1/process_log" in told
    assert "ATTEMPT" in where_plogs_lie(made, replace(question, attempt=None))
