"""An agent that is asked to look at checkpoints: it sets right what an attempt loads, once, and then only looks."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from e2e.trainer import checkpoint as toy
from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.checkpoint_verdicts import carry_out_verdict
from tests.rigs.mindspore_files import iteration
from tests.rigs.toy_trainer import save_toy_checkpoint
from trainer_sidecar.agent.report import checkpoints as looks
from trainer_sidecar.agent.report.checkpoints import Checkpoints
from trainer_sidecar.checkpoints.verdict import Look, Verdict

PATIENCE = 90.0
RULES = pb.CheckpointRules(
    framework="PyTorch",
    num_nodes=2,
    chips_per_node=2,
    tensor=2,
    pipeline=1,
    context=1,
    expert=1,
    rank_order="TensorDataPipeline",
    sharding="Distributed",
    copies=2,
)


class Rig:
    """The checkpoints of a directory, and what was told of them."""

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory
        self.told: list[pb.CheckpointState] = []
        self.problems: list[pb.Problem] = []
        self._news = asyncio.Event()
        self.checkpoints = Checkpoints(directory, self._tell, self._carry_out)
        self.problem: OSError | None = None

    async def _carry_out(self, verdict: Verdict) -> None:
        if self.problem is not None:
            raise self.problem
        if self.directory is not None:
            carry_out_verdict(self.directory, verdict)

    def _tell(self, state: pb.CheckpointState, problems: Sequence[pb.Problem]) -> None:
        self.told.append(state)
        self.problems = list(problems)
        self._news.set()

    def ask(self, attempt: int, rules: pb.CheckpointRules = RULES, look: int = 0) -> None:
        self.checkpoints.apply_order(pb.CheckpointOrder(rules=rules, prepare_attempt=attempt, look=look))

    async def until(self, condition: Callable[[pb.CheckpointState], bool]) -> pb.CheckpointState:
        async with asyncio.timeout(PATIENCE):
            while not (self.told and condition(self.told[-1])):
                self._news.clear()
                await self._news.wait()
        return self.told[-1]


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = Rig(tmp_path)
    task = asyncio.create_task(rig.checkpoints.look_for_ever())
    yield rig
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_it_prepares_once_and_then_changes_nothing(rig: Rig, tmp_path: Path) -> None:
    save_toy_checkpoint(tmp_path, 5)
    save_toy_checkpoint(tmp_path, 10)
    damaged = tmp_path / "iter_0000010/mp_rank_00/distrib_optim.pt"
    damaged.write_bytes(b"")
    rig.ask(1)
    found = await rig.until(lambda state: state.attempt == 1)
    assert (found.step, found.loaded_step, found.tracked, found.num_refused) == (5, 5, True, 1)
    assert [(one.name, one.reason) for one in found.refused] == [("iter_0000010", "TruncatedFile")]
    assert toy.newest(tmp_path) == 5
    rig.ask(0)
    (tmp_path / toy.TRACKER).write_text("10")  # the training saved again, and this time its disk was full
    found = await rig.until(lambda state: not state.tracked)
    assert (found.step, found.attempt, found.loaded_step) == (5, 1, 5)
    assert toy.newest(tmp_path) == 10


async def test_a_new_checkpoint_is_heard_of(rig: Rig, tmp_path: Path) -> None:
    rig.ask(1)
    found = await rig.until(lambda state: state.attempt == 1)
    assert (found.step, found.loaded_step, found.num_refused) == (-1, -1, 0)
    rig.ask(0)
    save_toy_checkpoint(tmp_path, 5)
    found = await rig.until(lambda state: state.step == 5)
    assert (found.loaded_step, found.tracked) == (-1, True)


async def test_in_an_incident_it_looks_at_once(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer_sidecar.agent.report.checkpoints.LOOK_SECONDS", 3600.0)
    rig.ask(1)
    await rig.until(lambda state: state.attempt == 1)
    save_toy_checkpoint(tmp_path, 5)
    rig.ask(0, look=1)
    await rig.until(lambda state: state.step == 5)


@pytest.mark.parametrize("inner", ["", "checkpoint"])
async def test_a_new_iteration_of_mindformers_is_heard_of_at_once(rig: Rig, tmp_path: Path, inner: str) -> None:
    """Its tracker tells; files by rank tell nothing, and are looked at once a minute."""
    rules = pb.CheckpointRules()
    rules.CopyFrom(RULES)
    rules.framework = "MindSpore"
    rig.ask(1, rules)
    await rig.until(lambda state: state.attempt == 1)
    rig.ask(0, rules)
    iteration(tmp_path / inner, 100)
    await rig.until(lambda state: state.step == 100)
    iteration(tmp_path / inner, 200)
    found = await rig.until(lambda state: state.step == 200)
    assert (found.loaded_step, found.tracked) == (-1, True)


async def test_what_cannot_be_done_is_said_and_tried_again(rig: Rig, tmp_path: Path) -> None:
    save_toy_checkpoint(tmp_path, 5)
    wrong = pb.CheckpointRules()
    wrong.CopyFrom(RULES)
    wrong.tensor = 3
    rig.ask(1, wrong)
    found = await rig.until(lambda state: bool(state.problem))
    assert "cannot be verified" in found.problem
    assert found.attempt == 0
    rig.ask(1)
    assert (await rig.until(lambda state: state.attempt == 1)).problem == ""


def save_with_damage(directory: Path) -> None:
    """Step 5 is complete; the tracker names step 10, of which a file is cut off."""
    for step in (5, 10):
        save_toy_checkpoint(directory, step)
    (directory / "iter_0000010/mp_rank_00/distrib_optim.pt").write_bytes(b"")


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS])
async def test_a_tracker_that_may_not_be_written_holds_no_start(rig: Rig, tmp_path: Path, code: int) -> None:
    save_with_damage(tmp_path)
    rig.problem = OSError(code, "user 1000 (group 1000) may not do it: [Errno 13] Permission denied: 'latest'")
    rig.ask(1)
    found = await rig.until(lambda state: state.attempt == 1)
    assert "are not set right: user 1000 (group 1000) may not do it" in found.problem
    assert (found.tracked, found.num_refused, toy.newest(tmp_path)) == (False, 0, 10)


async def test_a_launcher_that_is_not_there_yet_is_waited_for(rig: Rig, tmp_path: Path) -> None:
    save_with_damage(tmp_path)
    rig.problem = ConnectionError("the launcher is not there yet")
    rig.ask(1)
    found = await rig.until(lambda state: bool(state.problem))
    assert (found.attempt, toy.newest(tmp_path)) == (0, 10)
    rig.problem = None
    found = await rig.until(lambda state: state.attempt == 1)
    assert (found.loaded_step, toy.newest(tmp_path)) == (5, 5)


async def test_without_a_volume_it_has_nothing_to_say() -> None:
    rig = Rig(None)
    task = asyncio.create_task(rig.checkpoints.look_for_ever())
    rig.ask(1)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert rig.told == []


async def test_what_may_not_be_read_is_not_refused(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_toy_checkpoint(tmp_path, 5)

    def denied(path: Path) -> Look:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("trainer_sidecar.checkpoints.formats.look_into_file", denied)
    rig.ask(1)
    found = await rig.until(lambda state: state.attempt == 1)
    assert "may not open" in found.problem
    assert (found.num_refused, toy.newest(tmp_path)) == (0, 5)


async def test_a_rule_that_all_break_refuses_nothing(rig: Rig, tmp_path: Path) -> None:
    save_toy_checkpoint(tmp_path, 5)
    (tmp_path / "iter_0000005/mp_rank_00/distrib_optim.pt").unlink()
    rig.ask(1)
    found = await rig.until(lambda state: state.attempt == 1)
    assert "every saved checkpoint lacks" in found.problem
    assert "spec.parallelism" in found.problem
    assert (found.num_refused, toy.newest(tmp_path)) == (0, 5)


async def test_a_volume_that_is_too_slow_holds_no_start(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_toy_checkpoint(tmp_path, 5)

    def slow(_directory: object, _paths: object) -> Look:
        raise TimeoutError("reading 2 files took more than 300 s")

    monkeypatch.setattr("trainer_sidecar.checkpoints.directory.Directory.look_into_files", slow)
    rig.ask(1)
    found = await rig.until(lambda state: state.attempt == 1)
    assert "the volume is too slow" in found.problem


async def test_a_failing_disk_refuses_nothing_and_is_tried_again(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_toy_checkpoint(tmp_path, 5)

    def broken(path: Path) -> Look:
        raise OSError(5, "Input/output error", str(path))

    with monkeypatch.context() as patch:
        patch.setattr("trainer_sidecar.checkpoints.formats.look_into_file", broken)
        rig.ask(1)
        found = await rig.until(lambda state: bool(state.problem))
        assert (found.attempt, toy.newest(tmp_path)) == (0, 5)
    assert (await rig.until(lambda state: state.attempt == 1)).loaded_step == 5


async def test_a_full_volume_is_told_until_there_is_room(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = pb.Problem(code="CheckpointVolumeFull", message="full")
    found = [full]
    monkeypatch.setattr(looks, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(looks, "full_volume_problems", lambda directory: list(found))
    rig.ask(1)
    await rig.until(lambda state: rig.problems == [full])
    save_toy_checkpoint(tmp_path, 5)
    await rig.until(lambda state: state.step == 5)
    assert rig.problems == [full], "a new checkpoint takes nothing of it back"
    found.clear()
    await rig.until(lambda state: rig.problems == [])


async def test_who_does_not_look_any_more_says_nothing_of_the_volume(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    full = pb.Problem(code="CheckpointVolumeFull", message="full")
    monkeypatch.setattr(looks, "full_volume_problems", lambda directory: [full])
    rig.ask(1)
    await rig.until(lambda state: rig.problems == [full])
    rig.checkpoints.apply_order(None)
    await rig.until(lambda state: rig.problems == [])
