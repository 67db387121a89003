"""host:port as gRPC, sockets and people write it, with brackets around an IPv6 address."""

from __future__ import annotations


def host_port(address: str, port: int) -> str:
    """Join host and port; `address` is a name or an IP address without brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def split(address: str) -> tuple[str, int]:
    """Split into host, without brackets, and port. ValueError: there is no port."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
