"""`make demo` itself: a process of its own on a cluster of its own, its words, its exit code, what it leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from e2e.bootstrap.paths import CHECKOUT, runs_directory
from e2e.cluster.processes import MARKER
from e2e.harness.marks import only_e2e

STEPS = 400
FEW = ("--faults", "2", "--steps", "160")
SECONDS = 840.0
ANOTHER_TERMINAL = "export KUBECONFIG="
"""How the line begins that is for another terminal, which names the directory of the run."""


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    surroundings = {name: value for name, value in os.environ.items() if name != MARKER}
    return subprocess.Popen(
        [sys.executable, "-m", "e2e.demo", "--steps", str(STEPS), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=CHECKOUT,
        env=surroundings | environment,
        start_new_session=True,
    )


def run_directory(demo: subprocess.Popen[str], until: str) -> str:
    """The demo's run, once it has said `until`."""
    assert demo.stdout is not None
    directory = ""
    for line in demo.stdout:
        if ANOTHER_TERMINAL in line:
            directory = line.partition(ANOTHER_TERMINAL)[2].split("/admin.kubeconfig")[0]
        if until in line:
            return directory
    raise AssertionError(f"the demo ended before it said {until!r}")


def marked(identity: str) -> list[psutil.Process]:
    """Processes that carry the mark of a run."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARKER) == identity:
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.timeout(900)
@pytest.mark.skipif(not os.environ.get("HAJOB_LONG_TESTS"), reason="two minutes: make nightly")
def test_six_faults_are_recovered_and_the_weights_equal() -> None:
    demo = start()
    said, _ = demo.communicate(timeout=SECONDS)
    assert said.splitlines()[-1] == "demo: 6 faults, 6 recovered, weights equal: yes", said
    assert demo.returncode == 0


@pytest.mark.timeout(900)
@only_e2e
def test_one_flipped_byte_of_a_restored_shard_is_found() -> None:
    demo = start(*FEW, TOY_FLIP_RESTORED_BYTE="1")
    said, _ = demo.communicate(timeout=SECONDS)
    assert said.splitlines()[-1] == "demo: 2 faults, 2 recovered, weights equal: no", said
    assert demo.returncode == 1


@pytest.mark.parametrize(
    ("number", "until"),
    [(signal.SIGINT, ANOTHER_TERMINAL), (signal.SIGHUP, "process nodes"), (signal.SIGKILL, "the job is Running")],
)
def test_nothing_is_left_however_it_ends(number: signal.Signals, until: str) -> None:
    demo = start()
    directory = run_directory(demo, until)
    identity = directory.rpartition("/")[2]
    assert marked(identity)
    demo.send_signal(number)
    said, _ = demo.communicate(timeout=60)
    deadline = time.monotonic() + 60
    while marked(identity) or (runs_directory() / identity).exists():
        assert time.monotonic() < deadline, f"left behind: {marked(identity)}"
        time.sleep(0.2)
    assert demo.returncode in {130, 129, -signal.SIGKILL}, said
