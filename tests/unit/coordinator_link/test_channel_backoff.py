"""How often a coordinator is dialled that is not there."""

import asyncio

import pytest

from hajob.coordinator_link.channel import Channel, CoordinatorCredentials, Dialer
from hajob.leader.leadership import Leadership
from hajob.leader.probe import accepts_connection
from tests.rigs.channel_listeners import CHANNEL, DeafListener
from tests.rigs.fake_clock import FakeClock


class Absent:
    """A coordinator that is not there, and when it was looked for; it is dialled only where it answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = FakeClock()
        self.dialled: list[float] = []
        self.answers = False
        self.looked: list[float] = []
        none = CoordinatorCredentials(b"", b"", b"")
        self.channel = Channel("127.0.0.1:1", "uid", none, DeafListener(), Dialer(Leadership(), self.clock))
        monkeypatch.setattr("hajob.wire.tls.secure_channel", self._dial)
        monkeypatch.setattr(f"{CHANNEL}.accepts_connection", self._look)
        self.channel.start_dialling()

    def _dial(self, *_: object) -> None:
        self.dialled.append(self.clock.seconds)
        raise OSError("nobody")

    async def _look(self, *_: object) -> bool:
        self.looked.append(self.clock.seconds)
        return self.answers


async def test_who_is_away_for_long_is_looked_for_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = Absent(monkeypatch)
    await absent.clock.advance(25.0)
    assert len(absent.looked) >= 25, "a fault that passes costs no more than a second"
    await absent.clock.advance(600.0)
    assert not absent.dialled
    last = [at for at in absent.looked if at > absent.clock.seconds - 300]
    assert 300 / 16 - 1 <= len(last) <= 300 / 8 + 1
    await absent.channel.close_channel()


async def test_news_of_the_pod_has_it_dialled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = Absent(monkeypatch)
    await absent.clock.advance(600.0)
    before, absent.answers = len(absent.dialled), True
    absent.channel.dial_at_once()
    await absent.clock.advance(0.0)
    assert len(absent.dialled) == before + 1
    await absent.clock.advance(1.0)
    assert len(absent.dialled) >= before + 4
    await absent.channel.close_channel()


async def test_a_look_is_cheap_and_true() -> None:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert await accepts_connection("127.0.0.1", port, FakeClock())
    server.close()
    await server.wait_closed()
    assert not await accepts_connection("127.0.0.1", port, FakeClock())
