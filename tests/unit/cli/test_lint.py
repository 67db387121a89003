"""`lint` says offline what server and operator would say of the same manifest."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.bootstrap.paths import CHECKOUT
from hajob.api.base import Json
from hajob.cli import main
from hajob.cli.lint import findings_of_job
from tests.rigs.unserved_jobs import BY_A_RULE, BY_THE_OPERATOR, QUICKSTART, edited, in_spec


def errors(job: Json) -> list[str]:
    return [one["message"] for one in findings_of_job(job) if one["grade"] == "error"]


@pytest.mark.parametrize("case", BY_A_RULE)
def test_what_the_server_refuses_is_an_error(case: str) -> None:
    edit, sentence = BY_A_RULE[case]
    assert sentence in "; ".join(errors(edited(edit)))


@pytest.mark.parametrize("case", BY_THE_OPERATOR)
def test_what_the_operator_refuses_is_an_error(case: str) -> None:
    edit, sentence = BY_THE_OPERATOR[case]
    assert sentence in "; ".join(errors(edited(edit)))


@pytest.mark.parametrize("path", sorted((CHECKOUT / "examples").glob("*.yaml")), ids=lambda path: str(path.name))
def test_the_examples_are_clean(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["lint", str(path)]) == 0
    assert "0 to be changed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (in_spec("checkpoint", pahts="/ckpt"), "spec.checkpoint.pahts: there is no such field"),
        (lambda job: job["spec"].update(numNodes="four"), "spec.numNodes: Input should be a valid integer"),
        (lambda job: job["spec"].pop("checkpoint"), "spec.checkpoint: Field required"),
        (lambda job: job["metadata"].update(name="Upper"), "metadata.name must be a DNS label"),
    ],
)
def test_misspelt_and_missing_fields_are_named(edit: Any, sentence: str) -> None:
    assert sentence in "; ".join(errors(edited(edit)))


def in_trainer(**fields: Any) -> Any:
    return lambda job: job["spec"]["template"]["spec"]["containers"][0].update(fields)


def in_pod(**fields: Any) -> Any:
    return lambda job: job["spec"]["template"]["spec"].update(fields)


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (in_trainer(command="bash run.sh"), "containers[0].command: Input should be a valid list"),
        (in_trainer(env=[{"name": "A", "value": 3}]), "containers[0].env[0].value: Input should be a valid string"),
        (in_trainer(env={"A": "b"}), "containers[0].env: Input should be a valid list"),
        (in_trainer(env=[{"value": "b"}]), "containers[0].env[0].name: Field required"),
        (in_trainer(image=None), "containers[0].image: Field required"),
        (in_trainer(imagePullPolicy="always"), "imagePullPolicy: always is none of Always, IfNotPresent, Never"),
        (in_trainer(volumeMounts=[{"name": "no", "mountPath": "/ckpt"}]), "volumeMounts[0].name: no: there is no such"),
        (
            in_trainer(resources={"requests": {"cpu": 4}, "limits": {"cpu": "2"}}),
            "requests.cpu: 4 is more than its limit",
        ),
        (in_trainer(securityContext={"runAsUser": "root"}), "runAsUser: Input should be a valid integer"),
        (in_pod(nodeSelector={"pool": 1}), "nodeSelector.pool: Input should be a valid string"),
        (in_pod(tolerations=[{"operator": "Exist"}]), "tolerations[0].operator: Exist is none of"),
        (lambda job: job.pop("apiVersion"), "apiVersion: None: it must be training.hajob.io/"),
    ],
)
def test_what_a_server_says_of_pods_is_said_offline(edit: Any, sentence: str) -> None:
    assert sentence in "; ".join(errors(edited(edit)))


def test_numbers_are_quantities_as_well() -> None:
    assert errors(edited(in_trainer(resources={"requests": {"cpu": 4, "memory": "64Gi"}, "limits": {"cpu": 8}}))) == []


def test_what_works_and_protects_less_is_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = edited(lambda job: job["spec"].update(numNodes=1))
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    assert main.main(["lint", str(path), "-o", "json"]) == 0
    found = yaml.safe_load(capsys.readouterr().out)
    told = next(one for one in found if "(TwoNodes)" in one["message"])
    assert (told["grade"], told["message"].partition(":")[0]) == ("note", "not Replace, Shrink")
    assert "-> Change the spec or the start script: at least 2." in told["message"]


def test_without_the_library_it_says_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_cel(name: str, *more: Any, **named: Any) -> Any:
        if name == "cel":
            raise ImportError(name)
        return real(name, *more, **named)

    monkeypatch.setattr(builtins, "__import__", without_cel)
    (note,) = [one for one in findings_of_job(QUICKSTART) if "not evaluated" in one["message"]]
    assert note["grade"] == "note"


def test_a_file_without_a_job_is_no_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "none.yaml"
    path.write_text("kind: ConfigMap\n")
    assert main.main(["lint", str(path)]) == 2
    assert "holds no object of kind HATrainingJob" in capsys.readouterr().err
