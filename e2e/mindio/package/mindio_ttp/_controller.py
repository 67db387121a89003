"""The controller: what it knows, what the network tells it, and how it gives orders.

One lock guards everything; its condition wakes the state machine, which runs on a thread of its own and is the only
one that gives orders or calls back. Reading from links happens on the server's thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from . import _bodies as bodies
from . import _machine as machine
from . import _settings as settings
from . import _wire as wire
from ._machine import State
from ._mindx import MindX
from ._names import FAULT_OF_STATE, ReportState, Status
from ._ranks import Rank
from ._replicas import Replicas, make_group
from ._server import Link, Server
from ._tls import Material
from ._wire import Heartbeat, Message

REFUSED = 1
NO_ANSWER, NO_LINK = 98, 99


@dataclass(frozen=True)
class Reply:
    """How an action ended on a rank: a result of the wire, `NO_ANSWER` or `NO_LINK`; some bring the rank's account."""

    result: int
    loaded: int = -1
    beat: Heartbeat | None = None


@dataclass
class Pending:
    """A repair that has not been reported as a success yet."""

    strategy: str
    step: int
    at_once: bool = False


@dataclass
class Flags:
    """What the controller was started with."""

    rank: int
    world_size: int
    local_copy: bool
    arf: bool
    zit: bool


@dataclass
class Incident:
    """Everything that belongs to the fault in hand."""

    strategy: str = ""
    step: int = 0
    locked: bool = True
    params: str = ""
    claimed: str = ""  # the word under which a success is told, when it is not the strategy's


