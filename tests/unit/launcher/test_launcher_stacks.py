"""Programs start by way of entry.py as they do without it, and show where they stand, however they stand there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainer_sidecar.launcher import process, stacks
from trainer_sidecar.launcher.loop import Loop
from trainer_sidecar.launcher.program import Program, armed_arguments

ENTRY = Path(stacks.__file__).with_name("entry.py")
TELL = """
import json, sys
print(json.dumps({
    "argv": sys.argv, "path": sys.path[0], "names": sorted(globals()), "file": __file__, "name": __name__,
    "main": sys.modules["__main__"].__dict__ is globals(), "package": __package__, "doc": __doc__,
}))
"""


def run(*words: str, cwd: Path) -> dict[str, object]:
    done = subprocess.run([sys.executable, "-u", *words], cwd=cwd, capture_output=True, text=True, check=True)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_script_sees_what_it_sees_without(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "tell.py").write_text('"""Said."""' + TELL)
    words = ["sub/tell.py", "-m", "x"]
    assert run(str(ENTRY), *words, cwd=tmp_path) == run(*words, cwd=tmp_path)


def test_a_module_sees_what_it_sees_without(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").touch()
    (tmp_path / "pkg" / "tell.py").write_text(TELL)
    words = ["-m", "pkg.tell", "-m", "x"]
    assert run(str(ENTRY), *words, cwd=tmp_path) == run(*words, cwd=tmp_path)


def test_processes_of_the_program_find_its_functions(tmp_path: Path) -> None:
    (tmp_path / "spawns.py").write_text(
        "import json, multiprocessing\n"
        "def double(x): return 2 * x\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(json.dumps({'found': pool.map(double, [1, 2])}))\n"
    )
    assert run(str(ENTRY), "spawns.py", cwd=tmp_path) == {"found": [2, 4]}


@pytest.mark.parametrize(("ending", "code"), [("raise SystemExit(7)", 7), ("1 / 0", 1)])
def test_it_ends_as_the_program_does(tmp_path: Path, ending: str, code: int) -> None:
    (tmp_path / "ends.py").write_text(ending)
    done = subprocess.run(
        [sys.executable, str(ENTRY), "ends.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert ("ZeroDivisionError" in done.stderr) == (code == 1)


@pytest.mark.parametrize(
    ("argv", "by_entry"),
    [
        (["python3", "-u", "train.py", "a"], True),
        (["python3", "-u", "-m", "train"], True),
        (["python3", "-u", "archive.zip"], False),
    ],
)
def test_what_is_started_by_entry(argv: list[str], *, by_entry: bool) -> None:
    program = Program(argv, "/", {}, [], is_python=True)
    wanted = ["python3", "-u", "/hajob/entry.py", *argv[2:]] if by_entry else argv
    assert armed_arguments(program, "/hajob") == wanted
    assert armed_arguments(Program(argv, "/", {"HAJOB_STACKS": "off"}, [], is_python=True), "/hajob") == argv
    assert armed_arguments(Program(argv, "/", {}, [], is_python=False), "/hajob") == argv


HANGS = """
import sys, threading, time
def wait_for_ever():
    print("up", flush=True)
    {stands}
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
wait_for_ever()
"""
BLOCKED_IN_C = (
    "import ctypes; c, m = ctypes.PyDLL(None), ctypes.create_string_buffer(64); "
    "c.pthread_mutex_lock(m) or c.pthread_mutex_lock(m)"
)
"""Waits for ever in a library, with the interpreter's lock in its hand."""


@contextmanager
def hanging(tmp_path: Path, stands: str, environment: dict[str, str], entry: tuple[str, ...]) -> Iterator[int]:
    (tmp_path / "hangs.py").write_text(HANGS.format(stands=stands))
    command = [sys.executable, "-u", *entry, str(tmp_path / "hangs.py")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.readline()
        try:
            yield running.pid
        finally:
            running.kill()


def take(pid: int, environment: dict[str, str]) -> str:
    loop, found = Loop(), list[str]()

    def done(lines: list[str]) -> None:
        found.extend(lines)
        loop.stop_loop()

    stacks.Taker(loop, pid, environment, done).request_stack()
    loop.run_until_stopped()
    return "\n".join(found)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "PATH": os.defpath, **stacks.stack_variables(str(tmp_path), "rank-0.1.0")}


