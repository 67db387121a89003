"""Measures that keep the operator's process small: it runs for months, and reads large lists at its start."""

from __future__ import annotations

import ctypes
import sys
from asyncio import sslproto
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from hajob.clock import Clock

# Numbers of glibc's malloc.h, which Python does not have.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
# glibc's own first value of both thresholds: set, they stay there.
_BLOCK_BYTES: Final = 128 * 1024
_TLS_BUFFER_BYTES: Final = 32 * 1024
TRIM_SECONDS: Final = 60.0


def give_memory_back() -> None:
    """Have the C library return freed memory to the system (mallopt(3)); call it before there are threads.

    By itself glibc raises its thresholds with each large block that is freed, as the answer to a list is, and keeps as
    much for ever. Elsewhere nothing happens.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        # One for the core's thread and one for kopf's; each further arena would keep free memory of its own.
        mallopt(_M_ARENA_MAX, 2)
        mallopt(_M_TRIM_THRESHOLD, _BLOCK_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _BLOCK_BYTES)


def use_small_tls_buffers() -> None:
    """Have new connections read into 32 KiB, two records of TLS, instead of asyncio's 256 KiB.

    An idle operator has twenty watches open, and one that creates pods sixty connections more.
    """
    sslproto.SSLProtocol.max_size = min(sslproto.SSLProtocol.max_size, _TLS_BUFFER_BYTES)


def trim_memory() -> None:
    """Return free memory between blocks in use, too (malloc_trim(3)); takes a millisecond or two."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


async def trim_memory_for_ever(clock: Clock) -> None:
    """Trim periodically until cancelled: after each storm of events some megabytes are released."""
    while True:
        trim_memory()
        await clock.sleep(TRIM_SECONDS)


@contextmanager
def without_package(package: str) -> Iterator[None]:
    """Make imports of a package that is not loaded yet fail, as if it were not installed.

    For packages that import an optional dependency although it is not needed.
    """
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[package]
