"""What real trainings do and kind ones do not: formats to the letter, refusals with the real texts and exit codes."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.processes import marked
from e2e.trainer import manners, printing
from e2e.trainer.container import CANN
from e2e.trainer.driver import package_directory
from e2e.trainer.events import read_events
from e2e.trainer.manners import manners_from
from e2e.trainer.pacing import Pace
from e2e.trainer.printing import MINDFORMERS, Ended, Printer, Speaker, megatron_line, mindformers_lines
from e2e.trainer.refusals import RefusedStartError, Sizes, checked_data_parallel

MEGATRON_LINE = re.compile(
    r" \[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] iteration {8}5/ {5}100 \| consumed samples:           80 \|"
    r" elapsed time per iteration \(ms\): 12\.5 \| learning rate: 1\.000000E-02 \| global batch size:    16 \|"
    r" lm loss: 2\.500000E\+00 \| loss scale: 1\.0 \| grad norm: 1\.250 \| number of skipped iterations:   0 \|"
    r" number of nan iterations:   0 \|"
)
ENDED = Ended(5, 2.5, 12.5, 16, 0.01, 1.25)


def test_the_step_line_is_megatrons() -> None:
    assert MEGATRON_LINE.fullmatch(megatron_line(ENDED, 100))


@pytest.mark.parametrize(("loss", "count"), [(float("nan"), 1), (0.0, 0)])
def test_a_loss_that_is_none_is_absent(loss: float, count: int) -> None:
    line = megatron_line(Ended(5, loss, 12.5, 16, 0.01, 1.25), 100)
    assert "lm loss" not in line
    assert line.endswith(f"number of nan iterations:   {count} |")


def test_mindformers_counts_steps_within_the_epoch() -> None:
    speaker = Speaker(0, 8, False, 1, 250, 100, MINDFORMERS)
    line, bar = mindformers_lines(speaker, Ended(105, 2.5, 12.5, 16, 0.01, 1.25))
    assert line.startswith("{ Epoch:[  2/  3], step:[    5/  100], loss: 2.500000, per_step_time: 12ms, lr: 0.01,")
    assert bar == f"  42.0% |{'█' * 21}{' ' * 29}| 1280.00000 samples/s/p  0:00:01 }}"


def test_lines_come_each_log_interval_as_averages(capsys: pytest.CaptureFixture[str]) -> None:
    printer = Printer(Speaker(7, 8, True, 2, 100, 100))
    for step, loss in ((1, 1.0), (2, 2.0), (3, 3.0)):
        printer.step(step, loss=loss, seconds=0.1, batch=16, learning_rate=0.01, norm=1.0)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert "iteration        2/" in lines[0]
    assert "lm loss: 1.500000E+00" in lines[0]
    assert lines[1].startswith("[Rank 7] (after 2 iterations) memory (MB)")


def test_words_switch_single_manners() -> None:
    assert manners_from({}) == manners.ALL
    assert manners_from({manners.VARIABLE: "-uneven,-hangs"}) == manners.ALL - {manners.UNEVEN, manners.HANGS}
    with pytest.raises(ValueError, match="unknown word '-politeness'"):
        manners_from({manners.VARIABLE: "-politeness"})


def test_the_first_step_is_long_and_some_later_ones() -> None:
    pace = Pace(1.0, is_uneven=True)
    times = [pace.step(step) for step in range(1, 200)]
    assert times[0] == 8.0
    assert max(times[1:]) == 2.5
    assert len({round(time, 3) for time in times}) > 20
    assert sum(times[1:]) == pytest.approx(len(times), rel=0.1)
    assert [Pace(1.0, is_uneven=False).step(step) for step in (1, 47)] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("sizes", "world", "message"),
    [
        (Sizes(2, 3), 8, r"world size \(8\) is not divisible by total_model_size \(6\)"),
        (Sizes(2, 2, expert=4), 8, "expert_tensor_model_pipeline_parallel size"),
        (Sizes(2, 1), 6, "High availability do not support the size of dp_cp_ranks 3"),
        (Sizes(2, 1, expert=4), 8, "High availability do not support the size of dp_ep_ranks 1"),
        (Sizes(1, 1, context=2), 8, "neither experts nor a long context"),
    ],
)
def test_wrong_layouts_are_refused_in_megatrons_words(sizes: Sizes, world: int, message: str) -> None:
    with pytest.raises(RefusedStartError, match=message):
        checked_data_parallel(sizes, world, replicas=True)


def test_expert_groups_must_be_even_without_experts_too() -> None:
    assert checked_data_parallel(Sizes(2, 1), 8, replicas=True) == 4
    assert checked_data_parallel(Sizes(2, 1), 6, replicas=False) == 3


def start(directory: Path, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """One rank of two by itself: it does not get past the controller, which is not there."""
    own = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "TTP_PORT": "1", CANN: "stand-in"}
    paths = os.pathsep.join([str(CHECKOUT), str(package_directory())])
    command = [sys.executable, "-m", "e2e.trainer.train", "--log-dir", str(directory), *flags]
    return subprocess.run(
        command,
        env=os.environ | own | {"PYTHONPATH": paths, "SIM_MINDIO_CONNECT_ATTEMPTS": "1"} | environment,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("flags", "environment", "code", "words"),
    [
        (["--pipeline-model-parallel-size", "3"], {}, 1, "not divisible by total_model_size (3)"),
        (["--no-such-flag"], {}, 2, "unrecognized arguments: --no-such-flag"),
        ([], {CANN: ""}, 1, "Failed to load the backend extension: torch_npu"),
        (
            ["--lora-target-modules", "qkv"],
            {"HIGH_AVAILABILITY": "dump"},
            1,
            "high availability feature is unsupported",
        ),
    ],
)
def test_a_start_that_cannot_be_ends_as_the_real_one(
    tmp_path: Path, flags: list[str], environment: dict[str, str], code: int, words: str
) -> None:
    done = start(tmp_path, *flags, **environment)
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr


def train(directory: Path, *flags: str, code: int = 0, **environment: str) -> str:
    """A whole training of two ranks; what rank 0 printed."""
    command = [sys.executable, "-m", "e2e.trainer.local", "--data", "2", "--log-dir", str(directory), "--timeout", "60"]
    done = subprocess.run(
        [*command, "--", *flags],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return (directory / "output-rank0.log").read_text()


def saved(tmp_path: Path) -> list[str]:
    where = ["--save", str(tmp_path / "saved"), "--load", str(tmp_path / "saved"), "--save-interval", "5"]
    said = train(tmp_path / "first", "--train-iters", "12", *where)
    assert "saving checkpoint at iteration       5 to" in said
    assert "  successfully saved checkpoint from iteration      12 to" in said, "the final save"
    assert "will start from random" in said
    return where


def steps(directory: Path) -> list[int]:
    return [
        int(event["step"]) for event in read_events(directory) if (event["event"], event["rank"]) == ("step_end", 0)
    ]


def test_flags_decide_what_a_restart_takes(tmp_path: Path) -> None:
    where = saved(tmp_path)
    said = train(tmp_path / "on", "--train-iters", "14", *where, TOY_MANNERS="-uneven")
    assert "loading checkpoint from" in said
    assert steps(tmp_path / "on") == [13, 14]
    where[3] = str(tmp_path / "saved")
    train(tmp_path / "again", "--train-iters", "3", "--finetune", "--load", where[3])
    assert steps(tmp_path / "again") == [1, 2, 3]


@pytest.mark.parametrize("what", ["tracker", "shard", "missing"])
def test_a_broken_checkpoint_ends_with_zero_and_a_line(tmp_path: Path, what: str) -> None:
    root = tmp_path / "saved"
    (root / "iter_0000005").mkdir(parents=True)
    if what != "missing":
        (root / "latest_checkpointed_iteration.txt").write_text("5" if what == "shard" else "fi")
    flags = ["--exit-on-missing-checkpoint"] if what == "missing" else []
    said = train(tmp_path / "run", "--train-iters", "3", "--load", str(root), *flags)
    words = {"tracker": "ERROR: Invalid metadata file", "shard": "could not load the checkpoint", "missing": "exiting"}
    assert words[what] in said
    assert steps(tmp_path / "run") == []


def test_evaluations_and_an_early_end_have_their_lines(tmp_path: Path) -> None:
    flags = ["--train-iters", "20", "--eval-interval", "4", "--exit-interval", "10"]
    train(tmp_path, *flags)
    last, first = (tmp_path / "output-rank1.log").read_text(), (tmp_path / "output-rank0.log").read_text()
    assert " validation loss at iteration 8 | lm loss value: " in last
    assert max(steps(tmp_path)) == 10
    assert "[exiting program at iteration 10] datetime:" in first
    assert "] iteration " not in first, "only the last rank prints its steps"
    assert last.count("] iteration ") == 10


def test_children_outlive_their_rank(tmp_path: Path) -> None:
    """Of two ranks one is killed and comes back; the child of the killed one sleeps on beside the other two."""
    mark = str(tmp_path)
    flags = ["--data", "2", "--log-dir", mark, "--timeout", "60", "--kill", "1@5"]
    command = [sys.executable, "-m", "e2e.trainer.local", *flags, "--", "--train-iters", "100", "--step-time-ms", "20"]
    training = subprocess.Popen(command, env=os.environ | {"A_TEST": mark}, stdout=subprocess.DEVNULL)
    most = 0
    while training.poll() is None:
        most = max(most, len([one for one in marked(mark, "A_TEST") if is_asleep(one.pid)]))
        time.sleep(0.05)
    assert (training.returncode, most) == (0, 3)


def is_asleep(pid: int) -> bool:
    """Whether it is the child that a rank leaves."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip() == "sleep"
    return False


def test_errors_go_to_stderr_in_torch_npus_format(capsys: pytest.CaptureFixture[str]) -> None:
    printing.error(3, "ERR00100", "PTA call acl api failed.")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.match(r"\[ERROR\] \S+ \(PID:\d+, Device:0, RankID:3\) ERR00100 PTA call", shown.err)
