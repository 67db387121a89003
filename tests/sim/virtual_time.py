"""An event loop whose time passes only while nobody has anything to do, and processes that can be killed in it."""

from __future__ import annotations

import asyncio
import contextvars
import selectors
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, TypeVar, TypeVarTuple

from hajob.clock import Cancel
from tests.rigs.fake_clock import START_MILLISECONDS

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_RUNNING: Final[contextvars.ContextVar[SimProcess | None]] = contextvars.ContextVar("process", default=None)


def call_in_world(seconds: float, call: Callable[..., object], *arguments: object) -> None:
    """Call this later as an actor of the world, whichever process asks: the process's end is not the world's."""
    asyncio.get_running_loop().call_later(seconds, call, *arguments, context=contextvars.Context())


def begin_in_world(coro: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
    """Begin a task of the world, whichever process asks."""
    return asyncio.get_running_loop().create_task(coro, name=name, context=contextvars.Context())


class NothingLeftError(AssertionError):
    """Every task waits for something that nobody will do."""


class _Jump(selectors.DefaultSelector):
    """Instead of waiting, time moves on: nothing outside this process takes part."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> list[Any]:
        """Let so much time pass; there are no sockets."""
        if timeout is None:
            raise NothingLeftError("nobody waits for anything that time brings")
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs tasks as asyncio does, in virtual time."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)
        self.set_task_factory(_task_of_process)

    def time(self) -> float:
        """Return seconds of virtual time."""
        return float(self._jump.now)

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Call this next, in a process that is stopped once it goes on."""
        context = contextvars.copy_context() if context is None else context
        return super().call_soon(*_held_with_process(callback, args, context), context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Call this at a time, in a process that is stopped once it goes on."""
        context = contextvars.copy_context() if context is None else context
        return super().call_at(when, *_held_with_process(callback, args, context), context=context)


def _held_with_process(
    callback: Callable[..., object], arguments: tuple[Any, ...], context: contextvars.Context
) -> tuple[Any, ...]:
    process = context.get(_RUNNING)
    return (callback, *arguments) if process is None else (process.run_call, callback, arguments, context)


def _task_of_process(
    loop: asyncio.AbstractEventLoop,
    coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
    *,
    name: str | None = None,
    context: contextvars.Context | None = None,
) -> asyncio.Task[T]:
    task = asyncio.Task(coro, loop=loop, name=name, context=context)
    process = _RUNNING.get() if context is None else context.get(_RUNNING)
    if process is not None:
        process.tasks.add(task)
        task.add_done_callback(process.tasks.discard)
    return task


class SimProcess:
    """A process of the simulated world: its tasks and timers end when it is killed.

    Attributes:
        alive: whether it still runs; whoever serves it asks.
        stopped: whether it stands still, and will go on.
        woken_at: when it went on last.
        tasks: its own that have not ended.
    """

    def __init__(self) -> None:
        self.alive, self.stopped, self.woken_at = True, False, 0.0
        self.tasks: set[asyncio.Task[Any]] = set()
        self._held: list[tuple[Callable[..., object], tuple[Any, ...], contextvars.Context]] = []

    def spawn(self, coro: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Begin a task of this process."""
        context = contextvars.copy_context()
        context.run(_RUNNING.set, self)
        return asyncio.get_running_loop().create_task(coro, name=name, context=context)

    def kill(self) -> None:
        """End it as SIGKILL does: it does nothing more, and nobody hears of it."""
        self.alive = False
        for task in list(self.tasks):
            task.cancel()

    def stop(self) -> None:
        """Stop it as SIGSTOP does: it does nothing until it goes on, and knows nothing of that time."""
        self.stopped = True

    def go_on(self) -> None:
        """Have it go on where it stood."""
        self.stopped, self.woken_at = False, asyncio.get_running_loop().time()
        held, self._held = self._held, []
        for callback, arguments, context in held:
            asyncio.get_running_loop().call_soon(callback, *arguments, context=context)

    def run_call(
        self, callback: Callable[..., object], arguments: tuple[Any, ...], context: contextvars.Context
    ) -> None:
        """Do one step of a task or a timer, now or once the process goes on."""
        if self.stopped and self.alive:
            self._held.append((callback, arguments, context))
        else:
            callback(*arguments)

    @classmethod
    def running(cls) -> SimProcess | None:
        """Return the process whose task or timer runs now; None: an actor of the world does."""
        return _RUNNING.get()


class SimClock:
    """The clock of one process, or of the world.

    Args:
        process: whose timers end with it; None: the world's.
    """

    def __init__(self, process: SimProcess | None = None) -> None:
        self._process = process
        self.wall_ahead = 0.0

    def now_milliseconds(self) -> int:
        """Return wall time in milliseconds since the epoch."""
        return START_MILLISECONDS + round((self.monotonic() + self.wall_ahead) * 1000)

    def monotonic(self) -> float:
        """Return seconds of virtual time."""
        return asyncio.get_running_loop().time()

    def call_later(self, seconds: float, call: Callable[..., object], *arguments: object) -> Cancel:
        """Call this later, unless the process is dead by then."""
        return asyncio.get_running_loop().call_later(seconds, self._call, call, arguments).cancel

    def _call(self, call: Callable[..., object], arguments: tuple[object, ...]) -> None:
        if self._process is None or self._process.alive:
            call(*arguments)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)
