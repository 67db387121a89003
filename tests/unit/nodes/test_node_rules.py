"""The small rules of a node: restarts, chips, probes, quantities, volume sources, settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from e2e.nodes.chips import ChipAllocator, ChipsUnavailableError, chips_asked, pod_annotations
from e2e.nodes.config import NodeSetSettings, read_settings
from e2e.nodes.environment import ReferenceMissingError
from e2e.nodes.images import Image, writable
from e2e.nodes.logs import last_lines, tail_offset
from e2e.nodes.probes import ProbeCounter, ask, port_number
from e2e.nodes.provisioner import volume_for
from e2e.nodes.quantity import parse_quantity, whole
from e2e.nodes.restarts import Backoff, policy_of, restarts
from e2e.nodes.states import Kind
from e2e.nodes.volumes import select, translate_host_path

RESOURCE = "huawei.com/Ascend910"


@pytest.mark.parametrize(
    ("kind", "policy", "code", "again"),
    [
        (Kind.MAIN, "Always", 0, True),
        (Kind.MAIN, "Always", 1, True),
        (Kind.MAIN, "OnFailure", 0, False),
        (Kind.MAIN, "OnFailure", 1, True),
        (Kind.MAIN, "Never", 0, False),
        (Kind.MAIN, "Never", 1, False),
        (Kind.INIT, "Always", 0, False),
        (Kind.INIT, "Always", 1, True),
        (Kind.INIT, "Never", 1, False),
        (Kind.SIDECAR, "Never", 0, True),
        (Kind.SIDECAR, "Never", 1, True),
    ],
)
def test_restart_policy(kind: Kind, policy: str, code: int, again: bool) -> None:
    assert restarts(kind, policy, code) is again


def test_a_container_s_own_policy_comes_first() -> None:
    assert policy_of({"restartPolicy": "Never"}, {"restartPolicy": "Always"}) == "Always"
    assert policy_of({"restartPolicy": "Never"}, {}) == "Never"
    assert policy_of({}, {}) == "Always"


def test_the_first_restart_is_at_once_then_waits_double() -> None:
    backoff = Backoff(10, 60)
    assert [backoff.delay(1.0) for _ in range(6)] == [0, 10, 20, 40, 60, 60]
    assert backoff.delay(600.0) == 0
    assert backoff.delay(1.0) == 10


def test_chips_are_one_pod_s_at_a_time() -> None:
    changes: list[None] = []
    chips = ChipAllocator(4, RESOURCE, changed=lambda: changes.append(None))
    assert chips.allocate("a", {"c1": 1, "c2": 2}) == {"c1": [0], "c2": [1, 2]}
    with pytest.raises(ChipsUnavailableError) as raised:
        chips.allocate("b", {"c": 2})
    assert str(raised.value) == (
        "Allocate failed due to requested number of devices unavailable for huawei.com/Ascend910. "
        "Requested: 2, Available: 1, which is unexpected"
    )
    assert chips.free() == [3]
    assert (chips.owner(1), chips.owner(3)) == ("a", None)
    chips.release("a")
    chips.release("nobody")
    assert chips.free() == [0, 1, 2, 3]
    assert len(changes) == 2


def test_a_broken_chip_is_given_to_nobody() -> None:
    chips = ChipAllocator(2, RESOURCE, broken={0})
    assert chips.healthy == 1
    assert chips.allocate("a", {"c": 1}) == {"c": [1]}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4), st.booleans()), max_size=30))
def test_no_chip_has_two_owners(steps: list[tuple[str, int, bool]]) -> None:
    chips = ChipAllocator(6, RESOURCE)
    owned: dict[str, list[int]] = {}
    for uid, count, release in steps:
        if release:
            chips.release(uid)
            owned.pop(uid, None)
            continue
        try:
            owned[uid] = owned.get(uid, []) + chips.allocate(uid, {"c": count})["c"]
        except ChipsUnavailableError:
            assert sum(map(len, owned.values())) + count > 6
    everybody = [chip for chips_of in owned.values() for chip in chips_of]
    assert len(everybody) == len(set(everybody))
    assert sorted(everybody + chips.free()) == list(range(6))


def test_chips_are_shown_as_the_device_plugin_shows_them() -> None:
    pod = {"metadata": {"name": "p", "uid": "u"}}
    got = pod_annotations(pod, [0, 3], RESOURCE, "127.9.2.1")
    assert got["huawei.com/AscendReal"] == got["huawei.com/kltDev"] == "Ascend910-0,Ascend910-3"
    configuration = json.loads(got["ascend.kubectl.kubernetes.io/ascend-910-configuration"])
    assert configuration["pod_name"] == "p"
    assert configuration["server_id"] == "u"
    assert configuration["host_ip"] == "127.9.2.1"
    assert [device["device_id"] for device in configuration["devices"]] == ["0", "3"]


def test_chips_asked() -> None:
    assert chips_asked({"resources": {"limits": {RESOURCE: "2"}}}, RESOURCE) == 2
    assert chips_asked({"resources": {"requests": {RESOURCE: 3}}}, RESOURCE) == 3
    assert chips_asked({}, RESOURCE) == 0


def test_a_probe_needs_its_results_in_a_row() -> None:
    counter = ProbeCounter.of({"failureThreshold": 2, "successThreshold": 2})
    assert [counter.count(good=g) for g in (True, False, True, True)] == [False, False, False, True]
    assert counter.verdict is True
    assert [counter.count(good=g) for g in (True, False, True, False, False)] == [False, False, False, False, True]
    assert counter.verdict is False


@pytest.mark.parametrize(("answer", "good"), [(b"\x08\x01", True), (b"\x08\x02", False)])
async def test_a_grpc_probe_asks_the_health_service(answer: bytes, good: bool) -> None:
    asked: list[bytes] = []

    async def check(request: bytes, _: object) -> bytes:
        asked.append(request)
        return answer

    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    method: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(check)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": method})])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()

    async def execute(_command: list[str], _timeout: float) -> bool:
        raise AssertionError

    probe = {"grpc": {"port": port, "service": "x"}}
    assert await ask(probe, {"name": "c"}, "127.0.0.1", 20.0, execute) is good
    assert asked == [b"\x0a\x01x"]
    await server.stop(None)
    assert await ask(probe, {"name": "c"}, "127.0.0.1", 20.0, execute) is False


def test_probe_ports() -> None:
    container = {"name": "c", "ports": [{"name": "http", "containerPort": 8080}]}
    assert [port_number(port, container) for port in (1, "2", "http")] == [1, 2, 8080]
    with pytest.raises(ValueError, match="couldn't find port: x in container c"):
        port_number("x", container)


@pytest.mark.parametrize(
    ("text", "value"), [("2Gi", 2**31), ("1k", 1000), ("3", 3), ("1e3", 1000), (5, 5), ("1500m", 1.5)]
)
def test_quantities(text: str | int, value: float) -> None:
    assert parse_quantity(text) == value


def test_quantities_round_up_and_refuse_nonsense() -> None:
    assert whole("1500m") == 2
    with pytest.raises(ValueError, match="'3X' is no quantity"):
        parse_quantity("3X")


def test_volume_items() -> None:
    files = {"a": b"1", "b": b"2"}
    assert select(files, {}, 0o644, "secret n/s") == [("a", b"1", 0o644), ("b", b"2", 0o644)]
    items = {"items": [{"key": "a", "path": "x/y", "mode": 0o400}]}
    assert select(files, items, 0o644, "secret n/s") == [("x/y", b"1", 0o400)]
    missing: dict[str, Any] = {"items": [{"key": "z", "path": "z"}]}
    with pytest.raises(ReferenceMissingError, match="references non-existent key z in secret n/s"):
        select(files, missing, 0o644, "secret n/s")
    assert select(files, missing | {"optional": True}, 0o644, "secret n/s") == []


def test_host_paths_are_translated_by_the_longest_prefix() -> None:
    places = {"/data": Path("/r/d"), "/data/ckpt": Path("/r/c")}
    assert translate_host_path("/data/ckpt/x", places) == Path("/r/c/x")
    assert translate_host_path("/data/other", places) == Path("/r/d/other")
    assert translate_host_path("/data", places) == Path("/r/d")
    assert translate_host_path("/database", places) == Path("/database")


def test_a_volume_for_a_claim() -> None:
    claim = {
        "metadata": {"name": "ckpt", "namespace": "n", "uid": "u"},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    volume = volume_for(claim, Path("/claims"))
    assert volume["spec"]["hostPath"]["path"] == "/claims/n_ckpt"
    assert volume["spec"]["claimRef"]["uid"] == "u"
    assert volume["spec"]["accessModes"] == ["ReadWriteMany"]


def test_ends_of_logs(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_lines(log) == ""
    log.write_bytes(b"1\n2\n3\n")
    assert last_lines(log, 2) == "2\n3"
    assert last_lines(log, 9, 4) == "2\n3"
    assert [tail_offset(log, lines) for lines in (0, 1, 2, 3, 9)] == [6, 4, 2, 0, 0]
    log.write_bytes(b"1\n2")
    assert tail_offset(log, 1) == 2


SETTINGS = {
    "directory": "/d",
    "server": "https://127.9.0.1:6443",
    "authority": "/pki",
    "controlSocket": "/d/c.sock",
    "nodes": [{"name": "a"}, {"name": "b", "chips": 2}],
}


def test_settings_are_read_and_addresses_follow(tmp_path: Path) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text(json.dumps({**SETTINGS, "addressPrefix": "127.9", "firstBlock": 4}))
    settings = read_settings(file)
    assert settings.node_address(1) == "127.9.5.1"
    assert settings.pod_addresses(1)[0] == "127.9.5.2"
    assert len(settings.pod_addresses(0)) == 126


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodez": []}, "nodez"),
        ({"nodes": [{"name": "a"}, {"name": "a"}]}, "given twice: a"),
        ({"nodes": []}, "nodes"),
        ({"addressPrefix": "10.0"}, "addressPrefix"),
        ({"firstBlock": 254}, "do not fit"),
        ({"nodes": [{"name": "a", "chips": -1}]}, "chips"),
    ],
)
def test_wrong_settings_are_refused_with_the_field(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        NodeSetSettings.model_validate({**SETTINGS, **change})


def test_each_start_has_a_fresh_copy_of_the_image(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.mkdir()
    (image / "train.sh").write_text("true")
    made = Image(image, working_directory=str(image / "."))
    layer = tmp_path / "layer"
    working = Path(writable(made, layer).working_directory)
    (working / "left behind").touch()
    assert (working / "train.sh").read_text() == "true"
    assert not (Path(writable(made, layer).working_directory) / "left behind").exists()
    assert not (image / "left behind").exists()
    assert writable(Image(image), layer).working_directory == ""
