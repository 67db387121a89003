from pathlib import Path

import numpy as np
import pytest

from e2e.trainer import proof
from e2e.trainer.compare import differences
from e2e.trainer.events import EventLog, read_events

SECOND = 10**9


def event(seconds: float, rank: int, name: str, pid: int | None = None, **details: object) -> proof.Event:
    return {"t": int(seconds * SECOND), "rank": rank, "pid": pid or 100 + rank, "event": name, **details}


def step(seconds: float, rank: int, number: int, pid: int | None = None) -> proof.Event:
    return event(seconds, rank, "step_end", pid, step=number)


RECOVERED = [
    *(event(0, rank, "exec") for rank in (0, 1)),
    *(step(1, rank, 1) for rank in (0, 1)),
    step(2.0, 0, 2),
    event(2.5, 0, "stop"),
    event(2.6, 1, "exec", 201),
    event(3.0, 1, "first_call", 201),
    event(3.1, 1, "repair", 201, source="optimizer copy", src=[0], dst=[1]),
    event(3.2, 0, "rollback"),
    step(3.5, 0, 3),
    step(3.6, 1, 3, 201),
]


def test_outage_runs_from_the_last_common_step_to_the_next() -> None:
    (outage,) = proof.outages(RECOVERED, 2)
    assert (outage.last_step, outage.next_step, outage.new_ranks) == (1, 3, (1,))
    assert outage.seconds == pytest.approx(2.6)
    assert outage.startup_seconds == pytest.approx(0.4)
    assert outage.control_seconds == pytest.approx(2.2)
    assert outage.first_ns["step_end"] < outage.first_ns["stop"] < outage.last_ns["step_end"]
    assert outage.restored == {1: "optimizer copy of rank 0"}


def test_a_process_thawed_later_does_not_move_a_steps_end() -> None:
    late = [*RECOVERED, step(3.7, 0, 4), step(3.8, 1, 4, 201), step(9, 1, 2)]
    assert proof.common_steps(late, 2)[-1] == (4, int(3.8 * SECOND))
    assert 2 not in dict(proof.common_steps(late, 2))


def test_dropped_ranks_are_not_waited_for_until_they_return() -> None:
    shrunk = [*RECOVERED, event(4.0, 0, "downgrade", ranks=[1], active=[0]), step(4.5, 0, 4), step(5.0, 0, 5)]
    assert [number for number, _ in proof.common_steps(shrunk, 2)] == [1, 3, 4, 5]
    grown = [*shrunk, event(5.5, 0, "upgrade", ranks=[1], active=[0, 1]), step(6.0, 0, 6), step(6.2, 1, 6, 301)]
    assert proof.common_steps([*grown, step(7.0, 0, 7)], 2)[-1] == (6, int(6.2 * SECOND))
    assert [(one.last_step, one.next_step) for one in proof.outages(grown, 2)] == [(1, 3), (3, 4), (5, 6)]


def test_recovery_that_kept_its_promise_has_no_failures() -> None:
    assert proof.failures(RECOVERED, {1: 0}) == []


def test_survivor_with_a_new_process_is_named() -> None:
    assert proof.survivors_kept(RECOVERED, []) == ["rank 1 has processes [101, 201], but was not to be restarted"]


def test_step_done_again_is_named() -> None:
    again = [*RECOVERED, step(4, 0, 2)]
    assert proof.steps_went_back(again) == ["rank 0 finished step 2 when step 3 was already done"]


def test_new_process_may_not_repeat_what_survivors_had_finished() -> None:
    assert proof.steps_went_back([*RECOVERED[:-2], step(3.6, 1, 2, 201)])
    died_ahead = [
        step(1, 0, 1),
        step(1, 1, 1),
        step(2, 1, 2),
        event(3, 1, "exec", 201),
        step(4, 1, 2, 201),
        step(4, 0, 2),
    ]
    assert proof.steps_went_back(died_ahead) == []


def test_events_from_the_middle_say_nothing_of_earlier_processes() -> None:
    assert proof.steps_went_back([step(1, 0, 7), step(2, 1, 7), step(3, 0, 8), step(4, 1, 8)]) == []


def test_opened_checkpoint_and_wrong_source_are_named() -> None:
    opened = [*RECOVERED, event(3.3, 1, "load_checkpoint", 201, path="/ckpt/iter_0000001")]
    assert proof.checkpoints_opened(opened) == ["rank 1 opened /ckpt/iter_0000001"]
    assert proof.restored_elsewhere(RECOVERED, {1: 3}) == ["rank 1 got its shard from optimizer copy of rank 0"]
    assert proof.restored_elsewhere(RECOVERED[:2], {1: 0}) == ["rank 1 got no shard at all"]


def test_log_survives_a_line_that_was_cut_off(tmp_path: Path) -> None:
    log = EventLog(tmp_path, 0, 1, 0)
    log.add("step_end", step=1, flush=False)
    log.add("stop")
    with (tmp_path / "events-rank0.jsonl").open("a") as file:
        file.write('{"t": 1, "ra')
    assert [found["event"] for found in read_events(tmp_path)] == ["step_end", "stop"]


def final(directory: Path, rank: int, weights: list[float], data: int = 0, at: int = 9) -> None:
    directory.mkdir(exist_ok=True)
    place = np.array([at, 0, data, 0])
    np.savez(directory / f"final-rank{rank}.npz", place=place, parameters=np.array(weights, np.float32))


def test_equal_and_different_weights(tmp_path: Path) -> None:
    for name, weights in (("a", [1.0, 2.0]), ("b", [1.0, 2.0]), ("c", [1.0, 2.0000002])):
        final(tmp_path / name, 0, weights)
    assert differences(tmp_path / "a", tmp_path / "b") == []
    assert len(differences(tmp_path / "a", tmp_path / "c")) == 1


def test_ranks_of_one_run_must_agree(tmp_path: Path) -> None:
    final(tmp_path, 0, [1.0])
    final(tmp_path, 1, [2.0], data=1)
    assert "[0] and [1] differ" in differences(tmp_path, tmp_path)[0]
    final(tmp_path, 1, [1.0], data=1, at=8)
    assert "different steps" in differences(tmp_path, tmp_path)[0]


def test_missing_weights_are_named(tmp_path: Path) -> None:
    assert "has not ended there" in differences(tmp_path, tmp_path)[0]
