"""MindIO's own TLS at the gate: towards the controller always, towards a rank if the rank speaks it."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from e2e.cluster.loopback import own_port
from tests.rigs.agent_gate import REGISTER_MESSAGE, GateRules, heartbeat_message, mindio_message
from tests.rigs.agent_node import FakeClock
from tests.rigs.mindio_tls import (
    SecureController,
    dial_securely,
    issue_mindio_files,
    mindio_context,
    renewed_mindio_files,
    write_mindio_files,
)
from tests.rigs.rank_pod import ADDRESS, Controller, until
from trainer_sidecar.agent.gate import security
from trainer_sidecar.agent.gate.gate import Gate
from trainer_sidecar.agent.gate.passage import Passage
from trainer_sidecar.agent.gate.rules import LinkPhase
from trainer_sidecar.agent.gate.security import LinkSecurity


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return issue_mindio_files()


class SecureScene:
    """A gate with the job's certificates, and a controller that speaks TLS."""

    def __init__(self, directory: Path, files: Mapping[str, bytes]) -> None:
        self.directory = write_mindio_files(directory, files)
        self.rules = GateRules()
        self.port = own_port()
        passage = Passage(self.rules, FakeClock(), None, LinkSecurity(self.directory))
        self.gate = Gate(ADDRESS, self.port, passage)
        self.controller = SecureController(ADDRESS, mindio_context(self.directory, serves=True))

    def open(self) -> None:
        self.rules.address, self.rules.open = self.controller.address, True
        self.gate.follow_changed_order()

    async def dial(self, rank: int = 2) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(ADDRESS, self.port)
        writer.write(struct.pack("<hh4xQ", 0, 1, rank))
        return reader, writer

    async def dial_securely(self, directory: Path, rank: int = 2) -> ssl.SSLSocket:
        return await asyncio.to_thread(dial_securely, ADDRESS, self.port, mindio_context(directory, serves=False), rank)


@pytest.fixture
async def scene(tmp_path: Path, files: dict[str, bytes]) -> AsyncIterator[SecureScene]:
    made = SecureScene(tmp_path / "job", files)
    await made.gate.listen_at_port()
    yield made
    await made.gate.close_port()
    made.controller.close()


async def test_a_rank_without_tls_reaches_a_controller_with_it(scene: SecureScene) -> None:
    scene.open()
    reader, writer = await scene.dial()
    assert await reader.readexactly(2) == b"\0\0"
    writer.write(REGISTER_MESSAGE + heartbeat_message(step=7))
    await until(lambda: scene.controller.heard == REGISTER_MESSAGE + heartbeat_message(step=7), "the rank's words")
    assert scene.rules.beats == [(2, 7)]
    scene.controller.say(mindio_message(9, b"ab"))
    assert await reader.readexactly(18) == mindio_message(9, b"ab")
    writer.close()


async def test_a_rank_with_tls_is_read_as_any_other(scene: SecureScene) -> None:
    scene.open()
    link = await scene.dial_securely(scene.directory)
    assert await asyncio.to_thread(link.recv, 2) == b"\0\0"
    large = heartbeat_message(step=7) + mindio_message(77, bytes(200_000))
    await asyncio.to_thread(link.sendall, large)
    await until(lambda: scene.controller.heard == large, "the rank's words")
    assert scene.rules.beats == [(2, 7)]
    scene.controller.say(mindio_message(9, b"ab"))
    assert await asyncio.to_thread(link.recv, 18) == mindio_message(9, b"ab")
    assert scene.rules.tls == []
    link.close()
    await until(lambda: scene.gate.furthest_link_phase(2) is LinkPhase.NONE, "the end of the link")


async def test_only_the_first_rank_is_asked_what_it_speaks(scene: SecureScene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.open()
    first, _ = await scene.dial()
    assert await first.readexactly(2) == b"\0\0"
    monkeypatch.setattr(security, "HELLO_SECONDS", 3600.0)
    second, _ = await scene.dial(3)
    assert await second.readexactly(2) == b"\0\0"


async def test_other_certificates_of_a_rank_are_told_and_held(scene: SecureScene, tmp_path: Path) -> None:
    scene.open()
    foreign = write_mindio_files(tmp_path / "foreign", issue_mindio_files())
    with pytest.raises(ssl.SSLError):
        await scene.dial_securely(foreign)
    await until(lambda: scene.rules.tls == [2], "the handshake that failed")
    assert scene.controller.ranks == []


async def test_a_controller_without_tls_is_tried_until_one_has(scene: SecureScene) -> None:
    plain = Controller()
    await plain.start()
    scene.rules.address, scene.rules.open = plain.address, True
    reader, _ = await scene.dial()
    await until(lambda: plain.links == [2], "an attempt")
    assert not reader.at_eof()
    scene.open()
    assert await reader.readexactly(2) == b"\0\0"
    await plain.stop()


async def test_a_renewed_certificate_counts_from_the_next_link(scene: SecureScene, files: dict[str, bytes]) -> None:
    scene.open()
    for rank in (2, 3):
        reader, _ = await scene.dial(rank)
        assert await reader.readexactly(2) == b"\0\0"
        write_mindio_files(scene.directory, renewed_mindio_files(files))
    assert len(set(scene.controller.serials)) == 2


async def test_a_process_keeps_its_link_past_the_end_of_its_own(scene: SecureScene, files: dict[str, bytes]) -> None:
    """MindIO reads its certificate once: what it shows when it reconnects may have ended meanwhile."""
    scene.controller.close()
    old = write_mindio_files(scene.directory.parent / "old", renewed_mindio_files(files, ended=True))
    scene.controller = SecureController(ADDRESS, mindio_context(old, serves=True))
    scene.open()
    link = await scene.dial_securely(old)
    assert await asyncio.to_thread(link.recv, 2) == b"\0\0"
    link.close()
