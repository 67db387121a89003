"""The objects that Hajob builds, compared whole with files beside, and what must hold for every one of them.

After a change that is meant: `HAJOB_UPDATE_GOLDEN=1 pytest tests/unit/pods/test_built_pods.py`, then read the
difference.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest
import yaml

from hajob.api import constants as names
from hajob.api.job import HATrainingJob
from hajob.pki.tls_secret import KEYS, read_tls_secret, tls_secret
from hajob.plan.policy import policy_from_spec
from hajob.pods.coordinator_pod import coordinator_pod
from hajob.pods.environment import rank_environment
from hajob.pods.naming import coordinator_pod_name, is_same_pod, rank_pod_name
from hajob.pods.pod_group import build_pod_group
from hajob.pods.rank_pod import build_rank_pod, innermost_mount, output_directory
from hajob.pods.settings import PodSettings
from hajob.pods.spare_pod import build_spare_pod
from hajob.pods.workload import build_spare_workload, build_workload
from hajob.sources.workload import QueuePriority
from tests.rigs.example_jobs import Object, example_in_the_nodes_network, example_job

GOLDEN = Path(__file__).parent / "golden"
SETTINGS = PodSettings("hajob/sidecar:dev")
VOLCANO = {"gangPolicy": "Volcano"}


def ranks_of(job: HATrainingJob) -> Object:
    return rank_environment(job, policy_from_spec(job.spec))


BUILT: dict[str, Callable[[], Object]] = {
    "quickstart-rank-pod": lambda: build_rank_pod(example_job("quickstart"), 3, 17, SETTINGS, ["node-b", "node-a"]),
    "quickstart-coordinator-pod": lambda: coordinator_pod(example_job("quickstart"), 17, SETTINGS),
    "quickstart-rank-environment": lambda: ranks_of(example_job("quickstart")),
    "one-node-rank-environment": lambda: ranks_of(example_job("quickstart", numNodes=1)),
    "one-node-mindspore-rank-environment": lambda: ranks_of(
        example_job("quickstart", numNodes=1, framework="MindSpore")
    ),
    "full-rank-pod": lambda: build_rank_pod(example_job("full"), 0, 1, SETTINGS),
    "full-coordinator-pod": lambda: coordinator_pod(example_job("full"), 1, SETTINGS, apart=False),
    "full-rank-environment": lambda: ranks_of(example_job("full")),
    "mindspore-rank-pod": lambda: build_rank_pod(example_job("full", framework="MindSpore"), 0, 1, SETTINGS),
    "mindspore-coordinator-pod": lambda: coordinator_pod(example_job("full", framework="MindSpore"), 1, SETTINGS),
    "mindspore-rank-environment": lambda: ranks_of(example_job("full", framework="MindSpore")),
    "host-network-rank-pod": lambda: build_rank_pod(example_in_the_nodes_network("quickstart"), 0, 1, SETTINGS),
    "host-network-coordinator-pod": lambda: coordinator_pod(example_in_the_nodes_network("quickstart"), 1, SETTINGS),
    "volcano-rank-pod": lambda: build_rank_pod(example_job("quickstart", scheduling=VOLCANO), 3, 17, SETTINGS),
    "volcano-pod-group": lambda: build_pod_group(
        example_job("quickstart", scheduling={**VOLCANO, "queueName": "research"}), names.ROLE_RANK, 4
    ),
    "quickstart-workload": lambda: build_workload(
        example_job("quickstart"), SETTINGS, "user-queue", QueuePriority("", 0)
    ),
    "full-workload": lambda: build_workload(
        example_job("full"), SETTINGS, "user-queue", QueuePriority("urgent", 7), least_nodes=2
    ),
    "spare-workload": lambda: build_spare_workload(
        example_job("quickstart", scheduling={"numSpareNodes": 2}), SETTINGS, "user-queue", QueuePriority("urgent", 7)
    ),
    "tls-secret": lambda: tls_secret(example_job("quickstart"), {name: name.encode() for name in KEYS}),
}


@pytest.mark.parametrize("name", BUILT)
def test_it_is_what_the_file_says(name: str) -> None:
    path = GOLDEN / f"{name}.yaml"
    built = BUILT[name]()
    if os.environ.get("HAJOB_UPDATE_GOLDEN"):
        path.write_text(yaml.safe_dump(built, sort_keys=False, width=110), encoding="utf-8")
    assert built == yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("apart", [True, False])
def test_pods_keep_apart_by_the_label_that_the_admin_has_chosen(apart: bool) -> None:
    mine = PodSettings("hajob/sidecar:dev", topology_label="example.com/blade")
    pods = [
        build_rank_pod(example_job("full"), 0, 1, mine),
        build_spare_pod(example_job("full"), 0, mine),
        coordinator_pod(example_job("full"), 1, mine, apart=apart),
    ]
    told = [json.dumps(pod["spec"]["affinity"]["podAntiAffinity"]) for pod in pods]
    assert all('"topologyKey": "example.com/blade"' in one and "hostname" not in one for one in told)


def test_the_groups_of_ranks_and_spares_are_apart() -> None:
    job = example_job("quickstart", scheduling={**VOLCANO, "numSpareNodes": 1})
    warm = example_job("quickstart", scheduling={**VOLCANO, "numSpareNodes": 1, "spareMode": "Warm"})
    pods = [build_rank_pod(job, 0, 1, SETTINGS), build_spare_pod(job, 0, SETTINGS), build_spare_pod(warm, 0, SETTINGS)]
    ranks, spare, warm_spare = (pod["metadata"]["annotations"][names.ANNOTATION_GROUP_NAME] for pod in pods)
    assert ranks != spare == warm_spare
    assert {pod["spec"]["schedulerName"] for pod in pods} == {"volcano"}


def test_the_coordinator_is_none_of_volcanos_pods() -> None:
    """The plugin would give it a node rank, and its end would hold those of the ranks."""
    job = example_job("quickstart", scheduling=VOLCANO)
    job.spec.template["spec"]["schedulerName"] = "my-volcano"
    pod = coordinator_pod(job, 1, SETTINGS)
    assert "schedulerName" not in pod["spec"]
    assert "annotations" not in pod["metadata"]
    assert build_rank_pod(job, 0, 1, SETTINGS)["spec"]["schedulerName"] == "my-volcano"


@pytest.mark.parametrize(
    ("accelerator", "policy"),
    [
        ({"product": "A2"}, "chip8-node8"),
        ({"product": "A2", "chipsPerNode": 16}, "chip8-node16"),
        ({"product": "A3"}, "chip2-node16"),
    ],
)
def test_the_plugin_is_told_the_product(accelerator: Object, policy: str) -> None:
    group = build_pod_group(example_job("quickstart", accelerator=accelerator, scheduling=VOLCANO), names.ROLE_RANK, 4)
    assert group["metadata"]["annotations"] == {"huawei.com/schedule_policy": policy}
    assert group["metadata"]["ownerReferences"][0]["controller"] is True, "else it ends Volcano's scheduler"


BLOCKS = {"product": "A3", "chipsPerNode": 2, "superPodChips": 4}


def test_a_replacement_is_held_to_the_super_pod_of_its_block() -> None:
    job = example_job("quickstart", accelerator=BLOCKS, scheduling={**VOLCANO, "numSpareNodes": 1})
    pod = build_rank_pod(job, 3, 1, SETTINGS, super_pod="7")
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    expression = {"key": "huawei.com/topotree.superpodid", "operator": "In", "values": ["7"]}
    assert required["nodeSelectorTerms"] == [{"matchExpressions": [expression]}]
    annotations = pod["metadata"]["annotations"]
    assert (annotations["super-pod-id"], annotations["super-pod-rank"]) == ("7", "1")
    variables = {each["name"]: each.get("value") for each in _container(pod, "trainer")["env"]}
    assert variables["HCCL_LOGIC_SUPERPOD_ID"] == "1"
    (apart,) = build_spare_pod(job, 0, SETTINGS)["spec"]["affinity"]["podAntiAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    assert apart["podAffinityTerm"]["topologyKey"] == "huawei.com/topotree.superpodid"


def test_blocks_are_asked_of_the_plugin_for_a_whole_job() -> None:
    job = example_job("quickstart", accelerator=BLOCKS, scheduling=VOLCANO)
    group = build_pod_group(job, names.ROLE_RANK, 4, in_blocks=True)
    assert group["metadata"]["annotations"] == {"huawei.com/schedule_policy": "chip2-node16-sp", "sp-block": "4"}


def _container(pod: Object, name: str) -> Object:
    containers = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
    found: Object = next(container for container in containers if container["name"] == name)
    return found


def test_the_launcher_knows_where_its_last_word_goes() -> None:
    job = example_job("quickstart")
    trainer = job.spec.template["spec"]["containers"][0]
    trainer["terminationMessagePath"] = "/run/last-word"
    variables = {
        each["name"]: each.get("value") for each in _container(build_rank_pod(job, 0, 1, SETTINGS), "trainer")["env"]
    }
    assert variables["HAJOB_TERMINATION_LOG"] == "/run/last-word"


def test_the_users_template_is_not_changed() -> None:
    job = example_job("full")
    before = deepcopy(job.spec.template)
    build_rank_pod(job, 0, 1, SETTINGS, ["x"])
    coordinator_pod(job, 1, SETTINGS)
    assert job.spec.template == before


def test_names_fit_a_label_and_differ_by_job_and_incarnation() -> None:
    job = example_job("quickstart")
    longest = job.model_copy(update={"metadata": job.metadata.model_copy(update={"name": "n" * 40})})
    assert len(rank_pod_name(longest, 16383, 10**9)) <= 63
    assert len(coordinator_pod_name(longest, 10**9)) <= 63
    again = job.model_copy(update={"metadata": job.metadata.model_copy(update={"uid": "another"})})
    assert len({rank_pod_name(job, 0, 1), rank_pod_name(job, 0, 2), rank_pod_name(again, 0, 1)}) == 3


def test_already_exists_succeeds_only_for_owner_and_incarnation() -> None:
    job = example_job("quickstart")
    pod = build_rank_pod(job, 0, 1, SETTINGS)
    assert is_same_pod(deepcopy(pod), pod)
    assert not is_same_pod(build_rank_pod(job, 0, 2, SETTINGS), pod)
    foreign = deepcopy(pod)
    foreign["metadata"]["ownerReferences"] = []
    assert not is_same_pod(foreign, pod)


def test_chips_are_what_the_spec_says_whatever_the_template_says() -> None:
    job = example_job("quickstart")
    trainer = job.spec.template["spec"]["containers"][0]
    trainer["resources"] = {"limits": {"huawei.com/Ascend910": "1", "cpu": "4"}}
    resources = _container(build_rank_pod(job, 0, 1, SETTINGS), "trainer")["resources"]
    assert resources["limits"] == {"huawei.com/Ascend910": "2", "cpu": "4"}
    assert resources["requests"] == {"huawei.com/Ascend910": "2"}
    for container in ("agent", "install"):
        assert names.DEFAULT_RESOURCE_NAME not in str(
            _container(build_rank_pod(job, 0, 1, SETTINGS), container)["resources"]
        )
    assert names.DEFAULT_RESOURCE_NAME not in str(coordinator_pod(job, 1, SETTINGS))


def test_hajobs_variables_come_first_and_count() -> None:
    job = example_job("quickstart")
    trainer = job.spec.template["spec"]["containers"][0]
    trainer["env"] = [{"name": "HAJOB_DIR", "value": "/mine"}, {"name": "URL", "value": "tcp://$(POD_IP)"}]
    env = _container(build_rank_pod(job, 0, 1, SETTINGS), "trainer")["env"]
    assert [entry["value"] for entry in env if entry["name"] == "HAJOB_DIR"] == ["/hajob"]
    assert env[-1] == {"name": "URL", "value": "tcp://$(POD_IP)"}
    assert "PATH" not in {entry["name"] for entry in env}


def test_the_agent_writes_the_rank_table_that_the_trainer_reads() -> None:
    pod = build_rank_pod(example_job("quickstart", network={"rankTablePolicy": "Enabled"}), 0, 1, SETTINGS)
    mount = {"name": "hajob-rank-table", "mountPath": "/user/serverid/devindex/config"}
    assert mount in _container(pod, "agent")["volumeMounts"]
    assert {**mount, "readOnly": True} in _container(pod, "trainer")["volumeMounts"]
    assert {"name": "hajob-rank-table", "emptyDir": {}} in pod["spec"]["volumes"]
    named = {"name": "RANK_TABLE_FILE", "value": "/user/serverid/devindex/config/hccl.json"}
    assert all(named in _container(pod, name)["env"] for name in ("agent", "trainer"))
    assert "rank-table" not in json.dumps(build_rank_pod(example_job("quickstart"), 0, 1, SETTINGS))


def test_the_launcher_stands_before_the_command() -> None:
    full = _container(build_rank_pod(example_job("full"), 0, 1, SETTINGS), "trainer")
    assert full["command"][:4] == ["python3", "$(HAJOB_DIR)/launcher.pyz", "--", "bash"]
    assert full["command"][4] == "pretrain_qwen3_8b.sh"
    assert "args" not in full
    pod = build_rank_pod(example_job("full", launcher="TaskD"), 0, 1, SETTINGS)
    assert _container(pod, "trainer")["command"] == full["command"]
    told = {"name": "HAJOB_LAUNCHER", "value": "TaskD"}
    assert told in _container(pod, "trainer")["env"]
    assert told in _container(pod, "agent")["env"]
    assert "HAJOB_LAUNCHER" not in {entry["name"] for entry in full["env"]}


def test_with_taskd_the_coordinator_has_no_controller() -> None:
    spec = coordinator_pod(example_job("full", launcher="TaskD"), 1, SETTINGS)["spec"]
    (container,) = spec["containers"]
    assert container["name"] == "coordinator"
    assert "initContainers" not in spec
    assert {"name": "HAJOB_LAUNCHER", "value": "TaskD"} in container["env"]


def test_excluded_nodes_are_out_in_every_alternative() -> None:
    job = example_job("quickstart", scheduling={"excludedNodeNames": ["node-x"]})
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in ("a", "b")]
    job.spec.template["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    }
    affinity = build_rank_pod(job, 0, 1, SETTINGS, ["node-y"])["spec"]["affinity"]
    required = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert len(required) == 2
    for term in required:
        assert [field["values"] for field in term["matchFields"]] == [["node-x"], ["node-y"]]
        assert term["matchExpressions"]


def test_a_coordinator_free_to_go_anywhere_may_sit_with_ranks() -> None:
    job = example_job("quickstart")
    ranks = build_rank_pod(job, 0, 1, SETTINGS)["spec"]["affinity"]["podAntiAffinity"]
    avoided = ranks["requiredDuringSchedulingIgnoredDuringExecution"][1]["labelSelector"]["matchLabels"]
    apart, anywhere = (
        coordinator_pod(job, 1, SETTINGS, apart=choice)["metadata"]["labels"] for choice in (True, False)
    )
    assert avoided.items() <= apart.items()
    assert not avoided.items() <= anywhere.items()


def test_the_output_lies_on_the_innermost_volume_or_nowhere() -> None:
    mounts = [
        {"name": "a", "mountPath": "/ckpt"},
        {"name": "b", "mountPath": "/ckpt/out/"},
        {"name": "c", "mountPath": "/c"},
    ]
    assert (innermost_mount({"volumeMounts": mounts}, "/ckpt/out/x") or {})["name"] == "b"
    assert (innermost_mount({"volumeMounts": mounts}, "/ckpt/other") or {})["name"] == "a"
    assert innermost_mount({"volumeMounts": mounts}, "/ckpts") is None
    assert innermost_mount({}, "/ckpt") is None
    job = example_job("quickstart", output={"path": "/nowhere"})
    assert output_directory(job) == f"/nowhere/{job.metadata.uid}"
    env = _container(build_rank_pod(job, 0, 1, SETTINGS), "agent")["env"]
    assert next(entry for entry in env if entry["name"] == "HAJOB_OUTPUT_DIR")["value"] == ""


def test_the_agent_sees_the_checkpoints_wherever_the_output_goes() -> None:
    job = example_job("quickstart", output={"path": "/logs/here"})
    trainer = job.spec.template["spec"]["containers"][0]
    trainer["volumeMounts"] = [
        {"name": "ckpt", "mountPath": job.spec.checkpoint.path, "readOnly": True},
        {"name": "logs", "mountPath": "/logs"},
    ]
    agent = _container(build_rank_pod(job, 0, 1, SETTINGS), "agent")
    mounts = [mount for mount in agent["volumeMounts"] if mount["name"] in {"ckpt", "logs"}]
    assert [mount["name"] for mount in mounts] == ["logs", "ckpt"]
    assert all(mount["readOnly"] for mount in mounts)
    trainer["volumeMounts"] = []
    env = _container(build_rank_pod(job, 0, 1, SETTINGS), "agent")["env"]
    assert next(entry for entry in env if entry["name"] == "HAJOB_CHECKPOINT_DIR")["value"] == ""


def test_silent_nodes_are_tolerated_without_a_limit() -> None:
    job = example_job("quickstart")
    job.spec.template["spec"]["tolerations"] = [
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    ]
    for pod in (build_rank_pod(job, 0, 1, SETTINGS), coordinator_pod(job, 1, SETTINGS)):
        tolerations = {entry["key"]: entry for entry in pod["spec"]["tolerations"]}
        for taint in ("not-ready", "unreachable"):
            assert "tolerationSeconds" not in tolerations[f"node.kubernetes.io/{taint}"]


def test_a_broken_secret_is_named() -> None:
    with pytest.raises(ValueError, match="need"):
        tls_secret(example_job("quickstart"), {"ca.crt": b""})
    with pytest.raises(ValueError, match=r"agent\.crt"):
        read_tls_secret({"metadata": {"name": "s"}, "data": {"ca.crt": ""}})


def test_an_agent_asks_for_a_cpu_of_its_own() -> None:
    agent = _container(build_rank_pod(example_job("quickstart"), 0, 1, SETTINGS), "agent")
    assert agent["resources"]["requests"]["cpu"] == "1"


@pytest.mark.parametrize(("nodes", "cpu"), [(4, "50m"), (2048, "1024m")])
def test_a_coordinator_asks_for_what_its_agents_cost(nodes: int, cpu: str) -> None:
    pod = coordinator_pod(example_job("quickstart", numNodes=nodes), 1, SETTINGS)
    assert _container(pod, "coordinator")["resources"]["requests"]["cpu"] == cpu