@pytest.mark.parametrize("stands", ["time.sleep(600)", "threading.Event().wait()", BLOCKED_IN_C])
def test_a_python_program_shows_where_it_stands(tmp_path: Path, environment: dict[str, str], stands: str) -> None:
    with hanging(tmp_path, stands, environment, (str(ENTRY),)) as pid:
        for _ in range(2):  # and again
            text = take(pid, environment)
            assert "main thread: python" in text
            assert "1 more: " in text
            assert "its Python stack, by faulthandler:" in text
            assert text.count("in wait_for_ever") == 1
            inner = [line for line in text.splitlines() if "hangs.py" in line][-2:]
            assert ["in <module>" in inner[0], "in wait_for_ever" in inner[1]] == [True, True]
        assert stacks.catches_signal(pid, stacks.SIGNAL)


def test_without_entry_nobody_is_hit_by_a_signal(tmp_path: Path, environment: dict[str, str]) -> None:
    with hanging(tmp_path, "time.sleep(600)", environment, ()) as pid:
        text = take(pid, environment)
        assert "main thread: python" in text
        assert "faulthandler" not in text
        assert Path(f"/proc/{pid}").exists()


def test_a_process_standing_still_is_told_by_the_kernel(tmp_path: Path, environment: dict[str, str]) -> None:
    with hanging(tmp_path, "time.sleep(600)", environment, (str(ENTRY),)) as pid:
        os.kill(pid, signal.SIGSTOP)
        deadline = time.monotonic() + 60
        while "T (stopped)" not in "\n".join(stacks.kernel_lines(pid)) and time.monotonic() < deadline:
            time.sleep(0.01)
        text = take(pid, environment)
        assert "main thread: python" in text
        assert "T (stopped)" in text
        assert "did not answer a signal" in text


PY_SPY = """#!/bin/sh
echo "$@"
echo 'Thread 1 (idle): "MainThread"'
echo "    wait (c.py:9)"
echo "    loop (train.py:3)"
echo 'Thread 2 (idle): "x"'
echo "no right" >&2
"""


@pytest.fixture
def with_py_spy(tmp_path: Path) -> dict[str, str]:
    tool = tmp_path / "bin" / "py-spy"
    tool.parent.mkdir()
    tool.write_text(PY_SPY)
    tool.chmod(0o755)
    return {"PATH": f"{tool.parent}:{os.defpath}"}


def test_py_spy_is_asked_where_the_image_has_it(with_py_spy: dict[str, str]) -> None:
    text = take(os.getpid(), with_py_spy)
    assert f"dump --pid {os.getpid()}" in text
    assert "no right" in text
    assert text.endswith('Thread 1 (idle): "MainThread"\n    loop (train.py:3)\n    wait (c.py:9)')


def test_py_spy_is_not_ended_when_it_has_answered(with_py_spy: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    signalled: list[int] = []
    timers: list[Callable[[], None]] = []
    monkeypatch.setattr(process, "signal_group", lambda leader, _: signalled.append(leader))
    monkeypatch.setattr(Loop, "call_after", lambda _loop, _seconds, callback: timers.append(callback))
    take(os.getpid(), with_py_spy)
    assert len(timers) == 1
    timers[0]()
    assert signalled == []


def test_a_stack_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (line,) = stacks.written_lines(str(tmp_path / "gone"), 0)
    assert line.startswith("what it wrote cannot be read: [Errno 2]")


def test_a_process_that_is_gone() -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    assert stacks.kernel_lines(gone.pid) == [f"process {gone.pid} is gone"]
