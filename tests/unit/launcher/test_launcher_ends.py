"""How a training ends is told by its ranks, whatever the script's own code says; real pipes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rigs.trainer_container import Container, running
from trainer_sidecar.launcher import endings, progress


def trained(pod: Container, problem: str = "") -> int:
    """Bring the training to its end and return its verdict."""
    pod.answers = False
    pod.launched()
    pod.register()
    pod.start_ranks()
    pod.until(lambda: pod.heard("all_ended"), "the end of the ranks")
    pod.send({"kind": "verdict", "launch": 1, "problem": problem})
    return pod.ended()


def test_a_lost_log_does_not_fail_a_training(tmp_path: Path) -> None:
    with running(tmp_path, "set -o pipefail; torchrun echo.py | tee logs/train.log") as pod:
        assert trained(pod) == 0
        assert pod.script()["finished"]
        assert pod.script()["exit_code"] == 1
        assert "tee: logs/train.log: No such file or directory" in pod.script()["lost_log"]
        assert "the training has finished; the start script ended with 1 after it" in pod.log()


def test_a_script_s_error_after_its_training_is_the_last_word(tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    log.touch()  # as a kubelet does
    script = "set -o pipefail; torchrun echo.py | tee logs/train.log"
    with running(tmp_path, script, HAJOB_TERMINATION_LOG=str(log)) as pod:
        assert trained(pod) == 0
    assert "tee: logs/train.log: No such file or directory" in log.read_text()


def test_a_pipe_does_not_hide_a_failed_training(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "fail.py").write_text("raise SystemExit(3)")
    with running(tmp_path, "torchrun fail.py | cat & sleep 2; kill $(jobs -p); exit 0") as pod:
        pod.launched()
        pod.register()
        pod.start_ranks()
        assert pod.ended() == 65
        assert "the start script ended with 0, but no training of it has finished" in pod.log()


@pytest.mark.parametrize("script", ["echo hi", "python3 -c 'raise SystemExit(\"hi\")' 2>&1 | tee log"])
def test_an_end_without_a_training_is_no_success(tmp_path: Path, script: str) -> None:
    """No agent has a coordinator yet that could hear of it: the pod's exit code is all that the operator sees."""
    log = tmp_path / "termination-log"
    log.touch()
    with running(tmp_path, script, HAJOB_TERMINATION_LOG=str(log)) as pod:
        assert pod.ended() == 65
    assert log.read_text().splitlines() == ["the start script ended with 0, without calling torchrun or msrun", "hi"]


def test_a_script_waits_while_its_training_is_not_finished(tmp_path: Path) -> None:
    with running(tmp_path, "torchrun echo.py; echo went on", ranks=1) as pod:
        pod.answers = False
        pod.launched()
        pod.register()
        pod.start_ranks()
        pod.until(lambda: pod.heard("all_ended"), "the end of the ranks")
        pod.send({"kind": "verdict", "launch": 1, "problem": "rank 0 ended with 0 at step 3 of 9"})
        pod.until(lambda: "the training has not finished: rank 0 ended with 0 at step 3 of 9" in pod.log(), "the line")
        pod.said.clear()
        pod.start_ranks(1)
        pod.until(lambda: pod.heard("all_ended"), "the second end")
        assert "went on" not in pod.log()
        pod.send({"kind": "verdict", "launch": 1, "problem": ""})
        assert pod.ended() == 0
        assert "went on" in pod.log()


def test_no_end_is_a_finish_before_an_agent_says_so(tmp_path: Path) -> None:
    """The pod's 0 is believed when nobody else can be heard; so an agent that is away is waited for."""
    with running(tmp_path, "torchrun echo.py", ranks=1) as pod:
        pod.answers = False
        pod.launched()
        pod.register()
        pod.start_ranks()
        pod.until(lambda: pod.heard("all_ended"), "the end of the ranks")
        pod.said.clear()
        pod.come_back()
        pod.until(lambda: pod.heard("all_ended"), "the question once more")
        pod.send({"kind": "verdict", "launch": 1, "problem": ""})
        assert pod.ended() == 0


def test_notices_travel_with_the_end(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    program = "print('could not load the checkpoint'); print('\\n' * 100); print('bye')"
    (tmp_path / "home" / "load.py").write_text(program)
    with running(tmp_path, "torchrun load.py", ranks=1) as pod:
        pod.launched()
        pod.register()
        pod.start_ranks()
        pod.until(lambda: pod.rank(0).get("running") is False, "the end")
        assert pod.rank(0)["notices"] == {"CheckpointNotLoaded": "could not load the checkpoint"}


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b"[exiting program at iteration 50] datetime: 2026-01-01 00:00:00", endings.EARLY_END),
        (b"exiting program after receiving SIGTERM.", endings.EARLY_END),
        (b"ERROR: Invalid metadata file /c/latest_checkpointed_iteration.txt. Exiting", endings.NOT_LOADED),
        (b">> '--exit-on-missing-checkpoint' set ... exiting. <<", endings.NOT_LOADED),
        (b"WARNING: could not find the metadata file /c/latest", endings.NO_TRACKER),
        (b"ValueError: High availability do not support the size of dp_ep_ranks", endings.LAYOUT),
        (b"/bin/sh: 1: g++: not found", endings.BUILD),
        (b"make: *** [Makefile:13: default] Error 127", endings.BUILD),
        (b"sh: make: command not found", endings.BUILD),
        (b"  successfully loaded checkpoint from /c [ t 1/1, p 1/1 ] at iteration 40", endings.LOADED),
        (b" iteration        5/     100 | lm loss: 1.0E+00 |", ""),
        (b"makefile found", ""),
    ],
)
def test_lines_that_tell(line: bytes, kind: str) -> None:
    assert endings.kind_of_line(line) == kind


@pytest.mark.parametrize(
    ("line", "is_fault"),
    [
        (b"RuntimeError: UCE ERROR. time us= 1763800000000000.", True),
        (b"[ERROR] 2026-11-22-10:00:00 (PID:7, Device:1, RankID:1) ERR00100 PTA call acl api failed", True),
        (b"HCCL OP RETRY FAILED", True),
        (b"synchronize stream failed, error code is 507054", True),
        (b"[W] call aclrtSynchronizeDevice failed, errcode: 507904", True),
        (b"consumed samples: 507053 | error code is 0", False),
        (b"torch.cuda.OutOfMemoryError: out of memory", True),
        (b"RuntimeError: FORCE STOP.", False),
        (b"RuntimeError: ARF FINISH", False),
        (b"  File train.py, line 4, in step", False),
        (b"loss is an Error: no", False),
        (b"AssertionError", True),
        (b"Exception in the log of a step", False),
    ],
)
def test_lines_of_a_fault_are_kept_the_newest_counts(line: bytes, is_fault: bool) -> None:
    notices = {endings.FAULT: "an older one"}
    assert (endings.note_telling_line(notices, line) == endings.FAULT) is is_fault
    assert notices == {endings.FAULT: line.decode() if is_fault else "an older one"}


def test_a_refused_layout_is_not_taken_for_a_fault() -> None:
    notices: dict[str, str] = {}
    endings.note_telling_line(notices, b"ValueError: High availability do not support the size of dp_cp_ranks")
    assert list(notices) == [endings.LAYOUT]


def test_steps_within_an_epoch_are_steps_of_the_training() -> None:
    line = b"2026 - INFO - { Epoch:[  2/  3], step:[    5/   10], loss: 1.0, per_step_time: 20ms }"
    assert progress.parse_step_line(line) == (15, 30)
