"""What is absent from a start script's arguments is unknown; what is absent from the trainer's own is not given."""

from __future__ import annotations

from typing import Any

import pytest

from hajob.plan.flags import TrainerFlags, parse_flags, read_flags, read_launched_command


def template(*words: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "trainer", "command": list(words)}]}}


def test_a_script_may_add_flags_that_nobody_sees() -> None:
    flags = read_flags(template("bash", "train.sh", "--train-iters", "5", "--bf16"))
    assert (flags.has_switch("bf16"), flags.lacks_switch("bf16")) == (True, False)
    assert (flags.has_switch("use-custom-fsdp"), flags.lacks_switch("use-custom-fsdp")) == (None, None)


def test_a_trainer_that_is_started_right_there_shows_everything() -> None:
    for command in (
        ("torchrun", "pretrain.py"),
        ("/usr/bin/python3", "-m", "x"),
        ("bash", "-c", "torchrun pretrain.py"),
    ):
        flags = read_flags(template(*command, "--train-iters", "5"))
        assert (flags.has_switch("bf16"), flags.lacks_switch("bf16")) == (False, True)


def test_no_trainer_flags_at_all_tell_nothing() -> None:
    flags = read_flags(template("torchrun", "pretrain.py"))
    assert (flags.has_switch("bf16"), flags.lacks_switch("bf16")) == (None, None)


def read(*words: str) -> TrainerFlags:
    return read_flags(template("torchrun", "pretrain.py", "--train-iters", "5", *words))


def test_comments_of_a_shells_text_are_not_read() -> None:
    text = "torchrun pretrain.py --train-iters 5 # --bf16 was too coarse\n --fp16"
    flags = read_flags(template("bash", "-c", text))
    assert (flags.has_switch("bf16"), flags.has_switch("fp16")) == (False, True)


@pytest.mark.parametrize(
    ("word", "value"),
    [("run#3", "run#3"), ("${#LIST}", "${#LIST}"), ("'#3 of 4'", "#3 of 4"), ('"a #b"', "a #b"), ("$#", "$#")],
)
def test_a_hash_within_a_word_hides_nothing(word: str, value: str) -> None:
    flags = read_flags(template("bash", "-c", f"torchrun pretrain.py --train-iters 5 --note {word} --bf16"))
    assert (flags.text_of_option("note"), flags.has_switch("bf16")) == (value, True)


def test_a_word_that_no_shell_reads_is_the_programs_own() -> None:
    assert read('--save="/a"', "--load=/b#2").values == {"train-iters": "5", "save": '"/a"', "load": "/b#2"}


def test_text_that_no_shell_could_read_hides_nothing_else() -> None:
    flags = read("--bf16", "--note", "it's new", "--fp16")
    assert (flags.complete, flags.has_switch("bf16"), flags.has_switch("fp16")) == (True, True, True)


def test_a_program_is_known_by_the_last_part_of_its_path() -> None:
    for program in ("/opt/conda/bin/python3.11", "bin/torchrun", "msrun", "accelerate"):
        assert read_flags(template(program, "--train-iters", "5")).complete
    for script in ("/opt/python/bin/train.sh", "torchrun/start", "sh"):
        assert not read_flags(template(script, "--train-iters", "5")).complete


@pytest.mark.parametrize(
    ("value", "number"),
    [("5", 5), ("005", 5), ("-5", None), ("5.0", None), ("$N", None), ("²", None), ("", None)],
)
def test_only_a_number_is_a_number(value: str, number: int | None) -> None:
    assert parse_flags([f"--train-iters={value}"]).number_of_option("train-iters") == number
    assert parse_flags([]).number_of_option("train-iters") is None


def test_an_option_takes_the_next_word_and_no_more() -> None:
    flags = parse_flags(["a", "--lora_target_modules", "q", "k", "--save=", "/x", "--load=/y", "z", "--bf16", "--fp16"])
    assert flags.values == {"lora-target-modules": "q", "save": "/x", "load": "/y", "bf16": "", "fp16": ""}


@pytest.mark.parametrize("word", ["$HAJOB_CHECKPOINT_DIR", "${HAJOB_CHECKPOINT_DIR}", "$(HAJOB_CHECKPOINT_DIR)"])
def test_the_checkpoint_directory_may_be_named_by_its_variable(word: str) -> None:
    words = ["train.py", "--train-iters", "9", "--save", word, "--load", f"{word}/old", "--tensorboard-dir", "$OTHER"]
    flags = read_launched_command(words).with_variable("HAJOB_CHECKPOINT_DIR", "/ckpt")
    assert [flags.text_of_option(name) for name in ("save", "load", "tensorboard-dir")] == [
        "/ckpt",
        "/ckpt/old",
        "$OTHER",
    ]
