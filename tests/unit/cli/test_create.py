"""`kubectl hajob create`: a manifest from a few options, which `lint` has nothing to say about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from hajob.cli.cluster import ClusterError
from hajob.cli.create import create_job, job_from_options
from hajob.cli.lint import findings_of_job
from hajob.cli.main import build_parser, main
from hajob.domain.errors import HajobInputError
from tests.rigs.told_job import NAME, NAMESPACE, told_job
from tests.rigs.told_server import ToldServer

USUAL = {"image": "train:1", "command": "bash train.sh --name 'a b'", "nodes": "4", "tensor": "8", "pvc": "training"}


def words(name: str = "qwen", **options: str) -> list[str]:
    chosen = {**USUAL, **options}
    pairs = (("--" + key.replace("_", "-"), value) for key, value in chosen.items())
    return ["create", name, *(word for pair in pairs for word in pair)]


def made(*more: str, **options: str) -> dict[str, Any]:
    return job_from_options(build_parser().parse_args([*words(**options), *more]))


def test_a_few_options_make_a_whole_manifest() -> None:
    job = made("-n", "team")
    assert job["metadata"] == {"name": "qwen", "namespace": "team"}
    spec = job["spec"]
    assert (spec["accelerator"], spec["numNodes"], spec["parallelism"]) == ({"product": "A2"}, 4, {"tensor": 8})
    (trainer,) = spec["template"]["spec"]["containers"]
    assert trainer["command"] == ["bash", "train.sh", "--name", "a b"]
    assert trainer["volumeMounts"][0] == {"name": "shared", "mountPath": spec["checkpoint"]["path"]}
    assert list(findings_of_job(job)) == []


def test_what_is_given_is_in_it() -> None:
    given = {"product": "A3", "chips": "8", "pipeline": "2", "context_parallel": "2", "tensor": "2", "expert": "2"}
    job = made(**given, spares="1", workdir="/opt/train", checkpoint="/data/ckpt")
    spec = job["spec"]
    assert spec["accelerator"] == {"product": "A3", "chipsPerNode": 8}
    assert spec["parallelism"] == {"tensor": 2, "pipeline": 2, "context": 2, "expert": 2}
    assert (spec["scheduling"], spec["checkpoint"]) == ({"numSpareNodes": 1}, {"path": "/data/ckpt"})
    assert spec["template"]["spec"]["containers"][0]["workingDir"] == "/opt/train"


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("Qwen", {}, "metadata.name must be a DNS label"),
        ("qwen", {"tensor": "3"}, "the chips cannot be divided"),
        ("qwen", {"nodes": "0"}, "spec.numNodes"),
        ("qwen", {"checkpoint": "ckpt"}, "must be absolute"),
        ("qwen", {"command": "bash 'train.sh"}, "No closing quotation"),
    ],
)
def test_what_would_be_refused_is_said_before(name: str, options: dict[str, str], said: str) -> None:
    with pytest.raises(HajobInputError, match=said):
        job_from_options(build_parser().parse_args(words(name, **options)))


def test_it_is_printed_as_kubectl_reads_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(words()) == 0
    printed = capsys.readouterr().out
    assert yaml.safe_load(printed) == made()
    (tmp_path / "job.yaml").write_text(printed)
    assert main(["lint", str(tmp_path / "job.yaml")]) == 0


def test_it_is_created_unless_it_is_there() -> None:
    job = made()
    server = ToldServer()
    said = create_job(server, NAMESPACE, job)
    assert said == f"{NAMESPACE}/qwen is created; watch it with: kubectl hajob watch qwen -n {NAMESPACE}"
    ((path, body),) = server.written
    assert (path.endswith(f"/namespaces/{NAMESPACE}/hatrainingjobs"), body) == (True, job)
    job["metadata"]["name"] = NAME
    with pytest.raises(ClusterError, match=f"there is a HATrainingJob {NAME} in namespace {NAMESPACE} already"):
        create_job(ToldServer(told_job()), NAMESPACE, job)
