"""Bodies of actions and of their answers, between the bytes on the wire and the words of the two sides.

An *action* of the controller carries its serial and what the rank needs; its *answer* carries result, serial and rank
in 12 bytes, or in 72 with the rank's account behind them (docs/protocols/mindio.md §9.6). The real package's structs
have C's padding, which is why some fields stand where they do.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ._wire import HEARTBEAT, Heartbeat, Message, frame

Arguments = dict[str, Any]
M = Message

SERIAL = struct.Struct("<H")
LOCK = struct.Struct("<H6xq")
TYPED = struct.Struct("<HI")
RENAME = struct.Struct("<iH2x")
PAUSE = struct.Struct("<H6xq?7x")
SAVE = struct.Struct("<iIqH?x")
SAVE_SIZE = 24
REPAIR = struct.Struct("<iII4xqH2xI")
UNIT = struct.Struct("<iihhh2x")
ROLLBACK = struct.Struct("<qihHI")
ROLLBACK_SIZE = 24
REBUILD = struct.Struct("<IiH2x")
DOWNGRADE = REBUILD
SHORT_ANSWER = struct.Struct("<iH2xi")
LONG_ANSWER = struct.Struct("<iH2xq")
REPLICAS = struct.Struct("<ii???x")
DATA_PARALLEL = struct.Struct("<iI")

#: Numbers of the kinds of repair; anything else is none of them.
KINDS = {"dump": 0, "retry": 1, "recover": 2, "upgrade": 3, "downgrade": 4}
NO_KIND = 5
KIND_NAMES = {number: name for name, number in KINDS.items()}
ROLL_BACK = 4
EVERYBODY = -1
"""The group of a downgrade that holds all that remain."""


@dataclass(frozen=True)
class Answer:
    """What a rank answers: `beat` and the step of a checkpoint it has loaded (-1: none) only in the long form."""

    result: int
    serial: int
    rank: int
    loaded: int = -1
    beat: Heartbeat | None = None


def _numbers(values: Iterable[int]) -> bytes:
    found = list(values)
    return struct.pack(f"<{len(found)}i", *found)


def _read(body: bytes, at: int, count: int) -> list[int]:
    return list(struct.unpack_from(f"<{count}i", body, at))


def _text(text: str) -> bytes:
    data = text.encode() + b"\0"
    return struct.pack("<i", len(data)) + data


def _read_text(body: bytes, at: int) -> str:
    (length,) = struct.unpack_from("<i", body, at)
    return body[at + 4 : at + 4 + length].rstrip(b"\0").decode()


def _groups(groups: Sequence[tuple[int, Sequence[int]]]) -> bytes:
    return b"".join(_numbers((kind, len(ranks), *ranks)) for kind, ranks in groups)


def _read_groups(body: bytes, at: int, count: int) -> tuple[list[tuple[int, list[int]]], int]:
    found = []
    for _ in range(count):
        kind, size = _read(body, at, 2)
        found.append((kind, _read(body, at + 8, size)))
        at += 8 + 4 * size
    return found, at


def _serial_only(serial: int, _arguments: Arguments) -> bytes:
    return SERIAL.pack(serial)


def _lock(serial: int, arguments: Arguments) -> bytes:
    return LOCK.pack(serial, arguments["step"])


def _typed(serial: int, arguments: Arguments) -> bytes:
    return TYPED.pack(serial, KINDS.get(arguments["type"], NO_KIND))


def _rename(serial: int, arguments: Arguments) -> bytes:
    return RENAME.pack(arguments["rank"], serial)


def _pause(serial: int, arguments: Arguments) -> bytes:
    return PAUSE.pack(serial, arguments.get("step", 0), arguments.get("raise", False))


def _save(serial: int, arguments: Arguments) -> bytes:
    groups = [(entry["type"], entry["ranks"]) for entry in arguments["info"]]
    head = SAVE.pack(arguments["counter"], len(groups), arguments["step"], serial, True)
    return _padded(head + _groups(groups), SAVE.size, SAVE_SIZE)


def _padded(body: bytes, used: int, size: int) -> bytes:
    """C counts a struct's own padding into a length, although what follows stands before it."""
    return body + bytes(size - used)


