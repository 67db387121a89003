"""The operator is killed right after each thing it does in a recovery, and every recovery ends all the same.

One operator after the other: each one gets a fuse (e2e/harness/crashing_operator.py) that ends it after the n-th write
or command of a recovery, and its successor, which has nothing but the API and the coordinator's reports, has to finish
the work. Then it gets the next fuse, until a recovery has fewer acts than that.

Every point would take five minutes, so `make slow` takes every third; HAJOB_EVERY_POINT=1 (`make e2e`) takes all.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.harness.job import Job
from e2e.harness.marks import only_e2e
from e2e.harness.rig import Rig, RigLayout
from e2e.scenarios.proofs import assert_weights_equal

pytestmark = pytest.mark.slow

STRIDE = 1 if os.environ.get("HAJOB_EVERY_POINT") else 3
STEPS = 300
STEP_MILLISECONDS = 150
LAST_FAULT_STEP = 170  # the rest must outlast a change of operator
QUIET_STEPS = 25
"""After so many steps without a fault nothing more is done about the last one."""
MOST_ACTS = 60
QUICK_LEASE = {"HAJOB_LEASE_SECONDS": "1.5", "HAJOB_LEASE_RENEW_SECONDS": "1.2", "HAJOB_LEASE_RETRY_SECONDS": "0.2"}
UNLIMITED = [{"name": name, "maxCount": 1000} for name in ("InPlace", "Replace")]


class Fuses:
    """Lays fuses for the operators of a rig and reads what became of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()

    def lay(self, name: str, job: Job, acts: int) -> None:
        """The operator that handles the job's next incident dies after so many acts."""
        fuse = {"round": name, "above": job.status()["incarnation"], "acts": acts}
        new = self.directory / "new"
        new.write_text(json.dumps(fuse))
        new.rename(self.directory / "fuse")

    def burnt(self, name: str) -> bool:
        """Whether it came to that."""
        return (self.directory / f"burnt-{name}").exists()

    def acts(self, name: str) -> list[str]:
        """What the operator had done for the round up to its death."""
        lines = (self.directory / "acts").read_text().splitlines()
        return [line for line in lines if name in line.split()]


@pytest.fixture
def killing_rig(start_rig: Callable[[RigLayout], Rig]) -> tuple[Rig, Fuses]:
    """A rig whose operator has a fuse and is started again at once; all else is as an admin installs it."""
    settings = {"restart_backoff_seconds": 0, "restart_backoff_limit_seconds": 0}
    rig = start_rig(RigLayout(operators=0, node_settings=settings))
    fuses = Fuses(rig.directory / "fuses")
    environment = {"HAJOB_CRASH_DIRECTORY": str(fuses.directory), **QUICK_LEASE}
    rig.install_operator(1, environment, ["python3", "-m", "e2e.harness.crashing_operator"])
    return rig, fuses


def kill_a_process(rig: Rig, job: Job, number: int) -> Callable[[], None]:
    """Kill one rank after the other, so that none dies too often."""
    rig.nodes.control.kill(namespace=rig.namespace, rank=number % job.world())
    return lambda: None


def power_off_a_node(rig: Rig, job: Job, number: int) -> Callable[[], None]:
    """Power off one node after the other; it comes back when the recovery is over."""
    node = job.node_of(number % 4)
    rig.nodes.control.power_off(node)

    def repair() -> None:
        rig.nodes.control.power_on(node)
        path = f"/api/v1/nodes/{node}"

        def ready() -> bool:
            conditions = rig.plane.api.get(path)["status"]["conditions"]
            return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

        rig.plane.wait(f"{node} to be ready", ready)

    return repair


Fault = Callable[[Rig, Job, int], Callable[[], None]]
FAULTS: dict[str, Fault] = {"InPlace": kill_a_process, "Replace": power_off_a_node}


def play(rig: Rig, fuses: Fuses, job: Job, action: str, acts: int) -> bool:
    """One fault, with the operator dying after so many acts; returns whether it came to that."""
    name = f"{action}-{acts}"
    incarnation = int(job.status()["incarnation"])
    fuses.lay(name, job, acts)
    repair = FAULTS[action](rig, job, acts)
    rig.plane.wait(f"an incident of round {name}", lambda: job.status()["incarnation"] > incarnation, 90)
    incident = job.wait_incident(incarnation + 1, seconds=120)
    assert incident["action"] == action, (name, fuses.acts(name), incident)
    if not fuses.burnt(name):
        job.wait_step(job.common_step() + QUIET_STEPS)
    repair()
    return fuses.burnt(name)


def points(stride: int) -> Iterator[int]:
    """Numbers of acts after which to kill."""
    return itertools.takewhile(lambda number: number < MOST_ACTS, itertools.count(1, stride))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("action", ["InPlace", pytest.param("Replace", marks=only_e2e)])
def test_killed_after_each_act_every_recovery_ends(killing_rig: tuple[Rig, Fuses], action: str) -> None:
    rig, fuses = killing_rig
    numbers = points(STRIDE)
    killed, training = 0, 0
    went_on = True
    while went_on:
        training += 1
        spec = {"recovery": {"actions": UNLIMITED}}
        job = rig.submit(f"job-{training}", iterations=STEPS, step_milliseconds=STEP_MILLISECONDS, spec=spec)
        job.wait_step(3, seconds=150)
        while went_on and job.common_step() < LAST_FAULT_STEP:
            went_on = play(rig, fuses, job, action, next(numbers))
            killed += went_on
        assert_weights_equal(job, STEPS)
        job.delete()
    assert killed >= 2
