"""The controller host as a process, with packages named mindio_ttp that behave and misbehave."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.cluster.loopback import own_address, own_port
from tests.rigs.controller_host import PACKAGE, PATIENCE, HostClient, children_of_host
from tests.unit.pythons import MINORS, interpreter
from trainer_sidecar.controller_host.host import BACKLOG_BYTES
from trainer_sidecar.controller_protocol import LineBuffer, encode_message

ROOT = Path(__file__).resolve().parents[3]

FORGETFUL = """
import threading, time
calls, until = {}, 0.0
def tft_register_mindx_callback(name, function):
    calls[name] = function
    return 0
def tft_init_controller(rank, world, copy, enable_arf=False, enable_zit=False):
    pass
def tft_start_controller(address, port, enable_tls=True, tls_info=""):
    pass
def tft_notify_controller_stop_train(ranks, kind="stop", timeout=None):
    if time.monotonic() > until:
        threading.Thread(target=calls["report_stop_complete"], args=(0, "stop ok", ranks)).start()
    return 0
def tft_notify_controller_change_strategy(strategy, params=""):
    def report():
        global until
        until = float("inf")
        calls["report_result"](0, "ok", {}, strategy)
        until = time.monotonic() + %(forgets)s
    threading.Thread(target=report).start()
    return 0
