"""kubectl hajob facts: what an admin is told about an object, without a cluster."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from hajob.cli.main import main
from tests.rigs import hardware_objects as objects
from tests.rigs.example_jobs import EXAMPLE_MANIFEST


def ask(capsys: pytest.CaptureFixture[str], tmp_path: Path, *raw: Any, job: Any = None, output: str = "json") -> Any:
    path = tmp_path / "objects.yaml"
    path.write_text(yaml.safe_dump_all(raw), encoding="utf-8")
    arguments = ["facts", "-f", str(path), "-o", output]
    if job is not None:
        (tmp_path / "job.yaml").write_text(yaml.safe_dump(job), encoding="utf-8")
        arguments += ["--job", str(tmp_path / "job.yaml")]
    assert main(arguments) == 0
    told = capsys.readouterr().out
    return json.loads(told) if output == "json" else told


def test_a_chip_fault_has_the_promised_keys(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = ask(capsys, tmp_path, objects.device_info())
    assert found["rejected"] == []
    assert found["facts"] == [
        {
            "source": "Device",
            "node": "node-1",
            "device": "Ascend910-3",
            "pod": None,
            "rank": None,
            "code": "80E01801",
            "level": "RestartBusiness",
            "kind": "ChipError",
            "since": "2026-01-01T00:00:00.000Z",
            "action": "InPlace",
            "message": "chip Ascend910-3: 80E01801 (CardUnhealthy)",
            "toldBy": ["ConfigMap/mindx-dl-deviceinfo-node-1"],
        }
    ]


def test_a_pod_in_the_file_tells_the_rank(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (row,) = ask(capsys, tmp_path, objects.device_info(), objects.pod(rank=2, devices=("0", "3")))["facts"]
    assert (row["pod"], row["rank"]) == ("job-2", 5)


def test_a_pod_without_the_chip_is_not_hit(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (row,) = ask(capsys, tmp_path, objects.device_info(), objects.pod(devices=("0", "1")))["facts"]
    assert (row["pod"], row["rank"]) == (None, None)


def test_a_pod_of_unknown_chips_may_be_hit(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (row,) = ask(capsys, tmp_path, objects.device_info(), objects.pod(devices=()))["facts"]
    assert (row["pod"], row["rank"]) == ("job-1", None)


@pytest.mark.parametrize(
    ("policy", "action"), [("Ignore", None), ("Checkpoint", "Checkpoint"), ("Migrate", "Migrate"), ("Evict", "Replace")]
)
def test_the_jobs_policy_decides_about_sub_health(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, policy: str, action: str | None
) -> None:
    job = {**EXAMPLE_MANIFEST, "spec": {**EXAMPLE_MANIFEST["spec"], "recovery": {"subHealthPolicy": policy}}}
    raw = objects.device_info(objects.fault(level="SubHealthFault"))
    assert ask(capsys, tmp_path, raw, job=job)["facts"][0]["action"] == action


def gathered(*faults: Any) -> dict[str, Any]:
    """ClusterD's map of the node."""
    name = "cluster-info-device-0"
    info = {"mindx-dl-deviceinfo-node-1": {"DeviceList": objects.device_list(*faults), "UpdateTime": 1}}
    return objects.config_map(name, {name: objects.compact(info)})


DEVICE_MAP, CLUSTER_MAP = "ConfigMap/mindx-dl-deviceinfo-node-1", "ConfigMap/cluster-info-device-0"


def test_a_fault_that_clusterd_repeats_is_shown_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (row,) = ask(capsys, tmp_path, objects.device_info(), gathered())["facts"]
    assert row["toldBy"] == [DEVICE_MAP, CLUSTER_MAP]
    told = ask(capsys, tmp_path, objects.device_info(), gathered(), output="text")
    assert told.strip().endswith(f"-> InPlace (told by {DEVICE_MAP} and {CLUSTER_MAP})")


@pytest.mark.parametrize("is_first", [True, False])
def test_the_worse_of_two_tellers_is_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path, is_first: bool) -> None:
    worse = gathered(objects.fault(level="SeparateNPU"))
    raws = [worse, objects.device_info()] if is_first else [objects.device_info(), worse]
    (row,) = ask(capsys, tmp_path, *raws)["facts"]
    assert (row["level"], row["action"]) == ("SeparateNPU", "Replace")


@pytest.mark.parametrize("is_first", [True, False])
def test_a_public_fault_that_clusterd_repeats_is_shown_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, is_first: bool
) -> None:
    repeated = gathered(objects.fault(level="SubHealthFault", code="220001001", fault_type="PublicFault"))
    message = objects.public(objects.public_fault(influence=[{"nodeName": "node-1", "deviceIds": [3]}]))
    raws = [repeated, message] if is_first else [message, repeated]
    (row,) = ask(capsys, tmp_path, *raws)["facts"]
    tellers = ["ConfigMap/any-name", CLUSTER_MAP]
    assert (row["source"], row["message"], row["toldBy"]) == (
        "Public",
        "Network fault 220001001: a cable",
        tellers[::-1] if is_first else tellers,
    )


def test_what_clusterd_alone_tells_is_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    repeated = gathered(objects.fault(level="SubHealthFault", code="220001001", fault_type="PublicFault"))
    (row,) = ask(capsys, tmp_path, repeated)["facts"]
    assert (row["source"], row["toldBy"]) == ("Public", [CLUSTER_MAP])


