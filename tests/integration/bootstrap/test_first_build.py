"""The first build on a bad day: interrupted, without network, with a full disk. The next run goes on.

Go is played by a script, because the real builds take minutes; what surrounds it is real.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from e2e.bootstrap.binaries import BINARIES
from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.processes import Process

GO = """#!/bin/sh
case "$1" in
env) echo go1.26.8; exit ;;
list) [ -z "$FAKE_NETWORK" ] || { echo "dial tcp 127.0.0.1:9: connect: connection refused" >&2; exit 1; }; exit ;;
esac
while [ "$1" != -o ]; do shift; done
echo "$2" >> "$FAKE_LOG"
case "$2" in
*"${FAKE_FAILS:-none}"*) echo "write $GOTMPDIR/x: no space left on device" >&2; exit 1 ;;
*"${FAKE_HANGS:-none}"*) echo $$ > "$FAKE_LOG.pid"; exec sleep 600 ;;
esac
echo binary > "$2"
"""
PROGRAM = """
import sys
from e2e.bootstrap import build, setup
from e2e.bootstrap.problems import SetupError
setup.environment.is_complete = lambda: True
build.GIBIBYTES = 0
try:
    setup.set_up(cluster=True)
except SetupError as error:
    sys.exit(str(error))
"""


class Machine:
    """A machine with a Go that does what the test wants and nothing built yet."""

    def __init__(self, directory: Path) -> None:
        self.cache = directory / "cache"
        self.log = directory / "built"
        go = directory / "path" / "go"
        go.parent.mkdir()
        go.write_text(GO)
        go.chmod(0o755)
        self.environment = {
            "PATH": f"{go.parent}:/usr/bin:/bin",
            "HAJOB_CACHE": str(self.cache),
            "FAKE_LOG": str(self.log),
            "HOME": "/nonexistent",
        }

    def start(self, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            cwd=CHECKOUT,
            env=self.environment | environment,
            stderr=subprocess.PIPE,
            text=True,
        )

    def set_up(self, **environment: str) -> tuple[int, str]:
        process = self.start(**environment)
        _, error = process.communicate(timeout=60)
        return process.returncode, error

    def built(self) -> list[str]:
        """Names of the programs that Go was asked for, since the last call."""
        lines = self.log.read_text().split() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return [Path(line).name.removeprefix(".").rpartition("-3.7.3")[0] or kubernetes_name(line) for line in lines]

    def finished(self) -> list[str]:
        return sorted(path.name for path in (self.cache / "bin").iterdir()) if (self.cache / "bin").exists() else []


def kubernetes_name(line: str) -> str:
    return Path(line).name.removeprefix(".").rpartition("-1.36.3")[0]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


ALL = [binary.name for binary in BINARIES]


def test_everything_is_built_once_and_the_caches_are_removed(machine: Machine) -> None:
    code, words = machine.set_up()
    assert code == 0, words
    assert machine.built() == ALL
    assert len(machine.finished()) == len(ALL)
    assert not (machine.cache / "build").exists()
    assert "building kube-apiserver 1.36.3: done in" in words

    assert machine.set_up() == (0, "")
    assert machine.built() == []


def test_without_network_it_says_so_and_the_next_run_goes_on(machine: Machine) -> None:
    code, words = machine.set_up(FAKE_NETWORK="gone")
    assert code == 1
    assert "The network or the registry does not answer. Connect, or set GOPROXY" in words
    assert machine.set_up()[0] == 0


def test_a_full_disk_is_named_and_what_was_built_stays(machine: Machine) -> None:
    code, words = machine.set_up(FAKE_FAILS="kubectl")
    assert code == 1
    assert "The disk is full" in words
    assert machine.built() == ["etcd", "kube-apiserver", "kubectl"]

    assert machine.set_up()[0] == 0
    assert machine.built() == ["kubectl", "kube-controller-manager", "kube-scheduler"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_build_leaves_nothing_half_made(machine: Machine, number: signal.Signals) -> None:
    process = machine.start(FAKE_HANGS="kubectl")
    pid_file = machine.log.with_name("built.pid")
    while not (pid_file.exists() and pid_file.read_text().strip()):
        assert process.poll() is None
        time.sleep(0.02)
    compiler = Process.of(int(pid_file.read_text()))
    os.kill(process.pid, number)
    process.communicate(timeout=30)
    assert compiler.wait_gone(10)
    assert len(machine.finished()) == 2
    machine.built()

    assert machine.set_up()[0] == 0
    assert machine.built() == ["kubectl", "kube-controller-manager", "kube-scheduler"]


def test_two_set_ups_at_once_build_once(machine: Machine) -> None:
    processes = [machine.start(), machine.start()]
    words = [process.communicate(timeout=60)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], words
    assert machine.built() == ALL
