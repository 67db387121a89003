"""The chips of a node as MindCluster's device plugin notes them on the node: name, address, number in a super pod."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from hajob.sources.reading import Reading, Terms, is_device_name, is_integer, mapping, text

ANNOTATION: Final = "baseDeviceInfos"
_LONGEST: Final = 16_384
"""Sixteen chips take two kilobytes; an annotation may say anything."""
_MOST_CHIPS: Final = 64


class BaseDevice(NamedTuple):
    """One chip: its name on the node, its own network's address, and its number in a super pod; -1: in none."""

    name: str
    address: str
    super_device: int = -1

    @property
    def number(self) -> str:
        """Return its number on the node."""
        return self.name.rpartition("-")[2]


def devices_text_of_node(node: Mapping[str, Any]) -> str:
    """Return what a raw node says of its chips, unread; empty where it says nothing, or far too much."""
    found = text(mapping(mapping(node.get("metadata")).get("annotations")).get(ANNOTATION))
    return found if len(found) <= _LONGEST else ""


def parse_base_devices(written: str) -> tuple[BaseDevice, ...]:
    """Parse that text, in the order of the chips' numbers; empty where a part of it cannot be read."""
    told = mapping(Reading(Terms(0)).parse_json(written or "null", ANNOTATION))
    found = []
    for name, device in told.items():
        number = mapping(device).get("SuperDeviceID")
        if not is_device_name(name) or not isinstance(mapping(device).get("IP"), str):
            return ()
        found.append(BaseDevice(name, mapping(device)["IP"], number if is_integer(number) else -1))
    found.sort(key=lambda one: int(one.number))
    return tuple(found[:_MOST_CHIPS])
