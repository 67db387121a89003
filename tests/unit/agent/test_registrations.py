"""Another controller behind the gate: it learns what the ranks registered with, and the ranks notice nothing."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from e2e.cluster.loopback import own_port
from tests.rigs.agent_gate import REGISTER_MESSAGE, GateScene, heartbeat_message, mindio_message
from tests.rigs.rank_pod import ADDRESS, until
from trainer_sidecar.agent.gate import frames
from trainer_sidecar.agent.gate.frames import Message
from trainer_sidecar.agent.gate.gate import Gate
from trainer_sidecar.agent.gate.passage import Passage
from trainer_sidecar.agent.gate.registrations import SPARE_BYTES, Registrations
from trainer_sidecar.agent.gate.rules import LinkPhase

COPIES = mindio_message(1, struct.pack("<ii???xii", 2, 1, True, True, False, 2, 0) + struct.pack("<iii", 2, 2, 3))
REPLY = struct.Struct("<iiB3x")


class MindIO:
    """A controller that replies to registrations and keeps every message."""

    def __init__(self, result: int = 0) -> None:
        self.port = own_port()
        self.result = result
        self.is_silent = False
        self.messages: list[tuple[int, bytes]] = []
        self.writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        return f"{ADDRESS}:{self.port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, ADDRESS, self.port)

    def stop(self) -> None:
        """As if it had been killed."""
        if self._server is not None:
            self._server.close()
        for writer in self.writers:
            writer.transport.abort()

    def kinds(self, rank: int = 2) -> list[int]:
        """Types of what came over the links of a rank; -1 for its connect frame."""
        return [struct.unpack_from("<h", one)[0] if one else -1 for of, one in self.messages if of == rank]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            rank = struct.unpack("<hh4xQ", await reader.readexactly(16))[2]
            self.messages.append((rank, b""))
            writer.write(b"\0\0")
            while True:
                head = await reader.readexactly(16)
                kind, _, length, _, _ = struct.unpack("<hhIII", head)
                self.messages.append((rank, head + await reader.readexactly(length)))
                if kind in (0, 1, 2) and not self.is_silent:
                    writer.write(mindio_message(kind, REPLY.pack(self.result, 3, 0)))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


class Change(GateScene):
    """A gate whose rank has registered with a controller, and another controller."""

    def __init__(self) -> None:
        super().__init__()
        self.rules.served_by = "first"
        self.first, self.second = MindIO(), MindIO()

    async def registered(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.rules.address, self.rules.open = self.first.address, True
        link = await self.dial()
        assert await link[0].readexactly(2) == b"\0\0"
        for told in (REGISTER_MESSAGE, COPIES):
            link[1].write(told)
            await link[0].readexactly(28)
        link[1].write(heartbeat_message(step=4))
        await until(lambda: 3 in self.first.kinds(), "its heartbeat")
        return link

    def has_told(self, answered: list[int]) -> bool:
        """Whether the gate says that its rank has answered these."""
        return [list(one.answered) for one in self.gate.gate_state().told] == [answered]

    def change(self, controller: MindIO, name: str = "second") -> None:
        self.rules.address, self.rules.served_by = controller.address, name
        self.gate.follow_changed_order()


@pytest.fixture
async def scene() -> AsyncIterator[Change]:
    made = Change()
    for controller in (made.first, made.second):
        await controller.start()
    await made.gate.listen_at_port()
    yield made
    await made.gate.close_port()
    for controller in (made.first, made.second):
        controller.stop()


async def test_another_controller_learns_what_the_rank_told(scene: Change) -> None:
    reader, writer = await scene.registered()
    assert scene.gate.gate_state().registered == [2]
    scene.first.stop()
    scene.change(scene.second)
    await until(lambda: 3 in scene.second.kinds(), "the last heartbeat")
    assert [one for _, one in scene.second.messages] == [b"", REGISTER_MESSAGE, COPIES, heartbeat_message(step=4)]
    await until(lambda: list(scene.gate.gate_state().registered) == [2], "the gate's word")
    writer.write(heartbeat_message(step=5))
    await until(lambda: scene.second.kinds().count(3) == 2, "the next heartbeat")
    scene.second.writers[-1].write(mindio_message(9, b"\x09\0"))
    assert await reader.readexactly(18) == mindio_message(9, b"\x09\0"), "no reply of the new one is the rank's"


async def test_the_same_controller_is_told_nothing_twice(scene: Change) -> None:
    link = await scene.registered()
    scene.first.writers[-1].transport.abort()
    await until(lambda: scene.first.kinds().count(-1) == 2, "the second link")
    await until(lambda: scene.gate.furthest_link_phase(2) is LinkPhase.LINKED, "the link")
    assert scene.first.kinds().count(0) == 1
    assert not link[0].at_eof()


async def test_nothing_of_the_former_controller_reaches_the_rank(scene: Change) -> None:
    """It was only stopped: what it had sent, and what it says when it goes on, is not for the rank."""
    reader, _ = await scene.registered()
    scene.rules.open = False
    scene.gate.follow_changed_order()
    scene.first.writers[-1].write(mindio_message(17, b"\x30\0abcd"))
    await asyncio.sleep(0.1)
    scene.rules.open = True
    scene.change(scene.second)
    await until(lambda: 3 in scene.second.kinds(), "the takeover")
    scene.second.writers[-1].write(mindio_message(11, b"\x31\0" + bytes(14)))
    assert (await reader.readexactly(32))[:2] == b"\x0b\0"


async def test_the_controllers_goodbye_is_not_passed_on(scene: Change) -> None:
    reader, _ = await scene.registered()
    farewell = mindio_message(28, b"\x05\0")
    scene.first.writers[-1].write(farewell + mindio_message(9, b"\x06\0"))
    assert await reader.readexactly(18) == mindio_message(9, b"\x06\0")
    scene.rules.over = True
    scene.first.writers[-1].write(farewell)
    assert await reader.readexactly(18) == farewell, "the job ends"


async def test_serial_and_counter_are_noted(scene: Change) -> None:
    reader, writer = await scene.registered()
    scene.first.writers[-1].write(mindio_message(21, bytes(24) + b"\x11\0" + bytes(6)) + mindio_message(9, b"\x07\0"))
    await reader.readexactly(48 + 18)
    assert (scene.gate.gate_state().serial, scene.gate.gate_state().counter) == (0x11, 3)
    writer.write(mindio_message(3, struct.pack("<iiqb3xiqq16s", 2, 9, 4, 0, 0, 0, 0, b"")))
    await until(lambda: scene.gate.gate_state().counter == 9, "the counter in a heartbeat")


async def test_a_dead_rank_is_registered_without_a_heartbeat(scene: Change) -> None:
    _, writer = await scene.registered()
    writer.close()
    await until(lambda: scene.gate.furthest_link_phase(2) is LinkPhase.NONE, "its end")
    scene.rules.dead = frozenset({2, 3, 7})
    scene.change(scene.second)
    await until(lambda: list(scene.gate.gate_state().registered) == [2, 3, 7], "all of them")
    assert [scene.second.kinds(rank) for rank in (2, 3, 7)] == [[-1, 0, 1]] * 3
    told = [one[16:] for rank, one in scene.second.messages if rank == 7 and one]
    assert told == [struct.pack("<i", 7), struct.pack("<i", 7) + COPIES[20:]], "of the groups of another rank"


async def test_a_refused_rank_is_tried_again(scene: Change) -> None:
    link = await scene.registered()
    scene.second.result = 1
    scene.change(scene.second)
    await until(lambda: scene.second.kinds().count(0) >= 2, "two attempts")
    assert not scene.gate.gate_state().registered
    scene.second.result = 0
    await until(lambda: list(scene.gate.gate_state().registered) == [2], "the third one")
    assert not link[0].at_eof()


async def test_an_agent_that_was_restarted_still_knows(scene: Change, tmp_path: Path) -> None:
    await scene.gate.close_port()
    scene.gate = Gate(ADDRESS, scene.port, Passage(scene.rules, scene.clock, Registrations(tmp_path)))
    await scene.gate.listen_at_port()
    await scene.registered()
    await scene.gate.close_port()
    scene.gate = Gate(ADDRESS, scene.port, Passage(scene.rules, scene.clock, Registrations(tmp_path)))
    await scene.gate.listen_at_port()
    scene.change(scene.second)
    _, writer = await scene.dial()
    writer.write(heartbeat_message(step=5))
    await until(lambda: 3 in scene.second.kinds(), "its heartbeat")
    assert scene.second.kinds()[:4] == [-1, 0, 1, 3]
    assert scene.gate.gate_state().counter == 3


async def test_without_memory_the_first_message_tells(scene: Change) -> None:
    """A process never registers twice: one that begins with a heartbeat has done it elsewhere."""
    scene.change(scene.second)
    scene.rules.open = True
    scene.gate.follow_changed_order()
    reader, writer = await scene.dial()
    assert await reader.readexactly(2) == b"\0\0"
    writer.write(heartbeat_message(step=5))
    await until(lambda: 0 in scene.second.kinds(), "a registration")


async def test_a_rank_that_left_in_order_is_not_taken_again(scene: Change) -> None:
    _, writer = await scene.registered()
    writer.write(heartbeat_message(step=9, run_status=11))
    await until(lambda: scene.first.kinds().count(3) == 2, "its goodbye")
    writer.close()
    reader, _ = await scene.dial()
    assert await reader.read() == b""
    scene.rules.running = "1.1"
    reader, _ = await scene.dial()
    assert await reader.readexactly(2) == b"\0\0", "another process of it is"


def _rebuilt(directory: Path, *, last: int) -> Registrations:
    """What a rank has registered with and been through in a repair up to an action and its answer."""
    kept = Registrations(directory)
    kept.note_rank_message(2, "1.0", Message(0, REGISTER_MESSAGE))
    kept.note_passed_action(2, "1.0", "first", Message(0, mindio_message(0, REPLY.pack(0, 3, 0))))
    actions = (11, 17, 19, 31, 21)
    for serial, kind in enumerate(actions[: actions.index(last) + 1], 1):
        kept.note_passed_action(2, "1.0", "first", Message(kind, action(kind, serial)))
        kept.note_rank_message(2, "1.0", Message(kind + 1, answer(kind + 1, serial)))
    return kept


def test_an_agent_that_was_restarted_knows_the_answers(tmp_path: Path) -> None:
    """Of a repair: what its rank has done must not be asked of it again by another controller."""
    _rebuilt(tmp_path, last=21)
    one = Registrations(tmp_path).registration_of(2, "1.0")
    assert one is not None
    assert (one.answered, one.awaited, one.serial) == ({12, 18, 20, 32, 22}, set(), 5)


def test_an_agent_that_was_restarted_knows_what_runs(tmp_path: Path) -> None:
    kept = _rebuilt(tmp_path, last=19)
    rebuild = Message(31, action(31, 4))
    kept.note_passed_action(2, "1.0", "first", rebuild)
    one = Registrations(tmp_path).registration_of(2, "1.0")
    assert one is not None
    assert (one.awaited, one.last) == ({32}, rebuild)


def test_an_agent_that_was_restarted_knows_of_a_pause(tmp_path: Path) -> None:
    kept = _rebuilt(tmp_path, last=11)
    kept.note_passed_action(2, "1.0", "first", Message(13, action(13, 2)))
    kept.note_rank_message(2, "1.0", Message(14, answer(14, 2)))
    one = Registrations(tmp_path).registration_of(2, "1.0")
    assert one is not None
    assert (one.pauses, 14 in one.answered) == (True, True)


def test_an_agent_that_was_restarted_knows_who_has_left(tmp_path: Path) -> None:
    kept = _rebuilt(tmp_path, last=11)
    kept.note_rank_message(2, "1.0", Message(3, heartbeat_message(step=9, run_status=11)))
    one = Registrations(tmp_path).registration_of(2, "1.0")
    assert one is not None
    assert one.left


def test_a_successor_has_not_done_what_was_kept_of_another(tmp_path: Path) -> None:
    _rebuilt(tmp_path, last=21).note_rank_message(2, "2.0", Message(0, REGISTER_MESSAGE))
    kept = Registrations(tmp_path)
    assert kept.registration_of(2, "2.0") is None
    kept.note_rank_message(2, "2.0", Message(0, REGISTER_MESSAGE))
    kept.note_rank_message(2, "2.0", Message(1, COPIES))
    one = Registrations(tmp_path).registration_of(2, "2.0")
    assert one is not None
    assert not one.answered


def test_an_unreadable_file_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "mindio-rank-2.jsonl").write_text("{")
    assert Registrations(tmp_path).registration_of(2, "1.0") is None


def test_a_change_is_appended(tmp_path: Path) -> None:
    """On the path of a recovery no file is written anew: renaming one over another has the disk write it out."""
    kept = _rebuilt(tmp_path, last=11)
    (file,) = tmp_path.iterdir()
    before = file.stat()
    kept.note_passed_action(2, "1.0", "first", Message(17, action(17, 2)))
    kept.note_rank_message(2, "1.0", Message(18, answer(18, 2)))
    (file,) = tmp_path.iterdir()
    assert file.stat().st_ino == before.st_ino
    assert file.stat().st_size > before.st_size


def test_a_line_that_was_cut_off_spoils_no_other(tmp_path: Path) -> None:
    _rebuilt(tmp_path, last=17)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-5])  # the agent was killed while it wrote
    again = Registrations(tmp_path)
    one = again.registration_of(2, "1.0")
    assert one is not None
    assert (one.answered, one.awaited, one.serial) == ({12}, {18}, 2)
    again.note_rank_message(2, "1.0", Message(18, answer(18, 2)))
    one = Registrations(tmp_path).registration_of(2, "1.0")
    assert one is not None
    assert (one.answered, one.awaited) == ({12, 18}, set())


def test_a_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    kept = _rebuilt(tmp_path, last=19)
    for serial in range(4, 4 + SPARE_BYTES // 200):
        kept.note_passed_action(2, "1.0", "first", Message(31, action(31, serial)))
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size <= SPARE_BYTES + 4 * len(REGISTER_MESSAGE) + 1000
    one = Registrations(tmp_path).registration_of(2, "1.0")
    assert one is not None
    assert (one.messages, one.answered, one.serial) == ({0: REGISTER_MESSAGE}, {12, 18, 20}, serial)


def test_a_directory_that_is_gone_costs_the_memory_only(tmp_path: Path) -> None:
    kept = Registrations(tmp_path / "gone")
    kept.note_rank_message(2, "1.0", Message(0, REGISTER_MESSAGE))
    kept.note_rank_message(2, "1.0", Message(1, COPIES))
    assert kept.registration_of(2, "1.0") is not None


def action(kind: int, serial: int) -> bytes:
    """What a controller orders, under its serial."""
    return mindio_message(kind, bytes(frames.SERIAL_AT.get(kind, 0)) + struct.pack("<H", serial) + bytes(4))


def answer(kind: int, serial: int, result: int = 0) -> bytes:
    return mindio_message(kind, struct.pack("<iH2xi", result, serial, 2))


async def test_what_was_done_for_the_former_one_is_not_done_again(scene: Change) -> None:
    reader, writer = await scene.registered()
    writer.write(answer(18, 4) + answer(20, 5, result=1) + answer(22, 6))
    await until(lambda: 22 in scene.first.kinds(), "its answers")
    told = scene.gate.gate_state().told
    assert [(one.rank, list(one.answered)) for one in told] == [(2, [18, 22])]
    scene.change(scene.second)
    await until(lambda: 3 in scene.second.kinds(), "the takeover")
    stop, lock, clean, repair = (
        mindio_message(kind, struct.pack("<H", 40 + kind) + bytes(30)) for kind in (17, 11, 19, 21)
    )
    scene.second.writers[-1].write(stop + lock + clean + repair)
    assert await reader.readexactly(len(clean + repair)) == clean + repair, "it failed, and that is not to be resumed"
    await until(lambda: 12 in scene.second.kinds(), "answers in its place")
    given = [struct.unpack_from("<hhIIIiH", one) for _, one in scene.second.messages if one[:1] in (b"\x12", b"\x0c")]
    assert [(one[0], one[5], one[6]) for one in given] == [(18, 0, 57), (12, 0, 51)]


async def test_who_is_held_is_not_held_twice(scene: Change) -> None:
    """To pause and to go on have the same answer: which of them it was is told by the controller's last word."""
    reader, writer = await scene.registered()
    for action, told in ((13, [14]), (15, []), (13, [14])):
        order = mindio_message(action, struct.pack("<H", action) + bytes(22))
        scene.first.writers[-1].write(order)
        assert await reader.readexactly(len(order)) == order
        writer.write(answer(14, action))
        await until(partial(scene.has_told, told), "its answer")
    scene.change(scene.second)
    await until(lambda: 3 in scene.second.kinds(), "the takeover")
    pause, go_on = (mindio_message(kind, struct.pack("<H", 40 + kind) + bytes(22)) for kind in (13, 15))
    scene.second.writers[-1].write(pause + go_on)
    assert await reader.readexactly(len(go_on)) == go_on
    await until(lambda: 14 in scene.second.kinds(), "an answer in its place")


