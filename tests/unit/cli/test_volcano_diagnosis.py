"""The doctor says who schedules pods with chips, and which jobs that does not fit."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from hajob.cli.diagnosis import Grade
from hajob.cli.volcano_diagnosis import Schedulers, findings_of_schedulers, modes_of_plugins
from tests.rigs.example_jobs import EXAMPLE_MANIFEST


def daemon_set(*words: str, name: str = "ascend-device-plugin-daemonset") -> dict[str, Any]:
    container = {"name": "device-plugin-01", "command": ["/bin/bash", "-c", "--"], "args": list(words)}
    pod = {"spec": {"containers": [container]}}
    return {"metadata": {"name": name, "namespace": "kube-system"}, "spec": {"template": pod}}


def job(gang_policy: str = "SchedulingGates", chips: int | None = None, queue: str = "") -> dict[str, Any]:
    accelerator = {"product": "A2"} | ({"chipsPerNode": chips} if chips else {})
    scheduling = {"gangPolicy": gang_policy, "queueName": queue}
    return {
        "metadata": {"name": "qwen", "namespace": "team-a"},
        "spec": {"accelerator": accelerator, "scheduling": scheduling},
    }


def raw_job(chips: int) -> dict[str, Any]:
    """Return a whole job, as it is stored."""
    found = deepcopy(EXAMPLE_MANIFEST)
    found["metadata"]["namespace"] = "team-a"
    found["spec"]["accelerator"]["chipsPerNode"] = chips
    found["spec"]["parallelism"] = {"tensor": 1}
    return found


VOLCANO_MODE = daemon_set("device-plugin -useAscendDocker=true -volcanoType=true -presetVirtualDevice=true")
QUEUES = [{"metadata": {"name": "default"}}, {"metadata": {"name": "old"}, "status": {"state": "Closed"}}]
OPERATOR = {
    "spec": {
        "template": {"spec": {"containers": [{"env": [{"name": "HAJOB_VOLCANO_ENABLED", "value": "true"}]}]}},
    }
}


def problems(found: Schedulers, *jobs: dict[str, Any]) -> list[str]:
    return [one.message for one in findings_of_schedulers(found, jobs) if one.grade is Grade.PROBLEM]


@pytest.mark.parametrize(
    ("words", "mode"),
    [
        ("device-plugin -useAscendDocker=true -volcanoType=true -logLevel=0", True),
        ("/usr/local/bin/device-plugin -volcanoType", True),
        ("device-plugin -volcanoType=false", False),
        ("device-plugin -useAscendDocker=true", False),
    ],
)
def test_the_mode_of_the_device_plugin_is_read(words: str, mode: bool) -> None:
    noded, plugin = daemon_set("noded -logFile=/var/log/x", name="noded"), daemon_set(words)
    assert list(modes_of_plugins([noded, plugin])) == [(plugin, mode)]


def test_a_part_of_a_node_by_another_scheduler_is_a_problem() -> None:
    found = Schedulers(daemon_sets=[VOLCANO_MODE])
    (told,) = problems(found, job(chips=2), job(chips=8), job())
    assert told.startswith("wants 2 of 8 chips of a node by another scheduler than Volcano")
    assert problems(Schedulers(daemon_sets=[daemon_set("device-plugin -x")]), job(chips=2)) == []


def node_of(pool: str, chips: int) -> dict[str, Any]:
    amounts = {"huawei.com/Ascend910": str(chips)}
    ready = {"type": "Ready", "status": "True"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    return {"metadata": {"name": f"of-{pool}", "labels": {"pool": pool}}, "status": status}


def test_what_a_whole_node_is_the_nodes_say() -> None:
    """A job for nodes with two chips wants all of one; the device plugin of each pool has a mode of its own."""
    nodes = [node_of("large", 8), node_of("small", 2)]
    modes = {"large": "-volcanoType=true", "small": "-volcanoType=false"}
    plugins = [daemon_set(f"device-plugin {mode}", name=pool) for pool, mode in modes.items()]
    for plugin, pool in zip(plugins, modes, strict=True):
        plugin["spec"]["template"]["spec"]["nodeSelector"] = {"pool": pool}

    def told(pool: str, chips: int) -> list[str]:
        asked = raw_job(chips)
        asked["spec"]["template"]["spec"]["nodeSelector"] = {"pool": pool}
        found = findings_of_schedulers(Schedulers(daemon_sets=plugins, queues=QUEUES), [asked], nodes)
        return [one.message for one in found if one.grade is Grade.PROBLEM]

    assert told("large", 2)[0].startswith("wants 2 of 8 chips of a node")
    assert (told("large", 8), told("small", 2), told("small", 1)) == ([], [], [])


def test_a_plugin_that_waits_for_no_volcano_is_noted() -> None:
    def notes(found: Schedulers) -> list[str]:
        return [one.message for one in findings_of_schedulers(found, []) if one.grade is Grade.NOTE]

    assert "is not installed, and the device plugin waits for it" in notes(Schedulers(daemon_sets=[VOLCANO_MODE]))[0]
    assert notes(Schedulers(daemon_sets=[VOLCANO_MODE], queues=QUEUES, operator=OPERATOR)) == []
    assert notes(Schedulers(daemon_sets=[daemon_set("device-plugin -x")])) == []


def test_jobs_of_volcano_need_it_and_an_open_queue() -> None:
    assert problems(Schedulers(), job("Volcano")) == ["has gangPolicy: Volcano, and the cluster has no Volcano"]
    found = Schedulers(queues=QUEUES, operator=OPERATOR)
    assert problems(found, job("Volcano"), job("Volcano", queue="default")) == []
    assert "its queue old of Volcano is closed" in problems(found, job("Volcano", queue="old"))[0]
    assert "its queue new of Volcano does not exist" in problems(found, job("Volcano", queue="new"))[0]


def test_an_operator_without_rights_to_volcano_is_noted() -> None:
    def grades(operator: dict[str, Any] | None) -> list[Grade]:
        return [one.grade for one in findings_of_schedulers(Schedulers(queues=QUEUES, operator=operator), [])]

    assert grades(OPERATOR) == [Grade.FINE]
    assert grades({}) == [Grade.NOTE]


def test_nodes_that_do_not_tell_their_super_pod_are_noted() -> None:
    def node(name: str, **labels: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "labels": labels}, "status": {"capacity": {"huawei.com/Ascend910": "16"}}}

    nodes = [node("told", **{"huawei.com/topotree.superpodid": "0"}), node("untold"), {"metadata": {"name": "cpu"}}]
    in_blocks = job("Volcano")
    in_blocks["spec"]["accelerator"]["superPodChips"] = 32
    found = Schedulers(queues=QUEUES, operator=OPERATOR)
    (note,) = [one for one in findings_of_schedulers(found, [in_blocks], nodes) if one.grade is Grade.NOTE]
    assert note.message.startswith("no label huawei.com/topotree.superpodid on 1 node with chips (untold)")
    assert [one for one in findings_of_schedulers(found, [job("Volcano")], nodes) if one.grade is Grade.NOTE] == []
