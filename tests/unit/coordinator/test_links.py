"""The coordinator's links: an exception of the core does not end them, and a hang-up is not answered in haste."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hajob.protocol.addresses import host_port
from hajob.wire import tls
from tests.rigs.rank_pod import PATIENCE, until
from trainer_sidecar import controller_protocol
from trainer_sidecar.controller_protocol import SOCKET_NAME
from trainer_sidecar.coordinator.core import CoordinatorCore
from trainer_sidecar.coordinator.shell import agents, controller
from trainer_sidecar.coordinator.shell.agents import AgentLink, Agents, Dials
from trainer_sidecar.coordinator.shell.controller import ControllerLink
from trainer_sidecar.coordinator.state.job import Endpoint

HELLO: controller_protocol.Message = {"event": "hello", "state": {}, "log": []}
STATE: controller_protocol.Message = {"event": "state", "state": {}}


class Core:
    """Notes what it hears; what stands in `broken` raises."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.broken: set[str] = set()

    def hear(self, what: str) -> None:
        self.heard.append(what)
        if what in self.broken:
            raise KeyError(what)

    def apply_controller_hello(self, _state: Mapping[str, Any], _log: list[Mapping[str, Any]], _now: float) -> None:
        self.hear("hello")

    def apply_controller_state(self, _state: Mapping[str, Any], _now: float) -> None:
        self.hear("state")

    def note_lost_controller_host(self, _now: float) -> None:
        self.hear("unreachable")

    def note_refused_controller_host(self, _text: str) -> None:
        self.hear("refused")

    def note_disconnected_agent(self, _uid: str, _now: float, *, refused: bool) -> None:
        self.hear(f"disconnected {refused}")


def agents_of(core: Core, directory: Path) -> Agents:
    settings: Any = SimpleNamespace(job_uid="job", tls_directory=directory)
    return Agents(settings, cast("CoordinatorCore", core), lambda: None)


class Host:
    """The controller host's end, by hand."""

    def __init__(self, directory: Path) -> None:
        self._listener = controller_protocol.listen_on_socket(str(directory), SOCKET_NAME)

    async def accept(self, *messages: controller_protocol.Message) -> socket.socket:
        async with asyncio.timeout(PATIENCE):
            connection, _ = await asyncio.get_running_loop().sock_accept(self._listener)
        connection.sendall(b"".join(controller_protocol.encode_message(message) for message in messages))
        return connection

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def core() -> Core:
    return Core()


@pytest.fixture
async def host(tmp_path: Path, core: Core) -> AsyncIterator[Host]:
    """A host, and a link that dials it."""
    host = Host(tmp_path)
    link = ControllerLink(tmp_path, cast("CoordinatorCore", core), lambda: None)
    yield host
    await link.close_connection()
    host.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "AFTER_ERROR_SECONDS", 0.01)
    monkeypatch.setattr(agents, "BACKOFF_SECONDS", (0.01,))


async def test_core_error_loses_the_controller_and_redials(
    host: Host, core: Core, caplog: pytest.LogCaptureFixture
) -> None:
    core.broken = {"state"}
    await host.accept(HELLO, STATE)
    await until(lambda: "unreachable" in core.heard, "the word that it is lost")
    assert core.heard == ["hello", "state", "unreachable"]
    assert "Traceback" in caplog.text
    core.broken = set()
    await host.accept(HELLO, STATE)
    await until(lambda: len(core.heard) == 5, "the second connection")
    assert core.heard[3:] == ["hello", "state"]


async def test_not_even_the_word_that_it_is_lost_ends_the_dialling(host: Host, core: Core) -> None:
    core.broken = {"hello", "unreachable"}
    await host.accept(HELLO)
    await host.accept(HELLO)
    await until(lambda: core.heard.count("unreachable") == 2, "the second word that it is lost")