class Controller:
    """One controller of one job; `start` may be called once."""

    def __init__(self, flags: Flags) -> None:
        self.flags = flags
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.mindx = MindX(self.changed)
        self.ranks: dict[int, Rank] = {}
        self.replicas = Replicas(flags.world_size)
        self.rank_flags: dict[int, dict[str, bool]] = {}
        self.retry_enabled = False
        self.errors: dict[int, int] = {}
        self.codes: dict[int, str] = {}
        self.named: set[int] = set()
        self.found: dict[int, int] = {}
        self.counter = 0
        self.state = State.INIT
        self.incident = Incident()
        self.pending: Pending | None = None
        self.scaled_in: set[int] = set()
        self.upgrade_params: str | None = None
        self.hot_ranks: set[int] = set()
        self.incoming: dict[int, Rank] = {}
        self.hot_offered = self.pause_failed = False
        self.alarm = self.orderly_end = self.closing = False
        self.server: Server | None = None
        self._serial = settings.first_serial()
        self._answers: dict[int, dict[int, Reply]] = {}
        self._awaited: set[int] = set()
        self._thread: threading.Thread | None = None

    # ---- life

    def start(
        self, address: str, port: int, work: dict[State, Callable[[Controller], str]], tls: Material | None = None
    ) -> None:
        """Listen and begin; `OSError` when the address cannot be had."""
        self.server = Server(self, address, port, tls)
        self.mindx.look()
        self.server.start()
        self._thread = threading.Thread(target=machine.run, args=(self, work), name="mindio-machine", daemon=True)
        self._thread.start()

    @property
    def started(self) -> bool:
        """Whether `start` has succeeded."""
        return self._thread is not None

    def destroy(self) -> None:
        """Tell every linked rank, stop serving, end the state machine."""
        with self.lock:
            self.closing = True
            links = [r.link for r in self.ranks.values() if r.link is not None]
            self.changed.notify_all()
        for link in links:
            link.send(bodies.action(Message.DESTROY, self.next_serial(), {}))
        if self.server is not None:
            self.server.stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5.0)

    def enter(self, state: State) -> None:
        """The state machine is in `state` now; how a registration is taken depends on it."""
        with self.lock:
            self.state = state

    def is_closing(self) -> bool:
        """Whether the controller is being destroyed."""
        return self.closing

    # ---- what the network tells (server's thread)

    def admit(self, rank: int) -> bool:
        """Whether a rank of that number may connect."""
        with self.lock:
            if rank in self.hot_ranks and rank not in self.incoming and self.server is not None:
                self.server.keep_beside(rank)
            return 0 <= rank < self.flags.world_size

    def opened(self, link: Link) -> None:
        """A link is open; it belongs to the process that registered, or to one that will."""
        with self.lock:
            entry = self.ranks.setdefault(link.rank, Rank(link.rank))
            if link.rank in self.hot_ranks and link.rank not in self.incoming and entry.link is not None:
                self.incoming[link.rank] = Rank(link.rank, link=link)
            elif link.rank in self.incoming:
                self.incoming[link.rank].link = link
            else:
                entry.link = link
            self.changed.notify_all()

    def closed(self, link: Link) -> None:
        """A link is gone."""
        with self.lock:
            for entry in (self.ranks.get(link.rank), self.incoming.get(link.rank)):
                if entry is not None and entry.link is link and not link.stolen:
                    entry.link = None
                    if not settings.on("closed_link_no_fault") and entry.status is Status.NORMAL:
                        entry.state, self.alarm = ReportState.RS_UNKNOWN, True
            self.changed.notify_all()

    def received(self, link: Link, kind: int, body: bytes) -> None:
        """One message of a rank."""
        with self.lock:
            if kind == Message.HEARTBEAT:
                beat = Heartbeat.unpack(body)
                if beat.ended:
                    self._ended_in_order(link.rank)
                else:
                    self._heartbeat(link, beat)
            elif kind in wire.ANSWERS:
                found = bodies.parse_answer(body)
                if found.serial in self._answers and not link.contested:
                    self._answers[found.serial][link.rank] = Reply(found.result, found.loaded, found.beat)
                    self._awaited.discard(link.rank)
                    if not self._awaited:  # the state machine has no use for a single answer of many
                        self.changed.notify_all()
            elif kind == Message.REGISTER:
                self._register(link)
            elif kind == Message.REPLICAS:
                self._replicas(link, *bodies.parse_replicas(body))
            elif kind == Message.DATA_PARALLEL:
                self.replicas.data_parallel[link.rank] = tuple(sorted(bodies.parse_data_parallel(body)))
                link.send(wire.frame(Message.DATA_PARALLEL, wire.REPLY.pack(0, self.counter, 0)))

    def entry_of(self, link: Link) -> Rank:
        """The record that a link speaks for."""
        coming = self.incoming.get(link.rank)
        return coming if coming is not None and coming.link is link else self.ranks[link.rank]

    def _heartbeat(self, link: Link, beat: Heartbeat) -> None:
        entry = self.entry_of(link)
        if not entry.registered and settings.on("restarted_blind"):
            return
        entry.registered = True
        before = entry.status, entry.state
        entry.take(beat)
        if (entry.status, entry.state) != before or self.pending is not None:
            fault = entry.state in FAULT_OF_STATE
            self.alarm = self.alarm or fault or bool(self.incoming)
            self.changed.notify_all()

    def _register(self, link: Link) -> None:
        entry = self.entry_of(link)
        hot = entry is not self.ranks[link.rank]
        quiet = self.state in {State.INIT, State.NORMAL, State.DOWNGRADE}
        lost = link.rank in self.errors or entry.state in FAULT_OF_STATE  # silence is only looked at in NORMAL
        early = entry.registered and quiet and not hot and not lost
        allowed = quiet or hot or lost or entry.status is Status.ISOLATED
        allowed = allowed or not settings.on("early_register_refused")
        allowed = allowed and not (early and not settings.on("early_restart_invisible"))
        asking = self.state is State.ABNORMAL and lost and not hot
        allowed = allowed and not (asking and not settings.on("registers_before_strategy"))
        if allowed:
            entry.renew(isolated=hot or (lost and not (quiet and link.rank not in self.errors)))
        isolated = allowed and entry.status is Status.ISOLATED and not hot
        result = wire.ISOLATED if isolated else 0 if allowed else REFUSED
        link.send(wire.frame(Message.REGISTER, wire.REPLY.pack(result, self.shown_counter(), int(hot))))
        self.changed.notify_all()

    def imagine_everybody(self) -> None:
        """Make a record for every rank of the world, registered or not."""
        for number in range(self.flags.world_size):
            self.ranks.setdefault(number, Rank(number))

    def shown_counter(self) -> int:
        """The repair counter as ranks are told."""
        if settings.on("counter_never_reset") or self.state is not State.NORMAL:
            return self.counter
        return 0

    def _replicas(self, link: Link, told: list[dict[str, Any]], flags: dict[str, bool]) -> None:
        groups = [make_group(g["rank_list"], g["replica_cnt"], g["replica_shift"]) for g in told]
        for group in groups:
            if not any(one.ranks == group.ranks for known in self.replicas.by_rank.values() for one in known):
                settings.log(f"rank:{link.rank}, report group list: {list(group.ranks)}")
        if groups:
            self.replicas.by_rank[link.rank] = groups
        self.rank_flags[link.rank] = flags
        self.retry_enabled = flags["uce"]
        link.send(wire.frame(Message.REPLICAS, wire.REPLY.pack(0, self.counter, 0)))

    def _ended_in_order(self, rank: int) -> None:
        if settings.on("ended_is_no_fault"):
            self.ranks[rank].status = Status.GONE
        self.orderly_end = True

    # ---- orders (state machine's thread)

    def linked(self, *, but: Iterable[int] = ()) -> list[int]:
        """Every registered rank with an open link, sorted."""
        skip = set(but)
        with self.lock:
            ranks = sorted(self.ranks.values(), key=lambda r: r.number)
            return [
                r.number
                for r in ranks
                if r.registered and r.link is not None and r.status is not Status.GONE and r.number not in skip
            ]

    def next_serial(self) -> int:
        """The serial of the next action; 0 when there is none left."""
        with self.lock:
            if self._serial > settings.LAST_SERIAL and settings.on("serials_end"):
                return 0
            self._serial += 1
            return (self._serial - 1) % 65536

    def order(
        self, kind: Message, arguments: dict[int, dict[str, Any]], seconds: float | None = None
    ) -> dict[int, Reply]:
        """Give one action to some ranks and collect their answers.

        A rank without a link is passed over (`NO_LINK`). Whoever has one is waited for, also when it is lost
        meanwhile: the answer is `NO_ANSWER` after `seconds` (the action limit unless given).
        """
        serial = self.next_serial()
        if serial == 0:
            return dict.fromkeys(arguments, Reply(wire.ERROR))
        with self.lock:
            links = {number: self.ranks[number].link for number in arguments}
            self._answers[serial] = {}
        for told, (number, link) in enumerate(links.items(), 1):
            if link is not None:
                link.send(bodies.action(kind, serial, {"counter": self.counter} | arguments[number]))
            settings.die_after(kind, told)
        limit = settings.action_seconds() if settings.on("slow_handler_fails") else 3600.0
        return self.gather(serial, links, limit if seconds is None else seconds)

    def gather(self, serial: int, links: dict[int, Link | None], seconds: float) -> dict[int, Reply]:
        """Wait for the answers to `serial`."""
        end = time.monotonic() + seconds
        with self.lock:
            answers = self._answers[serial]
            while not self.closing:
                open_ones = [n for n, link in links.items() if n not in answers and link and self._is_awaited(link)]
                left = end - time.monotonic()
                if not open_ones or left <= 0:
                    break
                self._awaited = set(open_ones)
                self.changed.wait(left)
            del self._answers[serial]
            for number, link in links.items():
                if link is not None and number not in answers:
                    self.ranks[number].available = False
        missing = {n: Reply(NO_LINK if link is None else NO_ANSWER) for n, link in links.items()}
        return {n: answers.get(n, missing[n]) for n in links}

    @staticmethod
    def _is_awaited(link: Link) -> bool:
        return settings.on("lost_link_costs_the_limit") or link.open or link.stolen

    # ---- faults

    def mark(self, rank: int, fault: int) -> None:
        """Put a rank into the error dict; a process fault is never lowered."""
        if self.errors.get(rank) != 1 or not settings.on("never_lowered"):
            self.errors[rank] = fault

    def faults(self) -> dict[int, int]:
        """The error dict as callbacks get it, sorted by rank."""
        with self.lock:
            return dict(sorted(self.errors.items()))

    def usable(self, rank: int) -> bool:
        """Whether a rank's data can be used at the locked step."""
        entry = self.ranks.get(rank)
        if entry is None or not entry.registered or rank in self.errors or not entry.available:
            return False
        if self.flags.local_copy and entry.updating and not entry.copying:
            return entry.backup_step == self.incident.step
        return entry.step == self.incident.step and not entry.updating

    def is_ready(self, rank: int) -> bool:
        """Whether a new process of this rank waits for its repair."""
        return self.ranks[rank].status is Status.READY

    def enabled(self, what: str) -> bool:
        """Whether arf or zit was enabled by the controller and by every rank that reported."""
        if not settings.on("lists_by_setting"):
            return True
        mine = self.flags.arf if what == "arf" else self.flags.zit
        return mine and all(flags[what] for flags in self.rank_flags.values())
