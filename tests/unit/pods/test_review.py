"""What works and is worth knowing is told by name; a job that leaves nothing to say has no note."""

from __future__ import annotations

from typing import Any

import pytest

from hajob.api.base import Json
from hajob.api.job import HATrainingJob
from hajob.pods.review import checkpoint_claim, note_on_claim, notes_on_spec, refusals_of_spec
from tests.rigs.unserved_jobs import BY_THE_OPERATOR, Edit, edited, in_pod, in_spec, in_trainer, pod, without_table

ALL_OFF = [{"name": name, "maxCount": 0} for name in ("Retry", "InPlace", "Replace", "Shrink", "Checkpoint", "Restart")]
NOTED: dict[str, tuple[Edit, str]] = {
    "all actions off": (in_spec("recovery", actions=ALL_OFF), "recovery.actions switches every action off"),
    "every taint": (in_pod(tolerations=[{"operator": "Exists"}]), "cordoned nodes are avoided all the same"),
    "variables of Hajob's": (
        in_trainer(env=[{"name": "MASTER_ADDR", "value": "a"}, {"name": "WORLD_SIZE"}, {"name": "MINE"}]),
        "what env of container trainer says of MASTER_ADDR, WORLD_SIZE does not count",
    ),
    "a rank table that nobody writes": (without_table, "names a rank table (RANK_TABLE_FILE or /user/serverid"),
    "a file of ranks": (in_trainer(env=[{"name": "RANK_TABLE_FILE", "value": "/t"}]), "set network.rankTablePolicy"),
    "output on no volume": (in_spec("output", path="/out"), "spec.output.path: /out lies on no volume"),
}


def chooses_twice(body: Json) -> None:
    """The ranks have what its own environment says."""
    in_spec("network", interface="bond0")(body)
    in_trainer(env=[{"name": "GLOO_SOCKET_IFNAME", "value": "ib0"}])(body)


def job(edit: Edit) -> HATrainingJob:
    return HATrainingJob.from_object(edited(edit))


@pytest.mark.parametrize("case", NOTED)
def test_what_works_and_is_worth_knowing_is_told(case: str) -> None:
    edit, sentence = NOTED[case]
    (said,) = notes_on_spec(job(edit))
    assert sentence in said


@pytest.mark.parametrize(
    "edit",
    [
        lambda _: None,
        in_pod(tolerations=[{"key": "a", "operator": "Exists"}]),
        in_spec("recovery", actions=ALL_OFF[:-1]),
        in_spec("output", path="/ckpt/out"),
        chooses_twice,
    ],
)
def test_a_usual_job_has_no_note(edit: Edit) -> None:
    assert list(notes_on_spec(job(edit))) == []
    assert list(refusals_of_spec(job(edit).spec)) == []


def claimed(body: Json) -> None:
    pod(body)["volumes"] = [
        {"name": "other", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "checkpoints", "persistentVolumeClaim": {"claimName": "ckpt"}},
    ]


def test_the_claim_of_the_checkpoints_is_found_by_their_mount() -> None:
    assert checkpoint_claim(job(claimed).spec) == "ckpt"
    assert checkpoint_claim(job(lambda _: None).spec) == ""


@pytest.mark.parametrize(
    ("modes", "nodes", "told"),
    [
        (["ReadWriteOnce"], 4, "ckpt of spec.checkpoint.path is ReadWriteOnce: pods on 4 nodes"),
        (["ReadWriteOncePod", "ReadOnlyMany"], 2, "is ReadWriteOncePod, ReadOnlyMany"),
        (["ReadWriteOnce"], 1, ""),
        (["ReadWriteOnce", "ReadWriteMany"], 4, ""),
        (None, 4, ""),
    ],
)
def test_a_claim_that_not_all_nodes_can_write_is_told(modes: Any, nodes: int, told: str) -> None:
    said = note_on_claim({"metadata": {"name": "ckpt"}, "spec": {"accessModes": modes}}, nodes)
    assert told in said
    assert bool(said) == bool(told)


def test_a_refusal_of_the_review_is_one_sentence_each() -> None:
    found = {case: list(refusals_of_spec(job(edit).spec)) for case, (edit, _) in BY_THE_OPERATOR.items()}
    assert all(len(told) <= 1 for told in found.values()), found
