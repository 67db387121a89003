"""The registration of each rank with MindIO, kept so that it can be repeated to another controller.

The bytes that make a rank known are the same for every process of it, so those of a dead one serve to name it. They
outlive this process in a directory of the pod: a rank that lost its link connects again and never registers a second
time. docs/protocols/launcher.md#another-controller
"""

from __future__ import annotations

import json
import logging
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from trainer_sidecar.agent.gate import frames
from trainer_sidecar.agent.gate.frames import Message

log = logging.getLogger(__name__)

RANK = struct.Struct("<i")
TAKEN = frozenset({0, 7})
"""Results of a registration that leave the rank known: ok, and isolated until it is repaired."""
TOLD = (frames.REGISTER, frames.COPIES, frames.DATA_PARALLEL)
_FILE: Final = "mindio-rank"
_SUFFIX: Final = ".jsonl"
SPARE_BYTES: Final = 256 * 1024
"""Of a rank's file beside its messages, before it is written anew: the changes of some thirty recoveries."""
_PLAIN: Final = ("controller", "serial", "counter", "left", "pauses", "repaired", "resumed")
_SETS: Final = ("unanswered", "answered", "awaited")
"""What is kept beside the messages and the last action; a heartbeat is not, its rank repeats it every two seconds."""
_plain: Final = attrgetter(*_PLAIN)
_sets: Final = attrgetter(*_SETS)


@dataclass(slots=True)
class Registration:
    """What one process of a rank has told.

    Attributes:
        process: Which process.
        messages: By type, those that make it known.
        unanswered: Types of those whose reply has not been passed on to it: it waits for that.
        heartbeat: Its last one, empty: none has come.
        controller: The controller that knows the rank by it.
        serial: The highest of an action that was passed down to it.
        last: That action, if this agent has passed it.
        counter: The highest repair counter that it said or was told.
        left: It has said that its training is over.
        pauses: Of the words to pause and to go on, the last one was to pause.
        answered: Types of its answers with result 0 since it last went on training.
        awaited: Types of the answers that its trainer owes.
        repaired: It has been let go on after a repair.
        resumed: They were given to a controller that is gone, and its successor may ask for the same.
    """

    process: str
    messages: dict[int, bytes] = field(default_factory=dict)
    unanswered: set[int] = field(default_factory=set)
    heartbeat: bytes = b""
    controller: str = ""
    serial: int = 0
    last: Message | None = None
    counter: int = 0
    left: bool = False
    pauses: bool = False
    answered: set[int] = field(default_factory=set)
    awaited: set[int] = field(default_factory=set)
    repaired: bool = False
    resumed: bool = False

    def has_done_action(self, action: int, *, repairs: bool) -> bool:
        """Return whether the process has done this for the controller before, and must not do it twice."""
        if not self.resumed or (action == frames.REPAIR and not repairs):
            return False
        return frames.ONCE.get(action) in self.answered

    def registration_messages(self) -> Iterator[tuple[int, bytes]]:
        """Yield type and content of the messages that make a rank known, in the order in which a rank sends them.

        The controller replies to each. Another message may come while they are being sent.
        """
        for kind in TOLD:
            if kind in self.messages:
                yield kind, self.messages[kind]


