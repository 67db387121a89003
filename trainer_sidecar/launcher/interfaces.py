"""The network interfaces of this pod: which one has its address, and what a choice of them means here.

Every pod's peers dial its address, so its interface is the one that surely leads to them: with the host's network as
well, where nodes of one cluster may call it differently.
"""

from __future__ import annotations

import fcntl
import os
import socket

DIRECTORY = "/sys/class/net"
INET6 = "/proc/net/if_inet6"
SIOCGIFADDR = 0x8915
"""netdevice(7): the IPv4 address of an interface."""


def interface_with_address(address: str) -> str:
    """Return the name of the interface that has this address; empty: none has, or it can't be told."""
    try:
        if ":" in address:
            return _interface_with_ipv6(socket.inet_pton(socket.AF_INET6, address).hex())
        return _interface_with_ipv4(socket.inet_pton(socket.AF_INET, address))
    except OSError:
        return ""


def _interface_with_ipv4(address: bytes) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asks:
        for _, name in socket.if_nameindex():
            try:
                request = fcntl.ioctl(asks.fileno(), SIOCGIFADDR, name.encode().ljust(256, b"\0"))
            except OSError:  # it has no IPv4 address
                continue
            if request[20:24] == address:
                return name
    return ""


def _interface_with_ipv6(address: str) -> str:
    with open(INET6, encoding="ascii") as rows:
        return next((row.split()[-1] for row in rows if row.startswith(address)), "")


def usable_interfaces(variable: str, choice: str) -> str:
    """Return what a variable can have of `spec.network.interface` in this pod; empty for nothing.

    HCCL's choice is a list of beginnings of names, of whole names behind `=`, or of what is not taken behind `^`.
    Gloo knows whole names only.
    """
    if not choice or not os.path.isdir(DIRECTORY):  # the latter: it can't be told
        return choice
    there, names = os.listdir(DIRECTORY), choice.lstrip("=^").split(",")
    if variable == "GLOO_SOCKET_IFNAME":
        return "" if choice.startswith("^") else ",".join(name for name in names if name in there)
    if choice.startswith("="):
        return choice if set(names) & set(there) else ""
    return choice if choice.startswith("^") or any(one.startswith(tuple(names)) for one in there) else ""
