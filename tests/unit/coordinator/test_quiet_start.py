"""No step ends after the start: it is told within two minutes, and no fault follows."""

from __future__ import annotations

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.coordinator import World
from tests.rigs.coordinator_restart import restart_coordinator


def told(world: World, code: str = "NoStepEnded") -> str:
    """What is said of the standstill; empty: nothing."""
    problems = world.core.next_report(world.now).state.problems
    return next((one.message for one in problems if one.code == code), "")


def sign_of_work(world: World) -> None:
    """A rank of node 0 has just computed."""
    agent = world.agent(0)
    report = agent.report()
    report.sign_age_nanoseconds = 0
    world.core.apply_agent_report(agent.uid, report, world.now)


def test_a_start_without_a_step_is_told_and_is_no_fault() -> None:
    world = World()
    world.hang_rule = pb.HangRule(step_time_multiple=20, minimum_seconds=120)
    world.start()
    world.advance(88)
    assert told(world) == ""
    world.advance(3)
    assert told(world).startswith("no step has ended for more than 90 s since the ranks were started; every rank has")
    world.advance(540)
    assert "for more than 6 min since" in told(world)
    assert not world.facts, "it may compile"


def test_the_words_change_seldom_while_it_lasts() -> None:
    world = World()
    world.start()
    seen = []
    for _ in range(900):
        world.advance(2)
        if (now := told(world)) not in seen:
            seen.append(now)
    assert len(seen) <= 8, seen


def test_ranks_that_never_register_are_named() -> None:
    world = World()
    world.agent(1).start_delay = 1e6
    world.core.apply_controller_hello(world.controller, [], world.now)
    world.assign()
    world.order(pb.START, incarnation=1)
    world.advance(95)
    assert told(world).split("; ")[1] == "not registered with MindIO: ranks 2-3"


def test_who_works_is_told_from_who_waits() -> None:
    world = World()
    world.start()
    sign_of_work(world)
    world.advance(95)
    assert told(world).endswith("no rank computes or prints: they wait, for one another or for something outside")
    sign_of_work(world)
    assert told(world).endswith("ranks compute or print: a first compilation may take this long")


def test_the_second_step_may_hang_as_well() -> None:
    world = World()
    world.start()
    world.step(1)
    assert told(world) == ""
    world.step(2, [0, 1, 3])
    world.advance(95)
    assert told(world).startswith("no step has ended for more than 90 s; step ")
    assert "; behind the others: rank 2; " in told(world)


def test_a_step_ends_what_was_said() -> None:
    world = World()
    world.start()
    world.advance(95)
    assert told(world)
    world.step(1)
    assert told(world) == ""


def test_steps_whose_time_is_known_are_left_to_the_rule() -> None:
    world = World()
    world.start()
    for step in range(1, 5):
        world.advance(1)
        world.step(step)
    world.advance(300)
    assert told(world) == ""


def test_a_fault_and_a_pause_are_not_quiet() -> None:
    world = World()
    world.start()
    world.step(1)
    world.order(pb.PAUSE, incarnation=2, revision=1, timeout_seconds=600)
    world.advance(95)
    assert told(world) == ""
    faulty = World()
    faulty.start()
    faulty.step(1)
    faulty.die(3)
    faulty.advance(95)
    assert told(faulty) == ""


def test_another_coordinator_counts_from_its_own_start() -> None:
    world = World()
    world.start()
    world.step(1)
    world.advance(80)
    restart_coordinator(world)
    world.advance(60)
    assert told(world) == ""
    world.advance(60)
    assert "no step has ended for more than 90 s" in told(world)


def begin(world: World) -> None:
    """Order a start of which node 1's script has called no launcher."""
    world.agent(1).has_launched = False
    world.core.apply_controller_hello(world.controller, [], world.now)
    world.assign()
    world.order(pb.START, incarnation=1)


def test_a_script_that_launches_nothing_is_named() -> None:
    world = World()
    begin(world)
    world.advance(88)
    assert told(world, "NoRankStarted") == ""
    world.advance(5)
    said = told(world, "NoRankStarted").split("; ")
    pod = world.core.job.roster.pods_of_node(1)[0].name
    assert said == [
        "no rank has been started for more than 90 s since all pods are there",
        f"no call of torchrun or msrun yet by the start script in {pod}",
        "nothing that it runs computes or prints: it waits for something",
    ]
    sign_of_work(world)
    assert told(world, "NoRankStarted").endswith("what it runs computes or prints")
    assert (told(world), world.facts) == ("", []), "it may copy a data set"
    world.agent(1).has_launched = True
    world.advance(2)
    assert told(world, "NoRankStarted") == ""


def test_a_pod_that_comes_late_is_no_quiet_script() -> None:
    world = World()
    world.agent(1).powered = False
    begin(world)
    world.advance(300)
    assert told(world, "NoRankStarted") == "", "what it waits for the operator sees"
