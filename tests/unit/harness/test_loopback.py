"""The address a process claims: nobody else gets it, and no port of it is given out twice."""

from __future__ import annotations

import socket
import subprocess
import sys

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.loopback import Loopback, own_address, own_port

OTHER = "from e2e.cluster.loopback import own_address; print(own_address())"


def test_each_port_is_given_out_once() -> None:
    own = Loopback()
    ports = [own.port() for _ in range(50)]
    assert len(set(ports)) == 50
    with socket.create_server((own.address, ports[0])):
        assert own.port() not in ports


def test_a_port_taken_on_every_address_is_skipped() -> None:
    own = Loopback()
    first = own.port()
    with socket.create_server(("0.0.0.0", first + 1)):
        assert own.port() > first + 1


def test_another_process_has_another_address() -> None:
    command = [sys.executable, "-c", OTHER]
    other = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout.strip()
    assert other.startswith("127.")
    assert other != own_address()


def test_the_address_of_a_process_stays_the_same() -> None:
    assert own_address() == own_address()
    assert own_port() != own_port()
