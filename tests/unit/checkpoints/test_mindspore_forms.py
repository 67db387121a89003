"""MindFormers' newer form and MindSpore's own last checkpoints: what is complete, and what is loaded then."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hajob.domain.checkpoints import RefusalReason
from hajob.domain.layout import Layout
from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.checkpoint_verdicts import carry_out_verdict
from tests.rigs.mindspore_files import ckpt, iteration, safetensors, saved_for_mindio
from trainer_sidecar.agent.report.checkpoints import prepare_attempt
from trainer_sidecar.checkpoints.directory import Directory
from trainer_sidecar.checkpoints.formats import look_into_file
from trainer_sidecar.checkpoints.mindspore_forms import evaluate_all_forms
from trainer_sidecar.checkpoints.verdict import Look, Verdict

LAYOUT = Layout(num_nodes=2, chips_per_node=2)  # ranks r and r + 2 hold the same shard
TRACKER = "latest_checkpointed_iteration.txt"


def evaluated(root: Path) -> Verdict:
    return evaluate_all_forms(Directory(root), LAYOUT)


def reasons(verdict: Verdict) -> list[tuple[str, str]]:
    return [(one.name, one.reason) for one in verdict.refused]


@pytest.mark.parametrize("inner", ["", "checkpoint"])
@pytest.mark.parametrize(
    "form",
    [
        {},
        {"prefix": "llama3-"},
        {"optimizer": False},
        {"metadata": False},
        {"totals": (3, 2)},  # redundancy removed: fewer files than ranks
    ],
)
def test_the_newest_iteration_is_taken(tmp_path: Path, form: dict[str, object], inner: str) -> None:
    for step in (100, 200):
        iteration(tmp_path / inner, step, **form)  # type: ignore[arg-type]
    verdict = evaluated(tmp_path)
    name = f"{inner}/iteration_00000200".removeprefix("/")
    assert (verdict.name, verdict.step, verdict.refused, verdict.is_tracked) == (name, 200, (), True)


@pytest.mark.parametrize("form", ["iteration", "mindio", "legacy"])
def test_what_cannot_be_loaded_is_passed_over_in_every_form(tmp_path: Path, form: str) -> None:
    for step in (5, 10):
        if form == "iteration":
            iteration(tmp_path, step)
        elif form == "mindio":
            saved_for_mindio(tmp_path, step, range(4))
        else:
            legacy(tmp_path, step, 1, step)
    assert evaluate_all_forms(Directory(tmp_path), LAYOUT).step == 10
    verdict = evaluate_all_forms(Directory(tmp_path), LAYOUT, {10})
    assert verdict.step == 5
    assert "LoadFailed" in [one.reason for one in verdict.refused]


def lose_model(directory: Path) -> None:
    (directory / "model-0000002-0000004.safetensors").unlink()


def lose_optimizers(directory: Path) -> None:
    for path in directory.glob("opt-*"):
        path.unlink()


def lose_common(directory: Path) -> None:
    (directory / "common.json").unlink()


def lose_metadata(directory: Path) -> None:
    (directory / "metadata.json").unlink()


def cut(directory: Path) -> None:
    path = directory / "opt-0000001-0000004.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def empty(directory: Path) -> None:
    (directory / "model-0000000-0000004.safetensors").write_bytes(b"")


def half_metadata(directory: Path) -> None:
    path = directory / "metadata.json"
    path.write_text(path.read_text()[:-20])


def other_step(directory: Path) -> None:
    (directory / "common.json").write_text(json.dumps({"step_num": 150, "global_step": 150}))


def other_file(directory: Path) -> None:
    """Written for eight ranks, of which four have saved their files."""
    path = directory / "metadata.json"
    path.write_text(path.read_text().replace("model-0000003-0000004", "model-0000003-0000008"))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lose_model, RefusalReason.MISSING_SHARD),
        (lose_optimizers, RefusalReason.MISSING_SHARD),
        (lose_common, RefusalReason.MISSING_SHARD),
        (lose_metadata, RefusalReason.MISSING_SHARD),
        (other_file, RefusalReason.MISSING_SHARD),
        (cut, RefusalReason.TRUNCATED_FILE),
        (empty, RefusalReason.TRUNCATED_FILE),
        (half_metadata, RefusalReason.TRUNCATED_FILE),
        (other_step, RefusalReason.MIXED_STEPS),
    ],
)
def test_a_damaged_iteration_makes_the_older_one_load(
    tmp_path: Path, damage: Callable[[Path], None], reason: str
) -> None:
    iteration(tmp_path, 100)
    damage(iteration(tmp_path, 200))
    verdict = evaluated(tmp_path)
    assert (verdict.step, reasons(verdict)) == (100, [("iteration_00000200", reason)])
    carry_out_verdict(tmp_path, verdict)
    assert (tmp_path / TRACKER).read_text() == "100"
    assert evaluated(tmp_path).is_tracked


def test_an_iteration_that_was_not_committed_is_refused(tmp_path: Path) -> None:
    iteration(tmp_path, 200)
    iteration(tmp_path, 100)  # the tracker names the older one: the newer was being written
    verdict = evaluated(tmp_path)
    assert (verdict.step, reasons(verdict)) == (100, [("iteration_00000200", RefusalReason.NOT_COMMITTED)])
    (tmp_path / TRACKER).unlink()
    verdict = evaluated(tmp_path)
    assert (verdict.step, {reason for _, reason in reasons(verdict)}) == (-1, {RefusalReason.NOT_COMMITTED})


def test_an_iteration_that_is_written_anew_is_not_loaded(tmp_path: Path) -> None:
    """Rank 0 deletes a directory of the same name first, and the tracker goes on naming it."""
    iteration(tmp_path, 100)
    directory = iteration(tmp_path, 200)
    shutil.rmtree(directory)
    directory.mkdir()
    assert (evaluated(tmp_path).step, reasons(evaluated(tmp_path))) == (100, [(TRACKER, RefusalReason.WRONG_TRACKER)])
    (directory / "model-0000000-0000004.safetensors").write_bytes(safetensors())
    verdict = evaluated(tmp_path)
    assert (verdict.step, reasons(verdict)) == (100, [("iteration_00000200", RefusalReason.MISSING_SHARD)])


def test_a_tracker_that_was_being_written(tmp_path: Path) -> None:
    """It is opened and emptied before the number is written, after everything else is there."""
    iteration(tmp_path, 100)
    (tmp_path / TRACKER).write_text("")
    verdict = evaluated(tmp_path)
    assert (verdict.step, reasons(verdict)) == (100, [(TRACKER, RefusalReason.WRONG_TRACKER)])
    assert verdict.writes == {TRACKER: "100"}


def test_nothing_complete_is_left_to_find(tmp_path: Path) -> None:
    lose_model(iteration(tmp_path, 100))
    carry_out_verdict(tmp_path, evaluated(tmp_path))
    assert not (tmp_path / TRACKER).exists()
    assert evaluated(tmp_path).step == -1


def test_a_file_saved_for_mindio_is_filled_from_its_partner(tmp_path: Path) -> None:
    directory = saved_for_mindio(tmp_path, 40, [0, 3])
    verdict = evaluated(tmp_path)
    assert (verdict.name, verdict.step, verdict.refused) == ("ttp_saved_checkpoints-step_40", 40, ())
    carry_out_verdict(tmp_path, verdict)
    assert {path.name for path in directory.glob("*/*")} == {f"ttp_rank_{rank}-1_40.ckpt" for rank in range(4)}
    assert evaluated(tmp_path).is_tracked


def test_a_save_for_mindio_that_did_not_end_is_refused(tmp_path: Path) -> None:
    saved_for_mindio(tmp_path, 30, [0, 1])
    saved_for_mindio(tmp_path, 40, [0, 2])  # both hold the same shard
    saved_for_mindio(tmp_path, 50, [0], temporary=True)
    verdict = evaluated(tmp_path)
    assert (verdict.name, verdict.step) == ("ttp_saved_checkpoints-step_30", 30)
    assert reasons(verdict) == [
        ("ttp_saved_checkpoints-step_50_tmp", RefusalReason.TEMPORARY_LEFT_BEHIND),
        ("ttp_saved_checkpoints-step_40", RefusalReason.MISSING_SHARD),
    ]


def legacy(root: Path, epoch: int, step: int, told: int, ranks: range = range(4)) -> None:
    for rank in ranks:
        directory = root / f"checkpoint/rank_{rank}"
        directory.mkdir(parents=True, exist_ok=True)
        file = f"llama_rank_{rank}-{epoch}_{step}.safetensors"
        (directory / file).write_bytes(safetensors(told))
        (directory / "meta.json").write_text(
            json.dumps({"last_epoch": epoch, "last_step": step, "last_ckpt_file": file})
        )


def test_the_newest_of_all_forms_is_taken(tmp_path: Path) -> None:
    legacy(tmp_path, 2, 15, told=65)
    iteration(tmp_path / "checkpoint", 60)
    assert (evaluated(tmp_path).name, evaluated(tmp_path).step) == ("2_15", 65)
    iteration(tmp_path / "checkpoint", 70)
    assert (evaluated(tmp_path).name, evaluated(tmp_path).step) == ("checkpoint/iteration_00000070", 70)
    saved_for_mindio(tmp_path, 80, [0, 1])
    assert evaluated(tmp_path).step == 80


def test_files_of_one_name_and_different_steps_are_refused(tmp_path: Path) -> None:
    legacy(tmp_path, 2, 15, told=65)
    legacy(tmp_path, 2, 15, told=15, ranks=range(1))  # left by a training that began anew
    assert reasons(evaluated(tmp_path)) == [("2_15", RefusalReason.MIXED_STEPS)]


@pytest.mark.parametrize(
    ("name", "content", "step"),
    [
        ("a.safetensors", safetensors(65), 65),
        ("a.safetensors", safetensors(65, "I32"), 65),
        ("a.safetensors", safetensors(65, "F16"), None),
        ("a.safetensors", safetensors(), None),
        ("a.ckpt", ckpt(65), 65),
        ("a.ckpt", ckpt(), None),
    ],
)
def test_the_step_in_a_file(tmp_path: Path, name: str, content: bytes, step: int | None) -> None:
    (tmp_path / name).write_bytes(content)
    assert look_into_file(tmp_path / name) == Look(step=step)


def test_an_agent_prepares_what_the_attempt_loads(tmp_path: Path) -> None:
    iteration(tmp_path, 100)
    lose_model(iteration(tmp_path, 200))
    rules = pb.CheckpointRules(
        framework="MindSpore", num_nodes=2, chips_per_node=2, tensor=1, pipeline=1, context=1, expert=1,
        rank_order="TensorDataPipeline", sharding="Distributed", copies=2, expert_tensor=1,
    )  # fmt: skip
    state, verdict = prepare_attempt(tmp_path, pb.CheckpointOrder(prepare_attempt=2, rules=rules))
    carry_out_verdict(tmp_path, verdict)
    assert (state.loaded_step, state.name, state.problem) == (100, "iteration_00000100", "")
    assert [(one.name, one.reason) for one in state.refused] == [("iteration_00000200", RefusalReason.MISSING_SHARD)]
    assert (tmp_path / TRACKER).read_text() == "100"
