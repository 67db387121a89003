"""A sidecar's server follows its certificate files: what is open stays open, new handshakes go by the new."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from e2e.cluster.loopback import own_address, own_port
from hajob.pki.certificates import Authority, issue_certificates, new_authority
from hajob.wire.tls import server_credentials

UID = "uid-1"
DAY = timedelta(days=1)
LIFETIME = timedelta(days=60)


class Echo:
    """A server whose files are in a directory, and clients of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.address = f"{own_address()}:{own_port()}"
        self.server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))

    def write(self, material: dict[str, bytes]) -> None:
        """As a kubelet brings a Secret into a pod."""
        for name, key in (("ca.crt", "ca.crt"), ("tls.crt", "agent.crt"), ("tls.key", "agent.key")):
            fresh = self.directory / f".{name}"
            fresh.write_bytes(material[key])
            fresh.replace(self.directory / name)

    async def start(self) -> None:
        async def echo(requests: AsyncIterator[bytes], _: Any) -> AsyncIterator[bytes]:
            async for message in requests:
                yield message

        handler: Any = grpc.stream_stream_rpc_method_handler(echo, None, None)
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("echo", {"Echo": handler}),))
        self.server.add_secure_port(self.address, server_credentials(self.directory))
        await self.server.start()

    def dial(self, material: dict[str, bytes]) -> Any:
        tls = grpc.ssl_channel_credentials(material["ca.crt"], material["coordinator.key"], material["coordinator.crt"])
        options = (
            ("grpc.ssl_target_name_override", f"agent.{UID}"),
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),
        )
        channel: Any = grpc.aio.secure_channel(self.address, tls, options=options)
        return channel

    async def is_heard(self, material: dict[str, bytes]) -> bool:
        """Whether a client with these files can speak to it."""
        async with self.dial(material) as channel:
            try:
                return bool(await said(channel.stream_stream("/echo/Echo")()))
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNAVAILABLE:
                    return False
                raise


async def said(stream: Any) -> bool:
    await stream.write(b"word")
    answer = await stream.read()
    if answer is grpc.aio.EOF:
        raise grpc.aio.AioRpcError(
            await stream.code(), grpc.aio.Metadata(), grpc.aio.Metadata(), details=await stream.details()
        )
    return bool(answer == b"word")


@pytest.fixture
async def echo(tmp_path: Path) -> AsyncIterator[Echo]:
    made = Echo(tmp_path)
    yield made
    await made.server.stop(None)


def at(made: datetime, *authorities: Authority, lifetime: timedelta = LIFETIME) -> dict[str, bytes]:
    return issue_certificates(UID, authorities, made, lifetime)


async def test_new_files_count_from_the_next_handshake_on(echo: Echo) -> None:
    now = datetime.now(UTC)
    first, second = new_authority(now, LIFETIME), new_authority(now, LIFETIME)
    old, new = at(now, first), at(now, second)
    echo.write(old)
    await echo.start()
    async with echo.dial(old) as channel:
        stream = channel.stream_stream("/echo/Echo")()
        assert await said(stream)
        assert not await echo.is_heard(new)
        echo.write(new)
        assert await echo.is_heard(new)
        assert not await echo.is_heard(old)
        assert await said(stream), "what is open stays open"


async def test_certificates_that_ended_work_again_after_renewal(echo: Echo) -> None:
    """The operator was away for longer than they lasted: only new handshakes fail, and renewed files mend them."""
    now = datetime.now(UTC)
    authority = new_authority(now - 100 * DAY, LIFETIME)
    ended, renewed = at(now - 61 * DAY, authority), at(now, authority)
    echo.write(ended)
    await echo.start()
    assert not await echo.is_heard(renewed)
    echo.write(renewed)
    assert await echo.is_heard(renewed)


async def test_unreadable_files_leave_the_old_ones_in_use(echo: Echo) -> None:
    now = datetime.now(UTC)
    material = at(now, new_authority(now, LIFETIME))
    echo.write(material)
    await echo.start()
    (echo.directory / "tls.key").unlink()
    assert await echo.is_heard(material)
    (echo.directory / "tls.key").write_bytes(b"nonsense")
    assert await echo.is_heard(material)
    echo.write(material)
    assert await echo.is_heard(material)
