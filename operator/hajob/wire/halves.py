"""The halves of a conversation: one reads, one writes, until one of them ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


async def until_first_ends(*halves: Coroutine[Any, Any, Result]) -> Result:
    """Run all halves until one ends, end the others, and return or raise what that one did.

    Either end is the end of the conversation: reports that nobody can answer, or answers that nobody hears, are none.
    Of halves that end together the one named first counts.
    """
    tasks = [asyncio.ensure_future(half) for half in halves]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task for task in tasks if task in ended).result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
