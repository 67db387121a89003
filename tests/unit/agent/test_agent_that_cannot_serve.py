"""An agent whose port is taken: while nothing runs it ends and so says why in its pod; what runs keeps its gate."""

from __future__ import annotations

import itertools
import socket
from pathlib import Path

import grpc
import pytest

from tests.rigs.certificates import Authority
from tests.rigs.rank_pod import ADDRESS, JOB, Pod
from trainer_sidecar.agent import __main__ as entry
from trainer_sidecar.agent.clock import BootClock
from trainer_sidecar.agent.gate.registrations import Registrations
from trainer_sidecar.agent.server import make_server
from trainer_sidecar.agent.settings import AgentSettings, read_settings

TRIES = 20


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgentSettings:
    """Of an agent that can serve at its last try of many, and waits for none."""
    numbers = itertools.count(1)

    def served(*_: object) -> str:
        if next(numbers) < TRIES:
            raise OSError("taken")
        return "a server"

    monkeypatch.setattr(entry, "make_server", served)
    monkeypatch.setattr(entry, "BIND_RETRY_SECONDS", 0)
    return read_settings(Pod(tmp_path, Authority()).environment())


async def test_while_nothing_runs_it_ends(settings: AgentSettings) -> None:
    agent = entry.Agent(settings, BootClock())
    with pytest.raises(entry.CannotServeError, match="taken"):
        await agent.bind_server()


async def test_beside_ranks_it_waits_for_its_port(settings: AgentSettings) -> None:
    kept = Registrations(settings.directory)
    kept.note_known_to(2, kept.made_up_registration(2, "1.0"), "a controller")
    agent = entry.Agent(settings, BootClock())
    assert str(await agent.bind_server()) == "a server"


def test_the_kubelet_is_told_why(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    async def failing(_: AgentSettings) -> None:
        raise entry.CannotServeError("10.0.0.1:7071 is taken")

    monkeypatch.setattr(entry, "_run_agent", failing)
    monkeypatch.setattr(entry, "read_settings", lambda _: None)
    monkeypatch.setattr("sys.argv", ["agent"])
    assert entry.main() == 1
    assert "10.0.0.1:7071 is taken" in capsys.readouterr().err


async def test_a_taken_port_is_told_with_its_field(tmp_path: Path) -> None:
    authority = Authority()
    authority.write(tmp_path / "tls", f"agent.{JOB}")
    pod = Pod(tmp_path, authority)
    settings = read_settings(pod.environment())
    agent = entry.Agent(settings, BootClock())
    words = rf"{ADDRESS}:{pod.agent_port} cannot be listened on.*spec\.network\.agentPort"
    with socket.create_server((ADDRESS, pod.agent_port)), pytest.raises(OSError, match=words):
        make_server(agent.service, settings)
    assert isinstance(make_server(agent.service, settings), grpc.aio.Server)
