"""The evaluator must see what is wrong: one recovery as it should be, and one contradiction at a time."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.proof.cells import WORLD, Cell, script
from e2e.proof.verdict import Evidence, evaluate, find_outage
from e2e.proof.window import EventWindow, Reference
from e2e.trainer.events import Event

RECOVERY = script(Cell("InPlace", "first", "forward"))
RESTART = script(Cell("Restart", "first", "forward"))
SECOND = 1_000_000_000


def event(at: float, rank: int, name: str, *, pid: int = 0, attempt: int = 1, **more: Any) -> Event:
    return {"t": round(at * SECOND), "rank": rank, "pid": pid or 100 + rank, "attempt": attempt, "event": name, **more}


def steps(at: float, step: int, *, new: int = -1, attempt: int = 1) -> list[Event]:
    pids = {rank: (200 + rank if rank == new or attempt > 1 else 100 + rank) for rank in range(WORLD)}
    ends = [event(at, rank, "step_end", pid=pids[rank], step=step, attempt=attempt) for rank in range(WORLD)]
    states = [event(at, rank, "state", pid=pids[rank], step=step, digest=f"{rank}-{step}") for rank in range(WORLD)]
    return ends + states


def recovered() -> list[Event]:
    """Rank 0 died in step 3, its successor got the shard from rank 4."""
    return [
        *steps(1, 1),
        *steps(2, 2),
        *(event(2.2, rank, "stop") for rank in range(1, WORLD)),
        event(2.3, 0, "exec", pid=200),
        event(2.7, 0, "first_call", pid=200),
        event(2.9, 0, "repair", pid=200, source="optimizer copy", src=[4], dst=[0]),
        event(2.9, 4, "repair", source="optimizer copy", src=[4], dst=[0]),
        *steps(3.5, 3, new=0),
        *steps(4.5, 4, new=0),
    ]


def restarted() -> list[Event]:
    """The whole job started anew from the checkpoint of step 1."""
    loads = [event(5, rank, "load_checkpoint", pid=200 + rank, attempt=2, step=1) for rank in range(WORLD)]
    return [
        *steps(1, 1),
        event(1.2, 0, "save", phase="commit", kind="periodic", step=1),
        *steps(2, 2),
        *steps(3, 3),
        *(event(4, rank, "exec", pid=200 + rank, attempt=2) for rank in range(WORLD)),
        *(event(4.5, rank, "first_call", pid=200 + rank, attempt=2) for rank in range(WORLD)),
        *loads,
        *steps(6, 2, attempt=2),
        *steps(7, 3, attempt=2),
    ]


INCIDENT: dict[str, Any] = {
    "incarnation": 2,
    "action": "InPlace",
    "outcome": "Recovered",
    "restoredFrom": "OptimizerCopy",
    "phases": [{"name": "Detection", "milliseconds": 500}, {"name": "Recovery", "milliseconds": 1000}],
}
ANEW: dict[str, Any] = {
    **INCIDENT,
    "action": "Restart",
    "restoredFrom": "PeriodicCheckpoint",
    "lostSteps": 2,
    "phases": [{"name": "Recovery", "milliseconds": 3000}],
}


@pytest.fixture
def reference(tmp_path: Path) -> Reference:
    lines = [json.dumps(one) for one in recovered() if one["event"] == "state"]
    (tmp_path / "events-rank0.jsonl").write_text("\n".join(lines) + "\n")
    return Reference(tmp_path)


@pytest.fixture
def problems(reference: Reference) -> Callable[..., list[str]]:
    def ask(events: list[Event], *incidents: dict[str, Any], wanted: Any = RECOVERY) -> list[str]:
        before = {rank: 100 + rank for rank in range(WORLD)}
        return evaluate("a cell", wanted, Evidence(events, before, incidents or (INCIDENT,), 0), reference).problems

    return ask


def test_a_recovery_as_promised_has_no_problems(problems: Callable[..., list[str]], reference: Reference) -> None:
    assert problems(recovered()) == []
    found = evaluate("x", RECOVERY, Evidence(recovered(), {}, [INCIDENT], 0), reference)
    assert (found.outage, found.startup, found.control) == pytest.approx((1.5, 0.4, 1.1))


def test_a_restart_as_promised_has_no_problems(problems: Callable[..., list[str]]) -> None:
    assert problems(restarted(), ANEW, wanted=RESTART) == []
    outage = find_outage(restarted())
    assert outage is not None
    assert (outage.last_step, outage.next_step) == (3, 2)
    assert outage.seconds == pytest.approx(3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"outcome": "Open"}, "the incident is Open"),
        ({"action": "Replace"}, "Replace instead of InPlace"),
        ({"escalatedFrom": ["Retry"]}, "Retry > InPlace instead of InPlace"),
        ({"restoredFrom": "PeriodicCheckpoint"}, "restored from PeriodicCheckpoint instead of OptimizerCopy"),
        ({"phases": [{"name": "Recovery", "milliseconds": 1700}]}, "phases add up to 1.700 s, the outage was 1.500 s"),
        ({"lostSteps": 1}, "the incident says that 1 steps were lost, it was 0"),
    ],
)
def test_an_incident_that_says_something_else_is_a_problem(
    problems: Callable[..., list[str]], change: dict[str, Any], words: str
) -> None:
    found = problems(recovered(), INCIDENT | change)
    assert len(found) == 1
    assert words in found[0]


@pytest.mark.parametrize(
    ("finished", "lost", "is_told"),
    [
        pytest.param(range(1, WORLD), 3, True, id="all but the dead one"),
        pytest.param(range(1, WORLD), 2, True, id="and its end is known"),
        pytest.param(range(1, WORLD), 4, False, id="a step that nobody took"),
        pytest.param(range(2, WORLD), 3, False, id="a living one had not"),
    ],
)
def test_a_step_in_which_a_rank_died_may_count(
    problems: Callable[..., list[str]], finished: range, lost: int, *, is_told: bool
) -> None:
    last = [event(3.2, rank, "step_end", step=4) for rank in finished]
    events = sorted([*restarted(), *last], key=lambda one: int(one["t"]))
    phases = [{"name": "Recovery", "milliseconds": 3000 if lost == 2 else 2800}]
    found = problems(events, ANEW | {"lostSteps": lost, "phases": phases}, wanted=RESTART)
    assert (found == []) == is_told


def test_every_contradiction_in_the_logs_is_a_problem(problems: Callable[..., list[str]]) -> None:
    without = [one for one in recovered() if one["event"] != "repair"]
    assert problems(without) == ["rank 0 got no shard at all"]
    opened = [*recovered(), event(3, 0, "load_checkpoint", pid=200, path="/ckpt/iter_0000001", step=1)]
    assert problems(opened) == ["rank 0 opened /ckpt/iter_0000001"]
    other = [one | {"digest": "other"} if (one["event"], one["rank"]) == ("state", 3) else one for one in recovered()]
    assert problems(other) == ["rank 3: another state after step 1"]
    renewed = [one | {"pid": 303} if one["rank"] == 3 and one["t"] > 3 * SECOND else one for one in recovered()]
    assert "rank 3 has a new process, but was not to be restarted" in problems(renewed)
    assert problems(recovered(), INCIDENT, INCIDENT) == ["2 incidents instead of one"]
    assert problems([*steps(1, 1), *steps(2, 2)]) == ["the ranks' logs show no interruption that ended"]


def test_a_restart_from_another_checkpoint_is_a_problem(problems: Callable[..., list[str]]) -> None:
    wrong = [
        one | {"step": 0} if one["event"] == "load_checkpoint" and one["rank"] == 3 else one for one in restarted()
    ]
    assert problems(wrong, ANEW, wanted=RESTART) == ["checkpoints of steps {3: 0} were loaded, step 1 was the newest"]


def test_the_window_reads_on_and_forgets_older_events(tmp_path: Path) -> None:
    window = EventWindow(tmp_path)
    assert window.common_step(WORLD) == 0
    for rank in range(WORLD):
        lines = [json.dumps(one) for one in recovered() if one["rank"] == rank]
        (tmp_path / f"events-rank{rank}.jsonl").write_text("\n".join(lines) + "\n" + '{"t": 1, "ra')
    assert window.common_step(WORLD) == 4
    window.begin(3)
    assert min(one["t"] for one in window.events) == 3.5 * SECOND
    assert window.processes[0] == 200
    with (tmp_path / "events-rank1.jsonl").open("a") as file:
        file.write("cut off by a kill\n" + json.dumps(event(5, 1, "step_end", step=5)) + "\n")
    assert window.read()[-1]["step"] == 5
