"""The rules of one node with a fake clock: what is ordered, ended, reported and fenced."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.agent_node import NodeRig, order_to_run, pod_settings
from trainer_sidecar.agent.clock import SECOND
from trainer_sidecar.agent.gate.rules import LinkPhase
from trainer_sidecar.agent.node import Node
from trainer_sidecar.agent.report.outbox import GATHERED
from trainer_sidecar.agent.settings import UNNAMED


def test_ranks_start_when_order_and_script_are_there() -> None:
    rig = NodeRig()
    rig.order(order_to_run(2), order_to_run(3))
    assert rig.kinds() == []
    rig.script()
    assert [(command["kind"], command["rank"]) for command in rig.commands] == [("start", 2), ("start", 3)]


def test_the_environment_names_the_gate_and_the_place_in_the_pod() -> None:
    rig = NodeRig()
    rig.script()
    rig.order(order_to_run(3, 7))
    environment = rig.commands[-1]["environment"]
    expected = {
        "RANK": "3", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "4", "GROUP_RANK": "1",
        "TTP_ADDR": "127.0.0.1", "CONTROLLER_ADDR": "127.0.0.1", "PROCESSOR_ADDR": "127.0.0.1", "TTP_PORT": "8000",
        "HAJOB_ATTEMPT": "3", "HAJOB_INCARNATION": "7",
    }  # fmt: skip
    assert expected.items() <= environment.items()


def test_an_older_order_and_a_rank_of_another_pod_change_nothing() -> None:
    rig = NodeRig()
    rig.script()
    rig.order(order_to_run(2, 2))
    rig.commands.clear()
    rig.node.apply_coordinator_message(
        pb.CoordinatorToAgent(node_order=pb.NodeOrder(revision=0, ranks=[order_to_run(3, 9)]))
    )
    rig.order(order_to_run(0))
    assert rig.commands == []


def test_an_exit_is_due_at_once_and_says_what_it_was() -> None:
    rig = NodeRig()
    rig.process(2)
    rig.node.apply_launcher_message({"kind": "steps", "steps": [[2, 41, rig.clock.now()]]})
    rig.report()
    rig.process(2, running=False, exit_code=-9, last_lines=["one", "two"])
    (fact,) = rig.report().facts
    assert (fact.kind, fact.exit_code, fact.step, fact.message) == (pb.PROCESS_EXITED, -9, 41, "one\ntwo")
    assert fact.code == "SIGKILL"


def test_an_ordered_end_is_a_state_but_no_fact() -> None:
    rig = NodeRig()
    rig.process(2)
    rig.process(2, running=False, exit_code=-9, ordered=True)
    report = rig.report()
    assert list(report.facts) == []
    assert report.ranks[0].phase == pb.DEAD


def test_exit_code_zero_is_finished() -> None:
    rig = NodeRig()
    rig.script()
    rig.process(2)
    rig.node.apply_launcher_message({"kind": "steps", "steps": [[2, 5, rig.clock.now()]]})
    rig.process(2, running=False)
    report = rig.report()
    assert list(report.facts) == []
    assert [state.phase for state in report.ranks] == [pb.FINISHED, pb.ABSENT]


def test_the_same_exit_heard_from_a_launcher_again_is_one_fact() -> None:
    rig = NodeRig()
    rig.process(2, running=False, exit_code=1)
    rig.process(2, running=False, exit_code=1)
    report = rig.report()
    assert [fact.id for fact in report.facts] == ["uid-1/exit/2/1/0"]


def test_a_launcher_that_goes_away_takes_its_ranks_along() -> None:
    rig = NodeRig()
    rig.script()
    rig.process(2)
    rig.process(3)
    rig.node.handle_lost_launcher()
    report = rig.report()
    told = [(fact.kind, fact.code, fact.unexplained) for fact in report.facts]
    assert told == [(pb.PROCESS_EXITED, "ContainerKilled", True)] * 2
    assert {state.phase for state in report.ranks} == {pb.DEAD}
    assert report.script_ended
    assert not report.launcher_ready


def test_a_launcher_gone_before_any_rank_is_a_fact_of_its_script() -> None:
    rig = NodeRig()
    rig.script()
    rig.node.handle_lost_launcher()
    assert [(fact.kind, fact.code) for fact in rig.report().facts] == [(pb.SCRIPT_ENDED, "SIGKILL")]


def test_what_ends_with_a_stopped_container_is_not_at_fault() -> None:
    rig = NodeRig()
    rig.script()
    rig.process(2, last_lines=["loss: 3"])
    rig.script(ready=False, stopped=True)
    rig.process(2, running=False, exit_code=-15, last_lines=["loss: 3"])
    (fact,) = rig.report().facts
    assert (fact.kind, fact.code, fact.unexplained) == (pb.PROCESS_EXITED, "ContainerStopped", True)
    assert "deleted, evicted, preempted" in fact.message
    assert "loss" not in fact.message


def test_a_script_that_ends_before_its_ranks_is_a_fact() -> None:
    rig = NodeRig()
    rig.script(ended=True, exit_code=2, tool="", launch=0, training=False, last_lines=["no such file"])
    (fact,) = rig.report().facts
    assert fact.kind == pb.SCRIPT_ENDED
    assert "without calling torchrun or msrun" in fact.message
    assert "no such file" in fact.message

    finished = NodeRig()
    finished.script()
    for rank in (2, 3):
        finished.process(rank)
        finished.node.apply_launcher_message({"kind": "steps", "steps": [[rank, 5, finished.clock.now()]]})
        finished.process(rank, running=False)
    finished.script(ended=True)
    assert list(finished.report().facts) == []

    deleted = NodeRig()
    deleted.script(ended=True, exit_code=-15, stopped=True)
    assert list(deleted.report().facts) == []


def test_a_refused_start_is_repeated_until_the_process_is_there() -> None:
    rig = NodeRig()
    rig.script()
    rig.order(order_to_run(2), order_to_run(3))
    rig.process(2)
    rig.commands.clear()
    refused = {"kind": "refused", "rank": 3, "incarnation": 1, "start": 0, "reason": "no process could be made: EAGAIN"}
    for _ in range(3):  # for as long as there is no room: with the ticks, never as an answer to the refusal
        rig.node.apply_launcher_message(refused)
        assert rig.kinds() == []
        rig.node.tick_every_second()
        assert [(command["kind"], command["rank"]) for command in rig.commands] == [("start", 3)]
        rig.commands.clear()
    rig.process(3)
    rig.commands.clear()
    rig.node.tick_every_second()
    assert rig.kinds() == []


def test_a_refused_start_of_a_pod_that_is_over_is_left_alone() -> None:
    rig = NodeRig()
    rig.script()
    rig.order(order_to_run(3))
    rig.node.apply_launcher_message(
        {"kind": "refused", "rank": 3, "incarnation": 1, "start": 0, "reason": "no process"}
    )
    rig.order(over=True)
    rig.commands.clear()
    rig.node.tick_every_second()
    assert rig.kinds() == []


def test_over_ends_everything_and_nothing_ever_starts_again() -> None:
    rig = NodeRig()
    rig.script()
    rig.process(2)
    rig.order(order_to_run(2), over=True)
    rig.order(order_to_run(2, 5))
    rig.script()
    assert set(rig.kinds()) == {"over"}
    rig.grant()
    assert not rig.node.may_pass(2)


def test_a_link_passes_only_with_order_process_and_lease() -> None:
    rig = NodeRig()
    rig.process(2)
    rig.order(order_to_run(2))
    assert not rig.node.may_pass(2), "no lease"
    rig.grant()
    assert rig.node.may_pass(2)
    assert not rig.node.may_pass(3), "not ordered"
    rig.clock.pass_seconds(3)
    assert not rig.node.may_pass(2), "the lease ran out"
    rig.grant()
    rig.order(order_to_run(2), controller_address="")
    assert not rig.node.may_pass(2), "there is no controller"
    rig.order(order_to_run(2, admitted=False))
    assert not rig.node.may_pass(2), "not admitted"


def test_silence_of_coordinator_and_steps_ends_the_ranks() -> None:
    rig = NodeRig(fence_after=60)
    rig.process(2)
    rig.clock.pass_seconds(50)
    rig.node.apply_launcher_message({"kind": "steps", "steps": [[2, 1, rig.clock.now()]]})
    rig.clock.pass_seconds(60)
    rig.node.tick_every_second()
    assert rig.kinds() == [], "a job whose steps go on is left alone"
    rig.clock.pass_seconds(1)
    rig.node.tick_every_second()
    rig.node.tick_every_second()
    assert rig.kinds() == ["end"]
    rig.process(2, running=False, exit_code=-9, ordered=True)
    (fact,) = rig.report().facts
    assert "no coordinator for 60 s" in fact.message


def test_a_save_of_ten_minutes_without_a_coordinator_ends_nobody() -> None:
    rig = NodeRig(fence_after=60)
    rig.process(2)
    for _ in range(300):
        rig.clock.pass_seconds(2)
        rig.node.apply_heartbeat(2, 6, asked=False)
        rig.node.tick_every_second()
    assert rig.kinds() == [], "its heartbeats go on"
    rig.clock.pass_seconds(61)
    rig.node.tick_every_second()
    assert rig.kinds() == ["end"]


def steps_of(report: pb.AgentReport) -> list[tuple[int, int, bool]]:
    return [(step.rank, step.step, step.heartbeat) for step in report.steps]


def test_heartbeats_tell_the_steps_of_ranks_that_print_nothing() -> None:
    rig = NodeRig()
    rig.process(2)
    rig.process(3)
    assert not rig.report().ranks[0].HasField("step"), "nothing is known"
    rig.clock.pass_seconds(2)
    rig.node.apply_heartbeat(2, 0, asked=False)
    rig.node.apply_heartbeat(3, 4, asked=False)
    rig.node.apply_heartbeat(3, 5, asked=False)
    rig.clock.pass_seconds(0.4)
    assert rig.node.next_report() is None, "they wait for a heartbeat to the coordinator"
    report = rig.node.next_report(with_heartbeat=True)
    assert report is not None
    assert steps_of(report) == [(3, 5, True)]
    assert report.steps[0].age_nanoseconds == 0.4 * SECOND
    assert [state.step if state.HasField("step") else None for state in report.ranks] == [None, 5]
    rig.node.apply_heartbeat(3, 5, asked=False)
    rig.clock.pass_seconds(2)
    again = rig.node.next_report(with_heartbeat=True)
    assert again is None or steps_of(again) == [(3, 5, True)], "repeated until acknowledged"


def test_the_step_at_a_stop_is_told_at_once() -> None:
    rig = NodeRig()
    rig.process(2)
    rig.report()
    for step in (41, 41):
        rig.node.apply_heartbeat(2, step, asked=True)
        rig.clock.pass_seconds(0.1)
        assert steps_of(rig.report()) == [(2, step, True)]


def test_answers_that_tell_no_new_step_are_gathered() -> None:
    """MindIO asks every rank up to ten times in one recovery."""
    rig = NodeRig()
    rig.process(2)
    rig.process(3)
    for rank in (2, 3):
        rig.node.apply_heartbeat(rank, 41, asked=True)
    rig.report()
    for _ in range(2):
        for rank in (2, 3):
            rig.node.apply_heartbeat(rank, 41, asked=True)
            assert rig.node.next_report() is None
    rig.clock.pass_seconds(GATHERED / SECOND)
    assert steps_of(rig.report()) == [(2, 41, True), (3, 41, True)]


def test_a_new_step_takes_gathered_answers_along() -> None:
    rig = NodeRig()
    rig.process(2)
    rig.process(3)
    rig.node.apply_heartbeat(2, 41, asked=True)
    rig.report()
    rig.node.apply_heartbeat(2, 41, asked=True)
    rig.node.apply_heartbeat(3, 42, asked=True)
    assert steps_of(rig.report()) == [(2, 41, True), (3, 42, True)]


def test_another_process_of_a_rank_has_finished_no_step_yet() -> None:
    rig = NodeRig()
    rig.process(2)
    rig.node.apply_heartbeat(2, 41, asked=False)
    rig.process(2, 2)
    assert not rig.report().ranks[0].HasField("step")


def test_a_word_of_a_coordinator_keeps_the_ranks() -> None:
    rig = NodeRig(fence_after=60)
    rig.process(2)
    for _ in range(10):
        rig.clock.pass_seconds(30)
        rig.grant()
        rig.node.tick_every_second()
    assert rig.kinds() == []


def test_what_nobody_acknowledged_is_said_again() -> None:
    rig = NodeRig()
    rig.process(2, running=False, exit_code=1)
    first = rig.report()
    assert rig.node.next_report() is None
    rig.clock.pass_seconds(2)
    again = rig.report()
    assert [fact.id for fact in again.facts] == [fact.id for fact in first.facts]
    assert again.facts[0].age_nanoseconds >= 2_000_000_000
    rig.node.apply_coordinator_message(pb.CoordinatorToAgent(acknowledge=pb.Acknowledge(sequence=again.sequence)))
    rig.clock.pass_seconds(60)
    assert rig.node.next_report() is None


def test_a_new_stream_hears_state_and_unacknowledged_facts() -> None:
    rig = NodeRig()
    rig.process(2, running=False, exit_code=1)
    rig.report()
    rig.node.begin_conversation(higher_fence=False)
    report = rig.report()
    assert len(report.facts) == 1
    assert len(report.ranks) == 2


def test_every_step_is_told_with_its_age() -> None:
    rig = NodeRig()
    rig.report()
    before = rig.clock.now()
    rig.clock.pass_seconds(0.05)
    rig.node.apply_launcher_message({"kind": "steps", "steps": [[2, 1, before], [2, 2, rig.clock.now()]]})
    steps = rig.report().steps
    assert [(step.rank, step.step, step.age_nanoseconds) for step in steps] == [(2, 1, 50_000_000), (2, 2, 0)]


def test_of_unacknowledged_steps_the_newest_are_kept() -> None:
    rig = NodeRig()
    for step in range(1000):
        rig.node.apply_launcher_message({"kind": "steps", "steps": [[2, step, rig.clock.now()]]})
    steps = rig.report().steps
    assert len(steps) == 512
    assert steps[-1].step == 999


def test_log_rules_ask_for_lines_and_become_facts() -> None:
    rig = NodeRig()
    rig.process(2)
    rules = [
        pb.LogRule(name="nan", pattern="loss: nan", threshold=2, window_seconds=60),
        pb.LogRule(name="bad", pattern="("),
    ]
    revised = pb.NodeOrder(revision=1, ranks=[order_to_run(2)], log_rules=rules)
    rig.node.apply_coordinator_message(pb.CoordinatorToAgent(node_order=revised))
    assert {"kind": "follow", "lines": True} in rig.commands
    for text in ("before", "lm loss: nan", "between", "lm loss: nan"):
        rig.node.apply_launcher_message({"kind": "line", "rank": 2, "text": text, "time": rig.clock.now()})
    report = rig.report()
    (met,) = report.facts
    assert [problem.code for problem in report.problems] == ["LogRuleOff"], "a note is no fact: it would become a fault"
    assert "the log rule bad is off: the pattern '(' is no regular expression" in report.problems[0].message
    assert (met.kind, met.code, list(met.ranks)) == (pb.LOG_RULE, "nan", [2])
    assert met.message == "before\nlm loss: nan\nbetween\nlm loss: nan", "the last lines travel with the fact"
    rig.order(order_to_run(2))
    assert rig.commands[-1] == {"kind": "follow", "lines": False}


def test_the_start_delay_of_a_rule_begins_anew_with_a_launch() -> None:
    """A launch before the training, which prepares its data for an hour, has processes of the same names."""
    rig = NodeRig()
    rig.script(training=False)
    rig.process(2)
    rules = [pb.LogRule(name="warned", pattern="WARNING", threshold=1, start_delay_seconds=300)]
    revised = pb.NodeOrder(revision=1, ranks=[order_to_run(2)], log_rules=rules)
    rig.node.apply_coordinator_message(pb.CoordinatorToAgent(node_order=revised))
    rig.clock.pass_seconds(3600)
    rig.process(2, running=False)
    rig.script(launch=2)
    rig.process(2)
    rig.node.apply_launcher_message({"kind": "line", "rank": 2, "text": "WARNING", "time": rig.clock.now()})
    assert not [fact for fact in rig.report().facts if fact.kind == pb.LOG_RULE]
    rig.clock.pass_seconds(300)
    rig.node.apply_launcher_message({"kind": "line", "rank": 2, "text": "WARNING", "time": rig.clock.now()})
    assert [fact.code for fact in rig.report().facts if fact.kind == pb.LOG_RULE] == ["warned"]


def test_a_taken_port_is_named_once() -> None:
    rig = NodeRig()
    for _ in range(3):
        rig.node.report_taken_port(8000, OSError(98, "Address already in use"))
    (fact,) = rig.report().facts
    assert fact.kind == pb.PORT_TAKEN
    assert "127.0.0.1:8000" in fact.message
    assert "spec.network.mindIOPort" in fact.message


def test_the_stores_port_is_named_by_its_own_field() -> None:
    rig = NodeRig()
    rig.node.report_taken_port(29500, OSError(98, "Address already in use"))
    (fact,) = rig.report().facts
    assert "spec.network.rendezvousPort" in fact.message


def test_ranks_meet_at_their_own_pod_while_order_and_lease_hold() -> None:
    rig = NodeRig()
    rig.script()
    rig.order(order_to_run(2))
    assert "MASTER_ADDR" not in rig.commands[-1]["environment"], "a coordinator of 0.1 says where the store is"
    assert not rig.node.may_reach_store()
    rig.order(order_to_run(3), store_address="10.0.0.1:29500")
    environment = rig.commands[-1]["environment"]
    assert (environment["MASTER_ADDR"], environment["MASTER_PORT"]) == ("127.0.0.1", "29500")
    assert not rig.node.may_reach_store(), "no lease"
    rig.grant()
    assert rig.node.may_reach_store()
    rig.clock.pass_seconds(3)
    assert not rig.node.may_reach_store(), "a pod that is cut off must not write into the keys of the others"
    rig.grant()
    rig.order(order_to_run(3), store_address="10.0.0.1:29500", over=True)
    assert not rig.node.may_reach_store()


def codes(rig: NodeRig) -> list[str]:
    return [problem.code for problem in rig.report().problems]


def test_a_rank_silent_about_its_copies_is_a_problem_meanwhile() -> None:
    rig = NodeRig()
    rig.process(2)
    rig.node.note_optimizer_copies(2, told=False)
    assert codes(rig) == []
    rig.node.apply_launcher_message({"kind": "steps", "steps": [[2, 1, rig.clock.now()]]})
    rig.node.note_optimizer_copies(2, told=False)
    (problem,) = rig.report().problems
    assert problem.code == "CopiesNotRegistered"
    assert "rank 2 trains" in problem.message
    rig.node.note_optimizer_copies(2, told=True)
    assert codes(rig) == []
    rig.node.note_optimizer_copies(2, told=False)
    rig.process(2, running=False, exit_code=1)
    assert codes(rig) == []


def test_tls_at_the_gate_is_a_problem_while_a_rank_has_no_link() -> None:
    rig = NodeRig()
    phases = {2: LinkPhase.NONE, 3: LinkPhase.LINKED}
    rig.node.ports.link_phase = phases.__getitem__
    rig.node.report_tls(None)
    assert codes(rig) == []  # somebody else's
    rig.process(2)
    rig.process(3)
    (problem,) = rig.report().problems
    assert (problem.code, problem.message.split()[:2]) == ("MindIOTLSMismatch", ["rank", "2"])
    phases[2] = LinkPhase.LINKED
    rig.node.note_link_change(2)
    assert codes(rig) == []


def test_a_rank_that_speaks_tls_is_named_until_it_is_linked() -> None:
    rig = NodeRig()
    rig.node.report_tls(3)
    (problem,) = rig.report().problems
    assert (problem.code, problem.message.split()[:2]) == ("MindIOTLSMismatch", ["rank", "3"])
    rig.process(3, running=False, exit_code=2)
    assert codes(rig) == ["MindIOTLSMismatch"], "it will be restarted, and do it again"
    rig.node.ports.link_phase = lambda _: LinkPhase.LINKED
    rig.node.note_link_change(3)
    assert codes(rig) == []


def test_a_process_that_falls_silent_again_is_told_again() -> None:
    """Its second link counts heartbeats from the beginning, and may fall silent at the same count."""
    rig = NodeRig()
    rig.script()
    rig.order(order_to_run(2), order_to_run(3))
    rig.process(2)
    first = rig.clock.now()
    rig.clock.pass_seconds(9)
    rig.node.report_silent_rank(2, first)
    rig.node.report_silent_rank(2, first)
    second = rig.clock.now()
    rig.clock.pass_seconds(31)
    rig.node.report_silent_rank(2, second)
    told = [fact for fact in rig.report().facts if fact.kind == pb.HEARTBEAT_SILENT]
    assert [fact.age_nanoseconds // SECOND for fact in told] == [40, 31]
    assert len({fact.id for fact in told}) == 2
    assert "no heartbeat has passed for 9 s" in told[0].message


def test_a_log_that_tee_cannot_write_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    rig = NodeRig()
    for _ in range(2):
        rig.script(lost_log="tee: logs/train.log: No such file or directory")
    assert [one.message for one in caplog.records if "tee: logs/train.log" in one.message] == [
        caplog.records[0].message
    ]


def test_a_sign_is_told_at_once_until_the_ranks_train() -> None:
    rig = NodeRig()
    rig.script()
    rig.order(order_to_run(2), order_to_run(3))
    rig.process(2)
    assert not rig.report().HasField("sign_age_nanoseconds")
    rig.node.apply_launcher_message({"kind": "sign", "time": rig.clock.now()})
    rig.clock.pass_seconds(4)
    assert rig.report().sign_age_nanoseconds == 4 * SECOND
    rig.node.apply_launcher_message({"kind": "steps", "steps": [[2, 1, rig.clock.now()]]})
    rig.report()
    rig.node.apply_launcher_message({"kind": "sign", "time": rig.clock.now()})
    assert rig.node.next_report() is None


def test_strangers_are_counted_and_told_when_they_double() -> None:
    rig = NodeRig()
    rig.script()
    rig.report()
    told = []
    for number in range(1, 11):
        rig.node.report_foreign_connection(8000, f"10.0.0.{number}")
        rig.clock.pass_seconds(1.0)
        report = rig.node.next_report()
        if report is not None:
            told.append(report.strangers)
    assert told == [1, 2, 4, 8]
    assert [problem.code for problem in report_of(rig).problems] == ["StrangersHeld"]
    assert (
        "connections from 10.0.0.1 and others are held and not read (8 or more)" in report_of(rig).problems[0].message
    )
    assert report_of(rig).strangers == 10


def report_of(rig: NodeRig) -> pb.AgentReport:
    """What the next report will say."""
    rig.node.note_link_change(0)
    rig.clock.pass_seconds(1.0)
    return rig.report()


def test_a_spare_learns_which_pod_it_is_with_its_first_order() -> None:
    rig = NodeRig(node_rank=UNNAMED)
    rig.script()
    assert not rig.report().ranks
    assert not rig.commands
    rig.order(order_to_run(0, 5), order_to_run(1, 5))
    assert [(one["kind"], one["rank"]) for one in rig.commands] == [("start", 0), ("start", 1)]
    assert rig.commands[-1]["environment"]["HAJOB_NODE_RANK"] == "0"
    assert [one.rank for one in rig.report().ranks] == [0, 1]
    rig.order(order_to_run(2, 6))
    assert [one["rank"] for one in rig.commands if one["kind"] == "start"] == [0, 1], "it is not named again"


def test_an_agent_that_starts_anew_learns_it_from_what_runs() -> None:
    rig = NodeRig(node_rank=UNNAMED)
    rig.process(3, 5)
    assert [(one.rank, one.incarnation) for one in rig.report().ranks] == [(2, 0), (3, 5)]


@pytest.mark.parametrize("form", ["--save {}", "--save={}", "--save {}/"])
def test_the_checkpoint_directory_is_told_by_its_variable(form: str) -> None:
    """Where a container sees the directory is the node's affair; the operator compares it with the spec."""
    rig = NodeRig(node_rank=0)
    rig.node = Node(replace(pod_settings(node_rank=0), checkpoint_directory="/run/7/ckpt"), rig.clock)
    rig.node.begin_conversation(higher_fence=True)
    rig.script(arguments=[*form.format("/run/7/ckpt").split(), "--data-path", "/run/7/ckpt-old"])
    told = list(rig.report().launched)
    assert " ".join(told[1:]).replace("=", " ") == "--save $HAJOB_CHECKPOINT_DIR --data-path /run/7/ckpt-old"
