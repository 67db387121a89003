"""A script with several launches: the training is the one that registers, the others run as what they are."""

from __future__ import annotations

from pathlib import Path

from tests.rigs.trainer_container import Container, fake_tool, running


def test_a_launch_that_never_registers_is_not_the_training(tmp_path: Path) -> None:
    script = "torchrun echo.py convert; echo converted $?; torchrun echo.py train; echo trained $?"
    with running(tmp_path, script) as pod:
        pod.launched(1)
        pod.start_ranks()
        pod.launched(2)
        pod.until(lambda: "converted 0" in pod.log(), "what the script says next")
        assert not pod.script()["finished"]
        pod.register()
        pod.start_ranks()
        assert pod.ended() == 0
        assert pod.script()["finished"]
        assert "trained 0" in pod.log()
        assert "never registered with MindIO: it was not the training" in pod.log()


def test_launches_after_the_training_run_as_they_are(tmp_path: Path) -> None:
    fake_tool(tmp_path / "image", "torchrun", "echo REAL $*; exit 5")
    with running(
        tmp_path, "torchrun echo.py; torchrun --nproc_per_node 8 e.py; echo $?", PATH=f"{tmp_path}/image:/usr/bin:/bin"
    ) as pod:
        pod.launched()
        pod.register()
        pod.start_ranks()
        assert pod.ended() == 0
        assert "REAL --nproc_per_node 8 e.py\n5\n" in pod.log()
        assert "the training was launched before it" in pod.log()


def test_one_process_of_many_is_no_training(tmp_path: Path) -> None:
    fake_tool(tmp_path / "image", "torchrun", "sleep 3; echo REAL $*")
    path = f"{tmp_path}/image:/usr/bin:/bin"
    with running(tmp_path, "torchrun --nproc_per_node 1 convert.py; torchrun echo.py", PATH=path) as pod:
        pod.launched(1)
        pod.until(lambda: "REAL --nproc_per_node 1 convert.py" in pod.log(), "the output")


def test_an_interpreter_s_launch_after_the_training_runs_too(tmp_path: Path) -> None:
    with running(tmp_path, "torchrun echo.py; python3 -m torch.distributed.run e.py 2>&1; echo $?") as pod:
        pod.launched()
        pod.register()
        pod.start_ranks()
        assert pod.ended() == 0
        assert "e.py" in pod.log() or "No module named" in pod.log()


def test_a_second_launch_beside_the_first_is_refused(tmp_path: Path) -> None:
    with running(tmp_path, "torchrun echo.py & sleep 1; torchrun echo.py b; echo saw $?; wait") as pod:
        pod.until(lambda: "saw 64" in pod.log(), "the refusal")
        assert "the launch of echo.py before it has not ended" in pod.log()


def test_a_script_that_never_trains_says_so_at_its_end(tmp_path: Path) -> None:
    with running(tmp_path, "torchrun echo.py") as pod:
        pod.launched()
        pod.start_ranks()
        pod.ended()
        assert (pod.script()["launch"], pod.script()["training"], pod.script()["finished"]) == (1, False, False)


def test_msrun_without_join_returns_and_its_ranks_go_on(tmp_path: Path) -> None:
    script = (
        "msrun --worker_num=2 --log_dir=logs echo.py; echo saw $?; until grep 'rank 1' logs/worker_1.log; do :; done"
    )
    with running(tmp_path, script) as pod:
        pod.answers = False
        pod.launched()
        pod.until(lambda: "saw 0" in pod.log(), "the return of msrun")
        pod.register()
        pod.start_ranks(MS_ROLE="MS_WORKER")
        pod.until(lambda: "its ranks go on" in pod.log(), "the end of the script")
        pod.until(lambda: pod.heard("all_ended"), "the end of the ranks")
        pod.send({"kind": "verdict", "launch": 1, "problem": ""})
        assert pod.ended() == 0
        assert pod.script()["finished"]
        assert "rank 1 args" in pod.log()


def test_a_script_that_leaves_its_launch_behind_is_waited_out(tmp_path: Path) -> None:
    with running(tmp_path, "nohup torchrun echo.py > out.log 2>&1 & sleep 1") as pod:
        pod.launched()
        pod.register()
        pod.until(lambda: "its ranks go on" in pod.log(), "the end of the script")
        pod.start_ranks()
        assert pod.ended() == 0
        assert "[rank 1] rank 1 args" in (pod.home / "out.log").read_text()


def test_a_script_that_fails_takes_its_launch_along(tmp_path: Path) -> None:
    with running(tmp_path, "torchrun echo.py & sleep 1; exit 3") as pod:
        pod.launched()
        pod.register()
        assert pod.ended() == 3
        assert not pod.script()["finished"]


def end_without_mindio(pod: Container, *, training: bool) -> None:
    """Ranks that register with nobody end with 0, and the agent says whether they were the training."""
    pod.answers = False
    pod.launched()
    pod.start_ranks(HAJOB_WITHOUT_MINDIO="1")
    pod.until(lambda: pod.heard("all_ended"), "the end of the ranks")
    pod.send({"kind": "verdict", "launch": 1, "problem": "", "training": training})


def test_without_mindio_the_agent_tells_the_training(tmp_path: Path) -> None:
    with running(tmp_path, "torchrun echo.py; echo trained $?") as pod:
        end_without_mindio(pod, training=True)
        assert pod.ended() == 0
        assert pod.script()["finished"]
        assert pod.script()["without_mindio"]
        assert "trained 0" in pod.log()


def test_without_mindio_the_last_launch_may_be_the_training(tmp_path: Path) -> None:
    with running(tmp_path, "torchrun echo.py") as pod:
        end_without_mindio(pod, training=False)
        assert pod.ended() == 0
        assert pod.script()["without_mindio"]
        assert "it was the training if no other launch follows" in pod.log()


def test_without_mindio_a_failing_script_is_no_training(tmp_path: Path) -> None:
    with running(tmp_path, "torchrun echo.py; exit 3") as pod:
        end_without_mindio(pod, training=False)
        assert pod.ended() == 3
