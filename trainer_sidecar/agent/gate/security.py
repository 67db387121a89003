"""TLS of MindIO's links: the gate's towards the controller, and a rank's towards its gate if the trainer speaks it.

Both begin behind the connect frame, which goes in the clear. Whether a rank speaks TLS is the trainer's choice
(MindSpeed-LLM and MindSpore do not), and shows behind its first frame: one that does sends its hello at once, any other
one waits for its reply. docs/protocols/launcher.md#the-gate
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from trainer_sidecar.agent.gate import frames
from trainer_sidecar.agent.gate.listener import CHUNK

FILES: Final = ("ca.crt", "tls.crt", "tls.key")
HELLO_SECONDS: Final = 1.0
"""A rank that has said nothing for so long speaks no TLS. Asked of the first one of a pod only: all run one script."""
HANDSHAKE_SECONDS: Final = 10.0
"""Longer than a rank that gets no turn on a crowded node needs."""
NO_CHECK_TIME: Final = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME. MindIO reads its certificate once: a process that runs for longer than that is
valid would lose its link for good. The authority signs for this job alone."""

log = logging.getLogger(__name__)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class RankTLSError(Exception):
    """A rank's handshake with the gate has failed; the text says why."""


class LinkSecurity:
    """The certificates of MindIO's links, read anew when their files have changed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._contexts: dict[bool, ssl.SSLContext] = {}
        self._stamp: tuple[int, ...] = ()
        self._ranks_speak: bool | None = None
        self._pumps: set[asyncio.Task[None]] = set()

    async def secure_upstream(self, writer: asyncio.StreamWriter) -> None:
        """Begin TLS on a connection to the controller, behind the connect frame. OSError: one refuses the other."""
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            await writer.drain()
            await writer.start_tls(self._context(serves=False))

    async def secure_rank(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Streams:
        """Return the streams on which a rank is heard and answered in the clear; its own, if it speaks no TLS.

        RankTLSError: its handshake fails.
        """
        if self._ranks_speak is False:
            return reader, writer
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS if self._ranks_speak else HELLO_SECONDS):
                hello = await reader.readexactly(len(frames.TLS_HANDSHAKE))
        except TimeoutError:
            if self._ranks_speak:
                raise RankTLSError("it begins none, and another rank of this pod has") from None
            self._ranks_speak = False
            return reader, writer
        if not frames.opens_tls(hello):
            raise RankTLSError(f"it says {hello.hex()} before it has its reply")
        tunnel = _Tunnel(reader, writer, self._context(serves=True))
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                await tunnel.shake_hands(hello)
        except (OSError, TimeoutError) as problem:  # ssl.SSLError is an OSError
            raise RankTLSError(str(problem) or "it does not end") from problem
        self._ranks_speak = True
        return await self._open_inside(tunnel)

    async def _open_inside(self, tunnel: _Tunnel) -> Streams:
        """Connect the gate with the tunnel's inner end."""
        ours, inner = socket.socketpair()
        inside = await asyncio.open_connection(sock=inner, limit=CHUNK)
        self._run(tunnel.pump_until_end(inside))
        return await asyncio.open_connection(sock=ours, limit=CHUNK)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._pumps.add(task)
        task.add_done_callback(self._pumps.discard)

    def end_tunnels(self) -> None:
        """End every tunnel."""
        for task in self._pumps:
            task.cancel()

    def _context(self, *, serves: bool) -> ssl.SSLContext:
        """Return the context of one side. OSError: the files are no certificates, and none were read before."""
        try:
            stamp = tuple((self._directory / name).stat().st_mtime_ns for name in FILES)
            if stamp != self._stamp:
                self._contexts = {side: self._read_context(serves=side) for side in (False, True)}
                self._stamp = stamp
        except OSError as problem:
            if not self._contexts:
                raise
            log.warning("MindIO's certificates in %s cannot be read, the old ones stay: %s", self._directory, problem)
        return self._contexts[serves]

    def _read_context(self, *, serves: bool) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if serves else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # MindIO's certificates have no addresses, and nobody else has one of this job's
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VerifyFlags(NO_CHECK_TIME)
        authority, certificate, key = (str(self._directory / name) for name in FILES)
        context.load_verify_locations(authority)
        context.load_cert_chain(certificate, key)
        return context


@dataclass
class _Tunnel:
    """A rank's encrypted connection, and the streams of the gate inside."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    context: ssl.SSLContext

    def __post_init__(self) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = self.context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    async def shake_hands(self, hello: bytes) -> None:
        """Complete the handshake, of which these bytes were read. OSError: it fails, or the rank leaves."""
        self._incoming.write(hello)
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._send_outgoing()
            except ssl.SSLError:
                await self._send_outgoing()  # says why
                raise
            else:
                await self._send_outgoing()
                return
            if not (data := await self.reader.read(CHUNK)):
                raise ConnectionResetError("it left in the middle of the handshake")
            self._incoming.write(data)

    async def _send_outgoing(self) -> None:
        if data := self._outgoing.read():
            self.writer.write(data)
            await self.writer.drain()

    async def pump_until_end(self, inside: Streams) -> None:
        """Pass bytes both ways until either side ends; then both do."""
        inner_reader, inner_writer = inside
        both = [
            asyncio.ensure_future(self._decrypt(inner_writer)),
            asyncio.ensure_future(self._encrypt(inner_reader)),
        ]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            inner_writer.close()
            self.writer.close()

    async def _decrypt(self, inner: asyncio.StreamWriter) -> None:
        while True:
            with contextlib.suppress(ssl.SSLWantReadError):
                while data := self._tls.read(CHUNK):
                    inner.write(data)
                    await inner.drain()
                return  # it has said that it closes
            if not (data := await self.reader.read(CHUNK)):
                return
            self._incoming.write(data)

    async def _encrypt(self, inner: asyncio.StreamReader) -> None:
        while data := await inner.read(CHUNK):
            self._tls.write(data)
            await self._send_outgoing()
