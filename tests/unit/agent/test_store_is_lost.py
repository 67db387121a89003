"""The store is lost under its clients, at the worst moment there is, once and again: none of them may notice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from e2e.cluster.loopback import own_port
from tests.rigs.rank_pod import ADDRESS, until
from tests.rigs.store_gate import StoreGateRules
from tests.unit.agent.key_store import KeyStore, StoreClient
from trainer_sidecar import store_protocol
from trainer_sidecar.agent.clock import BootClock
from trainer_sidecar.agent.store import gate as store_gate
from trainer_sidecar.agent.store.gate import StoreGate
from trainer_sidecar.coordinator.state.store_keeping import StoreKeeping
from trainer_sidecar.store_protocol import EARLIER, LATER, Dialect

BOTH = pytest.mark.parametrize("job", [EARLIER, LATER], indirect=True, ids=["earlier", "later"])


class Watch:
    """The pods' clock. It stands still while they tell what was written: to the coordinator all of that is one moment.

    How wrong an age may be where telling takes its time, tests/unit/coordinator/test_store_keeping.py shows.
    """

    def __init__(self) -> None:
        self._machine, self._stands_at = BootClock(), 0

    def now(self) -> int:
        return self._stands_at or self._machine.now()

    def stop(self) -> None:
        self._stands_at = self._machine.now()

    def go_on(self) -> None:
        self._stands_at = 0


class Job:
    """Pods whose gates lead to one store, and to the one after it; the test is their coordinator."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect, self.watch = dialect, Watch()
        self.number = 1
        self.store = KeyStore(dialect)
        self.pods = [self._pod(), self._pod()]
        self.clients: list[StoreClient] = []

    def _pod(self) -> StoreGate:
        rules = StoreGateRules()
        rules.address, rules.name, rules.open = self.store.address, "1/1", True
        return StoreGate(ADDRESS, own_port(), rules, self.watch)

    def rules(self, pod: int) -> StoreGateRules:
        """What that pod's agent would decide."""
        rules = self.pods[pod].rules
        assert isinstance(rules, StoreGateRules)
        return rules

    async def start(self) -> None:
        await self.store.listen()
        for pod in self.pods:
            await pod.listen_at_port()

    async def client(self, pod: int = 0) -> StoreClient:
        client = StoreClient(self.dialect)
        await client.connect(self.pods[pod].port)
        self.clients.append(client)
        return client

    async def lose(self, *, dies: bool = True) -> StoreKeeping:
        """The store dies, or is cut off; what was in it is told to the coordinator, which holds everybody."""
        if dies:
            await self.store.die()
        keeping = StoreKeeping()
        keeping.begin_gathering("word", 100.0)
        for number, pod in enumerate(self.pods):
            self.rules(number).open = False
            pod.follow_changed_order()
        self.watch.stop()
        for number, pod in enumerate(self.pods):
            for part in pod.take_content("word"):
                keeping.add_content(str(number), part, 100.0)
        self.watch.go_on()
        keeping.finish_gathering([str(number) for number in range(len(self.pods))], 100.0)
        self.number += 1
        self.store = KeyStore(self.dialect)
        return keeping

    async def fill(self, keeping: StoreKeeping) -> None:
        """Another one holds it, and is in service."""
        assert not keeping.problem
        if keeping.is_store_held:
            keeping.begin_filling()
            self.store.fill(keeping.take_fill())
        await self.serve(kept=True)

    async def serve(self, *, kept: bool) -> None:
        """The order names the other store, which holds what the lost one held, or is empty."""
        await self.store.listen()
        for number, pod in enumerate(self.pods):
            rules = self.rules(number)
            rules.address, rules.name, rules.kept, rules.open = self.store.address, f"1/{self.number}", kept, True
            pod.follow_changed_order()

    async def change_stores(self) -> None:
        await self.fill(await self.lose())

    async def stop(self) -> None:
        for client in self.clients:
            client.writer.close()
        for pod in self.pods:
            await pod.close_port()
        await self.store.die()


@pytest.fixture
async def job(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Job]:
    monkeypatch.setattr(store_gate, "DYING_SECONDS", 0.01)
    made = Job(getattr(request, "param", EARLIER))
    await made.start()
    yield made
    await made.stop()


@BOTH
async def test_a_wait_outlives_several_losses(job: Job) -> None:
    waiting, other = await job.client(), await job.client(1)
    waiting.say("wait", b"root", b"more")
    assert await other.add(b"count") == 1
    for count in (2, 3, 4):
        await job.change_stores()
        assert await other.add(b"count") == count
    other.say("set", b"more", b"")
    other.say("set", b"root", b"info")
    assert await waiting.reader.readexactly(1) == b"\0"
    assert await waiting.get(b"root") == b"info"
    assert await waiting.add(b"count") == 5


