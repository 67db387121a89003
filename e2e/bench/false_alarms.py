"""What must not be taken for dead: a node that stands still for two seconds, a machine with three times its load."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from e2e.bench.recoveries import Say, training
from e2e.bootstrap.machine import limits
from e2e.cluster.run import Run
from e2e.harness.job import Job
from e2e.harness.rig import Rig

FROZEN_SECONDS = 2.0
APART_SECONDS = 1.5
LOAD_TIMES = 3
LOADED_SECONDS = 1.0
ROUNDS_PER_WORD = 20


def replacements(job: Job) -> int:
    """Incidents of the job so far; nothing has died, so each one is a false alarm."""
    return int(job.status()["incarnation"]) - 1


def frozen_nodes(rig: Rig, rounds: int, say: Say) -> int:
    """Stop every process of a node for two seconds, two nodes at a time; returns the false alarms.

    Args:
        rig: Whose nodes.
        rounds: How often a node is frozen; rounded up to an even number.
        say: Takes a line of progress now and then.
    """
    job = training(rig, "frozen")
    for number in range(0, rounds, 2):
        nodes = [job.node_of((number + other) % 4) for other in range(2)]
        frozen = [(node, rig.nodes.control.power_off(node)["time"] / 1e9) for node in nodes]
        for node, since in frozen:
            time.sleep(max(0.0, since + FROZEN_SECONDS - time.time()))
            rig.nodes.control.thaw_node(node)
        time.sleep(APART_SECONDS)
        if (number + 2) % ROUNDS_PER_WORD == 0:
            say(f"{number + 2} times frozen, {replacements(job)} taken for dead")
    found = replacements(job)
    job.delete()
    return found


def loaded_machine(rig: Rig, rounds: int, say: Say) -> int:
    """Load the machine with three times its cores for `rounds` seconds; returns the false alarms."""
    job = training(rig, "loaded")
    with load(rig.plane.run):
        for number in range(rounds):
            time.sleep(LOADED_SECONDS)
            if (number + 1) % ROUNDS_PER_WORD == 0:
                say(f"{number + 1} rounds under load, {replacements(job)} taken for dead")
    found = replacements(job)
    job.delete()
    return found


@contextmanager
def load(run: Run) -> Iterator[None]:
    """So many processes that compute as three times the machine's cores."""
    command = [sys.executable, "-c", "while True: pass"]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(round(LOAD_TIMES * limits().processors)):
            processes.append(run.spawn(f"load-{number}", command))
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