async def test_a_repair_is_resumed_only_if_that_is_ordered(scene: Change) -> None:
    _, writer = await scene.registered()
    writer.write(answer(22, 6))
    await until(lambda: 22 in scene.first.kinds(), "its answer")
    scene.rules.repaired = True
    scene.change(scene.second)
    await until(lambda: 3 in scene.second.kinds(), "the takeover")
    scene.second.writers[-1].write(mindio_message(21, bytes(24) + b"\x11\0" + bytes(6)))
    await until(lambda: 22 in scene.second.kinds(), "an answer in its place")


async def test_a_rank_that_trains_again_has_done_nothing(scene: Change) -> None:
    reader, writer = await scene.registered()
    writer.write(answer(18, 4) + mindio_message(26, struct.pack("<iH2xq", 0, 5, -1) + heartbeat_message()[16:]))
    await until(lambda: 26 in scene.first.kinds(), "its answers")
    scene.change(scene.second)
    await until(lambda: 3 in scene.second.kinds(), "the takeover")
    scene.second.writers[-1].write(mindio_message(17, b"\x30\0abcd"))
    assert (await reader.readexactly(22))[:1] == b"\x11"


async def test_a_rank_between_two_links_has_registered_all_the_same(scene: Change) -> None:
    _, writer = await scene.registered()
    scene.rules.open = False
    writer.close()
    await until(lambda: scene.gate.furthest_link_phase(2) is LinkPhase.NONE, "the end of its link")
    assert [one.rank for one in scene.gate.gate_state().told] == [2]
    scene.rules.running = "1.1"
    assert not scene.gate.gate_state().told, "its successor has not"