tft_notify_controller_on_global_rank = tft_notify_controller_prepare_action = tft_notify_controller_dump = lambda *_: 0
"""


def serving(client: HostClient) -> tuple[int, int]:
    port, store_port = own_port(), own_port()
    assert client.event("hello")["state"]["controller"] == "none"
    client.start(port, store_port)
    client.state(controller="serving", store="listening")
    return port, store_port


def test_calls_and_callbacks_pass_with_their_times(host: Callable[..., HostClient]) -> None:
    client = host()
    _, store_port = serving(client)
    socket.create_connection((own_address(), store_port)).close()
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    answer = client.call("stop_train", ranks=[[2, 1]])
    assert (answer["code"], answer["call"]) == (0, "stop_train")
    assert client.event("report_fault_ranks")["arguments"] == [[[2, 1]], []]
    stopped = client.event("report_stop_complete")
    assert stopped["arguments"] == [0, "stop ok", [[2, 1]]]
    assert before <= stopped["t"] <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@pytest.mark.parametrize("minor", MINORS, ids=lambda minor: f"3.{minor}")
def test_it_serves_with_every_python(host: Callable[..., HostClient], minor: int) -> None:
    """Controller, store, a call and its callbacks, and what is refused, by whatever the image brings."""
    python = interpreter(minor)
    if python is None:
        pytest.skip(f"there is no Python 3.{minor} on this machine")
    client = host(python=python)
    assert Path(f"/proc/{client.process.pid}/exe").readlink().name == f"python3.{minor}"
    _, store_port = serving(client)
    socket.create_connection((own_address(), store_port)).close()
    assert client.call("stop_train", ranks=[[2, 1]])["code"] == 0
    assert client.event("report_stop_complete")["arguments"] == [0, "stop ok", [[2, 1]]]
    assert "TypeError: no" in client.call("prepare_action", action="hot switch", ranks=[])["exception"]


def test_refusals_and_exceptions_are_answers(host: Callable[..., HostClient]) -> None:
    client = host()
    serving(client)
    assert client.call("on_global_rank", ranks=[[2, 1]], time=1)["code"] == 1
    assert "TypeError: no" in client.call("prepare_action", action="hot switch", ranks=[])["exception"]
    assert "unknown call" in client.call("nonsense")["exception"]
    assert "KeyError" in client.call("stop_train")["exception"]


def test_the_next_coordinator_hears_the_log_since_mindios_rest(host: Callable[..., HostClient]) -> None:
    client = host()
    serving(client)
    client.call("stop_train", ranks=[[2, 1]])
    client.event("report_stop_complete")
    client.connect()
    hello = client.event("hello")
    assert hello["state"]["controller"] == "serving"
    names = [entry.get("called") or entry.get("event") or entry.get("call") for entry in hello["log"]]
    assert sorted(names) == ["report_fault_ranks", "report_stop_complete", "stop_train", "stop_train"]
    client.call("change_strategy", strategy="recover")
    client.event("report_result")
    client.connect()
    log = client.event("hello")["log"]
    assert [entry["event"] for entry in log if "event" in entry] == ["report_result"]


def test_refused_calls_do_not_push_out_how_the_incident_began(host: Callable[..., HostClient]) -> None:
    """A coordinator repeats what is refused, for as long as it is refused."""
    client = host()
    serving(client)
    client.call("stop_train", ranks=[[2, 1]])
    for _ in range(600):
        assert client.call("on_global_rank", ranks=[[2, 1]], time=1)["code"] == 1
    client.connect()
    log = client.event("hello")["log"]
    assert sorted(entry.get("called") or entry.get("event") or entry.get("call") for entry in log) == [
        "report_fault_ranks", "report_stop_complete", "stop_train", "stop_train",
    ]  # fmt: skip


def test_a_long_hello_comes_through(host: Callable[..., HostClient]) -> None:
    """The log of a wide job is larger than the backlog that a connection may have."""
    client = host()
    serving(client)
    ranks = [[rank, 1] for rank in range(10_000)]
    for _ in range(8):
        assert client.call("stop_train", ranks=ranks)["code"] == 0
    client.connect()
    log = client.event("hello")["log"]
    assert [entry["arguments"]["ranks"] == ranks for entry in log if "called" in entry] == [True] * 8
    assert len(str(log)) > 1.5 * BACKLOG_BYTES


IMPATIENT = """
import os
from trainer_sidecar.controller_host import host
host.PING_SECONDS = 0.05
host.Host(os.environ["HAJOB_DIR"]).serve_until_end()
"""


def test_a_controller_that_stands_still_is_said_and_taken_back(host: Callable[..., HostClient]) -> None:
    client = host(program=IMPATIENT)
    serving(client)
    _, child = children_of_host(client)
    for _ in range(2):
        os.kill(int(child), signal.SIGSTOP)
        state = client.state(controller="serving", kind="hung")
        assert "has not answered" in state["problem"]
        os.kill(int(child), signal.SIGCONT)
        assert client.state(controller="serving", kind="")["problem"] == ""
    client.connect()
    assert client.event("hello")["log"] == []


def test_a_controller_that_dies_is_lost_and_the_host_lives(host: Callable[..., HostClient]) -> None:
    client = host()
    serving(client)
    client.socket.sendall(encode_message({"id": 1, "call": "dump"}))
    state = client.state(controller="lost")
    assert "ended with code 3" in state["problem"]
    client.start(own_port(), own_port())
    client.state(controller="serving", store="listening")
    assert client.process.poll() is None


def test_a_new_start_is_a_new_process_and_end_ends_it(host: Callable[..., HostClient]) -> None:
    client = host()
    port, store_port = serving(client)
    store, controller = children_of_host(client)
    client.start(port, store_port)
    client.state(controller="serving", store="listening")
    assert children_of_host(client)[0] == store, "the ranks of this attempt meet at it"
    assert children_of_host(client)[1] != controller
    client.socket.sendall(encode_message({"id": 1, "call": "end", "host": True}))
    assert client.process.wait(PATIENCE) == 0


def test_the_store_outlives_its_controller_and_the_coordinator(host: Callable[..., HostClient]) -> None:
    client = host()
    _, store_port = serving(client)
    store, controller = children_of_host(client)
    with socket.create_connection((own_address(), store_port)) as rank:
        os.kill(int(controller), signal.SIGKILL)
        assert client.state(controller="lost")["store"] == "listening"
        client.connect()
        assert client.event("hello")["state"]["store"] == "listening"
        client.socket.sendall(encode_message({"id": 1, "call": "end"}))
        assert client.state()["store"] == "listening"
        assert children_of_host(client) == [store]
        assert rank.getsockname()


def test_a_store_is_there_before_a_controller(host: Callable[..., HostClient]) -> None:
    client = host()
    port, store_port = own_port(), own_port()
    client.start(port, store_port, call="store")
    assert client.state(store="listening")["controller"] == "none"
    (store,) = children_of_host(client)
    client.start(port, store_port)
    client.state(controller="serving", store="listening")
    assert store in children_of_host(client)
    client.start(port, store_port, call="store")
    assert client.state()["controller"] == "serving"


def test_what_took_another_ones_place_is_so_until_it_knows_all(host: Callable[..., HostClient]) -> None:
    """A coordinator that is restarted must not take it for the one that every rank registered with."""
    client = host()
    port, store_port = own_port(), own_port()
    client.start(port, store_port, call="store")
    assert client.state(store="listening")["unfilled"] is True
    client.wind = {"serials": 0, "counter": 0}
    client.start(port, store_port)
    state = client.state(controller="serving")
    assert (state["takes_over"], state["unfilled"]) == (True, True)
    client.connect()
    hello = client.event("hello")["state"]
    assert (hello["takes_over"], hello["unfilled"]) == (True, True)
    client.socket.sendall(encode_message({"id": 0, "call": "known"}))
    state = client.state(controller="serving")
    assert (state["takes_over"], state["unfilled"]) == (False, False)


def test_what_an_attempt_begins_with_took_nobodys_place(host: Callable[..., HostClient]) -> None:
    client = host()
    serving(client)
    client.connect()
    state = client.event("hello")["state"]
    assert (state["takes_over"], state["unfilled"]) == (False, False)


def test_another_attempt_meets_at_an_empty_store(host: Callable[..., HostClient]) -> None:
    client = host()
    port, store_port = serving(client)
    store, _ = children_of_host(client)
    client.start(port, store_port, number=2)
    client.state(controller="serving", store="listening")
    assert store not in children_of_host(client)


def test_a_dead_store_is_lost_and_comes_with_the_next_start(host: Callable[..., HostClient]) -> None:
    client = host()
    port, store_port = serving(client)
    os.kill(int(children_of_host(client)[0]), signal.SIGKILL)
    state = client.state(store="lost")
    assert (state["controller"], state["kind"]) == ("serving", "lost")
    assert "the store process was ended by signal 9" in state["problem"]
    client.start(port, store_port)
    client.state(controller="serving", store="listening")


HOLDING = """
import os, selectors, time
from trainer_sidecar.controller_host import host
KINDS = ("str", "Client", "Child")
class Holding(selectors.DefaultSelector):
    def select(self, timeout=None):
        found = super().select(timeout)
        if os.path.exists(os.path.join(os.environ["HAJOB_DIR"], "hold")):
            while os.path.exists(os.path.join(os.environ["HAJOB_DIR"], "hold")):
                time.sleep(0.001)
            found = super().select(0)
        return sorted(found, key=lambda entry: KINDS.index(type(entry[0].data).__name__))
