"""A device plugin on a real kubelet's socket: `huawei.com/Ascend910`, allocated by the kubelet (v1beta1 of its API)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import grpc

from e2e.cluster.unix_sockets import short_path
from e2e.protocols import load_protocol
from hajob.api import constants as names

PROTOCOL: Final = Path(__file__).with_name("device_plugin.proto")
LOOK_SECONDS: Final = 1.0
VERSION: Final = "v1beta1"


class DevicePlugin:
    """Offers the chips of one node, and registers again whenever the kubelet has started anew.

    Attributes:
        healthy: Whether each chip works; `changed` tells the kubelet.
    """

    def __init__(self, directory: Path, chips: int) -> None:
        self._directory = directory
        self._messages, self._services = load_protocol(PROTOCOL, "pb2", "pb2_grpc")
        self.healthy = [True] * chips
        self._news = threading.Condition()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep_registered, daemon=True)
        self._thread.start()

    def changed(self) -> None:
        """The health of a chip is another one."""
        with self._news:
            self._news.notify_all()

    def stop(self) -> None:
        """End it."""
        self._ended.set()
        self.changed()
        self._thread.join()

    def _keep_registered(self) -> None:
        """Serve and register, again each time a kubelet has started and emptied the directory."""
        own, kubelet = self._directory / "ascend.sock", self._directory / "kubelet.sock"
        with ExitStack() as served:
            while not self._ended.wait(LOOK_SECONDS):
                if not own.exists() and kubelet.exists():
                    served.close()
                    self._serve(served, own)
                    self._register(kubelet, own)

    def _serve(self, served: ExitStack, own: Path) -> None:
        """Serve at `own` until `served` is closed: gRPC removes the socket then, by the name it was given."""
        server: Any = grpc.server(ThreadPoolExecutor(4))
        self._services.add_DevicePluginServicer_to_server(self, server)
        server.add_insecure_port(f"unix:{served.enter_context(short_path(own))}")
        server.start()
        served.callback(lambda: server.stop(None).wait())

    def _register(self, kubelet: Path, own: Path) -> None:
        request = self._messages.RegisterRequest(
            version=VERSION, endpoint=own.name, resource_name=names.DEFAULT_RESOURCE_NAME
        )
        with short_path(kubelet) as name, grpc.insecure_channel(f"unix:{name}") as channel:
            try:
                self._services.RegistrationStub(channel).Register(request, timeout=5)
            except grpc.RpcError:
                own.unlink(missing_ok=True)  # the kubelet does not serve yet: the next look registers

    # ---- the kubelet's calls, by the names of its API

    def GetDevicePluginOptions(self, _request: object, _context: object) -> Any:  # noqa: N802, ANN401
        """Nothing special."""
        return self._messages.DevicePluginOptions()

    def ListAndWatch(self, _request: object, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: N802
        """The chips now, and after every change."""
        told: list[bool] = []
        while not self._ended.is_set() and context.is_active():
            if told != self.healthy:
                told = list(self.healthy)
                devices = [
                    self._messages.Device(ID=f"Ascend910-{number}", health="Healthy" if works else "Unhealthy")
                    for number, works in enumerate(told)
                ]
                yield self._messages.ListAndWatchResponse(devices=devices)
            with self._news:
                self._news.wait(LOOK_SECONDS)

    def Allocate(self, request: Any, _context: object) -> Any:  # noqa: N802, ANN401
        """What a container with these chips gets: their numbers, as Ascend's runtime does."""
        responses = []
        for each in request.container_requests:
            chips = ",".join(sorted(device.removeprefix("Ascend910-") for device in each.devices_ids))
            responses.append(self._messages.ContainerAllocateResponse(envs={"ASCEND_VISIBLE_DEVICES": chips}))
        return self._messages.AllocateResponse(container_responses=responses)

    def GetPreferredAllocation(self, _request: object, _context: object) -> Any:  # noqa: N802, ANN401
        """No preference."""
        return self._messages.PreferredAllocationResponse()

    def PreStartContainer(self, _request: object, _context: object) -> Any:  # noqa: N802, ANN401
        """Nothing to do."""
        return self._messages.PreStartContainerResponse()