async def test_a_process_that_is_named_late_registers_under_its_name(scene: Change) -> None:
    """The launcher's word may come after the rank's, when this agent was restarted."""
    scene.rules.running, scene.rules.address = "", scene.first.address
    reader, writer = await scene.dial()
    await until(lambda: scene.gate.furthest_link_phase(2) is LinkPhase.AT_GATE, "the held link")
    scene.rules.running, scene.rules.open = "1.0", True
    scene.gate.follow_changed_order()
    assert await reader.readexactly(2) == b"\0\0"
    writer.write(REGISTER_MESSAGE)
    await reader.readexactly(28)
    assert [one.rank for one in scene.gate.gate_state().told] == [2]


async def test_a_handler_that_runs_is_told_and_its_end_as_well(scene: Change) -> None:
    reader, writer = await scene.registered()
    rebuild = mindio_message(31, struct.pack("<H", 40) + bytes(30))
    scene.first.writers[-1].write(rebuild)
    await reader.readexactly(len(rebuild))
    assert [one.busy for one in scene.gate.gate_state().told] == [True]
    scene.first.stop()
    await until(lambda: scene.gate.furthest_link_phase(2) is not LinkPhase.LINKED, "the loss")
    told = len(scene.rules.changes)
    writer.write(answer(32, 40))
    await until(lambda: not scene.gate.gate_state().told[0].busy, "its answer")
    assert len(scene.rules.changes) > told


