"""Where health and metrics are served: for the kubelet, and for `kubectl port-forward`, which dials the loopback."""

from __future__ import annotations

import logging
import socket

import aiohttp
import pytest
from aiohttp import web

from hajob import metrics


@pytest.mark.parametrize(
    ("pod_ip", "found"),
    [
        ("10.244.1.7", ("10.244.1.7", "127.0.0.1")),
        ("fd00::17", ("fd00::17", "::1")),
        ("127.16.3.2", ("127.16.3.2",)),  # a process node's pod: others live on that loopback
    ],
)
def test_the_pods_own_address_and_the_loopback(pod_ip: str, found: tuple[str, ...]) -> None:
    assert metrics.listening_addresses(pod_ip) == found


def own_address() -> str:
    """An address of this machine that is not a loopback one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            pytest.skip("this machine has no address but the loopback's")
        found = str(probe.getsockname()[0])
    if found.startswith("127."):
        pytest.skip("this machine has no address but the loopback's")
    return found


async def test_a_forwarded_port_is_answered_too(caplog: pytest.LogCaptureFixture) -> None:
    runner = web.AppRunner(metrics.build_application(lambda: "", lambda: ""))
    await runner.setup()
    pod_ip = own_address()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with caplog.at_level(logging.WARNING):
            await metrics.listen_for_metrics(runner, pod_ip, port)
        assert "port-forward does not reach" in caplog.text
    await runner.cleanup()
    runner = web.AppRunner(metrics.build_application(lambda: "", lambda: ""))
    await runner.setup()
    await metrics.listen_for_metrics(runner, pod_ip, port)
    async with aiohttp.ClientSession() as session:
        for address in (pod_ip, "127.0.0.1"):
            async with session.get(f"http://{address}:{port}/healthz") as answer:
                assert await answer.text() == "ok"
    await runner.cleanup()
