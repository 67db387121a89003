"""Readiness, liveness and startup probes.

``ProbeCounter`` is the rule (how many results in a row turn the verdict), the rest asks: exec, httpGet, tcpSocket and
grpc, always at the pod's own address.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import aiohttp

from e2e.nodes.config import JsonObject

Exec = Callable[[list[str], float], Awaitable[bool]]
_HEALTH_SERVING = b"\x08\x01"


@dataclass
class ProbeCounter:
    """Counts results in a row. ``verdict`` is None until a threshold is reached for the first time."""

    success_threshold: int
    failure_threshold: int
    verdict: bool | None = None
    _last: bool | None = None
    _row: int = 0

    @classmethod
    def of(cls, probe: JsonObject) -> ProbeCounter:
        """With the thresholds of a probe's spec (Kubernetes' defaults are 1 and 3)."""
        return cls(probe.get("successThreshold") or 1, probe.get("failureThreshold") or 3)

    def count(self, *, good: bool) -> bool:
        """Take a result; True when the verdict changes."""
        self._row = self._row + 1 if good == self._last else 1
        self._last = good
        threshold = self.success_threshold if good else self.failure_threshold
        if self._row < threshold or self.verdict == good:
            return False
        self.verdict = good
        return True

    def restart(self) -> None:
        """Forget everything: the container was started again."""
        self.verdict, self._last, self._row = None, None, 0


def port_number(port: int | str, container: JsonObject) -> int:
    """A probe's port: a number, or the name of one of the container's ports.

    Raises:
        ValueError: the container has no port of that name.
    """
    if isinstance(port, int) or port.isdigit():
        return int(port)
    for entry in container.get("ports") or []:
        if entry.get("name") == port:
            return int(entry["containerPort"])
    raise ValueError(f"couldn't find port: {port} in container {container['name']}")


async def ask(handler: JsonObject, container: JsonObject, address: str, timeout: float, execute: Exec) -> bool:
    """Ask once what a probe (or a lifecycle hook) says; every failure to ask is False."""
    try:
        async with asyncio.timeout(timeout):
            if "exec" in handler:
                return await execute(handler["exec"].get("command") or [], timeout)
            if "httpGet" in handler:
                return await _http(handler["httpGet"], container, address)
            if "tcpSocket" in handler:
                return await _tcp(handler["tcpSocket"], container, address)
            if "grpc" in handler:
                return await _grpc(handler["grpc"], address, timeout)
            if "sleep" in handler:
                await asyncio.sleep(handler["sleep"]["seconds"])
            return True
    except (OSError, TimeoutError, ValueError, aiohttp.ClientError):
        return False


async def _http(handler: JsonObject, container: JsonObject, address: str) -> bool:
    scheme = (handler.get("scheme") or "HTTP").lower()
    host = handler.get("host") or address
    url = f"{scheme}://{host}:{port_number(handler['port'], container)}{handler.get('path') or '/'}"
    headers = {entry["name"]: entry["value"] for entry in handler.get("httpHeaders") or []}
    unverified = _unverified() if scheme == "https" else False
    async with (
        aiohttp.ClientSession(trust_env=False) as session,
        session.get(url, headers=headers, ssl=unverified, allow_redirects=False) as answer,
    ):
        return 200 <= answer.status < 400


def _unverified() -> ssl.SSLContext:
    """A kubelet's probe takes any certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def _tcp(handler: JsonObject, container: JsonObject, address: str) -> bool:
    port = port_number(handler["port"], container)
    _, writer = await asyncio.open_connection(handler.get("host") or address, port)
    writer.close()
    return True


async def _grpc(handler: JsonObject, address: str, timeout: float) -> bool:
    import grpc.aio

    service = (handler.get("service") or "").encode()
    request = b"\x0a" + bytes([len(service)]) + service if service else b""
    async with grpc.aio.insecure_channel(
        f"{address}:{handler['port']}", options=[("grpc.enable_http_proxy", 0)]
    ) as channel:
        try:
            ask_health: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
                "/grpc.health.v1.Health/Check"
            )
            answer = await ask_health(request, timeout=timeout)
        except grpc.aio.AioRpcError:
            return False
    return answer == _HEALTH_SERVING