async def test_malformed_host_message_is_an_error(host: Host, core: Core) -> None:
    await host.accept(HELLO, {"event": "report_result"})
    await host.accept(HELLO)
    await until(lambda: len(core.heard) == 3, "the second connection")
    assert core.heard == ["hello", "unreachable", "hello"]


async def test_a_host_that_hangs_up_is_dialled_after_a_pause(
    host: Host, core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is away when it never says hello, though its socket takes every connection."""
    slept: list[float] = []
    real_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await real_sleep(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(controller, "LOST_SECONDS", 0.0)
    for _ in range(10):
        (await host.accept()).close()
    assert slept.count(controller.REDIAL_SECONDS) >= 9
    assert core.heard == ["unreachable"]


async def test_a_link_to_an_agent_outlives_an_exception(
    tmp_path: Path, core: Core, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    conversations = 0

    async def converse(_link: AgentLink) -> bool:
        nonlocal conversations
        conversations += 1
        core.hear("said")
        return True

    monkeypatch.setattr(AgentLink, "_run_stream", converse)
    core.broken = {"said", "disconnected False"}
    link = AgentLink("uid-1", "127.0.0.1:1", agents_of(core, tmp_path))
    await until(lambda: conversations >= 3, "the third conversation")
    assert core.heard[:4] == ["said", "disconnected False"] * 2
    assert "Traceback" in caplog.text
    await link.close_stream()


async def test_a_bounded_number_of_agents_is_dialled_at_once(
    tmp_path: Path, core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of handshakes side by side would keep the loop from its leases."""
    dialling, most, done = 0, 0, 0

    async def greet(_link: AgentLink, _channel: object) -> None:
        nonlocal dialling, most, done
        dialling, most = dialling + 1, max(most, dialling + 1)
        await asyncio.sleep(0.001)
        dialling, done = dialling - 1, done + 1
        raise TimeoutError

    monkeypatch.setattr(AgentLink, "_exchange_hellos", greet)
    monkeypatch.setattr(tls, "read_tls_files", lambda _: (b"", b"", b""))
    monkeypatch.setattr(tls, "secure_channel", lambda *_: contextlib.nullcontext())
    everyone = agents_of(core, tmp_path)
    everyone.dials = Dials(first=3, again=2)
    links = [AgentLink(f"uid-{n}", "127.0.0.1:1", everyone) for n in range(20)]
    await until(lambda: done >= 60, "three rounds")
    assert most <= 5
    await asyncio.gather(*(link.close_stream() for link in links))


async def test_agents_that_do_not_answer_hold_up_no_new_one(
    tmp_path: Path, core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    greeted: list[str] = []

    async def greet(link: AgentLink, _channel: object) -> None:
        greeted.append(link.uid)
        if greeted.count(link.uid) > 1:
            await asyncio.Event().wait()
        raise TimeoutError

    monkeypatch.setattr(AgentLink, "_exchange_hellos", greet)
    monkeypatch.setattr(tls, "read_tls_files", lambda _: (b"", b"", b""))
    monkeypatch.setattr(tls, "secure_channel", lambda *_: contextlib.nullcontext())
    everyone = agents_of(core, tmp_path)
    everyone.dials = Dials(first=1, again=1)
    silent = [AgentLink(f"silent-{n}", "127.0.0.1:1", everyone) for n in range(3)]
    await until(lambda: len(greeted) >= 4, "their second attempt")
    new = AgentLink("new", "127.0.0.1:1", everyone)
    await until(lambda: "new" in greeted, "the new one")
    await asyncio.gather(*(link.close_stream() for link in [*silent, new]))


@pytest.mark.parametrize(
    ("address", "written"), [("10.0.0.1", "10.0.0.1:7071"), ("fd00::1", "[fd00::1]:7071"), ("pod-0", "pod-0:7071")]
)
def test_an_ipv6_address_is_dialled_in_brackets(address: str, written: str) -> None:
    assert host_port(address, 7071) == written
    assert Endpoint(address, 7071, 7071).store_address == Endpoint(address, 7071, 7071).controller_address == written
