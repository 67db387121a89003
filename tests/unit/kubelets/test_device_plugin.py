"""The device plugin of the real nodes against a kubelet's side of the socket."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from e2e.cluster.unix_sockets import short_path
from e2e.kubelets.device_plugin import PROTOCOL, DevicePlugin
from e2e.protocols import load_protocol

PATIENCE = 60.0
MESSAGES, SERVICES = load_protocol(PROTOCOL, "pb2", "pb2_grpc")


class Kubelet:
    """Takes registrations."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.registered: queue.Queue[Any] = queue.Queue()
        self._server: Any = None
        self.start()

    def start(self) -> None:
        """Empty the directory, as it does, and serve."""
        for old in self.directory.glob("*.sock"):
            old.unlink()
        self._server = grpc.server(ThreadPoolExecutor(2))
        SERVICES.add_RegistrationServicer_to_server(self, self._server)
        self._name = ExitStack()
        self._server.add_insecure_port(f"unix:{self._name.enter_context(short_path(self.directory / 'kubelet.sock'))}")
        self._server.start()

    def stop(self) -> None:
        self._server.stop(None).wait()
        self._name.close()

    def Register(self, request: Any, _context: object) -> Any:  # noqa: N802
        self.registered.put(request)
        return MESSAGES.Empty()


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    deep = tmp_path / "a home with blanks and ümlauts" / ("deep" * 30)
    deep.mkdir(parents=True)
    made = Kubelet(deep)
    yield made
    made.stop()


@pytest.fixture
def plugin(kubelet: Kubelet) -> Iterator[DevicePlugin]:
    made = DevicePlugin(kubelet.directory, 2)
    yield made
    made.stop()


@contextmanager
def stub(kubelet: Kubelet) -> Iterator[Any]:
    request = kubelet.registered.get(timeout=PATIENCE)
    assert (request.version, request.resource_name) == ("v1beta1", "huawei.com/Ascend910")
    with (
        short_path(kubelet.directory / request.endpoint) as name,
        grpc.insecure_channel(f"unix:{name}") as channel,
    ):
        yield SERVICES.DevicePluginStub(channel)


def test_it_offers_its_chips_and_tells_their_health(kubelet: Kubelet, plugin: DevicePlugin) -> None:
    with stub(kubelet) as service:
        levels = service.ListAndWatch(MESSAGES.Empty(), timeout=PATIENCE)
        assert [(each.ID, each.health) for each in next(levels).devices] == [
            ("Ascend910-0", "Healthy"),
            ("Ascend910-1", "Healthy"),
        ]
        plugin.healthy[1] = False
        plugin.changed()
        assert [each.health for each in next(levels).devices] == ["Healthy", "Unhealthy"]
        levels.cancel()


def test_a_container_learns_which_chips_it_got(kubelet: Kubelet, plugin: DevicePlugin) -> None:
    with stub(kubelet) as service:
        asked = MESSAGES.ContainerAllocateRequest(devices_ids=["Ascend910-1", "Ascend910-0"])
        answer = service.Allocate(MESSAGES.AllocateRequest(container_requests=[asked]), timeout=PATIENCE)
    assert dict(answer.container_responses[0].envs) == {"ASCEND_VISIBLE_DEVICES": "0,1"}


def test_it_registers_again_with_a_kubelet_that_was_started_anew(kubelet: Kubelet, plugin: DevicePlugin) -> None:
    kubelet.registered.get(timeout=PATIENCE)
    kubelet.stop()
    kubelet.start()
    kubelet.registered.get(timeout=PATIENCE)
