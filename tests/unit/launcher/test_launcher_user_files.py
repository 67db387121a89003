"""The launcher changes checkpoints as the training's user, by a real launcher."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.trainer_container import Container, running

NOTHING: dict[str, Any] = {"kind": "files", "number": 7, "copies": [], "writes": {}, "aside": []}


def ordered(pod: Container, **order: object) -> dict[str, Any]:
    """The answer to an order."""
    pod.send({**NOTHING, **order})
    pod.until(lambda: pod.heard("files"), "the answer")
    return pod.newest("files")


def test_files_are_copied_written_and_put_aside(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("shard")
    (tmp_path / "old").write_text("newer")
    (tmp_path / "tracker").write_text("10")
    with running(tmp_path, "sleep 60", HAJOB_CHECKPOINT_DIR=str(tmp_path)) as pod:
        answer = ordered(pod, copies=[["a", "rank_1/b"]], writes={"tracker": "5"}, aside=["old"])
    assert (answer["number"], answer["errno"], answer["problem"]) == (7, 0, "")
    assert (tmp_path / "rank_1/b").read_text() == "shard"
    assert (tmp_path / "tracker").read_text() == "5"
    assert not (tmp_path / "old").exists()
    assert (tmp_path / "old.refused").read_text() == "newer"
    assert not list(tmp_path.rglob("*.hajob-tmp*"))


def test_a_path_that_leads_outside_is_not_followed(tmp_path: Path) -> None:
    with running(tmp_path, "sleep 60", HAJOB_CHECKPOINT_DIR=str(tmp_path / "ckpt")) as pod:
        answer = ordered(pod, writes={"../tracker": "5"})
    assert (answer["errno"], (tmp_path / "tracker").exists()) == (errno.EINVAL, False)


def test_what_fails_is_told_and_ends_nothing(tmp_path: Path) -> None:
    with running(tmp_path, "sleep 60", HAJOB_CHECKPOINT_DIR=str(tmp_path)) as pod:
        answer = ordered(pod, aside=["is not there"])
        assert answer["errno"] == errno.ENOENT
        assert "is not there" in answer["problem"]
        assert pod.launcher is not None
        assert pod.launcher.poll() is None


def test_a_pod_that_is_ending_changes_nothing_any_more(tmp_path: Path) -> None:
    """Another pod will check these files: it must find them as they were."""
    with running(tmp_path, "trap '' TERM; touch up; sleep 60", HAJOB_CHECKPOINT_DIR=str(tmp_path)) as pod:
        pod.until((tmp_path / "home/up").exists, "the trap")
        assert pod.launcher is not None
        pod.launcher.terminate()
        answer = ordered(pod, writes={"tracker": "5"})
    assert (answer["errno"], (tmp_path / "tracker").exists()) == (errno.ESHUTDOWN, False)


AS_USER = """
import json, os
from trainer_sidecar.launcher.loop import Loop
from trainer_sidecar.launcher.user_files import UserFiles
os.setgroups([])
os.setgid(1000)
os.setuid(1000)
loop = Loop()
files = UserFiles(loop, ".", lambda answer: (print(json.dumps(answer)), loop.stop_loop()))
files.begin_order({"number": 1, "copies": [], "writes": {"tracker": "5"}, "aside": []})
loop.call_after(30.0, loop.stop_loop)
loop.run_until_stopped()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize(("owner", "problem"), [(1000, ""), (0, "user 1000 (group 1000) may not do it")])
def test_the_tracker_belongs_to_the_training(tmp_path: Path, owner: int, problem: str) -> None:
    os.chown(tmp_path, owner, owner)
    tmp_path.chmod(0o755)
    done = subprocess.run([sys.executable, "-c", AS_USER], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert problem in json.loads(done.stdout)["problem"]
    assert [path.stat().st_uid for path in tmp_path.glob("tracker")] == ([] if problem else [owner])
