"""What the API server has just consented to: of jobs that differ in name and UID only, one is asked about.

A hundred jobs of one sweep would else ask it two hundred times within a second for the same answer, before their first
pod. A refusal serves nobody but who asked: it names the pod (docs/decisions/0034-one-question-for-jobs-alike.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from hajob.api.conditions import Reason
from hajob.runtime.clock import Clock

SERVES_SECONDS: Final = 2.0
"""Policies and quotas change: a consent is as good as new for so long."""

Answer = tuple[Reason, str]


@dataclass(slots=True)
class _Asked:
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    consented: bool = False


class DryRunCache:
    """Of all jobs."""

    def __init__(self) -> None:
        self._asked: dict[bytes, _Asked] = {}

    async def ask(self, pods: bytes, evaluate: Callable[[], Awaitable[Answer]], clock: Clock) -> Answer:
        """The answer for a job whose pods are these but for name and UID.

        Args:
            pods: the same for all such jobs.
            evaluate: asks the server for this job.
            clock: by which a consent grows old.

        Raises:
            ApiError: the server could not be asked.
        """
        asked = self._asked.get(pods)
        if asked is not None:
            await asked.answered.wait()
            return (Reason.VALID, "") if asked.consented else await evaluate()
        asked = self._asked[pods] = _Asked()
        try:
            answer = await evaluate()
            asked.consented = answer[0] is Reason.VALID
        finally:
            asked.answered.set()
            if asked.consented:
                clock.call_later(SERVES_SECONDS, self._asked.pop, pods)
            else:
                del self._asked[pods]
        return answer