selectors.DefaultSelector = Holding
host.Host(os.environ["HAJOB_DIR"]).serve_until_end()
"""
"""A host that, while there is a file `hold`, waits with what it is told; then it finds all of it in one look."""


def test_a_controller_dying_while_ended_ends_nothing_else(host: Callable[..., HostClient]) -> None:
    client = host(program=HOLDING)
    serving(client)
    _, child = children_of_host(client)
    hold = client.directory / "hold"
    hold.touch()
    client.socket.sendall(encode_message({"id": 1, "call": "end"}))
    os.kill(int(child), signal.SIGKILL)
    wait_gone(Path("/proc", child))
    hold.unlink()
    client.state(controller="none")
    client.start(own_port(), own_port())
    assert client.state(controller="serving", store="listening")["problem"] == ""


def wait_gone(process: Path) -> None:
    """Until all threads of a process have ended, so that its pipes are closed; nobody has reaped it yet."""
    deadline = time.monotonic() + PATIENCE
    while "\nState:\tZ" not in (process / "status").read_text() or len(list((process / "task").iterdir())) > 1:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_superseded_coordinator_orders_nothing_any_more(host: Callable[..., HostClient]) -> None:
    client = host(program=HOLDING)
    serving(client)
    hold, former = client.directory / "hold", client.socket
    hold.touch()
    client.connect()
    former.sendall(encode_message({"id": 1, "call": "end", "host": True}))
    hold.unlink()
    assert client.event("hello")["state"]["controller"] == "serving"
    assert client.call("prepare_action")["code"] == -1
    assert client.process.poll() is None


def test_sigterm_ends_the_host_and_its_controller(host: Callable[..., HostClient]) -> None:
    client = host()
    serving(client)
    client.process.send_signal(signal.SIGTERM)
    assert client.process.wait(PATIENCE) == 0


@pytest.mark.parametrize(
    ("package", "sentence"),
    [
        ("", "no usable package mindio_ttp"),
        ("raise RuntimeError('libttp.so is missing')", "libttp.so is missing"),
        ("def tft_init_controller(): pass", "lacks tft_register_mindx_callback"),
        (PACKAGE % {"start": "raise SystemExit(2)"}, "refused to start its controller"),
        (PACKAGE % {"start": "raise Exception('init failed')"}, "init failed"),
    ],
)
def test_what_is_wrong_with_the_package_is_said(host: Callable[..., HostClient], package: str, sentence: str) -> None:
    client = host(package)
    client.start(own_port(), own_port())
    assert sentence in client.state(controller="failed")["problem"]
    assert client.process.poll() is None


def test_a_taken_port_and_a_foreign_address_are_said(host: Callable[..., HostClient]) -> None:
    client = host()
    with socket.create_server((own_address(), own_port())) as taken:
        port = int(taken.getsockname()[1])
        client.start(port, own_port())
        state = client.state(controller="failed")
    assert state["kind"] == "port"
    assert f"port {port} at {own_address()}" in state["problem"]
    request = {"id": 0, "call": "start", "attempt": 2, "world_size": 4, "arf": True, "zit": False}
    place = {"address": "192.0.2.1", "port": port, "store_port": own_port(), "environment": {}}
    client.socket.sendall(encode_message({**request, **place}))
    state = client.state(controller="failed", kind="address")
    assert "192.0.2.1" in state["problem"]


@pytest.mark.parametrize(
    ("store", "sentence"),
    [
        ("store:broken", "no room"),
        ("store:nothing", "does not name a function"),
        ("", "HAJOB_STORE names no store"),
    ],
)
def test_a_store_that_does_not_serve_is_said(host: Callable[..., HostClient], store: str, sentence: str) -> None:
    client = host(store=store, PATH="/nowhere")
    client.start(own_port(), own_port())
    assert sentence in client.state(store="failed")["problem"]


MINDSPORE = """
import json, os, socket
def set_device(name):
    assert name == "CPU"
