"""What happens to a job whose desk breaks by an error of this program: another desk, from what the server has."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc.aio
import pytest

from hajob.api import constants as names
from hajob.runtime.channel import Channel, Credentials
from hajob.runtime.core import Caches, Core
from hajob.runtime.desk import Desk
from hajob.sources.pod import view
from tests.unit.runtime.runtime_fakes import unreachable
from tests.unit.runtime.test_desk import NAMESPACE, Town, settled

UID = "uid-1"


class Hall:
    """A core with one job."""

    def __init__(self, town: Town) -> None:
        self.town = town
        self.core = Core(town._world(), Caches())
        self.core.pods_complete()
        self.core.job_seen(town.stored())

    @property
    def desk(self) -> Desk | None:
        return self.core._desks.get(UID)

    async def show_pods(self) -> None:
        for (resource, _, _), body in sorted(self.town.kube.objects.items()):
            if resource == "pods":
                self.core.pod_changed(view(body), deleted=False)
        await settled()


@pytest.fixture
async def hall() -> AsyncIterator[Hall]:
    town = Town()
    await town.desk.close()
    made = Hall(town)
    await settled()
    yield made
    await made.core.close()


async def broken_by(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """The desk fails at the next pod it sees."""
    desk = hall.desk
    assert desk is not None

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(desk, "pod_seen", fail)
    await hall.show_pods()
    return desk


async def test_a_desk_that_fails_is_opened_anew_from_the_journal(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    await hall.show_pods()
    before = hall.desk.state if hall.desk else None
    broken = await broken_by(hall, monkeypatch)
    assert hall.desk is None
    hall.core.job_seen(hall.town.stored())  # from a cache that may be older than the last write
    assert hall.desk is None
    await hall.town.clock.advance(1.0)
    await settled()
    assert hall.desk not in {None, broken}
    assert hall.desk is not None
    assert hall.desk.state == before
    await hall.show_pods()
    assert len(hall.town.pods()) == 5


async def test_a_desk_whose_task_ends_with_an_error_is_opened_anew(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = hall.desk
    assert broken is not None

    async def fail() -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(broken._status._writer, "_send", fail)
    broken._publish()
    broken._announce("Something", "has changed", False)
    broken._status.current = broken._status.current.model_copy(update={"incarnation": 77})
    broken._status._put()
    await settled()
    assert hall.desk is None
    await hall.town.clock.advance(1.0)
    await settled()
    assert hall.desk not in {None, broken}


async def test_what_cannot_be_opened_again_makes_the_process_unhealthy(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broken_by(hall, monkeypatch)
    hall.town.kube.fail(*[unreachable()] * 100)
    await hall.town.clock.advance(20.0)
    assert hall.core.unhealthy() == ""
    await hall.town.clock.advance(20.0)
    assert hall.core.unhealthy() == "the desk of job quickstart is broken: RuntimeError: a bug"
    hall.town.kube.failures.clear()
    await hall.town.clock.advance(60.0)
    await settled()
    assert hall.desk is not None
    assert hall.core.unhealthy() == ""


async def test_a_broken_desk_of_a_deleted_job_is_forgotten(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    await broken_by(hall, monkeypatch)
    await hall.core.job_released(UID)
    del hall.town.kube.objects[names.PLURAL, NAMESPACE, "quickstart"]
    await hall.town.clock.advance(60.0)
    assert hall.desk is None
    assert hall.core.unhealthy() == ""


async def test_a_listener_that_fails_does_not_end_the_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    channel = Channel("127.0.0.1:1", UID, Credentials(b"", b"", b""), None, lambda: 1)  # type: ignore[arg-type]

    async def fail(_: object) -> str:
        raise KeyError("bug")

    monkeypatch.setattr(channel, "_dial", lambda: grpc.aio.insecure_channel("127.0.0.1:1"))
    monkeypatch.setattr(channel, "_read", fail)
    assert await channel._converse() == "an error of this program: KeyError: 'bug'"
