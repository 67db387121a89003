"""A device plugin on a real kubelet's socket: `huawei.com/Ascend910`, allocated by the kubelet (v1beta1 of its API)."""

from __future__ import annotations

import importlib
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import grpc
from grpc_tools import protoc

from e2e.cluster.unix_sockets import short_path
from hajob.api import constants as names

PROTOCOL: Final = "device_plugin"
LOOK_SECONDS: Final = 1.0
VERSION: Final = "v1beta1"


@cache
def load_protocol() -> tuple[ModuleType, ModuleType]:
    """Return messages and services of the protocol; gRPC's own loader refuses a path that is not ASCII."""
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as directory:
        targets = [f"--python_out={directory}", f"--grpc_python_out={directory}"]
        code = protoc.main(["protoc", f"-I{here}", *targets, f"{PROTOCOL}.proto"])
        if code != 0:
            raise RuntimeError(f"protoc failed with code {code} on {here / PROTOCOL}.proto")
        sys.path.insert(0, directory)
        try:
            importlib.invalidate_caches()
            return importlib.import_module(f"{PROTOCOL}_pb2"), importlib.import_module(f"{PROTOCOL}_pb2_grpc")
        finally:
            sys.path.remove(directory)


class DevicePlugin:
    """Offers the chips of one node, and registers again whenever the kubelet has started anew.

    Attributes:
        healthy: Whether each chip works; `changed` tells the kubelet.
    """

    def __init__(self, directory: Path, chips: int) -> None:
        self._directory = directory
        self._messages, self._services = load_protocol()
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
