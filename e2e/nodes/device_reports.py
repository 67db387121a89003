"""The device plugin's and NodeD's side of a node: their ConfigMaps, kept as the node's chips and faults are.

Written under an identity of their own, as in a real cluster: a node may not write ConfigMaps.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field

from e2e.nodes.api import NodeApiError
from e2e.nodes.config import JsonObject
from e2e.nodes.context import NodeContext
from e2e.nodes.faults import NODE_NAMESPACE, ChipFault, HardwareFault, SwitchFault, device_info, node_info

log = logging.getLogger(__name__)

_REFRESH_SECONDS = 300.0
_RETRY_SECONDS = 0.2


@dataclass
class DeviceReports:
    """The faults of a node and what is published about them."""

    context: NodeContext
    chip_faults: list[ChipFault] = field(default_factory=list)
    switch_faults: list[SwitchFault] | None = None
    hardware_faults: list[HardwareFault] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _node_info_exists: bool = False

    def add_chip_fault(self, fault: ChipFault) -> None:
        """A chip breaks (or gets one more fault)."""
        self.chip_faults.append(fault)
        self.changed()

    def clear_chip(self, chip: int) -> None:
        """All faults of a chip are over."""
        self.chip_faults = [fault for fault in self.chip_faults if fault.chip != chip]
        self.changed()

    def set_switch_faults(self, faults: list[SwitchFault]) -> None:
        """What the node's switches have from now on; it is taken for an A3 from the first one on."""
        self.switch_faults = faults
        self.changed()

    def set_hardware_faults(self, faults: list[HardwareFault]) -> None:
        """What NodeD finds from now on."""
        self.hardware_faults = faults
        self.changed()

    def changed(self) -> None:
        """Something that is published has changed, for example which chips are free."""
        chips = self.context.chips
        chips.broken = {
            fault.chip for fault in self.chip_faults if fault.separates(used=chips.owner(fault.chip) is not None)
        }
        self._changed.set()

    async def publish(self) -> None:
        """Write the ConfigMaps at each change and every five minutes."""
        while True:
            self._changed.clear()
            try:
                await self._write()
            except NodeApiError as error:
                log.warning("%s: device reports: %s", self.context.name, error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            try:
                async with asyncio.timeout(_REFRESH_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _write(self) -> None:
        chips = self.context.chips
        if chips.count:
            now, faults = time.time(), self.chip_faults
            used = [chip for chip in range(chips.count) if chips.owner(chip) is not None]
            body = device_info(
                self.context.name, chips.resource, chips.free(), faults, now, used=used, switches=self.switch_faults
            )
            await self._put(body)
        if self.hardware_faults:
            await self._put(node_info(self.context.name, self.hardware_faults, time.time()))
            self._node_info_exists = True
        elif self._node_info_exists:
            path = f"/api/v1/namespaces/{NODE_NAMESPACE}/configmaps/mindx-dl-nodeinfo-{self.context.name}"
            await self.context.device_client.request("DELETE", path)
            self._node_info_exists = False

    async def _put(self, body: JsonObject) -> None:
        path = f"/api/v1/namespaces/{body['metadata']['namespace']}/configmaps"
        try:
            await self.context.device_client.request("PUT", f"{path}/{body['metadata']['name']}", body)
        except NodeApiError as error:
            if error.status != 404:
                raise
            await self.context.device_client.request("POST", path, body)
