"""What is absent from a start script's arguments is unknown; what is absent from the trainer's own is not given."""

from __future__ import annotations

from typing import Any

from hajob.plan.flags import read_flags


def template(*words: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "trainer", "command": list(words)}]}}


def test_a_script_may_add_flags_that_nobody_sees() -> None:
    flags = read_flags(template("bash", "train.sh", "--train-iters", "5", "--bf16"))
    assert (flags.has("bf16"), flags.lacks("bf16")) == (True, False)
    assert (flags.has("use-custom-fsdp"), flags.lacks("use-custom-fsdp")) == (None, None)


def test_a_trainer_that_is_started_right_there_shows_everything() -> None:
    for command in (
        ("torchrun", "pretrain.py"),
        ("/usr/bin/python3", "-m", "x"),
        ("bash", "-c", "torchrun pretrain.py"),
    ):
        flags = read_flags(template(*command, "--train-iters", "5"))
        assert (flags.has("bf16"), flags.lacks("bf16")) == (False, True)


def test_no_trainer_flags_at_all_tell_nothing() -> None:
    flags = read_flags(template("torchrun", "pretrain.py"))
    assert (flags.has("bf16"), flags.lacks("bf16")) == (None, None)
