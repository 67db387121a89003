"""`kubectl hajob stacks`: the script that a container runs, and how ranks that stand together are told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from e2e.bootstrap.paths import CHECKOUT
from hajob.cli import stacks
from hajob.cli.cluster import ClusterError, Container, KubernetesCluster, Streams
from hajob.cli.output import plain_lines
from hajob.cli.stacks import RankStack, answer_with_stacks, ranks_in_words, take_stacks, with_ranks_apart
from tests.rigs.told_job import NAME, NAMESPACE, told_job
from tests.rigs.told_server import rank_pod_object

ENTRY = CHECKOUT / "trainer_sidecar/launcher/entry.py"
RANK = """
import threading, time
def in_the_training():
    print("here", flush=True)
    time.sleep(60)
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
in_the_training()
"""
OTHER = 'Thread 0x1 (most recent call first):\n  File "loader.py", line 1 in load\n\n'
STEP = f"{OTHER}Current thread 0x2 (most recent call first):\n"
STARTED = '  File "<frozen runpy>", line 88 in _run_code\n  File "/pods/{}/entry.py", line 99 in main\n'
WAITS = f'{STEP}  File "comm.py", line 9 in wait\n  File "train.py", line 5 in step\n'
READS = f'{STEP}  File "data.py", line 7 in read\n  File "train.py", line 3 in step\n'


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A rank's process, started as the launcher does."""
    (tmp_path / "stacks").mkdir()
    (tmp_path / "train.py").write_text(RANK)
    variables = {"HAJOB_STACK_FILE": f"{tmp_path}/stacks/rank-5.1.1", "HAJOB_STACK_SIGNAL": "60", "RANK": "5"}
    environment = {**os.environ, **variables}
    started = subprocess.Popen(
        [sys.executable, str(ENTRY), str(tmp_path / "train.py")], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "here\n"
    yield started
    started.kill()
    started.communicate()


def run_script(directory: Path) -> list[dict[str, Any]]:
    environment = {**os.environ, "HAJOB_DIR": str(directory)}
    command = [sys.executable, "-c", stacks.SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_rank_says_where_it_stands(rank: subprocess.Popen[str], tmp_path: Path) -> None:
    for _ in range(2):
        (told,) = run_script(tmp_path)
        assert (told["rank"], told["pid"], told["problem"]) == (5, rank.pid, "")
        frames = RankStack(5, told["stack"]).main_thread
        assert frames[0] == f'File "{tmp_path}/train.py", line 5 in in_the_training'
        assert told["stack"].count("Thread 0x") + told["stack"].count("Current thread") == 2, "of this time alone"
    assert rank.poll() is None


def test_ranks_of_another_pod_are_left_alone(rank: subprocess.Popen[str], tmp_path: Path) -> None:
    assert run_script(tmp_path / "elsewhere") == []


def test_a_rank_that_does_not_answer_is_told(rank: subprocess.Popen[str], tmp_path: Path) -> None:
    rank.send_signal(signal.SIGSTOP)
    time.sleep(0.1)
    (told,) = run_script(tmp_path)
    assert (told["stack"], told["problem"]) == ("", "it did not answer for 2 s")


class Asked:
    """Pods that answer what they are told to."""

    namespace = NAMESPACE

    def __init__(self, *answers: list[dict[str, Any]] | ClusterError | int) -> None:
        self.answers = answers

    def get_job(self, namespace: str, name: str) -> dict[str, Any]:
        assert (namespace, name) == (NAMESPACE, NAME)
        return told_job()

    def list_pods(self, namespace: str, selector: str) -> list[dict[str, Any]]:
        up = [{"name": "trainer", "state": {"running": {}}}]
        return [rank_pod_object(number, phase="Running", containerStatuses=up) for number in range(len(self.answers))]

    def execute_in_container(self, container: Container, command: list[str], streams: Streams, *, hold: bool) -> int:
        answer = self.answers[int(container.pod.split("-")[1])]
        assert (container.name, command[:2], hold) == ("trainer", ["python3", "-c"], False)
        if isinstance(answer, ClusterError):
            raise answer
        if isinstance(answer, int):
            streams.error(b"Traceback\nSyntaxError: invalid syntax\n")
            return answer
        for one in answer:
            streams.out(json.dumps(one).encode() + b"\n")
        return 0


def asked(
    *answers: list[dict[str, Any]] | ClusterError | int, rank: int | None = None
) -> tuple[list[RankStack], list[str]]:
    return take_stacks(cast("KubernetesCluster", Asked(*answers)), NAMESPACE, NAME, rank)


def answer_of(rank: int, stack: str = WAITS, problem: str = "") -> dict[str, Any]:
    started = STARTED.format(rank) if stack else ""
    return {"rank": rank, "pid": 10, "stack": stack + started, "problem": problem}


def test_ranks_that_stand_together_are_told_together() -> None:
    found, problems = asked([answer_of(0), answer_of(1)], [answer_of(3, READS), answer_of(2)])
    assert list(plain_lines(answer_with_stacks(NAME, found, problems).told)) == [
        "rank 3 stands here (1 of 4), the innermost call first:",
        '  File "data.py", line 7 in read',
        '  File "train.py", line 3 in step',
        "ranks 0-2 stand here (3 of 4), the innermost call first:",
        '  File "comm.py", line 9 in wait',
        '  File "train.py", line 5 in step',
    ]
    whole = list(plain_lines(answer_with_stacks(NAME, found, problems, all_threads=True).told))
    assert sum('"loader.py"' in line for line in whole) == 4


def test_what_cannot_be_asked_is_unknown() -> None:
    refusal = ClusterError("a command in pod b (the right to get and create pods/exec is needed): no")
    found, problems = asked([answer_of(0, "", "it did not answer for 2 s")], refusal, 1, [])
    assert list(plain_lines(answer_with_stacks(NAME, found, problems).told)) == [
        "rank 0: unknown, it did not answer for 2 s",
        f"unknown: {refusal}",
        f"unknown: pod {NAME}-2-aa: SyntaxError: invalid syntax",
        f"unknown: pod {NAME}-3-aa has no rank that was started through the launcher's entry",
    ]


def test_one_rank_is_asked_alone() -> None:
    found, _ = asked(ClusterError("not asked"), [answer_of(2), answer_of(3)], rank=3)
    assert [one.rank for one in found] == [3]
    with pytest.raises(ClusterError, match=f"no pod of {NAME} runs that has rank 9"):
        asked([answer_of(0)], rank=9)


def test_where_nobody_may_be_asked_it_is_an_error() -> None:
    with pytest.raises(ClusterError, match="pods/exec"):
        asked(ClusterError("the right to create pods/exec is needed"))
    with pytest.raises(ClusterError, match=f"no pod of {NAME} runs"):
        asked()


def looks_at(*stacks_of_ranks: str) -> list[RankStack]:
    return [RankStack(rank, stack, node=f"node-{rank}") for rank, stack in enumerate(stacks_of_ranks)]


def test_who_stands_apart_again_and_again_is_named() -> None:
    looks = [looks_at(WAITS, READS, WAITS, WAITS), looks_at(WAITS, READS, WAITS, WAITS), looks_at(READS, *[WAITS] * 3)]
    answer = with_ranks_apart(answer_with_stacks(NAME, looks[-1], []), looks)
    assert list(plain_lines(answer.told))[:3] == [
        "rank 1 on node-1 stood apart in 2 of 3 looks; the others wait for it",
        "rank 0 on node-0 stood apart in 1 of 3 looks",
        "the last look:",
    ]
    assert answer.data["apart"][0] == {"rank": 1, "node": "node-1", "times": 2}


def test_where_ranks_stand_everywhere_nobody_is_named() -> None:
    looks = [looks_at(WAITS, WAITS, READS, READS), looks_at(READS, WAITS, WAITS, READS)]
    (first, *_) = plain_lines(with_ranks_apart(answer_with_stacks(NAME, looks[0], []), looks).told)
    assert first == "in none of 2 looks most ranks stood at one place: who is slow cannot be known from that"
    together = [looks_at(WAITS, WAITS), looks_at(WAITS, WAITS)]
    (first, *_) = plain_lines(with_ranks_apart(answer_with_stacks(NAME, together[0], []), together).told)
    assert first.endswith("nobody is seen to be slow")


def test_ranks_are_named_in_runs() -> None:
    assert [ranks_in_words(one) for one in ([3], [2, 0, 1], [0, 2, 3])] == ["rank 3", "ranks 0-2", "ranks 0, 2-3"]