def _repair(serial: int, arguments: Arguments) -> bytes:
    info = arguments["info"]
    kind = KINDS.get(arguments["type"], NO_KIND)
    units = list(zip(info["src"], info["dst"], info["type"], strict=True))
    head = REPAIR.pack(arguments["counter"], kind, len(units), arguments["step"], serial, len(info["rank_list"]))
    body = b"".join(UNIT.pack(source, to, 0, group, info["repair_type"]) for source, to, group in units)
    tail = _text(arguments["params"]) if "params" in arguments else b""
    return head + _numbers(info["rank_list"]) + body + tail


def _rollback(serial: int, arguments: Arguments) -> bytes:
    text = arguments["params"].encode() + b"\0" if "params" in arguments else b""
    head = ROLLBACK.pack(arguments["step"], arguments["counter"], ROLL_BACK, serial, len(text))
    return _padded(head + text, ROLLBACK.size, ROLLBACK_SIZE)


def _rebuild(serial: int, arguments: Arguments) -> bytes:
    head = REBUILD.pack(len(arguments["ranks"]), arguments["counter"], serial)
    tail = _text(arguments["params"]) if "params" in arguments else b""
    return head + _numbers(arguments["ranks"]) + tail


def _downgrade(serial: int, arguments: Arguments) -> bytes:
    groups = [(EVERYBODY, arguments["remaining"]), (0, arguments["group"])]
    head = DOWNGRADE.pack(len(groups), arguments["counter"], serial)
    return head + _groups(groups) + _text(arguments["params"])


PACK: dict[Message, Callable[[int, Arguments], bytes]] = {
    M.COLLECT: _serial_only,
    M.NORMAL: _serial_only,
    M.EXIT: _serial_only,
    M.DESTROY: _serial_only,
    M.LOCK: _lock,
    M.STOP: _typed,
    M.CLEAN: _typed,
    M.RENAME: _rename,
    M.PAUSE: _pause,
    M.CONTINUE: _pause,
    M.SAVE: _save,
    M.REPAIR: _repair,
    M.UPGRADE_REPAIR: _repair,
    M.ROLLBACK: _rollback,
    M.UPGRADE_ROLLBACK: _rollback,
    M.REBUILD: _rebuild,
    M.UPGRADE_REBUILD: _rebuild,
    M.DOWNGRADE_REBUILD: _downgrade,
}


def action(kind: Message, serial: int, arguments: Arguments) -> bytes:
    """An order of the controller, header and body."""
    return frame(kind, PACK[kind](serial, arguments))


def _read_serial(body: bytes) -> tuple[int, Arguments]:
    return SERIAL.unpack(body)[0], {}


def _read_lock(body: bytes) -> tuple[int, Arguments]:
    serial, step = LOCK.unpack(body)
    return serial, {"step": step}


def _read_typed(body: bytes) -> tuple[int, Arguments]:
    serial, kind = TYPED.unpack(body)
    return serial, {"type": KIND_NAMES.get(kind, "")}


def _read_rename(body: bytes) -> tuple[int, Arguments]:
    rank, serial = RENAME.unpack(body)
    return serial, {"rank": rank}


def _read_pause(body: bytes) -> tuple[int, Arguments]:
    serial, step, hot = PAUSE.unpack(body)
    return serial, {"step": step, "raise": hot}


def _read_save(body: bytes) -> tuple[int, Arguments]:
    counter, count, step, serial, _ = SAVE.unpack_from(body)
    groups, _ = _read_groups(body, SAVE.size, count)
    info = [{"type": kind, "ranks": ranks} for kind, ranks in groups]
    return serial, {"counter": counter, "step": step, "info": info}


def _read_repair(body: bytes) -> tuple[int, Arguments]:
    counter, kind, count, step, serial, ranks = REPAIR.unpack_from(body)
    begin = REPAIR.size + 4 * ranks
    units = [UNIT.unpack_from(body, begin + UNIT.size * index) for index in range(count)]
    info = {
        "type": [unit[3] for unit in units],
        "repair_type": units[0][4] if units else 0,
        "src": [unit[0] for unit in units],
        "dst": [unit[1] for unit in units],
        "rank_list": _read(body, REPAIR.size, ranks),
    }
    found = {"counter": counter, "step": step, "info": info, "type": KIND_NAMES.get(kind, "")}
    end = begin + UNIT.size * count
    return serial, found | ({"params": _read_text(body, end)} if end < len(body) else {})


def _read_rollback(body: bytes) -> tuple[int, Arguments]:
    step, counter, _, serial, length = ROLLBACK.unpack_from(body)
    text = body[ROLLBACK.size : ROLLBACK.size + length].rstrip(b"\0").decode()
    return serial, {"step": step, "counter": counter, "params": text}


