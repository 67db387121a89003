"""A conversation ends with either of its halves."""

from __future__ import annotations

import asyncio
from typing import NoReturn

import pytest

from hajob.wire.halves import until_first_ends


async def test_the_other_half_is_over_when_the_first_one_ends() -> None:
    ended = asyncio.Event()

    async def write() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    async def read() -> str:
        return "it hung up"

    assert await until_first_ends(write(), read()) == "it hung up"
    assert ended.is_set()


async def test_what_a_half_raises_is_raised() -> None:
    async def write() -> NoReturn:
        raise ConnectionResetError("nobody hears it")

    async def read() -> str:
        await asyncio.Event().wait()
        return "never"

    with pytest.raises(ConnectionResetError):
        await until_first_ends(read(), write())


async def test_of_halves_that_end_together_the_first_counts() -> None:
    async def read() -> str:
        return "it hung up"

    async def write() -> NoReturn:
        raise ConnectionResetError("nobody hears it")

    assert await until_first_ends(read(), write()) == "it hung up"
