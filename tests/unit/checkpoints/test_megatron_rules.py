"""PyTorch's layout: the newest complete checkpoint, and a name for what is wrong with every newer one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hajob.domain.checkpoints import SENTENCE, CheckpointRefusal, RefusalReason, describe_checkpoints
from hajob.domain.layout import Layout, Sharding
from tests.unit.checkpoints.fake_directory import FakeDirectory
from trainer_sidecar.checkpoints.megatron import (
    MODEL_FILE,
    OPTIMIZER_FILE,
    TRACKER,
    evaluate_megatron,
    shard_directories,
)
from trainer_sidecar.checkpoints.verdict import Look

LAYOUT = Layout(num_nodes=4, chips_per_node=2, tensor=2, pipeline=2)
FILES = (MODEL_FILE, OPTIMIZER_FILE)


def saved(*steps: int, tracker: str | None = None, layout: Layout = LAYOUT) -> FakeDirectory:
    """Whole checkpoints of these steps; the tracker names the last of them."""
    directory = FakeDirectory()
    for step in steps:
        for shard in shard_directories(layout):
            for file in FILES:
                directory.looks[f"iter_{step:07d}/{shard}/{file}"] = Look(step=step)
    directory.texts[TRACKER] = str(steps[-1]) if tracker is None else tracker
    return directory


def reasons(directory: FakeDirectory, layout: Layout = LAYOUT) -> list[tuple[str, str]]:
    return [(one.name, one.reason) for one in evaluate_megatron(directory, layout).refused]


def test_a_whole_tracked_checkpoint_is_taken_unchanged() -> None:
    verdict = evaluate_megatron(saved(5, 10), LAYOUT)
    assert (verdict.name, verdict.step, verdict.refused, verdict.is_tracked) == ("iter_0000010", 10, (), True)


def test_only_what_the_answer_depends_on_is_opened() -> None:
    directory = saved(5, 10)
    evaluate_megatron(directory, LAYOUT)
    assert {path.partition("/")[0] for path in directory.looked} == {"iter_0000010"}


def test_nothing_saved_yet_is_no_refusal() -> None:
    verdict = evaluate_megatron(FakeDirectory(), LAYOUT)
    assert (verdict.step, verdict.refused, verdict.is_tracked) == (-1, (), True)


def test_a_checkpoint_that_could_not_be_loaded_is_passed_over() -> None:
    verdict = evaluate_megatron(saved(5, 10, 15), LAYOUT, {15})
    assert (verdict.name, verdict.writes) == ("iter_0000010", {TRACKER: "10"})
    assert [(one.name, one.reason) for one in verdict.refused] == [("iter_0000015", "LoadFailed")]
    assert evaluate_megatron(saved(5, 10, 15), LAYOUT, {10}).step == 15, "only what would be loaded"


def truncated(directory: FakeDirectory) -> None:
    directory.looks["iter_0000010/mp_rank_01_001/distrib_optim.pt"] = Look(whole=False)


def empty(directory: FakeDirectory) -> None:
    directory.sizes["iter_0000010/mp_rank_01_001/distrib_optim.pt"] = 0


def shard_lost(directory: FakeDirectory) -> None:
    directory.drop(*(f"iter_0000010/mp_rank_01_001/{file}" for file in FILES))


def optimizer_lost(directory: FakeDirectory) -> None:
    directory.drop("iter_0000010/mp_rank_00_001/distrib_optim.pt")


def optimizer_of_all_lost(directory: FakeDirectory) -> None:
    directory.drop(*(f"iter_0000010/{shard}/{OPTIMIZER_FILE}" for shard in shard_directories(LAYOUT)))


def mixed(directory: FakeDirectory) -> None:
    directory.looks["iter_0000010/mp_rank_01_001/model_optim_rng.pt"] = Look(step=9)


def of_another_step(directory: FakeDirectory) -> None:
    for path in [path for path in directory.looks if path.startswith("iter_0000010")]:
        directory.looks[path] = Look(step=9)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (truncated, RefusalReason.TRUNCATED_FILE),
        (empty, RefusalReason.TRUNCATED_FILE),
        (shard_lost, RefusalReason.MISSING_SHARD),
        (optimizer_lost, RefusalReason.MISSING_SHARD),
        (optimizer_of_all_lost, RefusalReason.MISSING_SHARD),
        (mixed, RefusalReason.MIXED_STEPS),
        (of_another_step, RefusalReason.MIXED_STEPS),
    ],
)
def test_a_damaged_newest_is_refused_and_the_older_is_tracked(damage: object, reason: RefusalReason) -> None:
    directory = saved(5, 10)
    damage(directory)  # type: ignore[operator]
    verdict = evaluate_megatron(directory, LAYOUT)
    assert reasons(directory) == [("iter_0000010", reason)]
    assert (verdict.step, verdict.writes, verdict.aside) == (5, {TRACKER: "5"}, ())


def test_no_optimizer_shard_is_asked_for_where_none_is_saved() -> None:
    directory = saved(5)
    directory.drop(*(path for path in list(directory.looks) if path.endswith(OPTIMIZER_FILE)))
    assert evaluate_megatron(directory, LAYOUT).step == 5
    whole = Layout(num_nodes=4, chips_per_node=2, tensor=2, pipeline=2, sharding=Sharding.NONE)
    partly = saved(5)
    partly.drop("iter_0000005/mp_rank_00_001/distrib_optim.pt")
    assert evaluate_megatron(partly, whole).step == 5


def test_what_was_never_committed_is_refused() -> None:
    directory = saved(5, 10, tracker="5")
    directory.looks["iter_0000020_tmp/mp_rank_00_000/model_optim_rng.pt"] = Look(step=20)
    verdict = evaluate_megatron(directory, LAYOUT)
    assert reasons(directory) == [
        ("iter_0000020_tmp", RefusalReason.TEMPORARY_LEFT_BEHIND),
        ("iter_0000010", RefusalReason.NOT_COMMITTED),
    ]
    assert (verdict.step, verdict.is_tracked) == (5, True)


def test_a_temporary_directory_of_an_older_step_is_ignored() -> None:
    directory = saved(5, 10)
    directory.looks["iter_0000010_tmp/mp_rank_00_000/model_optim_rng.pt"] = Look(step=10)
    directory.looks["iter_0000007_tmp/mp_rank_00_000/model_optim_rng.pt"] = Look(step=7)
    assert evaluate_megatron(directory, LAYOUT).refused == ()


@pytest.mark.parametrize("tracker", ["", "ten", "-5", "5.0", "٥", "9" * 400])
def test_an_empty_tracker_was_written_last_and_is_mended(tracker: str) -> None:
    directory = saved(5, 10, tracker=tracker)
    verdict = evaluate_megatron(directory, LAYOUT)
    assert reasons(directory) == [(TRACKER, RefusalReason.WRONG_TRACKER)]
    assert (verdict.step, verdict.writes) == (10, {TRACKER: "10"})


def test_a_tracker_that_names_what_is_not_there() -> None:
    directory = saved(5, 10, tracker="15")
    verdict = evaluate_megatron(directory, LAYOUT)
    assert reasons(directory) == [(TRACKER, RefusalReason.WRONG_TRACKER)]
    assert (verdict.step, verdict.writes) == (10, {TRACKER: "10"})
    assert "step 15" in verdict.refused[0].detail


def test_without_a_tracker_nothing_was_committed() -> None:
    directory = saved(5)
    del directory.texts[TRACKER]
    verdict = evaluate_megatron(directory, LAYOUT)
    assert [one.reason for one in verdict.refused] == [RefusalReason.NOT_COMMITTED]
    assert (verdict.step, verdict.aside) == (-1, ())


def test_what_all_checkpoints_lack_is_our_misunderstanding() -> None:
    directory = saved(5, 10)
    for step in (5, 10):
        directory.drop(*(f"iter_{step:07d}/mp_rank_01_001/{file}" for file in FILES))
    verdict = evaluate_megatron(directory, LAYOUT)
    assert (verdict.refused, verdict.is_tracked, verdict.name) == ((), True, "")
    assert "mp_rank_01_001" in verdict.doubt


def test_an_older_checkpoint_is_listed_only_when_needed() -> None:
    directory = saved(5, 10)
    evaluate_megatron(directory, LAYOUT)
    assert set(directory.listed) == {"iter_0000010"}


def test_where_nothing_complete_is_left_the_tracker_goes_too() -> None:
    directory = saved(5)
    directory.looks["iter_0000005/mp_rank_00_001/model_optim_rng.pt"] = Look(whole=False)
    verdict = evaluate_megatron(directory, LAYOUT)
    assert (verdict.name, verdict.step, verdict.aside) == ("", -1, (TRACKER,))


def test_initial_weights_and_unknown_formats_are_left_alone() -> None:
    release = FakeDirectory(texts={TRACKER: "release\n"})
    for shard in shard_directories(LAYOUT):
        release.looks[f"release/{shard}/{MODEL_FILE}"] = Look()
    assert (evaluate_megatron(release, LAYOUT).step, evaluate_megatron(release, LAYOUT).is_tracked) == (0, True)
    release.drop(f"release/mp_rank_00_000/{MODEL_FILE}")
    assert (reasons(release), evaluate_megatron(release, LAYOUT).aside) == (
        [("release", RefusalReason.MISSING_SHARD)],
        (),
    )
    other = FakeDirectory({"iter_0000005/__0_0.distcp": Look(), "iter_0000005/metadata.json": Look()}, {TRACKER: "5"})
    assert (evaluate_megatron(other, LAYOUT).step, evaluate_megatron(other, LAYOUT).is_tracked) == (5, True)


@pytest.mark.parametrize(
    ("sizes", "names"),
    [
        ({"tensor": 2}, ["mp_rank_00", "mp_rank_01"]),
        ({"pipeline": 2}, ["mp_rank_00_000", "mp_rank_00_001"]),
        ({"expert": 2}, ["mp_rank_00_000", "mp_rank_00_001"]),
        (
            {"tensor": 2, "expert": 4, "expert_tensor": 1},
            [f"mp_rank_{n}" for n in ("00_000", "00_002", "01_001", "01_003")],
        ),
        ({"pipeline": 2, "expert": 2}, [f"mp_rank_00_00{p}_00{e}" for p in (0, 1) for e in (0, 1)]),
    ],
)
def test_names_of_shards(sizes: dict[str, Any], names: list[str]) -> None:
    assert list(shard_directories(Layout(num_nodes=4, chips_per_node=2, **sizes))) == names


STEPS = st.lists(st.integers(1, 50), min_size=1, max_size=5, unique=True).map(sorted)


@given(STEPS, st.data())
def test_whatever_is_lost_the_newest_whole_one_is_taken(steps: list[int], data: st.DataObject) -> None:
    directory = saved(*steps)
    damaged = data.draw(st.sets(st.sampled_from(steps)))
    for step in damaged:
        path = data.draw(st.sampled_from([path for path in directory.looks if path.startswith(f"iter_{step:07d}/")]))
        directory.looks[path] = data.draw(st.sampled_from([Look(whole=False), Look(step=step + 1)]))
    verdict = evaluate_megatron(directory, LAYOUT)
    left = [step for step in steps if step not in damaged]
    assert verdict.step == (left[-1] if left else -1)
    newer = [step for step in reversed(steps) if step > verdict.step]
    assert [one.name for one in verdict.refused] == [f"iter_{step:07d}" for step in newer]
    if verdict.writes:
        directory.texts[TRACKER] = verdict.writes[TRACKER]
    assert verdict.step == -1 or evaluate_megatron(directory, LAYOUT).is_tracked


def test_every_reason_and_refusal_reads_as_a_sentence() -> None:
    assert set(SENTENCE) == set(RefusalReason)
    refusal = CheckpointRefusal(
        "iter_0000010", RefusalReason.TRUNCATED_FILE, "mp_rank_00/model_optim_rng.pt (17 bytes)"
    )
    assert refusal.refusal_message == "a file is cut off or damaged: mp_rank_00/model_optim_rng.pt (17 bytes)"
    assert CheckpointRefusal("x", "OfANewerAgent").refusal_message == "OfANewerAgent"
    assert describe_checkpoints([refusal], 5).startswith(
        "resumes from step 5; refused: iter_0000010 (TruncatedFile: mp_rank_00"
    )
    assert describe_checkpoints([], -1) == "no complete checkpoint is left, starts from step 0"