def test_what_is_not_used_is_told_with_its_reason(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    raw = objects.device_info()
    raw["data"]["DeviceInfoCfg"] = raw["data"]["DeviceInfoCfg"].replace("RestartBusiness", "NotHandleFault")
    found = ask(capsys, tmp_path, raw)
    assert found["facts"] == []
    assert [one["reason"] for one in found["rejected"]] == ["CheckCodeMismatch"]
    assert "cut off or edited" in ask(capsys, tmp_path, raw, output="text")


def test_a_list_is_taken_apart(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    listed = {"kind": "List", "items": [objects.node(ready="False"), objects.device_info()]}
    assert [row["source"] for row in ask(capsys, tmp_path, listed)["facts"]] == ["Node", "Device"]


def test_a_failed_pod_is_a_fact(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pod = objects.pod()
    pod["status"] = {"phase": "Failed", "reason": "Evicted", "message": "memory pressure"}
    (row,) = ask(capsys, tmp_path, pod)["facts"]
    assert (row["source"], row["pod"], row["code"], row["action"]) == ("Pod", "job-1", "Evicted", "Replace")


def ended(reason: str, code: int = 137) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "trainer", "state": {"terminated": {"reason": reason, "exitCode": code}}}]}


def waiting(reason: str) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "trainer", "state": {"waiting": {"reason": reason, "message": "no image"}}}]}


def taken(reason: str) -> dict[str, Any]:
    return {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "by drain"}]}


@pytest.mark.parametrize(
    ("status", "deleting", "told"),
    [
        ({"phase": "Failed", **ended("OOMKilled")}, False, ("OOMKilled", "PodFailed", "Replace")),
        ({"phase": "Running", **ended("OOMKilled")}, False, ("OOMKilled", "PodFailed", "Replace")),
        ({"phase": "Failed", **ended("Error", 1)}, False, ("Error", "PodFailed", "Replace")),
        ({"phase": "Pending", **waiting("ImagePullBackOff")}, False, ("ImagePullBackOff", "PodUnstartable", "Restart")),
        ({"phase": "Running", **taken("PreemptionByScheduler")}, True, ("PreemptionByScheduler", "PodLost", "Replace")),
        ({"phase": "Running", **taken("EvictionByEvictionAPI")}, True, ("EvictionByEvictionAPI", "PodLost", "Replace")),
        ({"phase": "Failed", "reason": "UnexpectedAdmissionError"}, False,
         ("UnexpectedAdmissionError", "PodFailed", "Replace")),
        ({"phase": "Running"}, True, ("PodDeleted", "PodLost", "Replace")),
        ({"phase": "Running", **ended("Completed", 0)}, True, None),
        ({"phase": "Running"}, False, None),
    ],
)  # fmt: skip
def test_a_pod_says_what_became_of_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, status: Any, deleting: bool, told: Any
) -> None:
    pod = objects.pod()
    pod["status"] = status
    if deleting:
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    rows = ask(capsys, tmp_path, pod)["facts"]
    assert [(row["code"], row["kind"], row["action"]) for row in rows] == ([told] if told else [])


def test_the_admins_settings_in_the_file_count(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = {"conditions": "NPULost: SeparateNPU", "breaker": "{sharePercent: 0}"}
    settings = {"kind": "ConfigMap", "metadata": {"name": "hajob-faults"}, "data": data}
    found = ask(capsys, tmp_path, objects.node(NPULost="True"), settings)
    assert [(row["code"], row["level"], row["action"]) for row in found["facts"]] == [
        ("NPULost", "SeparateNPU", "Replace")
    ]
    assert [(one["object"], one["where"]) for one in found["rejected"]] == [
        ("ConfigMap/hajob-faults", "data.breaker.sharePercent")
    ]


def test_the_text_is_for_people(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    told = ask(capsys, tmp_path, objects.device_info(), objects.pod(), output="text")
    assert told.strip() == (
        "Device: node-1/Ascend910-3 pod job-1 rank 2: RestartBusiness "
        "chip Ascend910-3: 80E01801 (CardUnhealthy) -> InPlace"
    )
    assert "report no fault" in ask(capsys, tmp_path, objects.node(), output="text")


@pytest.mark.parametrize("content", ["{", "- 1", "text", "\x00", "a: &a [*a]"])
def test_a_file_that_holds_no_object_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(content))
    code = main(["facts", "-f", "-"])
    told = capsys.readouterr()
    assert (code == 2 and told.err.startswith("error: ")) or (code == 0 and "no source reads" in told.out)


def test_a_part_of_the_node_is_no_chip_of_a_rank(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (row,) = ask(capsys, tmp_path, objects.node_info(objects.hardware()), objects.pod(devices=("0", "1")))["facts"]
    assert (row["device"], row["pod"], row["rank"]) == ("CPU-0", "job-1", None)


def test_a_node_in_the_file_tells_its_serial_number(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    node = objects.node("node-7")
    node["metadata"]["annotations"] = {"product-serial-number": "2102314ABC"}
    place = {"nodeSN": "2102314ABC", "deviceIds": [0]}
    found = ask(capsys, tmp_path, objects.public(objects.public_fault(influence=[place])), node)
    assert ([row["node"] for row in found["facts"]], found["rejected"]) == (["node-7"], [])
