"""The API server's recent consents: of jobs that differ in name and UID only, one is dry-run.

A hundred jobs of one sweep would otherwise send two hundred equal dry runs within a second, before their first pod.
A refusal is not shared, because it names the pod (docs/decisions/0034-one-question-for-jobs-alike.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from math import inf
from typing import Final

from hajob.api.conditions import Reason
from hajob.clock import Clock

SERVES_SECONDS: Final = 2.0
"""Policies and quotas change: a consent is as good as new for so long."""

Answer = tuple[Reason, str]


@dataclass(slots=True)
class _Asked:
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    consented: bool = False
    serves_until: float = inf


class DryRunCache:
    """The consents for all jobs."""

    def __init__(self) -> None:
        self._asked: dict[bytes, _Asked] = {}

    async def ask_once(self, pods: bytes, evaluate: Callable[[], Awaitable[Answer]], clock: Clock) -> Answer:
        """Return the answer for a job whose pods are these but for name and UID.

        Args:
            pods: the same for all such jobs.
            evaluate: asks the server for this job.
            clock: for the age of a consent.

        Raises:
            ApiError: the server could not be asked.
        """
        now = clock.monotonic()
        self._asked = {key: one for key, one in self._asked.items() if one.serves_until > now}
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
                asked.serves_until = clock.monotonic() + SERVES_SECONDS
            else:
                del self._asked[pods]
        return answer
