"""What people read about checkpoints that are not loaded."""

from __future__ import annotations

import pytest

from hajob.domain.checkpoints import MOST_REFUSALS, SENTENCE, CheckpointRefusal, RefusalReason, describe_checkpoints

MISSING = CheckpointRefusal("iter_0000020", RefusalReason.MISSING_SHARD, "rank 3")
TORN = CheckpointRefusal("iter_0000010", RefusalReason.TRUNCATED_FILE, "model.pt")
NONE_LEFT = "no complete checkpoint is left, starts from step 0"


@pytest.mark.parametrize(
    ("refused", "step", "words"),
    [
        ((), 20, "resumes from step 20"),
        ((), 0, "resumes from step 0"),
        ((), -1, NONE_LEFT),
        ((MISSING,), 10, "resumes from step 10; refused: iter_0000020 (MissingShard: rank 3)"),
        (
            (MISSING, TORN),
            -1,
            f"{NONE_LEFT}; refused: iter_0000020 (MissingShard: rank 3); iter_0000010 (TruncatedFile: model.pt)",
        ),
    ],
)
def test_what_is_loaded_and_what_is_not(refused: tuple[CheckpointRefusal, ...], step: int, words: str) -> None:
    assert describe_checkpoints(refused, step) == words


def test_many_refusals_are_cut_off() -> None:
    words = describe_checkpoints([MISSING] * (MOST_REFUSALS + 1), 10)
    assert words.count("MissingShard") == MOST_REFUSALS


def test_a_refusal_is_a_sentence_whoever_has_sent_it() -> None:
    assert MISSING.refusal_message == f"{SENTENCE[RefusalReason.MISSING_SHARD]}: rank 3"
    assert (
        CheckpointRefusal("iter_0000020", RefusalReason.MISSING_SHARD).refusal_message
        == SENTENCE[RefusalReason.MISSING_SHARD]
    )
    assert CheckpointRefusal("iter_0000020", "WrongMoon", "full").refusal_message == "WrongMoon: full"
