"""A standby's reachability check of coordinators: it opens a connection to each and sends nothing.

It has no fence, so it must not send messages; the check only tells whether packets get through.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from hajob.api import constants as names
from hajob.clock import Clock, timeout
from hajob.leader.reachability import ExpectedCoordinator
from hajob.sources.pod import PodView

# Several round trips in any cluster network; a pod that needs longer would not do as a coordinator either.
ANSWER_SECONDS: Final = 1.0
SAMPLE: Final = 100
"""So many coordinators tell enough."""


def coordinators_to_probe(pods: Iterable[PodView]) -> list[PodView]:
    """Return the coordinator pods that should answer: of each job the newest, of all of them a stable sample.

    A standby does not know how far a job has come; a pod whose containers do not all run has a reason to be silent.
    """
    newest: dict[str, PodView] = {}
    for pod in pods:
        runs = pod.role == names.ROLE_COORDINATOR and pod.job_uid and pod.phase == "Running" and pod.ready
        known = newest.get(pod.job_uid)
        if runs and pod.address and not pod.deleting and (known is None or known.incarnation < pod.incarnation):
            newest[pod.job_uid] = pod
    return [newest[uid] for uid in sorted(newest)[:SAMPLE]]


async def probe_coordinators(pods: Iterable[PodView], clock: Clock) -> list[ExpectedCoordinator]:
    """Connect to all of them at once."""

    async def one(pod: PodView) -> ExpectedCoordinator:
        return ExpectedCoordinator(pod.node_name, await accepts_connection(pod.address, pod.port, clock))

    return list(await asyncio.gather(*map(one, coordinators_to_probe(pods))))


async def accepts_connection(host: str, port: int, clock: Clock) -> bool:
    """Return whether a connection to this port succeeds."""
    try:
        async with timeout(clock, ANSWER_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
