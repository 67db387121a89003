"""What ClusterD has gathered: `cluster-info-device-<n>`, `cluster-info-switch-<n>`, `cluster-info-node-cm`.

The maps repeat what device plugin and NodeD write for each node, so their facts have the same ids, and a fault that is
read twice counts once. Formats: docs/admin/faults.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from hajob.sources import device_info, node_info, switch_info
from hajob.sources.reading import (
    Reading,
    RejectionReason,
    Terms,
    data_of_config_map,
    is_node_name,
    mapping,
    name_of_object,
)

PREFIX: Final = "cluster-info-"
_PREFIXES: Final = ("mindx-dl-deviceinfo-", "mindx-dl-switchinfo-", "mindx-dl-nodeinfo-")

InnerReader = Callable[[Mapping[str, Any], str, Reading], None]

_READERS: Final[Mapping[str, InnerReader]] = {
    "cluster-info-device-": device_info.read_device_info,
    "cluster-info-switch-": switch_info.read_switch_info,
    "cluster-info-node-cm": node_info.read_node_info,
}


def read_cluster_info(raw: Mapping[str, Any], terms: Terms) -> Reading:
    """Read what an aggregated map says about every node in it. The data key is the ConfigMap's own name."""
    reading, name = Reading(terms), name_of_object(raw)
    reader = next((reader for prefix, reader in _READERS.items() if name.startswith(prefix)), None)
    told = data_of_config_map(raw, name)
    if reader is None or told is None:
        reading.note_rejection(RejectionReason.MISSING_KEY, name or "data")
        return reading
    for source, info in mapping(reading.parse_json(told, name) if told else None).items():  # no fault: an empty text
        node = next((source.removeprefix(prefix) for prefix in _PREFIXES if source.startswith(prefix)), "")
        if is_node_name(node):
            reader(mapping(info), node, reading)
        else:
            reading.note_rejection(RejectionReason.UNKNOWN_NODE, name, source)
    return reading
