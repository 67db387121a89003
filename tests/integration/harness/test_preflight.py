"""A stranger on a port that pods need is named before anything is started."""

from __future__ import annotations

import os
import socket

import pytest

from e2e.cluster.run import RunError
from e2e.harness.preflight import require_free_ports


class Addresses:
    """As much of a run as the check needs."""

    def address(self, third: int, fourth: int) -> str:
        return f"127.251.{third}.{fourth}"


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_stranger_on_all_addresses_is_named(family: socket.AddressFamily) -> None:
    with socket.socket(family) as stranger:
        stranger.bind(("" if family == socket.AF_INET else "::", 0))
        stranger.listen(1)
        port = stranger.getsockname()[1]
        with pytest.raises(RunError, match=rf"port {port} \(here: MindIO\) by process {os.getpid()}: "):
            require_free_ports(Addresses(), {port: "MindIO"})  # type: ignore[arg-type]


def test_a_stranger_on_his_own_address_is_not_in_the_way() -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen(1)
        require_free_ports(Addresses(), {stranger.getsockname()[1]: "MindIO"})  # type: ignore[arg-type]