"""
COMMUNICATION = """
import json, os, socket, threading
def init():
    global memory
    memory = bytearray(200 << 20)  # as the real one, it takes the kernel some time to end
    with open(os.environ["TOLD"], "w") as file:
        json.dump({**{k: v for k, v in os.environ.items() if k.startswith("MS_")}, "pid": os.getpid()}, file)
    listener = socket.create_server((os.environ["MS_SCHED_HOST"], int(os.environ["MS_SCHED_PORT"])))
    threading.Thread(target=lambda: [listener.accept() for _ in iter(int, 1)], daemon=True).start()
"""


@pytest.fixture
def mindspore(tmp_path: Path) -> dict[str, str]:
    """A package of that name in the image, and the environment of a job that uses it."""
    package = tmp_path / "image" / "mindspore"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(MINDSPORE)
    (package / "communication.py").write_text(COMMUNICATION)
    told = str(tmp_path / "told.json")
    return {"MINDIO_FOR_MINDSPORE": "1", "MS_ROLE": "MS_WORKER", "MS_WORKER_NUM": "4", "TOLD": told}


def test_mindspores_scheduler_serves_until_the_attempt_ends(
    host: Callable[..., HostClient], mindspore: dict[str, str]
) -> None:
    client = host(store="")
    port, store_port = own_port(), own_port()
    client.start(port, store_port, number=1, **mindspore)
    client.state(controller="serving", store="listening")
    told = json.loads(Path(mindspore["TOLD"]).read_text())
    scheduler = told.pop("pid")
    wanted = {"MS_ROLE": "MS_SCHED", "MS_SCHED_HOST": own_address(), "MS_WORKER_NUM": "4"}
    assert told == {**wanted, "MS_SCHED_PORT": str(store_port)}
    assert Path(f"/proc/{scheduler}").exists()
    client.start(port, store_port, number=2, **mindspore)
    client.state(store="starting")
    assert not Path(f"/proc/{scheduler}").exists(), "the next one wants its port at once"


def test_a_scheduler_that_dies_is_said(host: Callable[..., HostClient], mindspore: dict[str, str]) -> None:
    client = host(store="")
    client.start(own_port(), own_port(), number=1, **mindspore)
    client.state(controller="serving", store="listening")
    os.kill(json.loads(Path(mindspore["TOLD"]).read_text())["pid"], signal.SIGKILL)
    assert "scheduler was ended by signal 9" in client.state(controller="serving", store="lost")["problem"]


def test_a_scheduler_that_is_done_has_a_successor(
    host: Callable[..., HostClient], mindspore: dict[str, str], tmp_path: Path
) -> None:
    """As MindSpore's: it ends with 0, and a script's second launch needs one. The host's look is its first client."""
    twice = "lambda: [listener.accept(), listener.accept(), os._exit(0)]"
    leaves = f"    threading.Thread(target={twice}, daemon=True).start()\n"
    without_last = COMMUNICATION.rstrip().rpartition("\n")[0]
    (tmp_path / "image/mindspore/communication.py").write_text(f"{without_last}\n{leaves}")
    client, store_port = host(store=""), own_port()
    client.start(own_port(), store_port, number=1, **mindspore)
    client.state(controller="serving", store="listening")
    told = Path(mindspore["TOLD"])
    first = json.loads(told.read_text())["pid"]
    told.unlink()
    socket.create_connection((own_address(), store_port)).close()
    deadline = time.monotonic() + PATIENCE
    while not (told.exists() and told.read_text().endswith("}")):
        assert time.monotonic() < deadline, "no other scheduler"
        time.sleep(0.02)
    assert json.loads(told.read_text())["pid"] != first


