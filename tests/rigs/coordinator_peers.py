"""What a coordinator in virtual time talks to: the agents of the rank pods, and MindIO's controller.

MindIO here follows the same order of calls and callbacks as the real one and fails the test when it is told something
its phase does not ask for: that is what ends the real one silently.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hajob.protocol import sidecar_pb2 as pb

if TYPE_CHECKING:
    from tests.rigs.coordinator import World


@dataclass
class Process:
    """One process of a rank."""

    incarnation: int
    start: int
    phase: pb.RankPhase = pb.AT_GATE
    pid: int = 1
    step: int | None = None

    @property
    def name(self) -> tuple[int, int]:
        return (self.incarnation, self.start)


@dataclass
class Agent:
    """One rank pod: starts what it is ordered at once, links what is admitted while its lease holds."""

    world: World
    node_rank: int
    incarnation: int
    powered: bool = True
    frozen: bool = False
    start_delay: float = 0.0
    has_launched: bool = True
    lease_until: float = 0.0
    processes: dict[int, Process] = field(default_factory=dict)
    due: dict[int, tuple[float, Process]] = field(default_factory=dict)
    order: pb.NodeOrder | None = None
    ended: list[int] = field(default_factory=list)
    tells_stacks: bool = True
    stacks: dict[int, int] = field(default_factory=dict)
    said: list[pb.Fact] = field(default_factory=list)
    told: pb.AgentReport | None = None
    sees_checkpoints: bool = False
    checkpoint: pb.CheckpointState | None = None
    unread: pb.NodeOrder | None = None
    answered: dict[int, list[int]] = field(default_factory=dict)
    serials: dict[int, int] = field(default_factory=dict)  # of ranks that have not had the newest action
    repaired: set[int] = field(default_factory=set)  # ranks that were let go on after a repair
    busy: set[int] = field(default_factory=set)  # ranks in a handler that the controller has asked for
    registered: dict[int, tuple[int, int]] = field(default_factory=dict)  # rank -> its process that has
    bound: str = ""
    written: list[pb.StoreEntry] | None = None  # into the store; None: its gate does not keep that
    unreadable: str = ""
    frames_unreadable: bool = False  # its gate does not know the version of MindIO's frames
    content_sent: str = ""
    known: dict[int, str] = field(default_factory=dict)  # rank -> the controller that it was made known to

    @property
    def uid(self) -> str:
        return f"pod-{self.node_rank}-{self.incarnation}"

    @property
    def answers(self) -> bool:
        return self.powered and not self.frozen

    def take(self, order: pb.NodeOrder) -> None:
        """Carry out an order as the real agent does, by (incarnation, start)."""
        self.order = order
        for entry in order.ranks:
            self.tell_stack(entry)
            name = (entry.incarnation, entry.start)
            process: Process | None = self.processes.get(entry.rank)
            have = (process.incarnation, process.start) if process is not None else (-1, -1)
            alive = process is not None and process.phase not in (pb.DEAD, pb.FINISHED)
            if process is not None and alive and (have < name or (have == name and not entry.run)):
                process.phase = pb.DEAD
                self.ended.append(entry.rank)
            if entry.run and have < name and entry.rank not in self.due:
                self.due[entry.rank] = (self.world.now + self.start_delay, Process(*name))
        if order.over:
            self.due.clear()
            for running in self.processes.values():
                running.phase = pb.DEAD if running.phase != pb.FINISHED else pb.FINISHED

    def lose_process(self, rank: int, code: int) -> pb.Fact:
        """End a rank's process with this code; return what the agent says of it."""
        process = self.processes[rank]
        process.phase = pb.DEAD
        return pb.Fact(
            id=f"{self.uid}/exit/{rank}/{process.incarnation}/{process.start}",
            kind=pb.PROCESS_EXITED,
            ranks=[rank],
            incarnation=process.incarnation,
            start=process.start,
            exit_code=code,
        )

    def tell_stack(self, entry: pb.RankOrder) -> None:
        """Say where a rank stands, when that is asked anew."""
        if entry.stacks > self.stacks.get(entry.rank, 0) and self.tells_stacks:
            self.stacks[entry.rank] = entry.stacks
            identity = f"{self.uid}/stack/{entry.rank}/{entry.stacks}"
            text = f"File train.py, line {entry.rank}"
            self.said.append(pb.Fact(id=identity, kind=pb.STACK, ranks=[entry.rank], message=text))

    def live(self) -> None:
        """Do what happens by itself: starts that are due, links that are admitted."""
        self.follow_the_controller()
        for rank, (at, started) in list(self.due.items()):
            if self.world.now >= at:
                self.processes[rank] = started
                del self.due[rank]
        if self.order is None or not self.order.controller_address or self.world.now > self.lease_until:
            return
        for entry in self.order.ranks:
            process = self.processes.get(entry.rank)
            same = process is not None and (process.incarnation, process.start) == (entry.incarnation, entry.start)
            if process is not None and same and entry.admitted and process.phase == pb.AT_GATE:
                process.phase = pb.LINKED
                self.registered[entry.rank] = process.name
                self.make_known(entry.rank)
            elif process is not None and same and entry.admitted and process.phase == pb.LINKED:
                self.make_known(entry.rank, again=self.known.get(entry.rank) != self.order.controller)
        for rank in self.order.stand_ins:
            self.make_known(rank, again=self.known.get(rank) != self.order.controller)

    def follow_the_controller(self) -> None:
        """End links to another controller than the order names."""
        if self.order is None or self.order.controller in (self.bound, "") or not self.world.gates_know:
            return
        self.bound = self.order.controller
        for linked in self.processes.values():
            if linked.phase == pb.LINKED:
                linked.phase = pb.AT_GATE

    def make_known(self, rank: int, *, again: bool = True) -> None:
        """Tell the controller of the order about a rank."""
        if again and self.order is not None:
            self.known[rank] = self.order.controller
            self.world.mindio.register(rank)

    def report(self, facts: list[pb.Fact] | None = None, steps: list[pb.StepFinished] | None = None) -> pb.AgentReport:
        """Report the state as it is."""
        said, self.said = self.said, []
        states = [
            pb.RankState(rank=r, incarnation=p.incarnation, start=p.start, pid=p.pid, phase=p.phase, step=p.step)
            for r, p in sorted(self.processes.items())
        ]
        return pb.AgentReport(
            launcher_ready=self.has_launched,
            ranks=states,
            facts=[*(facts or []), *said],
            steps=steps or [],
            sees_checkpoints=self.sees_checkpoints,
            last_step=self.world.last_step,
            checkpoint=self.checkpoint,
            launched=self.world.launched if self.node_rank == 0 else [],
            environment=self.environment() if self.node_rank == 0 else {},
            gate=self.gate() if self.world.gates_know else None,
        )

    def environment(self) -> dict[str, str]:
        """Return the variables that its ranks were ordered with."""
        ordered = self.order.ranks if self.order is not None else ()
        return next((dict(entry.environment) for entry in ordered if entry.run), {})

    def gate(self) -> pb.GateState:
        """Return what its gate tells."""
        controller = self.order.controller if self.order is not None else ""
        registered = [rank for rank, known in sorted(self.known.items()) if known == controller]
        told = [
            pb.RankActions(
                rank=rank,
                answered=self.answered.get(rank, ()),
                busy=rank in self.busy,
                repaired=rank in self.repaired,
                serial=self.serials.get(rank, self.world.serial),
            )
            for rank, process in sorted(self.processes.items())
            if self.registered.get(rank) == process.name and process.phase in (pb.STARTING, pb.AT_GATE, pb.LINKED)
        ]
        serial = self.world.serial
        keeps = self.written is not None
        state = pb.GateState(controller=controller, registered=registered, serial=serial, counter=1, told=told)
        state.keeps_store, state.action, state.word = keeps, self.world.action, self.world.word
        state.unreadable = self.frames_unreadable
        return state

    def tell_store(self) -> bool:
        """Tell what was written into the store, once for each time it is wanted."""
        wanted = self.order.store_wanted if self.order is not None else ""
        if wanted == self.content_sent:
            return False
        self.content_sent = wanted
        if not wanted or self.written is None:
            return False
        said = pb.StoreContent(wanted=wanted, dialect="earlier", problem=self.unreadable, entries=self.written)
        said.last = True
        self.world.core.apply_store_content(self.uid, said, self.world.now)
        return True