@BOTH
async def test_a_request_is_sent_once_to_each_store(job: Job) -> None:
    """It was to be sent anew when that store was lost, too: twice would be two answers, of which one is too many."""
    client, other = await job.client(), await job.client(1)
    assert await client.add(b"count") == 1
    job.store.answers.clear()
    client.say("add", b"count", number=1)
    await until(lambda: job.store.carried_out["add", b"count"] == 2, "the second count")
    await job.change_stores()
    assert await client.number() == 2
    assert await other.add(b"count") == 3
    assert job.store.carried_out["add", b"count"] == 2


async def test_stores_that_die_while_they_are_told_again(job: Job) -> None:
    """Each reads nothing and dies: the requests that were not answered are there for the next one, each once."""
    clients = [await job.client() for _ in range(2)]
    large = b"x" * (3 << 20)
    job.store.answers.clear()
    for client in clients:
        client.say("compare_set", b"large", large, large)
    await until(lambda: job.store.carried_out["compare_set", b"large"] == 2, "both requests")
    for _ in range(3):
        keeping = await job.lose()
        job.store.reads.clear()
        await job.fill(keeping)
        await asyncio.sleep(0.05)
    await job.change_stores()
    for client in clients:
        assert await client.value() == large
        assert await client.add(b"count") in (1, 2)
    assert job.store.carried_out["compare_set", b"large"] == 2


@BOTH
async def test_a_half_sent_request_is_sent_whole_to_the_next(job: Job) -> None:
    client, other = await job.client(), await job.client(1)
    assert await client.add(b"count") == 1
    whole = client.request("set", b"key", b"v" * 200_000)
    client.writer.write(whole[:100_000])
    assert await other.add(b"count") == 2
    keeping = await job.lose()
    client.writer.write(whole[100_000:] + client.request("add", b"count", number=1)[:7])
    await job.fill(keeping)
    client.writer.write(client.request("add", b"count", number=1)[7:])
    assert await client.number() == 3
    assert await other.get(b"key") == b"v" * 200_000


@BOTH
async def test_an_answer_half_received_comes_whole(job: Job) -> None:
    client, other = await job.client(), await job.client(1)
    value = b"0123456789" * 1000
    other.say("set", b"key", value)
    assert await client.get(b"key") == value
    job.store.half_answers = True
    job.store.answers.clear()
    client.say("get", b"key")
    await until(lambda: job.store.carried_out["get", b"key"] == 2, "the request")
    await asyncio.sleep(0.02)
    await job.change_stores()
    assert await client.value() == value


async def test_answers_in_single_bytes_stay_whole(job: Job) -> None:
    client, value = await job.client(), bytes(range(256)) * 4
    job.store.piece = 1
    client.say("set", b"key", value)
    assert await client.get(b"key") == value
    await job.change_stores()
    job.store.piece = 3
    assert await client.get(b"key") == value


async def test_a_client_of_the_filling_is_served_after_it(job: Job) -> None:
    """A rank that is started meanwhile has written nothing, and finds everything."""
    client = await job.client()
    assert await client.add(b"count") == 1
    keeping = await job.lose()
    late = await job.client()
    late.say("add", b"count", number=1)
    await asyncio.sleep(0.02)
    await job.fill(keeping)
    assert await late.number() == 2
    assert await client.add(b"count") == 3


async def test_what_is_deleted_and_compared_stays_so(job: Job) -> None:
    client, other = await job.client(), await job.client(1)
    client.say("set", b"root", b"old")
    assert await other.get(b"root") == b"old"
    other.say("delete", b"root")
    assert await other.number() == 1
    client.say("compare_set", b"lock", b"", b"mine")
    assert await client.value() == b"mine"
    other.say("compare_set", b"lock", b"", b"yours")
    assert await other.value() == b"mine"
    client.say("compare_set", b"absent", b"same", b"same")
    assert await client.value() == b"same", "torch answers so, and writes nothing"
    await job.change_stores()
    assert job.store.content == {b"lock": b"mine"}


async def test_a_count_whose_answer_was_lost_counts_once(job: Job) -> None:
    """The lost store had carried it out, nobody was told: the next one has not."""
    client, other = await job.client(), await job.client(1)
    assert await other.add(b"count") == 1
    job.store.answers.clear()
    client.say("add", b"count", number=1)
    await until(lambda: job.store.content[b"count"] == b"2", "the count")
    await job.change_stores()
    assert await client.number() == 2