def test_an_image_without_mindspore_is_said(host: Callable[..., HostClient]) -> None:
    client = host(store="")
    client.start(own_port(), own_port(), MINDIO_FOR_MINDSPORE="1")
    assert "scheduler ended with code 1" in client.state(store="failed")["problem"]


def test_a_line_is_put_together_from_any_pieces() -> None:
    buffer, line = LineBuffer(), encode_message({"a": "x" * 100})
    found = [message for at in range(0, 3 * len(line), 7) for message in buffer.cut_messages((3 * line)[at : at + 7])]
    assert found == [{"a": "x" * 100}] * 3


def test_garbage_is_logged_and_the_rest_is_read(caplog: pytest.LogCaptureFixture) -> None:
    buffer = LineBuffer()
    assert buffer.cut_messages(b'{"a":1}\nnonsense\n[1]\n{"b"') == [{"a": 1}]
    assert buffer.cut_messages(b":2}\n") == [{"b": 2}]
    assert [record.args for record in caplog.records] == [(b"nonsense",), (b"[1]",)]


TORCH = """
import os
if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") != "0":
    raise RuntimeError("Failed to load the backend extension: torch_npu. libascend_hal.so: cannot open shared object")
%s
"""
TORCH_STORE = """
import socket
class TCPStore:
    def __init__(self, host, port, is_master=False, wait_for_workers=True, master_listen_fd=None, use_libuv=True):
        assert is_master and not wait_for_workers
        self.listener = socket.socket(fileno=master_listen_fd)
        if use_libuv and %r:
            self.listener.close()
            raise RuntimeError("use_libuv was requested but PyTorch was built without libuv support")
"""


