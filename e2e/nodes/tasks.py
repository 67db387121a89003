"""Tasks that nobody waits for: their failures are told, their ends are waited for when they are cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger(__name__)


def start_task(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """A task whose failure is logged at once."""
    task = asyncio.create_task(work)
    task.add_done_callback(_tell_failure)
    return task


def _tell_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception():
        log.error("a task of a node failed", exc_info=task.exception())


async def end_tasks(*tasks: asyncio.Task[None] | None) -> None:
    """Cancel tasks and wait until they have ended; the current one is left alone."""
    mine = [task for task in tasks if task is not None and task is not asyncio.current_task()]
    for task in mine:
        task.cancel()
    await asyncio.gather(*mine, return_exceptions=True)
