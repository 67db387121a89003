"""What kind and Docker are told: the cluster's configuration and every command, as checked-in files."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from e2e.kubelets.kind import commands
from e2e.kubelets.kind.commands import KindLayout

GOLDEN = Path(__file__).with_name("kind_golden")
LAYOUT = KindLayout("hajob-1-2", Path("/run-of-tests"), (2, 2, 0), "127.2.0.1", 6443)


def told() -> dict[str, str]:
    """Content of each golden file."""
    node = LAYOUT.workers[1]
    lines = [
        commands.create(LAYOUT, Path("/run-of-tests/admin.kubeconfig")),
        commands.load(LAYOUT, Path("/images/0.tar")),
        *commands.cut(node),
        *commands.heal(node),
        commands.power_off(node),
        commands.power_on(node),
        commands.export_logs(LAYOUT, Path("/kept/nodes")),
        commands.delete(LAYOUT),
        commands.guard(LAYOUT, 4711),
    ]
    return {
        "cluster.json": json.dumps(commands.cluster(LAYOUT), indent=1) + "\n",
        "commands.txt": "\n".join(map(shlex.join, lines)) + "\n",
    }


@pytest.mark.parametrize("name", sorted(told()))
def test_kind_is_told_what_is_checked_in(name: str) -> None:
    """python -m tests.unit.kubelets.test_kind_commands writes them anew."""
    assert told()[name] == (GOLDEN / name).read_text()


def test_workers_have_the_names_that_kind_gives() -> None:
    assert LAYOUT.workers == ["hajob-1-2-worker", "hajob-1-2-worker2", "hajob-1-2-worker3"]


def signalled(rank: int, job: str) -> tuple[int, str]:
    """What a node's bash answers on this machine."""
    _docker, _exec, _node, *command = commands.signal("node", rank, job, "KILL")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout


def test_a_rank_is_found_by_number_and_job() -> None:
    """On this machine's own processes: of its job alone, and what is not there is told."""
    ranks = {"one": 770_001, "two": 770_001}
    sleeping = [sys.executable, "-c", "print(flush=True); import time; time.sleep(600)"]
    made = {}
    for job, rank in ranks.items():
        environment = {**os.environ, "RANK": str(rank), "POD_NAME": f"{job}-rank-0"}
        made[job] = subprocess.Popen(sleeping, env=environment, stdout=subprocess.PIPE)
    try:
        for process in made.values():
            assert process.stdout is not None
            process.stdout.readline()
        before = time.time_ns()
        code, words = signalled(770_001, "two")
        pid, at = map(int, words.split())
        assert (code, pid) == (0, made["two"].pid)
        assert before <= at <= time.time_ns()
        assert made["two"].wait(60) == -9
        assert made["one"].poll() is None
        assert signalled(770_002, "one") == (1, "")
    finally:
        for process in made.values():
            process.kill()
            process.wait()


def test_a_cluster_goes_with_its_owner(tmp_path: Path) -> None:
    """Though its owner is killed: nobody else removes containers."""
    stub, deleted = tmp_path / "kind", tmp_path / "deleted"
    stub.write_text(f'#!/bin/sh\necho "$*" >{shlex.quote(str(deleted))}\n')
    stub.chmod(0o755)
    owner = subprocess.Popen(["sleep", "600"])
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    guard = subprocess.Popen(commands.guard(LAYOUT, owner.pid), env={"PATH": path})
    assert not deleted.exists()
    owner.kill()
    owner.wait()
    assert guard.wait(60) == 0
    assert deleted.read_text() == "delete cluster --name hajob-1-2\n"


if __name__ == "__main__":
    shutil.rmtree(GOLDEN, ignore_errors=True)
    GOLDEN.mkdir()
    for name, content in told().items():
        (GOLDEN / name).write_text(content)