CHOOSING = ("strategy", "growing", "going on")


class Mindio:
    """The controller's side; `ask` is what it waits for now."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.registered: set[int] = set()
        self.calls: list[tuple[str, dict[str, object]]] = []
        self.ask = "nothing"
        self.lost: dict[int, int] = {}
        self.strategies = ["exit", "dump", "recover"]
        self.strategy = ""
        self.switching: set[int] = set()
        self.wound: object = None
        self.no_process = False  # the host cannot start another controller
        self.silent = False  # takes calls, calls back only when the test says so

    def register(self, rank: int) -> None:
        """Have a rank's link come up."""
        self.registered.add(rank)
        if rank in self.switching:
            self.switching.discard(rank)
            if not self.switching:
                self.ask, self.strategies = "strategy", ["migration"]
                self.world.callback("report_strategies", [[], ["migration"]])

    def call(self, name: str, arguments: dict[str, object], order: int = 0) -> None:
        """Take a call of the coordinator, and answer and follow it as MindIO would."""
        if name == "store":
            assert self.world.controller["controller"] in ("none", "lost"), "a controller has one already"
            opened = {"controller": "none", "store": "listening", "unfilled": True}
            self.world.controller = {"attempt": self.world.attempt, **opened}
            self.world.core.apply_controller_state(self.world.controller, self.world.now)
            return
        if name == "known":
            self.world.controller = {**self.world.controller, "takes_over": False, "unfilled": False}
            return
        if name in ("start", "end"):
            self.wound = arguments.get("wind")
            self._process(name)
            return
        self.calls.append((name, arguments))
        self.world.note({"called": name, "id": len(self.calls), "arguments": arguments, "order": order})
        ranks = dict(arguments.get("ranks", []))  # type: ignore[call-overload]
        if name == "stop_train" and not set(ranks) <= self.registered:
            self.world.answered(name, 1)
            return
        allowed = {
            "stop_train": ("nothing", "stop", "growing", "coming back", "going on"),
            "on_global_rank": ("naming",),
            "change_strategy": (*CHOOSING, *(["result"] if self.waits_for_a_successor() else [])),
            "dump": ("nothing",),  # while ranks are left out it is accepted and ignored, and takes a growth with it
            "pause": ("nothing",),
            "prepare_action": ("nothing",),
        }
        assert self.ask in allowed[name], f"{name} while MindIO asks for {self.ask}: it would never speak again"
        self.world.answered(name, 0)
        if not self.silent:
            getattr(self, f"_{name}")(ranks, arguments)

    def waits_for_a_successor(self) -> bool:
        """A waiting recover may be turned into something else."""
        phases = [self.world.phase(rank) for rank in self.lost]
        return self.strategy == "recover" and any(phase != pb.LINKED for phase in phases)

    def _process(self, name: str) -> None:
        if self.no_process:
            return
        self.ask, self.lost = "nothing", {}
        self.registered.clear()
        self.world.log = []
        self.world.controller = {
            **self.world.controller,
            "controller": "none",
            "instance": "",
            "kind": "",
            "problem": "",
        }
        if name == "start":
            self.world.controllers += 1
            serving = {"controller": "serving", "store": "listening", "instance": f"c{self.world.controllers}"}
            is_empty = self.world.controller["store"] != "listening" and bool(self.wound)
            empty = {"unfilled": is_empty or bool(self.world.controller.get("unfilled"))}
            self.world.controller = {"attempt": self.world.attempt, **serving, "takes_over": bool(self.wound), **empty}
        self.world.core.apply_controller_state(self.world.controller, self.world.now)

    def _stop_train(self, ranks: dict[int, int], _: object) -> None:
        if self.ask == "nothing":
            self.world.callback("report_fault_ranks", [list(ranks.items()), []])
        self.lost = ranks
        self.ask = "naming"
        self.world.callback("report_stop_complete", [0, "stop ok", list(ranks.items())])

    def _on_global_rank(self, ranks: dict[int, int], _: object) -> None:
        self.lost = {**self.lost, **ranks}
        self.world.callback("report_fault_ranks", [list(self.lost.items()), []])
        self.ask = "strategy"
        self.world.callback("report_strategies", [list(self.lost.items()), self.strategies])

    def _change_strategy(self, _: object, arguments: dict[str, object]) -> None:
        self.strategy = str(arguments["strategy"])
        assert self.strategy in self.strategies
        self.ask = "coming back" if self.strategy == "upgrade" else "result"

    def _prepare_action(self, ranks: dict[int, int], arguments: dict[str, object]) -> None:
        self.switching = set(ranks) if arguments["action"] == "hot switch" else set()

    def _dump(self, _: object, __: object) -> None:
        self.strategy, self.ask = "dump", "result"

    def _pause(self, _: object, __: object) -> None:
        self.ask, self.strategies = "going on", ["continue"]
        self.world.callback("report_stop_complete", [0, "pause ok", []])

    def pause_ends(self) -> None:
        """End a pause that nobody has answered in time: MindIO says so, and at once begins a fault without one."""
        self.ask, self.strategies = "stop", ["exit", "dump", "retry"]
        self.world.callback("report_result", [406, "Controller do pause wait failed.", [], ""])
        self.world.callback("report_fault_ranks", [[], []])

    def result(self, code: int = 0, text: str = "ok", ranks: dict[int, int] | None = None) -> None:
        """Report the result of the strategy."""
        if code == 0 and self.strategy == "downgrade":
            self.ask, self.strategies = "growing", ["upgrade"]
            self.world.callback("report_result", [code, text, list((ranks or {}).items()), self.strategy])
            return
        self.ask = "nothing" if code == 0 else "strategy" if code == 406 else "naming" if code == 405 else "none"
        self.world.callback("report_result", [code, text, list((ranks or {}).items()), self.strategy])
