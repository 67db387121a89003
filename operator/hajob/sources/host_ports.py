"""The ports of its node that a pod takes: the scheduler places no two pods that need the same one on a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import product
from typing import Any, Final, NamedTuple

from hajob.sources.reading import is_integer, items, mapping, text

_KNOWN_LIMIT: Final = 1_000
"""Combinations that are kept once; a cluster has a few, unless its pods draw their ports by lot."""
_ALL_ADDRESSES: Final = frozenset({"", "0.0.0.0", "::"})


class HostPort(NamedTuple):
    """A port of a node; an empty address stands for all of the node's."""

    number: int
    protocol: str = "TCP"
    address: str = ""

    def collides_with(self, other: HostPort) -> bool:
        """Return whether two pods with these ports cannot share a node."""
        if (self.number, self.protocol) != (other.number, other.protocol):
            return False
        return self.address == other.address or "" in {self.address, other.address}


HostPorts = tuple[HostPort, ...]


def do_ports_collide(some: HostPorts, others: HostPorts) -> bool:
    """Return whether pods with these ports cannot share a node."""
    return any(one.collides_with(other) for one, other in product(some, others))


def host_ports_of_spec(spec: Mapping[str, Any]) -> HostPorts:
    """Return the ports of its node that a pod of this spec takes: in the node's network each that it declares."""
    found = frozenset(_declared_ports(spec, is_on_the_host=spec.get("hostNetwork") is True))
    return _shared_tuple(found) if found else ()


@lru_cache(maxsize=_KNOWN_LIMIT)
def _shared_tuple(found: frozenset[HostPort]) -> HostPorts:
    """Return one tuple for each combination: thousands of pods take the same."""
    return tuple(sorted(found))


def _declared_ports(spec: Mapping[str, Any], *, is_on_the_host: bool) -> Iterable[HostPort]:
    for part in ("containers", "initContainers"):
        for container in map(mapping, items(spec.get(part))):
            if part == "initContainers" and container.get("restartPolicy") != "Always":
                continue  # it is over before the others begin, and the scheduler does not count it
            for port in map(mapping, items(container.get("ports"))):
                number = port.get("hostPort") or (port.get("containerPort") if is_on_the_host else None)
                if is_integer(number):
                    address = text(port.get("hostIP"))
                    # One name for all addresses, so that comparing two ports is comparing two texts.
                    plain = "" if address in _ALL_ADDRESSES else address
                    yield HostPort(number, text(port.get("protocol")) or "TCP", plain)
