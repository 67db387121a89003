"""Jobs of other kinds become HATrainingJobs that can be started as they are, and say what a person must look at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from hajob.api.new_jobs import ENDS_OR_SPLITS, READ_FROM_PODS, TELLS_CHIPS
from hajob.cli.lint import findings_of_job
from hajob.cli.main import main
from hajob.cli.manifests import read_objects
from hajob.convert.command_line import command_without_mpi
from hajob.convert.convert import Converted, convert_objects
from hajob.convert.pod_template import without_words_of_others
from hajob.domain.errors import HajobInputError
from tests.rigs.foreign_jobs import FILES, ascend_job, deployment, mindspore_ascend_job, mpi_job, pod, real_samples


def converted(kind: str) -> Converted:
    (job,), _ = convert_objects(FILES[kind])
    return job


def trainer(job: Converted) -> Any:
    (found,) = (one for one in job.manifest["spec"]["template"]["spec"]["containers"] if one["name"] == "trainer")
    return found


@pytest.mark.parametrize("key", [*ENDS_OR_SPLITS, *READ_FROM_PODS, *TELLS_CHIPS])
def test_what_a_template_is_refused_for_is_left_out(key: str) -> None:
    assert without_words_of_others({key: "x", "team": "a"}) == {"team": "a"}


@pytest.mark.parametrize("kind", FILES)
def test_nothing_is_wrong_with_the_new_job(kind: str) -> None:
    found = findings_of_job(converted(kind).manifest)
    assert [one["message"] for one in found if one["grade"] == "error"] == []


@pytest.mark.parametrize(
    ("kind", "nodes", "parallelism", "path"),
    [
        ("AscendJob", 4, {"tensor": 8}, "/job/output"),
        ("AscendJob of MindSpore", 2, {"tensor": 1}, "/job/output"),
        ("Volcano Job", 2, {"tensor": 8, "pipeline": 2}, "/job/output"),
        ("PyTorchJob", 4, {"tensor": 1}, "/ckpt"),
        ("TrainJob", 4, {"tensor": 1}, "/ckpt"),
        ("JobSet", 8, {"tensor": 8}, "/job/output"),
        ("MPIJob", 2, {"tensor": 1}, "/job/output"),
        ("Deployment", 2, {"tensor": 8}, "/job/output"),
    ],
)
def test_size_layout_and_checkpoints_are_read(kind: str, nodes: int, parallelism: Any, path: str) -> None:
    spec = converted(kind).manifest["spec"]
    assert (spec["numNodes"], spec["parallelism"], spec["checkpoint"]) == (nodes, parallelism, {"path": path})


def test_a_layout_that_nobody_wrote_is_a_question() -> None:
    assert any("spec.parallelism" in one for one in converted("PyTorchJob").questions)
    assert not any("spec.parallelism" in one for one in converted("AscendJob").questions)


def test_what_hajob_does_itself_is_left_out() -> None:
    job = converted("AscendJob")
    spec = job.manifest["spec"]
    template = spec["template"]["spec"]
    assert template.keys() == {"nodeSelector", "containers", "volumes"}
    assert [one["name"] for one in template["volumes"]] == ["output", "dshm"]
    assert trainer(job).keys() == {"name", "image", "command", "args", "env", "resources", "volumeMounts"}
    assert [one["name"] for one in trainer(job)["env"]] == ["XDL_IP"]
    assert trainer(job)["resources"] == {"requests": {"cpu": "96"}}
    assert spec["template"]["metadata"] == {"labels": {"team": "nlp"}}
    assert spec["recovery"] == {"replacementTimeoutSeconds": 900}
    told = "\n".join(job.left_out)
    for word in (
        "queue training",
        "recover-strategy",
        "InPlace, Shrink",
        "RANK_TABLE_FILE",
        "livenessProbe",
        "volcano",
    ):
        assert word in told, word


def test_mindspores_scheduler_is_hajobs_work() -> None:
    job = converted("AscendJob of MindSpore")
    assert job.manifest["spec"]["framework"] == "MindSpore"
    assert any("Scheduler" in one for one in job.left_out)


@pytest.mark.parametrize(("mindspore", "named"), [(True, False), (False, True), (False, False)])
def test_a_job_that_reads_a_rank_table_gets_one(*, mindspore: bool, named: bool) -> None:
    """Samples for PyTorch mount one, and set up their communication without it."""
    job = mindspore_ascend_job() if mindspore else ascend_job()
    for pods in job["spec"]["replicaSpecs"].values():
        for container in pods["template"]["spec"]["containers"] if named else ():
            container["env"] = [{"name": "RANK_TABLE_FILE", "value": "/user/serverid/devindex/config/hccl.json"}]
    (made,), _ = convert_objects([job])
    wanted = {"rankTablePolicy": "Enabled"} if mindspore or named else None
    assert made.manifest["spec"].get("network") == wanted


def test_an_a3_job_is_one_by_its_chips() -> None:
    assert converted("Volcano Job").manifest["spec"]["accelerator"] == {"product": "A3"}


@pytest.mark.parametrize(
    ("node_type", "accelerator"),
    [
        ("module-a3-16-super-pod", {"product": "A3"}),
        ("module-910b-16", {"product": "A2", "chipsPerNode": 16}),
        ("card-a300t", {"product": "A3"}),
    ],
)
def test_the_type_of_the_nodes_tells_the_product(node_type: str, accelerator: Any) -> None:
    job = deployment()
    spec = job["spec"]["template"]["spec"]
    spec["nodeSelector"] = {"accelerator-type": node_type}
    spec["containers"][0]["resources"] = {"limits": {"huawei.com/Ascend910": 16}}
    (made,), _ = convert_objects([job])
    assert made.manifest["spec"]["accelerator"] == accelerator


def test_a_queue_of_kueue_and_its_suspension_stay() -> None:
    manifest = converted("PyTorchJob").manifest
    assert manifest["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "training"}
    assert (manifest["spec"]["suspend"], manifest["spec"]["ttlSecondsAfterFinished"]) == (True, 600)


def test_a_train_job_is_its_runtime_with_its_own_words() -> None:
    job = converted("TrainJob")
    assert trainer(job)["command"] == ["torchrun", "train.py", "--save", "/ckpt"]
    assert trainer(job)["env"] == [{"name": "SEED", "value": "1"}]
    assert job.manifest["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "training"}


def test_a_train_job_without_its_runtime_asks_for_it() -> None:
    (job,), _ = convert_objects(FILES["TrainJob"][1:])
    assert any("TrainingRuntime" in one for one in job.questions)


def test_the_line_of_mpirun_becomes_one_of_a_pod() -> None:
    assert trainer(converted("MPIJob"))["command"] == ["torchrun", "/job/train.py", "--lr=1"]
    shell = ["sh", "-c", "OMP_NUM_THREADS=1 mpirun -np 8 --hostfile /etc/mpi python3 -u train.py"]
    assert command_without_mpi(shell, "msrun") == ["msrun", "train.py"]
    assert command_without_mpi(["mpirun", "./a.out"], "torchrun") is None


def test_an_mpi_line_not_understood_is_shown() -> None:
    job = mpi_job()
    job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["command"] = ["mpirun", "./a.out"]
    (made,), _ = convert_objects([job])
    assert any("./a.out" in one for one in made.questions)


def test_mounts_without_a_volume_are_named() -> None:
    job = deployment()
    container = job["spec"]["template"]["spec"]["containers"][0]
    container["volumeMounts"].append({"name": "claim", "mountPath": "/claim"})
    del container["image"]
    (made,), _ = convert_objects([job])
    assert any("claim at /claim" in one for one in made.left_out)
    assert any("image of container trainer" in one for one in made.questions)
    assert not [one for one in findings_of_job(made.manifest) if one["grade"] == "error"]


def test_roles_that_differ_are_a_question() -> None:
    job = ascend_job()
    job["spec"]["replicaSpecs"]["Master"]["template"] = pod("bash other.sh")
    (made,), _ = convert_objects([job])
    assert any("look at what Master has otherwise" in one for one in made.questions)


def test_other_objects_are_named() -> None:
    served = deployment()
    served["spec"]["template"]["spec"]["containers"][0]["resources"] = {}
    jobs, others = convert_objects([ascend_job(), {"kind": "ConfigMap", "metadata": {"name": "rings"}}, served])
    assert len(jobs) == 1
    assert [one.split(" is ")[0].split(" has ")[0] for one in others] == ["ConfigMap rings", "Deployment llama"]
    with pytest.raises(HajobInputError, match="nothing to convert"):
        convert_objects([served])


@pytest.mark.parametrize("odd", [None, [], "text", 5, {"replicaSpecs": None}, {"replicaSpecs": {"Worker": 3}}])
def test_a_spec_that_is_none_is_no_crash(odd: Any) -> None:
    with pytest.raises(HajobInputError, match="no pods that could train"):
        convert_objects([{**ascend_job(), "spec": odd}])


def test_a_manifest_stands_below_its_comments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "jobs.yaml"
    job = ascend_job()
    container = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["args"] = ["cd /job\nbash train.sh\n"]
    file.write_text(yaml.safe_dump_all([job, *FILES["TrainJob"]]), encoding="utf-8")
    assert main(["convert", "-f", str(file)]) == 0
    told = capsys.readouterr().out
    assert [one["spec"]["numNodes"] for one in yaml.safe_load_all(told)] == [4, 4]
    assert "# For you to decide" in told
    assert "        - |\n          cd /job\n" in told, "a script is written as a script"
    assert main(["convert", "-f", str(file), "-o", "json"]) == 0
    assert [one["from"] for one in json.loads(capsys.readouterr().out)["jobs"]] == ["AscendJob llama", "TrainJob llama"]


def test_a_file_without_a_job_names_the_kinds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "none.yaml"
    file.write_text("{kind: Service, metadata: {name: a}}", encoding="utf-8")
    assert main(["convert", "-f", str(file)]) == 2
    assert "PyTorchJob" in capsys.readouterr().err


@pytest.mark.parametrize("file", real_samples(), ids=lambda file: file.name)
def test_a_real_sample_becomes_a_job(file: Path) -> None:
    try:
        jobs, _ = convert_objects(read_objects(str(file)))
    except HajobInputError:
        pytest.skip("it holds no training")
    for job in jobs:
        found = findings_of_job(job.manifest)
        assert [one["message"] for one in found if one["grade"] == "error"] == [], job.source
