"""A spare's ranks run before anybody knows which they are, and are what a cold start would have made of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.rigs.trainer_container import Container, running, standing_ready

HEAVY = """
import os
print("imported by", os.getpid(), "rank", os.environ.get("RANK"), flush=True)
"""
PROGRAM = """
import os, sys, heavy
assert __name__ == "__main__" and sys.modules["__main__"].__file__ == __file__
assert sys.path[0] == os.path.dirname(os.path.realpath(__file__))
assert "HAJOB_WARM_FD" not in os.environ
print("rank", os.environ["RANK"], "is", os.getpid(), *sys.argv, flush=True)
"""


def write(directory: Path) -> None:
    home = directory / "home"
    home.mkdir()
    (home / "heavy.py").write_text(HEAVY)
    (home / "train.py").write_text(PROGRAM)


@contextmanager
def spare(directory: Path, script: str) -> Iterator[Container]:
    """A spare's container that runs the script, whose launch takes long to import."""
    own = {"HAJOB_SPARE": "true", "HAJOB_WARM_IMPORTS": "heavy nothing_like_it", "PYTHONPATH": str(directory / "home")}
    write(directory)
    with running(directory, script, **own) as container:  # type: ignore[arg-type]  # they are variables
        container.launched()
        yield container


def both_ran(container: Container) -> bool:
    log = container.log()
    return all(f"[rank {rank}] rank {rank} is" in log for rank in (0, 1))


def waiting(container: Container) -> set[int]:
    """Processes of the spare that stand ready."""
    assert container.launcher is not None
    return standing_ready(container.launcher.pid)


def test_ranks_are_the_processes_that_stood_ready(tmp_path: Path) -> None:
    with spare(tmp_path, "torchrun --nproc-per-node 2 train.py --some thing") as container:
        container.until(lambda: len(waiting(container)) == 2, "the processes that stand ready")
        ready = waiting(container)
        container.start_ranks(MUCH="x" * 100_000)
        container.until(lambda: container.log().count("--some thing") == 2, "both ranks")
        assert {container.rank(rank)["pid"] for rank in (0, 1)} == ready
        for rank in (0, 1):
            pid = container.rank(rank)["pid"]
            assert f"[rank {rank}] rank {rank} is {pid} train.py --some thing\n" in container.log()
            assert f"[rank {rank}] imported by {pid} rank None" in container.log(), "before it was told who it is"
        container.until(lambda: not container.rank(0)["running"], "its end")
        assert container.rank(0)["exit_code"] == 0


def test_other_variables_of_the_import_start_it_cold(tmp_path: Path) -> None:
    with spare(tmp_path, "torchrun --nproc-per-node 2 train.py") as container:
        container.until(lambda: len(waiting(container)) == 2, "the processes that stand ready")
        container.start_ranks(OMP_NUM_THREADS="7")
        container.until(lambda: both_ran(container), "both ranks")
        assert "a rank of this spare is started cold: OMP_NUM_THREADS is another" in container.log()
        assert "imported by" in container.log()
        container.until(lambda: not waiting(container), "the end of those that nobody needs")


def test_one_that_died_waiting_is_started_cold(tmp_path: Path) -> None:
    with spare(tmp_path, "torchrun --nproc-per-node 2 train.py") as container:
        container.until(lambda: len(waiting(container)) == 2, "the processes that stand ready")
        os.kill(min(waiting(container)), 9)
        container.until(lambda: len(waiting(container)) == 1, "its end")
        container.start_ranks()
        container.until(lambda: both_ran(container), "both ranks")
        assert "started cold: its process has ended" in container.log()


def test_a_program_that_is_not_python_is_started_cold(tmp_path: Path) -> None:
    with spare(tmp_path, "torchrun --no-python --nproc-per-node 2 echo not python") as container:
        container.start_ranks()
        container.until(lambda: container.log().count("not python") == 2, "both ranks")
        assert "ranks will be started cold: echo is no Python program" in container.log()
