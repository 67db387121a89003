"""Containers as processes: sessions, trees, ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.nodes.grace import GracePeriod
from e2e.nodes.plan import ContainerPlan
from e2e.nodes.processes import (
    CONTAINER_MARKER,
    ProcessEntry,
    ProcessHost,
    StartError,
    catches,
    process_table,
    process_trees,
    read_command,
    read_environment,
)


def plan(script: str, directory: Path) -> ContainerPlan:
    environment = {"PATH": os.environ["PATH"], CONTAINER_MARKER: "u/c", "RANK": "3"}
    return ContainerPlan((sys.executable, "-S", "-c", script), environment, str(directory / "work"))


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(90):
        while not true():  # noqa: ASYNC110 - the machine tells nobody
            await asyncio.sleep(0.01)


async def until_written(path: Path, what: bytes) -> None:
    await until(lambda: path.exists() and what in path.read_bytes())


@pytest.fixture
async def host() -> ProcessHost:
    processes = ProcessHost(adopt=False)
    processes.install()
    return processes


async def test_an_exit_code_and_output_are_kept(host: ProcessHost, tmp_path: Path) -> None:
    process = host.start(plan("print('hello'); raise SystemExit(7)", tmp_path), tmp_path / "log", "u/c")
    async with asyncio.timeout(90):
        assert await process.exited == 7
    assert (tmp_path / "log").read_bytes() == b"hello\n"
    assert not process.alive


async def test_a_signal_is_128_and_its_number(host: ProcessHost, tmp_path: Path) -> None:
    script = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    process = host.start(plan(script, tmp_path), tmp_path / "log", "u/c")
    async with asyncio.timeout(90):
        assert await process.exited == 128 + signal.SIGSEGV


async def test_a_container_leads_a_session_found_with_its_children(host: ProcessHost, tmp_path: Path) -> None:
    script = (
        "import subprocess, sys; child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(60)']);"
        "print('up', flush=True); child.wait()"
    )
    process = host.start(plan(script, tmp_path), tmp_path / "log", "u/c")
    await until_written(tmp_path / "log", b"up")
    try:
        assert os.getsid(process.pid) == process.pid
        entries = host.members(["u/c"])["u/c"]
        assert entries[0].pid == process.pid
        assert entries[1].parent == process.pid
        assert read_environment(process.pid)["RANK"] == "3"
        assert read_command(process.pid)[0] == sys.executable
        assert host.markers() == {"u/c"}

        assert set(host.signal(["u/c"], signal.SIGSTOP)) == {entry.pid for entry in entries}
        await until(lambda: {entry.state for entry in host.members(["u/c"])["u/c"]} == {"T"})
    finally:
        host.signal(["u/c"], signal.SIGKILL)
    async with asyncio.timeout(90):
        assert await process.exited == 137


async def test_a_handler_for_a_signal_is_seen(host: ProcessHost, tmp_path: Path) -> None:
    script = "import signal; signal.signal(signal.SIGTERM, lambda *_: None); print('up', flush=True); signal.pause()"
    process = host.start(plan(script, tmp_path), tmp_path / "log", "u/c")
    await until_written(tmp_path / "log", b"up")
    assert catches(process.pid, signal.SIGTERM)
    assert not catches(process.pid, signal.SIGUSR1)
    host.signal(["u/c"], signal.SIGKILL)
    async with asyncio.timeout(90):
        await process.exited
    assert not catches(process.pid, signal.SIGTERM)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("no-such-program",), 'exec: "no-such-program": executable file not found in $PATH'),
        (("/no/such/program",), 'exec: "/no/such/program": no such file or directory'),
        (("/etc",), 'exec: "/etc": permission denied'),
        ((), "no command specified"),
    ],
)
async def test_what_cannot_start_says_why(
    host: ProcessHost, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(StartError) as raised:
        host.start(ContainerPlan(arguments, {"PATH": "/usr/bin"}, str(tmp_path)), tmp_path / "log", "u/c")
    assert message in str(raised.value)


def test_a_tree_is_all_below_its_root_that_has_not_ended() -> None:
    table = {
        entry.pid: entry
        for entry in (
            ProcessEntry(1, 0, "S", "init"),
            ProcessEntry(10, 1, "S", "node"),
            ProcessEntry(11, 10, "S", "launcher"),
            ProcessEntry(13, 12, "T", "worker"),
            ProcessEntry(12, 11, "S", "rank"),
            ProcessEntry(14, 11, "Z", "ended"),
            ProcessEntry(15, 10, "S", "adopted"),
            ProcessEntry(20, 10, "S", "stranger"),
        )
    }
    trees = process_trees(lambda entry: {11: "a", 15: "a"}.get(entry.pid), table)
    assert {marker: [entry.pid for entry in entries] for marker, entries in trees.items()} == {"a": [11, 12, 13, 15]}


def test_the_process_table_knows_this_process() -> None:
    entry = process_table()[os.getpid()]
    assert entry.parent == os.getppid()
    assert read_environment(2**22 + 1) == {}


async def test_a_grace_period_can_be_cut_short_but_not_made_longer() -> None:
    grace = GracePeriod(1000.0)
    never: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(grace.wait_for(never))
    await asyncio.sleep(0)
    grace.shorten(2000.0)
    assert grace.remaining > 900
    grace.shorten(0.0)
    async with asyncio.timeout(90):
        assert await waiting is False
    assert grace.remaining == 0.0
