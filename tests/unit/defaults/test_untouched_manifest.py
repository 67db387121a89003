"""Every path of every action, once, with a manifest that sets nothing but what it must.

`actions` are the orders that the coordinators had, in turn; "standing" is what a coordinator has decided by itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from hajob.plan.state import JobPhase
from hajob.protocol import sidecar_pb2 as pb
from tests.unit.defaults.rig import CHIPS, NODES, Rig

ASKED = "2026-11-21T00:00:00Z"


@pytest.fixture
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    """A job that trains, on as many nodes as it needs or one more."""
    made = Rig(nodes=NODES + getattr(request, "param", 0))
    await made.train()
    yield made
    await made.close()


one_more = pytest.mark.parametrize("rig", [1], indirect=True)


def rank_on(node_rank: int) -> int:
    return node_rank * CHIPS + 1


def memory_fault(rig: Rig) -> None:
    """MindIO finds one, and can have the step repeated."""
    rig.world.mindio.strategies, rig.world.mindio.ask = ["exit", "dump", "retry"], "stop"
    rig.world.callback("report_fault_ranks", [[[rank_on(1), 0]], [[rank_on(1), ""]]])


async def trains(rig: Rig, *actions: str, phase: JobPhase = JobPhase.RUNNING) -> float:
    """The job trains again, after these orders; return how long that took."""
    took = await rig.until(lambda: rig.is_in(phase) and rig.world.patient.ask in ("nothing", "growing"))
    assert rig.actions == ["START", *actions]
    before = rig.world.step_done
    await rig.advance(6)
    assert rig.world.step_done > before
    return took


async def stands(rig: Rig, phase: JobPhase, *actions: str) -> float:
    """The job waits in a phase, after these orders; return how long it took to come there."""
    took = await rig.until(lambda: rig.is_in(phase))
    assert rig.actions[: 1 + len(actions)] == ["START", *actions]
    return took


# -- Retry, InPlace, Replace


async def test_retry(rig: Rig) -> None:
    memory_fault(rig)
    await rig.advance(2)
    await trains(rig, "RETRY")


async def test_in_place(rig: Rig) -> None:
    rig.world.die(rank_on(2))
    await rig.advance(2)
    await trains(rig, "IN_PLACE")


async def test_in_place_that_never_stands_becomes_replace(rig: Rig) -> None:
    """120 s for the process, then 270 s for a node: longer than MindIO waited while its wait followed from the 270."""
    for agent in rig.world.agents.values():
        agent.start_delay = 1e6
    rig.world.die(rank_on(2))
    took = await stands(rig, JobPhase.SHRUNK, "IN_PLACE", "REPLACE", "SHRINK")
    assert 390 <= took < 400


@one_more
async def test_replace_onto_a_free_node(rig: Rig) -> None:
    rig.lose_node(rig.node_of(2))
    await rig.advance(10)
    assert 30 < await trains(rig, "REPLACE") < 120


async def test_replace_onto_a_spare() -> None:
    """The one field that asks for a spare is set."""
    rig = Rig({"scheduling": {"numSpareNodes": 1}}, nodes=NODES + 1)
    await rig.train()
    await rig.until(lambda: any(pod.is_spare_pod and pod.phase == "Running" for pod in rig.pods()))
    spare = next(pod.node_name for pod in rig.pods() if pod.is_spare_pod)
    rig.lose_node(rig.node_of(2))
    await rig.advance(10)
    await trains(rig, "REPLACE")
    assert rig.node_of(2) == spare
    await rig.close()


async def test_replace_that_finds_a_node_just_in_time(rig: Rig) -> None:
    """The new pod needs 40 s, and stands ready a few seconds before the operator would give it up."""
    rig.lose_node(rig.node_of(2))
    await rig.advance(225)
    rig.set_node("late")
    took = await trains(rig, "REPLACE")
    assert 40 <= took < 50


# -- Shrink, Checkpoint, Restart


async def test_shrink_where_no_node_is_free(rig: Rig) -> None:
    rig.lose_node(rig.node_of(2))
    assert 270 <= await trains(rig, "REPLACE", "SHRINK", phase=JobPhase.SHRUNK) < 290


async def test_expand_after_the_node_is_back(rig: Rig) -> None:
    lost = rig.node_of(2)
    rig.lose_node(lost)
    await stands(rig, JobPhase.SHRUNK, "REPLACE", "SHRINK")
    rig.return_node(lost)
    assert 120 <= await trains(rig, "REPLACE", "SHRINK", "EXPAND") < 240


async def test_refused_shrink_saves_and_restarts(rig: Rig) -> None:
    """Rank 0 cannot be dropped."""
    lost = rig.node_of(0)
    rig.lose_node(lost)
    took = await stands(rig, JobPhase.RESTARTING, "REPLACE", "CHECKPOINT")
    assert 300 <= took < 330
    await rig.advance(100)
    assert rig.is_in(JobPhase.RESTARTING)
    rig.return_node(lost)
    await trains(rig, "REPLACE", "CHECKPOINT", "START")


async def test_failed_repair_saves_and_restarts(rig: Rig) -> None:
    rig.world.patient.fails = {"recover"}
    rig.world.die(rank_on(2))
    await stands(rig, JobPhase.RESTARTING, "IN_PLACE", "CHECKPOINT")
    await trains(rig, "IN_PLACE", "CHECKPOINT", "START")


async def test_failed_save_restarts(rig: Rig) -> None:
    rig.world.patient.fails = {"recover"}
    rig.world.die(rank_on(2))
    await rig.until(lambda: rig.world.patient.strategy == "dump")
    rig.world.mindio.result(499, "save ckpt failed")
    await rig.advance(2)
    await trains(rig, "IN_PLACE", "CHECKPOINT", "START")


async def test_restart_by_request(rig: Rig) -> None:
    rig.edit(restartRequestTime=ASKED)
    await rig.advance(2)
    await trains(rig, "CHECKPOINT", "START")


# -- Migrate, Pause, Suspend


@one_more
async def test_migrate_off_a_cordoned_node(rig: Rig) -> None:
    left = rig.node_of(2)
    rig.set_node(left, unschedulable=True)
    await rig.advance(2)
    await trains(rig, "MIGRATE")
    assert rig.node_of(2) != left


async def test_no_move_where_no_node_is_free(rig: Rig) -> None:
    """It is tried, given up, and tried again; the training goes on meanwhile."""
    rig.set_node(rig.node_of(2), unschedulable=True)
    for _ in range(9):
        steps = rig.world.step_done
        await rig.advance(100)
        assert rig.world.step_done >= steps + 19
    assert rig.actions[:3] == ["START", "MIGRATE", "CONTINUE"]
    assert set(rig.actions) == {"START", "MIGRATE", "CONTINUE"}


async def test_pause_for_its_time(rig: Rig) -> None:
    rig.edit(pause={"requestTime": ASKED})
    await stands(rig, JobPhase.PAUSED, "PAUSE")
    await rig.advance(590)
    assert rig.is_in(JobPhase.PAUSED)
    assert await trains(rig, "PAUSE", "CONTINUE") < 20


async def test_suspend_and_resume(rig: Rig) -> None:
    rig.edit(suspend=True)
    await stands(rig, JobPhase.SUSPENDED, "CHECKPOINT")
    await rig.until(lambda: not rig.pods())
    rig.edit(suspend=False)
    await trains(rig, "CHECKPOINT", "STOP", "START")


@pytest.mark.parametrize("asked", ["suspend", "restart"])
async def test_a_request_waits_for_a_silent_coordinator(rig: Rig, asked: str) -> None:
    """A channel breaks for some seconds: what a person asks for meanwhile is saved all the same."""
    rig.cut()
    rig.edit(**{"suspend": True} if asked == "suspend" else {"restartRequestTime": ASKED})
    await rig.advance(8)
    assert rig.is_in(JobPhase.RUNNING)
    rig.is_cut = False
    await stands(rig, JobPhase.SUSPENDED if asked == "suspend" else JobPhase.RESTARTING, "CHECKPOINT")


async def test_a_suspend_waits_for_no_coordinator_for_ever(rig: Rig) -> None:
    rig.cut()
    rig.edit(suspend=True)
    assert 15 <= await stands(rig, JobPhase.SUSPENDED) < 120


# -- starts, hangs, failures of the program


async def test_a_start_waits_for_its_last_node() -> None:
    """All pods or none, for as long as it takes; then every default of a start is enough."""
    rig = Rig(nodes=NODES - 1)
    await rig.operate()
    await rig.advance(400)
    assert rig.is_in(JobPhase.PENDING)
    assert not [pod for pod in rig.pods() if pod.is_rank_pod and pod.node_name]
    rig.set_node("late")
    await rig.until(lambda: rig.is_in(JobPhase.RUNNING), 300)
    await rig.close()


async def test_a_start_that_stands_still_is_given_up() -> None:
    rig = Rig()
    rig.rank_seconds = 1e6
    await rig.operate()
    took = await rig.until(lambda: rig.is_in(JobPhase.FAILED))
    assert 1800 <= took < 1900
    await rig.close()


async def test_a_hang_is_noticed(rig: Rig) -> None:
    rig.world.hangs = True
    took = await rig.until(lambda: not rig.is_in(JobPhase.RUNNING))
    assert 115 <= took < 130
    rig.world.hangs = False
    await trains(rig, "IN_PLACE")


async def test_a_program_that_fails_is_given_up(rig: Rig) -> None:
    """Three failures are one too many for a program, not for the machines."""
    for _ in range(4):
        rig.world.die(rank_on(1), 1)
        await rig.until(lambda: not rig.is_in(JobPhase.RUNNING))
        await rig.until(lambda: rig.is_in(JobPhase.RUNNING, JobPhase.FAILED) and not rig.is_in(JobPhase.CONFIRMING))
        if rig.is_in(JobPhase.FAILED):
            break
    assert rig.is_in(JobPhase.FAILED)


# -- the operator is away


async def test_retry_without_the_operator(rig: Rig) -> None:
    await rig.leave()
    memory_fault(rig)
    await rig.advance(60)
    assert rig.actions[-1] == "standing RETRY"
    await rig.operate()
    await rig.advance(5)
    await trains(rig, *rig.actions[1:])


async def test_in_place_without_the_operator(rig: Rig) -> None:
    await rig.leave()
    rig.world.die(rank_on(2))
    await rig.advance(60)
    assert rig.world.core.job.order is not None
    assert rig.world.core.job.order.action == pb.IN_PLACE
    steps = rig.world.step_done
    await rig.operate()
    await rig.advance(5)
    await trains(rig, *rig.actions[1:])
    assert rig.world.step_done > steps


async def test_lost_node_without_the_operator_is_saved(rig: Rig) -> None:
    """Half a minute after the operator would have shrunk the job."""
    await rig.leave()
    rig.world.die(rank_on(2))
    rig.lose_node("chips-2")
    await rig.advance(295)
    assert rig.world.core.job.conversation.state == "Stopped"
    await rig.advance(45)
    assert rig.actions[-1] == "standing CHECKPOINT"
    rig.return_node("chips-2")
    await rig.operate()
    await stands(rig, JobPhase.RESTARTING, "standing CHECKPOINT")
    await trains(rig, "standing CHECKPOINT", "START")


@pytest.mark.parametrize("seconds", [12, 60, 200])
async def test_replace_outlasts_a_change_of_leader(rig: Rig, seconds: int) -> None:
    """The operator is away across its own deadline, for less than the coordinator stands in."""
    rig.lose_node(rig.node_of(2))
    await rig.advance(275 - seconds)
    await rig.leave()
    await rig.advance(seconds)
    await rig.operate()
    await trains(rig, "REPLACE", "SHRINK", phase=JobPhase.SHRUNK)


async def test_replace_is_saved_when_the_operator_leaves_for_long(rig: Rig) -> None:
    lost = rig.node_of(2)
    rig.lose_node(lost)
    await rig.advance(30)
    await rig.leave()
    await rig.advance(400)
    assert rig.actions[-1] == "standing CHECKPOINT"
    rig.return_node(lost)
    await rig.operate()
    await trains(rig, "REPLACE", "standing CHECKPOINT", "START")


async def test_pause_ends_without_the_operator(rig: Rig) -> None:
    rig.edit(pause={"requestTime": ASKED})
    await stands(rig, JobPhase.PAUSED, "PAUSE")
    await rig.leave()
    await rig.advance(620)
    await rig.operate()
    await trains(rig, "PAUSE", "CONTINUE")


@one_more
@pytest.mark.parametrize("away", [20, 400])
async def test_migrate_outlasts_the_operator(rig: Rig, away: int) -> None:
    rig.set_node(rig.node_of(2), unschedulable=True)
    await rig.until(lambda: rig.is_in(JobPhase.MIGRATING))
    await rig.leave()
    steps = rig.world.step_done
    await rig.advance(away)
    assert rig.world.step_done > steps
    await rig.operate()
    await rig.until(lambda: rig.is_in(JobPhase.RUNNING))
    assert "standing" not in " ".join(rig.actions)


async def test_expand_outlasts_the_operator(rig: Rig) -> None:
    lost = rig.node_of(2)
    rig.lose_node(lost)
    await stands(rig, JobPhase.SHRUNK, "REPLACE", "SHRINK")
    rig.return_node(lost)
    await rig.until(lambda: rig.is_in(JobPhase.EXPANDING))
    await rig.leave()
    await rig.advance(300)
    await rig.operate()
    await trains(rig, "REPLACE", "SHRINK", "EXPAND")


async def test_save_outlasts_the_operator(rig: Rig) -> None:
    rig.edit(suspend=True)
    await rig.until(lambda: rig.is_in(JobPhase.SAVING))
    await rig.leave()
    await rig.advance(300)
    await rig.operate()
    await stands(rig, JobPhase.SUSPENDED, "CHECKPOINT")


async def test_shrink_outlasts_who_has_just_decided_it(rig: Rig) -> None:
    """The decision is not on record: the next one takes it once more, and nobody has shrunk meanwhile."""
    rig.lose_node(rig.node_of(2))
    await rig.until(lambda: rig.is_in(JobPhase.SHRINKING))
    assert rig.actions[-1] == "REPLACE"
    await absent(rig, 20)
    await trains(rig, "REPLACE", "SHRINK", phase=JobPhase.SHRUNK)


@pytest.mark.parametrize("away", [20, 400])
async def test_shrink_outlasts_the_operator(rig: Rig, away: int) -> None:
    rig.lose_node(rig.node_of(2))
    await rig.until(lambda: rig.actions[-1] == "SHRINK")
    await absent(rig, away)
    await trains(rig, "REPLACE", "SHRINK", phase=JobPhase.SHRUNK)


@pytest.mark.parametrize("away", [20, 400])
@pytest.mark.parametrize("phase", [JobPhase.SAVING, JobPhase.RESTARTING])
async def test_restart_outlasts_the_operator(rig: Rig, phase: JobPhase, away: int) -> None:
    rig.edit(restartRequestTime=ASKED)
    await rig.until(lambda: rig.is_in(phase))
    await absent(rig, away)
    await trains(rig, "CHECKPOINT", "START")


@pytest.mark.parametrize("away", [20, 400])
@pytest.mark.parametrize("phase", [JobPhase.PENDING, JobPhase.STARTING])
async def test_resume_outlasts_the_operator(rig: Rig, phase: JobPhase, away: int) -> None:
    await suspended(rig)
    rig.edit(suspend=False)
    await rig.until(lambda: rig.is_in(phase))
    await absent(rig, away)
    await trains(rig, "CHECKPOINT", "STOP", "START")


async def test_resume_that_is_asked_while_the_operator_is_away(rig: Rig) -> None:
    await suspended(rig)
    await rig.leave()
    rig.edit(suspend=False)
    await rig.advance(400)
    await rig.operate()
    await trains(rig, "CHECKPOINT", "STOP", "START")


async def suspended(rig: Rig) -> None:
    """The job is suspended, and nothing of it is left."""
    rig.edit(suspend=True)
    await stands(rig, JobPhase.SUSPENDED, "CHECKPOINT")
    await rig.until(lambda: not rig.pods())


async def absent(rig: Rig, seconds: float) -> None:
    """The operator is away for so long."""
    await rig.leave()
    await rig.advance(seconds)
    await rig.operate()


@pytest.mark.parametrize("away", [20, 400])
async def test_save_instead_of_shrink_outlasts_the_operator(rig: Rig, away: int) -> None:
    lost = rig.node_of(0)
    rig.lose_node(lost)
    await rig.until(lambda: rig.is_in(JobPhase.SAVING))
    await absent(rig, away)
    await stands(rig, JobPhase.RESTARTING, "REPLACE", "CHECKPOINT")
    rig.return_node(lost)
    await trains(rig, "REPLACE", "CHECKPOINT", "START")


@pytest.mark.parametrize("away", [20, 400])
async def test_save_after_a_failed_repair_outlasts_the_operator(rig: Rig, away: int) -> None:
    rig.world.patient.fails = {"recover"}
    rig.world.die(rank_on(2))
    await rig.until(lambda: rig.is_in(JobPhase.SAVING))
    await absent(rig, away)
    await trains(rig, "IN_PLACE", "CHECKPOINT", "START")