async def test_two_clients_of_one_rank_keep_apart(job: Job) -> None:
    """Torch opens one for each group; what one waits for does not hold the other up, before and after a loss."""
    waiting, busy = await job.client(), await job.client()
    assert await busy.add(b"count") == 1
    waiting.say("wait", b"root")
    await job.change_stores()
    assert await busy.add(b"count") == 2
    busy.say("set", b"root", b"info")
    assert await waiting.reader.readexactly(1) == b"\0"


async def test_a_client_that_leaves_without_a_store_is_let_go(job: Job) -> None:
    """A killed rank's connections do not stay until the pod ends."""
    client = await job.client()
    assert await client.add(b"count") == 1
    keeping = await job.lose()
    client.writer.transport.abort()
    await job.fill(keeping)
    other = await job.client(1)
    assert await other.add(b"count") == 2
    await until(lambda: not job.pods[0].links, "the end of the link")


async def test_the_next_store_at_the_same_address(job: Job) -> None:
    """A pod's address is given to another pod: a store that answers there need not be the one that has ended."""
    client = await job.client()
    assert await client.add(b"count") == 1
    port = job.store.port
    keeping = await job.lose()
    job.store = KeyStore(job.dialect, port)
    await job.store.listen()
    await asyncio.sleep(0.3)
    await job.store.die()
    job.store = KeyStore(job.dialect, port)
    await job.fill(keeping)
    assert await client.add(b"count") == 2


async def test_a_late_word_of_a_lost_store_does_not_count(job: Job) -> None:
    """Its node is cut off from the coordinator only: what it counts after the gates have told is in no account."""
    client, other, lost = await job.client(), await job.client(1), job.store
    assert await other.add(b"count") == 1
    lost.answers.clear()
    client.say("add", b"count", number=1)
    await until(lambda: lost.content[b"count"] == b"2", "the count")
    keeping = await job.lose(dies=False)
    lost.answers.set()
    await asyncio.sleep(0.02)
    await job.fill(keeping)
    assert await client.number() == 2
    assert job.store.content[b"count"] == b"2"
    await lost.die()


@pytest.mark.parametrize("turns", range(8))
async def test_a_gate_that_closes_before_all_is_said_again(job: Job, turns: int) -> None:
    """The next store but one hears it once."""
    client, other = await job.client(), await job.client(1)
    job.store.answers.clear()
    client.say("add", b"count", number=1)
    await until(lambda: job.store.carried_out["add", b"count"] == 1, "the count")
    keeping = await job.lose()
    await asyncio.sleep(0.05)
    job.store.answers.clear()
    await job.fill(keeping)
    for _ in range(turns):
        await asyncio.sleep(0)
    job.rules(0).open = False
    await asyncio.sleep(0.05)
    await job.change_stores()
    assert await client.number() == 1
    assert await other.add(b"count") == 2
    assert await client.add(b"count") == 3


async def test_a_client_that_has_said_nothing_yet_may_still(job: Job) -> None:
    silent = await job.client()
    await until(lambda: any(link.bound for link in job.pods[0].links), "its connection")
    await job.change_stores()
    assert await silent.add(b"count") == 1


async def test_an_answer_too_large_to_be_read_is_passed_on(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another pod has written it; the client gets it, and what its own pod writes is not known any more."""
    client, value = await job.client(), b"x" * 5000
    assert await client.add(b"count") == 1
    job.store.content[b"key"] = value
    monkeypatch.setattr(store_protocol, "LARGEST", 4096)
    client.say("get", b"key")
    assert await client.value() == value
    assert "not known" in next(job.pods[0].take_content("word")).problem


async def test_workers_of_mindspore_dial_anew(job: Job) -> None:
    """Their messages pass unread; a connection that stayed would never register anew."""
    said = store_protocol.SCHEDULER_MAGIC + b"\0\0\0\1 a message"
    reader, writer = await asyncio.open_connection(ADDRESS, job.pods[0].port)
    for piece in (said[:2], said[2:9], said[9:]):
        writer.write(piece)
        await asyncio.sleep(0.01)
    assert await reader.readexactly(len(said)) == said
    keeping = await job.lose()
    assert keeping.problem == store_gate.SCHEDULER_FORGETS
    assert await reader.read() == b""
    writer.close()
    reader, writer = await asyncio.open_connection(ADDRESS, job.pods[0].port)
    writer.write(said)
    await job.serve(kept=False)
    assert await reader.readexactly(len(said)) == said
    writer.close()
