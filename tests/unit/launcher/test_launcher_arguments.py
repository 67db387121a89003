"""What a restart would load, from the arguments, and mending them."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.rigs.trainer_container import running
from trainer_sidecar.launcher import arguments

EXAMPLE = [
    "--use-distributed-optimizer", "--finetune", "--no-load-optim", "--no_load_rng",
    "--save", "/out", "--load=/pretrained", "--save-interval", "10",
]  # fmt: skip


def test_an_example_is_mended_so_that_it_resumes() -> None:
    mended = arguments.resumed_arguments(EXAMPLE)
    assert mended.arguments == [
        "--use-distributed-optimizer", "--save", "/out", "--save-interval", "10", "--load", "/out",
    ]  # fmt: skip
    assert mended.changes == [
        "without --finetune",
        "without --no-load-optim",
        "without --no_load_rng",
        "with --load /out",
    ]
    assert arguments.means_to_resume(arguments.parse_options(mended.arguments))


def test_arguments_that_resume_are_left_as_they_are() -> None:
    assert arguments.resumed_arguments(["--load", "/out", "--save", "/out"]).changes == []


def test_what_saves_nothing_is_left_alone() -> None:
    assert arguments.resumed_arguments(["--load", "/x", "--finetune"]).arguments == ["--load", "/x", "--finetune"]


@pytest.mark.parametrize(
    ("given", "means"),
    [
        (["--save", "/a", "--load", "/a/"], True),
        (["--save", "/a", "--load", "/b"], False),
        (["--save", "/a", "--load", "/a", "--finetune"], False),
        (["--save", "/a"], False),
    ],
)
def test_whether_a_start_means_to_resume(given: list[str], means: bool) -> None:
    assert arguments.means_to_resume(arguments.parse_options(given)) is means


def test_the_second_start_of_an_unchanged_script_resumes(tmp_path: Path) -> None:
    saved = tmp_path / "out"
    saved.mkdir()
    script = f"torchrun echo.py --finetune --no-load-optim --load /pretrained --save {shlex.quote(str(saved))}"
    with running(tmp_path, script, ranks=1) as pod:
        pod.answers = False
        pod.launched()
        pod.register()
        pod.start_ranks(HAJOB_RESUME_POLICY="Arguments")
        pod.until(lambda: "--finetune" in pod.log(), "the first start, as it is")
        pod.until(lambda: pod.rank(0)["running"] is False, "its end")
        pod.send({"kind": "verdict", "launch": 1, "problem": "the test wants another one"})
        (saved / arguments.TRACKER).write_text("40")
        pod.start_ranks(1, HAJOB_RESUME_POLICY="Arguments", HAJOB_ATTEMPT="2")
        pod.until(lambda: f"args --save {saved} --load {saved}" in pod.log(), "the second start, mended")
        assert f"start 2: without --finetune, without --no-load-optim, with --load {saved}" in pod.log()


def test_a_script_is_left_as_it_is_by_default(tmp_path: Path) -> None:
    (tmp_path / arguments.TRACKER).write_text("40")
    with running(tmp_path, f"torchrun echo.py --finetune --save {shlex.quote(str(tmp_path))}", ranks=1) as pod:
        pod.launched()
        pod.register()
        pod.start_ranks(HAJOB_ATTEMPT="2")
        assert pod.ended() == 0
        assert f"args --finetune --save {tmp_path}" in pod.log()


@pytest.mark.parametrize(("text", "step"), [("40", 40), ("release", None), ("", None)])
def test_a_tracker_is_read_as_the_training_reads_it(tmp_path: Path, text: str, step: int | None) -> None:
    (tmp_path / arguments.TRACKER).write_text(text)
    assert arguments.read_tracked_step(str(tmp_path)) == step
    assert arguments.read_tracked_step(str(tmp_path / "nowhere")) is None
