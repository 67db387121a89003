"""What goes wrong between a client and the server, on command.

A fault takes the requests that match it, a number of times or until it is ended. The newest fault that matches comes
first. What is under way is not called back when its client gives up: a proxy may still deliver it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from e2e.memory_api.requests import Matching, Request, any_request
from hajob.api.base import Json
from hajob.clock import Clock
from hajob.kube.client import ApiError, unreachable_error

Proceed = Callable[[], Json]
F = TypeVar("F", bound="Fault")


class Fault(ABC):
    """Something between the client and the server."""

    def __init__(self, matching: Matching, times: int | None) -> None:
        self.matching = matching
        self.left = times
        self.met = 0

    def end(self) -> None:
        """No further request meets it."""
        self.left = 0

    @abstractmethod
    async def carry(self, request: Request, proceed: Proceed) -> Json:
        """Bring one request to the server, or not; `proceed` is the server."""


class Refuse(Fault):
    """The server, or what is before it, answers with an error."""

    def __init__(self, error: ApiError, matching: Matching, times: int | None) -> None:
        super().__init__(matching, times)
        self._error = error

    async def carry(self, request: Request, proceed: Proceed) -> Json:
        """It never arrives."""
        del request, proceed
        raise self._error


class Unreachable(Fault):
    """Nobody answers."""

    async def carry(self, request: Request, proceed: Proceed) -> Json:
        """It never arrives."""
        del proceed
        raise unreachable_error(request.method, request.path, "connection refused")


class LoseAnswer(Fault):
    """The server does it, and the connection breaks before the answer."""

    async def carry(self, request: Request, proceed: Proceed) -> Json:
        """It arrives, and nobody learns of it."""
        proceed()
        raise unreachable_error(request.method, request.path, "connection reset by peer")


class CloseWatch(Fault):
    """A watch is opened and ends at once."""

    async def carry(self, request: Request, proceed: Proceed) -> Json:
        """Nothing is asked of the server."""
        del request, proceed
        return {}


class Delay(Fault):
    """It takes long: on its way there, and back."""

    def __init__(self, clock: Clock, before: float, after: float, matching: Matching, times: int | None) -> None:
        super().__init__(matching, times)
        self._clock, self._before, self._after = clock, before, after

    async def carry(self, request: Request, proceed: Proceed) -> Json:
        """Wait, ask, wait."""
        del request
        if self._before:
            await self._clock.sleep(self._before)
        answer = proceed()
        if self._after:
            await self._clock.sleep(self._after)
        return answer


class Hold(Fault):
    """Requests that stand still on their way to the server until they are released.

    Attributes:
        arrived: is set once one is held.
        held: how many are.
    """

    def __init__(self, matching: Matching, times: int | None) -> None:
        super().__init__(matching, times)
        self.arrived = asyncio.Event()
        self.held = 0
        self._released = asyncio.Event()

    def release(self) -> None:
        """Let them go on, and hold no other."""
        self.end()
        self._released.set()

    async def carry(self, request: Request, proceed: Proceed) -> Json:
        """Wait for the release, also when the client no longer does."""
        del request
        self.held += 1
        self.arrived.set()
        await self._released.wait()
        self.held -= 1
        return proceed()


class Faults:
    """All that is wrong now."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._faults: list[Fault] = []

    def refuse(self, error: ApiError, *, matching: Matching = any_request, times: int | None = 1) -> Refuse:
        """The next requests are answered with this error; `times` None: until ended."""
        return self._added(Refuse(error, matching, times))

    def unreachable(self, *, matching: Matching = any_request, times: int | None = None) -> Unreachable:
        """Requests find nobody."""
        return self._added(Unreachable(matching, times))

    def lose_answer(self, *, matching: Matching = any_request, times: int | None = 1) -> LoseAnswer:
        """What is asked is done, and the answer is lost."""
        return self._added(LoseAnswer(matching, times))

    def close_watches(self, *, matching: Matching = any_request, times: int | None = None) -> CloseWatch:
        """Watches end as soon as they begin."""
        return self._added(CloseWatch(lambda request: request.is_watch and matching(request), times))

    def delay(
        self, before: float = 0.0, after: float = 0.0, *, matching: Matching = any_request, times: int | None = None
    ) -> Delay:
        """Requests take so many seconds to the server, and their answers so many back."""
        return self._added(Delay(self._clock, before, after, matching, times))

    def hold(self, *, matching: Matching = any_request, times: int | None = 1) -> Hold:
        """Requests stand still on their way."""
        return self._added(Hold(matching, times))

    def clear(self) -> None:
        """End every fault; what is held stays so."""
        for fault in self._faults:
            fault.end()

    def take(self, request: Request) -> Fault | None:
        """The fault that this request meets."""
        self._faults = [fault for fault in self._faults if fault.left != 0]
        for fault in reversed(self._faults):
            if fault.matching(request):
                fault.met += 1
                if fault.left is not None:
                    fault.left -= 1
                return fault
        return None

    def _added(self, fault: F) -> F:
        self._faults.append(fault)
        return fault
