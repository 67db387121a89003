"""Strangers in the way: who listens on every address of this machine listens on our pods' addresses, too.

Pods share one network here, so a program on 0.0.0.0:8000 takes port 8000 of every pod that will ever be. That would
show as a rank that cannot reach MindIO, minutes later; it is said before anything is started instead.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

from e2e.cluster.run import Run, RunError

POD_PORTS = {
    7070: "coordinators",
    7071: "agents",
    8000: "MindIO",
    8080: "the operator's metrics",
    10250: "kubelets",
    29500: "the rendezvous store",
}
LISTENING = "0A"


def require_free_ports(run: Run, ports: Mapping[int, str] = POD_PORTS) -> None:
    """Check that pods of `run` can listen where they must.

    Raises:
        RunError: A program holds a port on all addresses; the message names port, use and, where it can be seen, it.
    """
    taken = [port for port in ports if not _is_free(run.address(254, 254), port)]
    if taken:
        lines = [f"  port {port} (here: {ports[port]}) by {holder(port)}" for port in taken]
        raise RunError(
            "\n".join(["these ports are taken on every address of this machine:", *lines, "End that first."])
        )


def holder(port: int) -> str:
    """Who listens on `port` of the wildcard address, as far as this user may know."""
    inodes = _listeners(port)
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        if any(_target(link) in inodes for link in _entries(entry / "fd")):
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            return f"process {entry.name}: {command[:80]}"
    return "a process of another user"


def _entries(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []  # gone, or somebody else's


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


def _listeners(port: int) -> set[str]:
    """Sockets that listen on `port` of a wildcard address, as /proc/<pid>/fd names them."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            address, _, number = fields[1].rpartition(":")
            if fields[3] == LISTENING and int(number, 16) == port and not address.strip("0"):
                found.add(f"socket:[{fields[9]}]")
    return found


def _is_free(address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))  # and no more, so that two that look at the same time do not meet
        except OSError:
            return False
        return True