async def test_a_handler_that_ends_after_its_controllers_node_is_told(scene: Change) -> None:
    """Nobody closes a connection to a node without power: the link looks as it did, though nothing may pass."""
    reader, writer = await scene.registered()
    rebuild = mindio_message(31, struct.pack("<H", 40) + bytes(30))
    scene.first.writers[-1].write(rebuild)
    await reader.readexactly(len(rebuild))
    scene.rules.open = False
    scene.gate.follow_changed_order()
    told = len(scene.rules.changes)
    writer.write(answer(32, 40))
    await until(lambda: not scene.gate.gate_state().told[0].busy, "its answer")
    assert scene.gate.furthest_link_phase(2) is LinkPhase.LINKED
    assert len(scene.rules.changes) > told


async def test_what_the_former_one_told_others_is_told(scene: Change) -> None:
    """Under the serial that the others have, once, and only while no controller is named."""
    reader, writer = await scene.registered()
    scene.first.writers[-1].write(mindio_message(23, bytes(14) + b"\x07\0" + bytes(8)))
    await reader.readexactly(16 + 24)
    writer.write(mindio_message(24, bytes(12)))
    await until(lambda: scene.has_told([24]), "its answer")
    word = mindio_message(25, b"\x08\0")
    scene.rules.word, scene.rules.untold = Message(25, word), frozenset({2})
    scene.gate.follow_changed_order()
    assert [one.serial for one in scene.gate.gate_state().told] == [0], "a controller is there"
    scene.rules.address = scene.rules.served_by = ""
    scene.gate.follow_changed_order()
    scene.gate.follow_changed_order()
    assert await reader.readexactly(len(word)) == word
    state = scene.gate.gate_state()
    assert ([one.serial for one in state.told], state.action, state.word) == ([8], 25, word)
    writer.write(mindio_message(26, bytes(72)))
    await until(lambda: scene.has_told([]), "that it trains")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.readexactly(1), 0.05)