def _read_rebuild(body: bytes) -> tuple[int, Arguments]:
    count, counter, serial = REBUILD.unpack_from(body)
    end = REBUILD.size + 4 * count
    found: Arguments = {"ranks": _read(body, REBUILD.size, count), "counter": counter}
    return serial, found | ({"params": _read_text(body, end)} if end < len(body) else {})


def _read_downgrade(body: bytes) -> tuple[int, Arguments]:
    count, counter, serial = DOWNGRADE.unpack_from(body)
    groups, end = _read_groups(body, DOWNGRADE.size, count)
    of = dict(reversed(groups))
    return serial, {
        "remaining": of[EVERYBODY],
        "group": of.get(0, []),
        "counter": counter,
        "params": _read_text(body, end),
    }


UNPACK: dict[Message, Callable[[bytes], tuple[int, Arguments]]] = {
    M.COLLECT: _read_serial,
    M.NORMAL: _read_serial,
    M.EXIT: _read_serial,
    M.DESTROY: _read_serial,
    M.LOCK: _read_lock,
    M.STOP: _read_typed,
    M.CLEAN: _read_typed,
    M.RENAME: _read_rename,
    M.PAUSE: _read_pause,
    M.CONTINUE: _read_pause,
    M.SAVE: _read_save,
    M.REPAIR: _read_repair,
    M.UPGRADE_REPAIR: _read_repair,
    M.ROLLBACK: _read_rollback,
    M.UPGRADE_ROLLBACK: _read_rollback,
    M.REBUILD: _read_rebuild,
    M.UPGRADE_REBUILD: _read_rebuild,
    M.DOWNGRADE_REBUILD: _read_downgrade,
}


def parse_action(kind: int, body: bytes) -> tuple[int, Arguments]:
    """Serial and arguments of an order; `struct.error` for a wrong length."""
    return UNPACK[Message(kind)](body)


def answer(kind: Message, found: Answer) -> bytes:
    """A rank's answer, under the type of the answer."""
    if found.beat is None:
        return frame(kind, SHORT_ANSWER.pack(found.result, found.serial, found.rank))
    return frame(kind, LONG_ANSWER.pack(found.result, found.serial, found.loaded) + found.beat.pack())


def parse_answer(body: bytes) -> Answer:
    """The reverse, by its length; `struct.error` when it is neither."""
    if len(body) == LONG_ANSWER.size + HEARTBEAT.size:
        result, serial, loaded = LONG_ANSWER.unpack_from(body)
        beat = Heartbeat.unpack(body[LONG_ANSWER.size :])
        return Answer(result, serial, beat.rank, loaded, beat)
    return Answer(*SHORT_ANSWER.unpack(body))


def replicas(rank: int, groups: Sequence[Arguments], *, arf: bool, retry: bool, zit: bool) -> bytes:
    """What a rank tells of its groups: copies and shifts of all, then each one's ranks."""
    counts = [group["replica_cnt"] for group in groups]
    shifts = [group["replica_shift"] for group in groups]
    lists = b"".join(_numbers((len(group["rank_list"]), *group["rank_list"])) for group in groups)
    return REPLICAS.pack(rank, len(groups), arf, retry, zit) + _numbers(counts + shifts) + lists


def parse_replicas(body: bytes) -> tuple[list[Arguments], dict[str, bool]]:
    """Groups, and what the rank has enabled."""
    _, count, arf, retry, zit = REPLICAS.unpack_from(body)
    counts, shifts = _read(body, REPLICAS.size, count), _read(body, REPLICAS.size + 4 * count, count)
    at, groups = REPLICAS.size + 8 * count, []
    for copies, shift in zip(counts, shifts, strict=True):
        (size,) = _read(body, at, 1)
        groups.append({"rank_list": _read(body, at + 4, size), "replica_cnt": copies, "replica_shift": shift})
        at += 4 + 4 * size
    return groups, {"uce": retry, "arf": arf, "zit": zit}


def data_parallel(rank: int, ranks: Sequence[int]) -> bytes:
    """The pure data-parallel group of a rank."""
    return DATA_PARALLEL.pack(rank, len(ranks)) + _numbers(ranks)


def parse_data_parallel(body: bytes) -> list[int]:
    """The ranks of the group."""
    return _read(body, DATA_PARALLEL.size, DATA_PARALLEL.unpack_from(body)[1])
