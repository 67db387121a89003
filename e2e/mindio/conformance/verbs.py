"""The verbs of a vector's steps: what is done, and what must follow.

A step is a mapping with one verb; beside it may stand `within: [low, high]` seconds since the last deed (or since the
step labelled by `since`), `mark: label` to give a step a label, and what the verb itself knows. Text that begins with
"$" is a variable: its first use binds it, later uses must be equal. `ARGS` stands for the laboratory's arguments.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import psutil

from e2e.mindio.conformance.evaluator import Step, UnmetError, VectorRun, has_ended, patience
from e2e.mindio.conformance.gate import CONNECT
from e2e.mindio.conformance.keeping_gate import KeepingGate
from e2e.mindio.conformance.wire_verbs import collect, collected, exchange_problem, greet, wrong_with

BACK_SECONDS = 0.05
"""After a "continue" MindIO forgets what it is told until it is at rest; so long was always enough."""


class Run(VectorRun):
    """One vector being run, verb by verb."""

    # ---- deeds

    def did(self, step: Step) -> None:
        """Something was done just now."""
        self.deed = time.monotonic()
        if "mark" in step:
            self.marks[step["mark"]] = self.deed

    def signal(self, ranks: list[Any], number: int) -> None:
        """Send a signal to ranks (or process keys)."""
        for rank in ranks:
            self.world.signal(self.world.newest(rank), number)

    async def kill(self, step: Step) -> None:
        """SIGKILL."""
        self.did(step)
        self.signal(step["kill"], signal.SIGKILL)

    async def freeze(self, step: Step) -> None:
        """SIGSTOP: the process is silent, its link stays open."""
        self.did(step)
        self.signal(step["freeze"], signal.SIGSTOP)

    async def thaw(self, step: Step) -> None:
        """SIGCONT."""
        self.did(step)
        self.signal(step["thaw"], signal.SIGCONT)

    async def terminate(self, step: Step) -> None:
        """SIGTERM and SIGINT."""
        self.did(step)
        self.signal(step["terminate"], signal.SIGTERM)
        self.signal(step["terminate"], signal.SIGINT)

    async def start(self, step: Step) -> None:
        """Start a new process for ranks; `settings` change what it is told."""
        self.did(step)
        for rank in step["start"]:
            await self.world.start_rank(rank, step.get("settings"))

    async def start_direct(self, step: Step) -> None:
        """Start a new process for ranks that goes past their gates."""
        self.did(step)
        for rank in step["start_direct"]:
            await self.world.start_rank(rank, {"port": self.world.port})

    async def controller(self, step: Step) -> None:
        """Kill or start the controller's process."""
        if step["controller"] == "kill":
            self.world.signal("controller", signal.SIGKILL)
            member = self.world.members["controller"]
            await self.until(lambda: member.code is not None, time.monotonic() + patience(), "death of the controller")
        else:
            self.world.vector.controller = True
            await self.world.start_controller()
            self.seen_callbacks = len(self.world.callbacks)
        self.did(step)

    async def fail(self, step: Step) -> None:
        """Make ranks raise a text at their next step (`place: update` inside the optimizer update)."""
        self.did(step)
        for rank, text in step["fail"].items():
            self.world.send(self.world.newest(rank), {"raise": text, "place": step.get("place", "step")})

    async def change(self, step: Step) -> None:
        """Change settings of running ranks."""
        self.did(step)
        for rank, settings in step["change"].items():
            self.world.send(self.world.newest(rank), {"change": settings})

    async def gate(self, step: Step) -> None:
        """Set the gates of ranks: open, hold, deaf, close."""
        self.did(step)
        for rank in step.get("ranks", list(self.world.gates)):
            await self.world.gates[rank].set(step["gate"])

    async def part(self, step: Step) -> None:
        """The gates of these ranks let go of the controller."""
        self.did(step)
        for gate in self.keeping(step["part"]):
            gate.part()

    async def replay(self, step: Step) -> None:
        """The gates of these ranks tell the controller of now what their ranks have told."""
        self.did(step)
        for gate in self.keeping(step["replay"]):
            await gate.replay(heartbeat=step.get("heartbeat", True))

    async def stand_in(self, step: Step) -> None:
        """Ranks without a process are made known, and their links closed."""
        self.did(step)
        for gate in self.keeping(step["stand_in"]):
            await gate.replay(heartbeat=False, stays=False)

    async def answers(self, step: Step) -> None:
        """The gates of these ranks answer actions of these `kinds` themselves, until their ranks are to train again."""
        for gate in self.keeping(step["answers"]):
            gate.answers = set(step["kinds"])

    async def wind(self, step: Step) -> None:
        """A controller that nobody is linked to raises its `counter`, then its `serials`, by its own calls."""
        for _ in range(step["wind"]["counter"]):
            await self.notify({"notify": ["prepare_action", "hot switch", {0: 0}]})
            await self.notify({"notify": ["prepare_action", "stop switch"]})
        for _ in range(-(-step["wind"]["serials"] // 3)):
            await self.notify({"notify": ["stop_train", {}, "pause", 4]})
            await self.callback({"callback": ["report_stop_complete", 0, "Controller pause train success!", {}]})
            await self.notify({"notify": ["change_strategy", "continue"]})
            text = "Controller continue training success."
            await self.callback({"callback": ["report_result", 0, text, {}, "continue"]})
            await asyncio.sleep(BACK_SECONDS)

    def keeping(self, ranks: list[int]) -> list[KeepingGate]:
        """The gates of these ranks."""
        return [gate for rank in ranks if isinstance(gate := self.world.gates[rank], KeepingGate)]

    async def prepare(self, step: Step) -> None:
        """Tell the controller's process beforehand how its callbacks behave."""
        self.did(step)
        self.world.send("controller", step["prepare"])

    async def wait(self, step: Step) -> None:
        """Let time pass."""
        await asyncio.sleep(step["wait"])
        if not step.get("keep"):
            self.did(step)

    async def notify(self, step: Step) -> None:
        """Call a function of the controller's side; `returns` (0) or `raises` must come back."""
        name = str(step["notify"][0])
        args = [self.world.port if a == "PORT" else a for a in step["notify"][1:]]
        member = self.world.members["controller"]
        before = len([e for e in member.events if e["event"] == "return" and e["call"] == name])
        if not step.get("keep"):
            self.did(step)
        self.world.send("controller", {"call": name, "args": args, "kwargs": step.get("kwargs", {})})

        def back() -> list[dict[str, Any]]:
            return [e for e in member.events if e["event"] == "return" and e["call"] == name][before:]

        await self.until(lambda: bool(back()), time.monotonic() + patience(), f"return of {name}")
        self.check_return(step, back()[0], name)

    async def ask(self, step: Step) -> None:
        """Call a function on ranks; `returns` or `raises` must come back."""
        for rank, (name, *args) in step["ask"].items():
            answer = await self.ask_one(self.world.newest(rank), name, args)
            self.check_return(step if "raises" in step else {"returns": None} | step, answer, name)

    async def ask_one(self, key: str, name: str, args: list[Any]) -> dict[str, Any]:
        """Call a function on one process; its answer."""
        member = self.world.members[key]
        before = len([e for e in member.events if e["event"] == "answer"])

        def answers() -> list[dict[str, Any]]:
            return [e for e in member.events if e["event"] == "answer"][before:]

        self.world.send(key, {"call": name, "args": args})
        await self.until(lambda: bool(answers()), time.monotonic() + patience(), f"answer of {name}")
        return answers()[0]

    # ---- what must follow

    async def callback(self, step: Step) -> None:
        """The next callback must be this one, with exactly these arguments."""
        name, *args = step["callback"]
        wanted = self.seen_callbacks
        _, high = self.window(step)
        await self.until(lambda: len(self.world.callbacks) > wanted, high + 0.3, f"callback {name} {args}")
        got = self.world.callbacks[wanted]
        self.seen_callbacks += 1
        if got["name"] != name or not self.equal(args, got["args"]):
            raise UnmetError(f"wanted callback {name}{args}, got {got['name']}{got['args']}")
        self.check_time(step, got["time"], f"callback {name}")

    async def silence(self, step: Step) -> None:
        """No callback for so many seconds."""
        await asyncio.sleep(step["silence"])
        extra = self.world.callbacks[self.seen_callbacks :]
        if extra:
            raise UnmetError(f"unexpected callback {extra[0]['name']}{extra[0]['args']}")

    async def event(self, step: Step) -> None:
        """A process tells something: rank, and any content of the event; only news since the last deed counts."""
        wanted = dict(step["event"])
        rank = wanted.pop("of", None)
        since = self.deed if step.get("new", True) else 0.0
        _, high = self.window(step)

        def found() -> list[dict[str, Any]]:
            events = self.world.events if rank is None else self.world.members[self.world.newest(rank)].events
            return [
                e
                for e in events
                if e["time"] >= since and all(k in e and self.equal(v, e[k]) for k, v in wanted.items())
            ]

        await self.until(lambda: bool(found()), high + 0.3, f"event {step['event']}")
        self.check_time(step, found()[0]["time"], f"event {step['event']}")

    async def never(self, step: Step) -> None:
        """No such event so far, of any process (or `of` a rank)."""
        wanted = dict(step["never"])
        rank = wanted.pop("of", None)
        events = self.world.events if rank is None else self.world.members[self.world.newest(rank)].events
        found = [e for e in events if all(k in e and self.equal(v, e[k]) for k, v in wanted.items())]
        if found:
            raise UnmetError(f"should never happen: {found[0]}")

    async def trains(self, step: Step) -> None:
        """These ranks finish steps now; `beyond` a step, or two more than they had."""
        keys = [self.world.newest(r) for r in step["trains"]]
        floor = self.variables.get(step.get("beyond", ""), step.get("beyond"))
        began = {k: len(self.steps(k)) for k in keys}

        def beyond(key: str) -> bool:
            steps = self.steps(key)
            return len(steps) >= began[key] + 2 and (floor is None or steps[-1]["step"] > floor)

        _, high = self.window(step)
        high = max(high, time.monotonic() + 5.0) if "within" not in step else high
        await self.until(lambda: all(beyond(k) for k in keys), high, f"training of {step['trains']}")

    def steps(self, key: str) -> list[dict[str, Any]]:
        """The finished steps of one process."""
        return self.world.members[key].steps

    async def stands(self, step: Step) -> None:
        """These ranks finish no step for `for` seconds."""
        keys = [self.world.newest(r) for r in step["stands"]]
        await asyncio.sleep(0.2)
        before = {k: len(self.steps(k)) for k in keys}
        await asyncio.sleep(step.get("for", 1.0))
        moving = [k for k in keys if len(self.steps(k)) != before[k]]
        if moving:
            raise UnmetError(f"{moving} went on")

    async def ahead(self, step: Step) -> None:
        """This rank's last step is beyond the one at which all of `of` stand, and stays so."""
        mine, others = self.world.newest(step["ahead"]), [self.world.newest(r) for r in step["of"]]

        def beyond() -> bool:
            return all(self.steps(mine)[-1]["step"] > self.steps(o)[-1]["step"] for o in others)

        await self.until(beyond, time.monotonic() + 5.0, f"rank {mine} ahead of {others}")
        await asyncio.sleep(1.0)
        if not beyond():
            raise UnmetError(f"rank {mine} was caught up with")

    async def phases(self, step: Step) -> None:
        """Of these handlers each one is called on every rank that it is called on before any rank gets the next."""
        last = self.deed
        for name in step["phases"]:
            calls = [
                e["time"]
                for e in self.world.events
                if e["event"] == "handler" and e["name"] == name and e["time"] >= self.deed
            ]
            if not calls or min(calls) < last:
                raise UnmetError(f"handler {name} was {'called too early' if calls else 'not called'}")
            last = max(calls)

    async def no_success(self, step: Step) -> None:
        """No action is reported as a success for so many seconds; nothing or a failure may be."""
        await asyncio.sleep(step["no_success"])
        found = [c for c in self.world.callbacks if c["name"] == "report_result" and c["time"] >= self.deed]
        if any(c["args"][0] == 0 for c in found):
            raise UnmetError(f"unexpected success {found}")

    async def grows(self, step: Step) -> None:
        """This process takes `megabytes` more memory within so many seconds."""
        process = psutil.Process(self.world.members[step["grows"]].process.pid)
        before = process.memory_info().rss
        await asyncio.sleep(step["for"])
        grown = (process.memory_info().rss - before) / 1e6
        if grown < step["megabytes"]:
            raise UnmetError(f"{step['grows']} grew by {grown:.2f} MB only")

    async def exits(self, step: Step) -> None:
        """These ranks end with `code` (2)."""
        _, high = self.window(step)
        for rank in step["exits"]:
            member = self.world.members[self.world.newest(rank)]
            await self.until(partial(has_ended, member), high + 0.3, f"exit of {member.key}")
            if member.code != step.get("code", 2):
                raise UnmetError(f"{member.key} ended with {member.code}")
            self.check_time(step, member.ended or 0.0, f"exit of {member.key}")

    async def alive(self, step: Step) -> None:
        """These processes still run."""
        dead = [r for r in step["alive"] if self.world.members[self.world.newest(r)].code is not None]
        if dead:
            raise UnmetError(f"{dead} have ended")

    async def handlers(self, step: Step) -> None:
        """Exactly these handler calls of each rank since the last such step, in this order."""
        for rank, wanted in step["handlers"].items():
            await self.handlers_of(self.world.newest(rank), wanted)

    async def handlers_of(self, key: str, wanted: list[Any]) -> None:
        """Compare the handler calls of one process, waiting a little for late ones."""
        seen = self.seen_handlers.get(key, 0)
        end = time.monotonic() + 3.0
        with contextlib.suppress(UnmetError):
            await self.until(lambda: len(self.handler_calls(key)) - seen >= len(wanted), end, "handlers")
        calls = self.handler_calls(key)
        self.seen_handlers[key] = len(calls)
        if not self.equal(wanted, calls[seen:]):
            raise UnmetError(f"rank {key}: wanted handlers {wanted}, got {calls[seen:]}")

    def handler_calls(self, key: str) -> list[list[Any]]:
        """Name and arguments of each handler call of one process."""
        return [[e["name"], *e["args"]] for e in self.world.members[key].events if e["event"] == "handler"]

    async def sends(self, step: Step) -> None:
        """What these ranks send through their gates has the layout that a gate relies on."""
        for rank in step["sends"]:
            problem = wrong_with(bytes(self.world.gates[rank].sent), rank)
            if problem is not None:
                raise UnmetError(f"rank {rank}: {problem}")

    async def exchanges(self, step: Step) -> None:
        """This rank got these actions (type, bytes), and answered each with this type and the action's serial."""
        gate = self.world.gates[step["exchanges"]]
        problem = exchange_problem(bytes(gate.received), bytes(gate.sent), step["messages"])
        if problem is not None:
            raise UnmetError(f"rank {step['exchanges']}: {problem}")

    async def asks(self, step: Step) -> None:
        """Somebody puts a "collect" with this serial into the rank's link; so far it has answered these serials."""
        gate = self.world.gates[step["asks"]]
        assert gate.to_rank is not None
        gate.to_rank.write(collect(step["serial"]))
        await asyncio.sleep(0.5)
        if collected(bytes(gate.sent)) != step["answers"]:
            raise UnmetError(f"it has answered {collected(bytes(gate.sent))}")

    async def greets(self, step: Step) -> None:
        """The controller answers a connect frame (magic, version, rank) with these bytes, or closes (none)."""
        for magic, version, rank in step["greets"]:
            got = list(await greet(self.world, CONNECT.pack(magic, version, rank)))
            if got != step["answer"]:
                raise UnmetError(f"connect frame {magic}, {version}, {rank} was answered by {got}")

    async def forget_handlers(self, step: Step) -> None:
        """Pass over the handler calls so far."""
        for key in self.world.members:
            self.seen_handlers[key] = len(self.handler_calls(key))
        del step

    async def reach(self, step: Step) -> None:
        """Every rank that was started has finished this step."""
        keys = [self.world.newest(r) for r in sorted({k.split(".")[0] for k in self.world.members} - {"controller"})]

        def all_there() -> bool:
            return all(self.steps(k) and self.steps(k)[-1]["step"] >= step["reach"] for k in keys)

        await self.until(all_there, time.monotonic() + 40.0, f"step {step['reach']}")
        self.did(step)

    async def front(self, step: Step) -> None:
        """stop_train, stop complete, on_global_rank, second report, strategies: the usual front of a fault."""
        front = step["front"]
        faults, widened = front["faults"], front.get("named", front["faults"])
        codes = front.get("codes", {})
        if front.get("found"):
            await self.callback(
                {"callback": ["report_fault_ranks", faults, codes]} | {k: v for k, v in step.items() if k != "front"}
            )
        await self.notify({"notify": ["stop_train", faults], "keep": True})
        sent = time.monotonic()
        if not front.get("found"):
            await self.callback({"callback": ["report_fault_ranks", faults, codes]})
        await self.callback({"callback": ["report_stop_complete", 0, "stop ok", faults]})
        if time.monotonic() - sent > 2.0:
            raise UnmetError(f"stop complete came {time.monotonic() - sent:.2f} s after stop_train")
        for rank in front.get("start", []):
            await self.world.start_rank(rank)
        await self.notify({"notify": ["on_global_rank", widened], "keep": True})
        await self.callback({"callback": ["report_fault_ranks", widened, codes]})
        await self.callback({"callback": ["report_strategies", widened, front["offer"]]})
        if "choose" in front:
            self.did(step)
            await self.notify({"notify": ["change_strategy", front["choose"], front.get("params", "")], "keep": True})

    # ---- all of it

    async def perform(self) -> None:
        """Every step in order; `UnmetError` names the step that failed."""
        for number, step in enumerate(self.world.vector.do):
            verb = next(iter(step))
            method: Callable[[Step], Awaitable[None]] | None = getattr(self, verb, None)
            if method is None:
                raise UnmetError(f"step {number}: no verb {verb!r}")
            try:
                await method(step)
            except UnmetError as error:
                raise UnmetError(f"step {number} ({verb}): {error}") from error
        if not self.world.vector.more_callbacks:
            await self.silence({"silence": 0.1})