@pytest.mark.parametrize(
    "told", [(REGISTER_MESSAGE,), (REGISTER_MESSAGE, COPIES)], ids=["registers", "tells its copies"]
)
async def test_a_reply_that_the_former_one_owes_is_given(scene: Change, told: tuple[bytes, ...]) -> None:
    """It ends between a rank's message and its reply: the rank would wait for ever, and never be ready."""
    scene.rules.address, scene.rules.open = scene.first.address, True
    reader, writer = await scene.dial()
    assert await reader.readexactly(2) == b"\0\0"
    for message_ in told[:-1]:
        writer.write(message_)
        await reader.readexactly(28)
    scene.first.is_silent = True
    writer.write(told[-1])
    await until(lambda: len(scene.first.kinds()) == 1 + len(told), "its last message")
    scene.first.stop()
    scene.change(scene.second)
    reply = await asyncio.wait_for(reader.readexactly(28), 60)
    assert struct.unpack_from("<h", reply)[0] == len(told) - 1
    await until(lambda: list(scene.gate.gate_state().registered) == [2], "its registration")
    writer.write(heartbeat_message(step=5))
    await until(lambda: 3 in scene.second.kinds(), "its heartbeat")
    assert scene.second.kinds() == [-1, *range(len(told)), 3], "and nothing is told twice"


async def test_what_it_registers_with_in_between_is_answered(scene: Change) -> None:
    scene.rules.address, scene.rules.open = scene.first.address, True
    reader, writer = await scene.dial()
    assert await reader.readexactly(2) == b"\0\0"
    writer.write(REGISTER_MESSAGE)
    await reader.readexactly(28)
    scene.first.stop()
    scene.rules.open = False
    scene.rules.address = scene.rules.served_by = ""
    scene.gate.follow_changed_order()
    writer.write(COPIES)
    await until(
        lambda: any(one.unanswered for _, one in scene.gate.passage.registrations.registered_processes([(2, "1.0")])),
        "that it is heard",
    )
    scene.rules.open = True
    scene.change(scene.second)
    reply = await asyncio.wait_for(reader.readexactly(28), 60)
    assert struct.unpack_from("<h", reply)[0] == 1