class Registrations:
    """The registrations of this pod's ranks.

    That of a rank which has none is made from another rank's, because the groups in it are the same for the whole job.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._by_rank: dict[int, Registration] = {}
        self._saved: dict[int, Registration] = {}  # by rank, that which its file holds
        self._open: dict[int, int] = {}  # by rank, the descriptor of its file
        if directory is not None:
            # Written by an agent before this one: the ranks that registered with it never register a second time.
            for path in directory.glob(f"{_FILE}-*{_SUFFIX}"):
                self._load_file(path, int(path.stem.rpartition("-")[2]))

    def registration_of(self, rank: int, process: str) -> Registration | None:
        """Return the registration of this process; None: it has not registered yet."""
        found = self._by_rank.get(rank)
        return found if found is not None and found.process == process else None

    def ranks_known_to(self, controller: str, processes: Iterable[tuple[int, str]]) -> list[int]:
        """Return the ranks of these processes that this controller knows."""
        found = ((rank, self.registration_of(rank, process)) for rank, process in processes)
        return [rank for rank, one in found if one is not None and one.controller == controller and one.messages]

    def registered_processes(self, processes: Iterable[tuple[int, str]]) -> list[tuple[int, Registration]]:
        """Return the registrations of these processes, without those that have not registered."""
        found = ((rank, self.registration_of(rank, process)) for rank, process in processes)
        return [(rank, one) for rank, one in found if one is not None and one.messages]

    @property
    def registered_ranks(self) -> list[int]:
        """Return the ranks that have registered here."""
        return list(self._by_rank)

    @property
    def highest_serial(self) -> int:
        """Return the highest serial of all."""
        return max((one.serial for one in self._by_rank.values()), default=0)

    @property
    def newest_action(self) -> Message | None:
        """The action with the highest serial; None: this agent has passed none."""
        newest = max(self._by_rank.values(), key=lambda one: (one.serial, one.last is not None), default=None)
        return newest.last if newest is not None else None

    @property
    def highest_repair_counter(self) -> int:
        """Return the highest repair counter of all."""
        return max((one.counter for one in self._by_rank.values()), default=0)

    # -- what passes the gate ----------------------------------------------------------------------------------------

    def note_rank_message(self, rank: int, process: str, message: Message) -> bool:
        """Note a message of a rank; return False if its process talks as a registered one and never registered here."""
        if message.kind == frames.REGISTER:
            self._by_rank[rank] = Registration(process, {message.kind: message.content}, {message.kind})
            return True
        kept = self.registration_of(rank, process)
        if kept is None:
            if message.kind == frames.HEARTBEAT:
                self._by_rank[rank] = kept = self.made_up_registration(rank, process)
                kept.heartbeat = message.content
            return message.kind != frames.HEARTBEAT
        if message.kind == frames.HEARTBEAT:
            self._note_heartbeat(rank, kept, message)
            return True
        kept.awaited.discard(message.kind)
        if message.kind in TOLD:
            kept.messages[message.kind] = message.content
            kept.unanswered.add(message.kind)
            self._append_to_file(rank, kept, (message.kind,))
            return True
        if message.kind == frames.NORMAL:
            kept.answered, kept.awaited, kept.resumed, kept.repaired = set(), set(), False, True
        elif message.kind == frames.PAUSED:
            (kept.answered.add if kept.pauses else kept.answered.discard)(frames.PAUSED)
        elif message.kind in frames.ANSWERS.values() and frames.parse_registration_reply(message.content)[0] == 0:
            kept.answered.add(message.kind)
        self._append_to_file(rank, kept)
        return True

    def _note_heartbeat(self, rank: int, kept: Registration, message: Message) -> None:
        """Take a heartbeat; it comes every two seconds, so save it only when the rank says that it leaves."""
        status = message.rank_status()
        if status is None:
            return
        leaves = status.left and not kept.left
        kept.heartbeat, kept.left = message.content, kept.left or status.left
        kept.counter = max(kept.counter, status.counter)
        if leaves:
            self._append_to_file(rank, kept)

    def note_passed_action(self, rank: int, process: str, controller: str, action: Message) -> None:
        """Note that the controller's action has been passed on to a rank."""
        kept = self.registration_of(rank, process)
        if kept is None:
            return
        if action.kind in frames.HANDLED:
            kept.awaited.add(frames.HANDLED[action.kind])
        if action.kind in TOLD:
            kept.unanswered.discard(action.kind)
            result, counter = frames.parse_registration_reply(action.content)
            kept.counter = max(kept.counter, counter)
            if action.kind == frames.REGISTER and result in TAKEN:
                self.note_known_to(rank, kept, controller)
        elif action.kind in (frames.PAUSE, frames.GO_ON):
            kept.pauses = action.kind == frames.PAUSE
        if action.kind not in TOLD and (serial := frames.serial_of_action(action)) > kept.serial:
            kept.serial, kept.last = serial, action
            self._append_to_file(rank, kept)

    def note_known_to(self, rank: int, registration: Registration, controller: str) -> None:
        """Note that this controller knows the rank by this registration."""
        registration.resumed = bool(registration.answered) and registration.controller != controller
        registration.controller = controller
        self._append_to_file(rank, registration)

    # -- bytes that nobody has sent ----------------------------------------------------------------------------------

    def made_up_registration(self, rank: int, process: str) -> Registration:
        """Return what a process of this rank would register: as far as known, else as another rank of the job does."""
        own = self._by_rank.get(rank)
        if own is not None:
            return Registration(process, dict(own.messages), serial=own.serial, counter=own.counter)
        other = next((one for one in self._by_rank.values() if frames.COPIES in one.messages), None)
        register = frames.HEADER.pack(frames.REGISTER, 0, RANK.size, 0, 0) + RANK.pack(rank)
        messages = {frames.REGISTER: register}
        if other is not None:
            messages |= {
                kind: _with_other_rank(other.messages[kind], rank) for kind in TOLD[1:] if kind in other.messages
            }
        return Registration(process, messages)

    # -- over a restart of this process ------------------------------------------------------------------------------

    def _append_to_file(self, rank: int, kept: Registration, told: Iterable[int] = ()) -> None:
        """Append how far a process has come, and its messages of the types in `told`, to the rank's file.

        It lies on the path of a recovery: every action and every answer changes something. Appending to an open file
        takes 0.03 ms; one that is written anew and renamed over the old one takes 1.5 ms and more, since ext4 then
        writes it out.
        """
        if self._directory is None:
            return
        try:
            if self._saved.get(rank) is not kept:  # what the file holds is another process's
                self._close_file(rank)
                self._path_of_rank(rank).unlink(missing_ok=True)
                told = kept.messages
            descriptor = self._open.get(rank)
            if descriptor is None:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                descriptor = self._open[rank] = os.open(self._path_of_rank(rank), flags, 0o600)
            os.write(descriptor, _line_of_registration(kept, told))
            self._saved[rank] = kept
            if os.lseek(descriptor, 0, os.SEEK_CUR) > SPARE_BYTES + 4 * sum(map(len, kept.messages.values())):
                self._rewrite_file(rank, kept)
        except OSError as problem:
            path = self._path_of_rank(rank)
            log.warning("what passed the gate is not kept over a restart of this agent: %s: %s", path, problem)

    def _rewrite_file(self, rank: int, kept: Registration) -> None:
        self._close_file(rank)
        new = self._path_of_rank(rank).with_suffix(".new")
        new.write_bytes(_line_of_registration(kept, kept.messages))
        new.replace(self._path_of_rank(rank))

    def _path_of_rank(self, rank: int) -> Path:
        assert self._directory is not None
        return self._directory / f"{_FILE}-{rank}{_SUFFIX}"

    def _close_file(self, rank: int) -> None:
        descriptor = self._open.pop(rank, None)
        if descriptor is not None:
            os.close(descriptor)

    def close_files(self) -> None:
        """Close the files; the next change opens its own again."""
        for rank in list(self._open):
            self._close_file(rank)

    def _load_file(self, path: Path, rank: int) -> None:
        try:
            lines = path.read_bytes().split(b"\n")
        except OSError as problem:
            log.warning("%s cannot be read: %r", path, problem)
            return
        for line in filter(None, lines):
            try:
                self._apply_saved_line(rank, json.loads(line))
            except (ValueError, LookupError, TypeError, AttributeError) as problem:
                log.warning("a line of %s cannot be read: %r", path, problem)

    def _apply_saved_line(self, rank: int, line: Sequence[Any]) -> None:
        """Continue from a line that an agent before this one has saved."""
        process, told, plain, sets, last = line
        messages = {int(kind): bytes.fromhex(text) for kind, text in told.items()}
        values = dict(zip(_PLAIN, plain, strict=True)) | dict(zip(_SETS, map(set, sets), strict=True))
        action = Message(last[0], bytes.fromhex(last[1])) if last is not None else None
        kept = self.registration_of(rank, process) or Registration(process)
        kept.messages |= messages
        kept.last = action
        for name, value in values.items():
            setattr(kept, name, value)
        self._by_rank[rank] = self._saved[rank] = kept


def _line_of_registration(kept: Registration, told: Iterable[int]) -> bytes:
    """Return a line of the file; it begins with its end of line, so that one cut off by a kill spoils no other."""
    messages = {str(kind): kept.messages[kind].hex() for kind in told}
    last = (kept.last.kind, kept.last.content.hex()) if kept.last else None
    return b"\n" + json.dumps((kept.process, messages, _plain(kept), [*map(sorted, _sets(kept))], last)).encode()


def _with_other_rank(message: bytes, rank: int) -> bytes:
    """Return the same message with another rank, which comes first in the body."""
    return message[: frames.HEADER.size] + RANK.pack(rank) + message[frames.HEADER.size + RANK.size :]
