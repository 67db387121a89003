"""Requests of one kind, many at a time: never more than the API server is asked to bear from one job."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")

AT_ONCE: Final = 50
"""Requests of one job that are under way together; below the connections that the operator has (http_kube)."""


def slices(items: Sequence[T], first: int = AT_ONCE) -> Iterator[Sequence[T]]:
    """The items in rows of `first`, then twice as many, up to `AT_ONCE`."""
    begin, size = 0, min(first, AT_ONCE)
    while begin < len(items):
        yield items[begin : begin + size]
        begin, size = begin + size, min(2 * size, AT_ONCE)


async def together(act: Callable[[T], Awaitable[R | None]], items: Sequence[T]) -> list[R]:
    """Do all of it; returns what `act` answered, where it was something."""
    return [answer for row in slices(items) for answer in await asyncio.gather(*map(act, row)) if answer is not None]


async def cautiously(act: Callable[[T], Awaitable[R | None]], items: Sequence[T]) -> list[R]:
    """Begin with one, then two, four …, and end after the row in which `act` answered something.

    What was refused once is mostly refused to all that is like it.
    """
    for row in slices(items, first=1):
        answers = [answer for answer in await asyncio.gather(*map(act, row)) if answer is not None]
        if answers:
            return answers
    return []