def put_torch(tmp_path: Path, more: str = "", *, without_libuv: bool = False) -> None:
    package = tmp_path / "image" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(TORCH % more)
    (package / "distributed.py").write_text(TORCH_STORE % without_libuv)


@pytest.mark.parametrize("without_libuv", [False, True])
def test_torch_is_imported_without_its_device(
    host: Callable[..., HostClient], tmp_path: Path, without_libuv: bool
) -> None:
    """As in a container without driver and chip, where torch 2.5 and newer fail in the device's extension."""
    put_torch(tmp_path, without_libuv=without_libuv)
    needs_no_torch = "import sys\nassert 'torch' not in sys.modules\n" + PACKAGE % {"start": "pass"}
    client = host(needs_no_torch, store="", TORCH_DEVICE_BACKEND_AUTOLOAD="1")
    _, store_port = serving(client)
    socket.create_connection((own_address(), store_port)).close()


def test_what_torch_says_when_it_fails_is_kept(host: Callable[..., HostClient], tmp_path: Path) -> None:
    put_torch(tmp_path, "raise ImportError('libhccl.so: cannot open shared object file; source set_env.sh')")
    client = host(store="")
    client.start(own_port(), own_port())
    problem = client.state(store="failed")["problem"]
    assert "ImportError: libhccl.so: cannot open shared object file; source set_env.sh" in problem
    assert sys.executable in problem


def put_environment(tmp_path: Path) -> Path:
    """A virtual environment of the image; only its Python sees what is installed there."""
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    image = shlex.quote(str(tmp_path / "image"))
    python.write_text(f'#!/bin/sh\nPYTHONPATH={image} exec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    return python.parent


@pytest.mark.parametrize("activated", [True, False])
def test_the_python_that_has_mindio_is_found(host: Callable[..., HostClient], tmp_path: Path, activated: bool) -> None:
    place = put_environment(tmp_path)
    where = {"VIRTUAL_ENV": str(place.parent)} if activated else {"PATH": f"{place}:{os.environ['PATH']}"}
    client = host(sees_image=False, store="store:serve", **where)
    serving(client)
    assert client.call("stop_train", ranks=[[2, 1]])["code"] == 0


def test_without_mindio_the_field_for_a_python_is_named(host: Callable[..., HostClient]) -> None:
    client = host(sees_image=False)
    client.start(own_port(), own_port())
    problem = client.state(controller="failed")["problem"]
    assert "spec.coordinator.pythonPath" in problem
    assert sys.executable in problem


@pytest.mark.parametrize("forgets", [0.002, 0.03])
def test_a_controller_that_forgets_calls_is_wound_on(host: Callable[..., HostClient], forgets: float) -> None:
    """MindIO accepts them until it is at rest again, and nothing follows."""
    client = host(FORGETFUL % {"forgets": forgets})
    client.event("hello")
    client.wind = {"serials": 12, "counter": 0}
    client.start(own_port(), own_port())
    assert client.state(controller="serving", store="listening")["problem"] == ""


@pytest.mark.parametrize("forgets", [0.02, 0.3])
def test_a_stop_right_after_a_continue_is_heard(host: Callable[..., HostClient], forgets: float) -> None:
    client = host(FORGETFUL % {"forgets": forgets})
    serving(client)
    assert client.call("change_strategy", strategy="continue")["code"] == 0
    client.event("report_result")
    assert client.call("stop_train", ranks=[[2, 1]])["code"] == 0
    assert client.event("report_stop_complete")["arguments"] == [0, "stop ok", [[2, 1]]]
