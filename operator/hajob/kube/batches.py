"""Batches of similar requests, limited to what one job may send to the API server at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

AT_ONCE: Final = 50
"""Requests of one job that are under way together; below the connections that the operator has (http_kube)."""


def growing_slices(items: Sequence[T], first: int = AT_ONCE) -> Iterator[Sequence[T]]:
    """Split the items into batches of `first`, then twice as many, up to `AT_ONCE`."""
    begin, size = 0, min(first, AT_ONCE)
    while begin < len(items):
        yield items[begin : begin + size]
        begin, size = begin + size, min(2 * size, AT_ONCE)


async def act_on_all(act: Callable[[T], Awaitable[R | None]], items: Sequence[T]) -> list[R]:
    """Act on all items; return every answer of `act` that is not None."""
    return [
        answer for row in growing_slices(items) for answer in await asyncio.gather(*map(act, row)) if answer is not None
    ]


async def act_cautiously(act: Callable[[T], Awaitable[R | None]], items: Sequence[T]) -> list[R]:
    """Act on one item, then two, four …, and stop after the first batch in which `act` returned an answer.

    A refusal of one item mostly holds for all similar ones.
    """
    for row in growing_slices(items, first=1):
        answers = [answer for answer in await asyncio.gather(*map(act, row)) if answer is not None]
        if answers:
            return answers
    return []
