"""What a set of process nodes is told before it starts.

One file describes all nodes of a process, because whoever starts a cluster (a test, the demo) decides everything
about it in one place. It is read once and refused as a whole when a name in it is unknown, so that a misspelt setting
never silently becomes a default. The fields are explained in docs/internals/process-nodes.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

JsonObject = dict[str, Any]

MAX_NODES = 254


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True, frozen=True)


class NodeSettings(_Settings):
    """One node: its name, its size and what is written on it when it registers."""

    name: str = Field(min_length=1, max_length=63)
    chips: int = Field(default=0, ge=0, le=64)
    cpu: str = "8"
    memory: str = "32Gi"
    pods: int = Field(default=110, ge=1, le=250)
    labels: dict[str, str] = {}
    taints: list[JsonObject] = []


class NodeSetSettings(_Settings):
    """All nodes that one process hosts.

    ``address_prefix`` is the first half of every address: node *n* (from ``first_block``, in the order given) is
    ``PREFIX.n.1`` and its pods are ``PREFIX.n.2`` to ``PREFIX.n.254``. ``authority`` is the directory with the
    cluster authority's ``ca.crt`` and ``ca.key``, which sign the nodes' certificates. A changed Secret or ConfigMap is
    in the pods after at most ``sync_seconds``, as after a kubelet's ``syncFrequency``.
    """

    directory: Path
    server: str
    authority: Path
    control_socket: Path
    address_prefix: str = Field(default="127.16", pattern=r"^127\.\d{1,3}$")
    first_block: int = Field(default=1, ge=1, le=254)
    kubelet_port: int = Field(default=10250, ge=0, le=65535)
    images: dict[str, Path] = {}
    host_paths: dict[str, Path] = {}
    chip_resource: str = "huawei.com/Ascend910"
    lease_duration_seconds: int = Field(default=40, ge=1)
    lease_renew_seconds: float = Field(default=10, gt=0)
    sync_seconds: float = Field(default=60, gt=0)
    restart_backoff_seconds: float = Field(default=10, ge=0)
    restart_backoff_limit_seconds: float = Field(default=300, ge=0)
    first_process_is_init: bool = False
    volcano_mode: bool = False
    nodes: list[NodeSettings] = Field(min_length=1, max_length=MAX_NODES)

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        if self.first_block + len(self.nodes) > MAX_NODES + 1:
            raise ValueError(f"{len(self.nodes)} nodes do not fit after block {self.first_block}")
        names = [node.name for node in self.nodes]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            msg = f"node names must differ, these are given twice: {', '.join(doubled)}"
            raise ValueError(msg)
        return self

    def node_address(self, position: int) -> str:
        """The address of the node at ``position`` (from 0) in ``nodes``."""
        return f"{self.address_prefix}.{self.first_block + position}.1"

    def pod_addresses(self, position: int) -> list[str]:
        """Every address a pod of that node can get."""
        return [f"{self.address_prefix}.{self.first_block + position}.{host}" for host in range(2, LOCAL_HOSTS)]


LOCAL_HOSTS = 128
"""From here on the last number of an address is that of a pod's own loopback: one of its own for each pod."""


def local_address_of(pod_address: str) -> str:
    """The address that is to a pod what 127.0.0.1 is to one with a network of its own."""
    network, _, host = pod_address.rpartition(".")
    return f"{network}.{int(host) + LOCAL_HOSTS - 1}" if network and host.isdecimal() else pod_address


def read_settings(path: Path) -> NodeSetSettings:
    """Read the YAML or JSON file at ``path``; pydantic's error names each wrong field."""
    return NodeSetSettings.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
