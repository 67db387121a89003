"""To the coordinator the agent is a controller host: calls are answered once, reports are callbacks."""

from __future__ import annotations

from typing import Any

from hajob.protocol import taskd_pb2 as pb
from trainer_sidecar.agent.taskd.bridge import AFTER_RESTART_SECONDS, AWAY_SECONDS, Bridge, Kept
from trainer_sidecar.agent.taskd.table import SignalStream

PEER = "ipv4:127.0.0.1:40000"
STOP = {"id": "c-1", "call": "stop_train", "order": 2, "arguments": {"ranks": [[3, 1]]}}


class Rig:
    """A bridge, and the lines that it has told."""

    def __init__(self, kept: Kept | None = None) -> None:
        self.told: list[dict[str, Any]] = []
        self.bridge = Bridge(SignalStream(2), "127.0.0.1", self.told.append, kept if kept is not None else Kept())

    def begin(self) -> None:
        self.bridge.apply_call({"call": "start", "attempt": 1, "world_size": 8}, 0)

    @property
    def state(self) -> dict[str, Any]:
        return self.bridge.kept.state

    def signals(self, now: float) -> list[str]:
        signal = self.bridge.stream.take_due_signal(now)
        return [] if signal is None else [signal.kind]


def test_the_controller_serves_and_its_manager_is_awaited() -> None:
    rig = Rig()
    rig.begin()
    assert (rig.state["controller"], rig.state["store"], rig.state["kind"]) == ("serving", "listening", "unheard")
    assert "MINDX_SERVER_IP" in rig.state["problem"]
    assert rig.bridge.note_subscriber(PEER, "job")
    assert (rig.state["kind"], rig.state["problem"]) == ("", "")


def test_a_call_becomes_a_signal_once_and_is_answered_twice() -> None:
    rig = Rig()
    rig.begin()
    rig.bridge.apply_call(STOP, 7)
    rig.bridge.apply_call(STOP, 8)
    assert [(line["answer"], line["code"]) for line in rig.told if "answer" in line] == [("c-1", 0), ("c-1", 0)]
    assert (rig.signals(1.0), rig.signals(2.0)) == (["stopTrain"], [])
    assert [entry["called"] for entry in rig.bridge.kept.log] == ["stop_train"]


def test_a_call_that_taskd_cannot_take_is_refused() -> None:
    rig = Rig()
    rig.begin()
    rig.bridge.apply_call({"id": "c-2", "call": "query", "arguments": {}}, 7)
    assert rig.told[-1]["code"] == -1
    assert rig.bridge.kept.log == []


def test_a_hot_switch_is_answered_when_mindio_has_heard_it() -> None:
    rig = Rig()
    rig.begin()
    call = {"id": "c-4", "call": "prepare_action", "arguments": {"action": "hot switch", "ranks": [[2, 0]]}}
    rig.bridge.apply_call(call, 10_000_000_000)
    assert rig.signals(10.0) == ["hot-switch"]
    wait = rig.bridge.wait_seconds(10.0)
    assert wait is not None
    rig.bridge.give_settled_answers(10.0 + wait - 0.01)
    assert "answer" not in rig.told[-1]
    rig.bridge.give_settled_answers(10.0 + wait)
    assert (rig.told[-1]["answer"], rig.bridge.wait_seconds(20.0)) == ("c-4", None)


def test_reports_are_mindios_callbacks() -> None:
    rig = Rig()
    rig.begin()
    rig.bridge.apply_call(STOP, 7)
    ranks = [pb.FaultyRank(rank="3", kind="1"), pb.FaultyRank(rank="x", kind="1")]
    rig.bridge.report_process_fault(pb.ProcessFault(ranks=ranks), 8)
    rig.bridge.report_stop_complete(pb.StopComplete(status=pb.Answer(info="stop ok"), ranks=ranks), 9)
    rig.bridge.report_offered_strategies(pb.Strategies(ranks=ranks, strategies=["exit", "recover"]), 10)
    told = [(line["event"], line["arguments"]) for line in rig.told if "arguments" in line]
    assert told == [
        ("report_fault_ranks", [[[3, 1]], []]),
        ("report_stop_complete", [0, "stop ok", [[3, 1]]]),
        ("report_strategies", [[[3, 1]], ["exit", "recover"]]),
    ]
    rig.bridge.report_strategy_result(pb.Result(status=pb.Answer(), strategy="recover", ranks=["3"]), 11)
    assert rig.told[-1]["arguments"] == [0, "", [[3, 1]], "recover"]
    assert [entry.get("order") for entry in rig.bridge.kept.log] == [2], "a success begins the log anew"


def test_ranks_that_leave_free_the_stream_for_the_growth() -> None:
    rig = Rig()
    rig.begin()
    call = {"id": "c-3", "call": "change_strategy", "arguments": {"strategy": "downgrade"}}
    rig.bridge.apply_call(call, 7)
    assert rig.signals(1.0) == ["changeStrategy"]
    rig.bridge.report_strategy_result(pb.Result(status=pb.Answer(code=201), strategy="downgrade", ranks=["4", "5"]), 8)
    assert rig.signals(2.0) == ["faultNodesExit"]


def test_a_manager_that_comes_back_is_the_same_one() -> None:
    rig = Rig()
    rig.begin()
    rig.bridge.note_subscriber(PEER, "job")
    rig.bridge.note_left_subscriber(10.0)
    rig.bridge.check_manager(10.0 + AWAY_SECONDS - 0.1)
    assert rig.bridge.note_subscriber(PEER, "job")
    rig.bridge.check_manager(100.0)
    assert rig.state["controller"] == "serving"


def test_a_manager_that_stays_away_is_lost() -> None:
    rig = Rig()
    rig.begin()
    rig.bridge.note_subscriber(PEER, "job")
    rig.bridge.note_left_subscriber(10.0)
    rig.bridge.check_manager(10.0 + AWAY_SECONDS)
    assert (rig.state["controller"], rig.state["kind"]) == ("lost", "lost")
    assert not rig.bridge.note_subscriber(PEER, "job"), "nobody is told anything any more"


def test_another_manager_knows_no_agent_and_is_told_nothing() -> None:
    rig = Rig()
    rig.begin()
    rig.bridge.note_subscriber(PEER, "job")
    assert not rig.bridge.note_subscriber("ipv4:127.0.0.1:40001", "job")
    assert "another TaskD manager" in rig.state["problem"]


def test_a_restarted_agent_awaits_the_manager_for_long() -> None:
    before = Rig()
    before.begin()
    before.bridge.note_subscriber(PEER, "job")
    rig = Rig(before.bridge.kept)
    rig.bridge.resume_service(50.0)
    rig.bridge.check_manager(50.0 + AFTER_RESTART_SECONDS - 1)
    assert rig.state["controller"] == "serving"
    assert rig.bridge.note_subscriber("ipv4:127.0.0.1:50000", "job"), "the connection is a new one"
    rig.bridge.check_manager(1000.0)
    assert rig.state["controller"] == "serving"


STRESS = {"request": "r1", "stress": {"2": [0, 1], "3": [0, 1]}}


def test_a_stress_test_is_sent_once_and_told_by_rank() -> None:
    rig = Rig()
    rig.begin()
    for number in ("c-5", "c-6"):
        rig.bridge.apply_call({"id": number, "call": "work", "arguments": {"work": STRESS}}, 7)
    test = rig.bridge.take_stress_test()
    assert test is not None
    assert {rank: list(one.operations) for rank, one in test.ranks.items()} == {"2": [0, 1], "3": [0, 1]}
    assert (rig.bridge.take_stress_test(), rig.bridge.take_rail_switch()) == (None, None)
    said = pb.StressResult()
    said.ranks["2"].operations["0"].code = "0"
    said.ranks["3"].operations["0"].code = "3"
    said.ranks["3"].operations["1"].code = "2"
    rig.bridge.report_stress_test(said, 8)
    assert rig.told[-1] == {"event": "work", "result": {"request": "r1", "codes": {"2": "0", "3": "2"}}}
    rig.bridge.apply_call({"id": "c-7", "call": "work", "arguments": {"work": STRESS}}, 9)
    assert [line["result"]["request"] for line in rig.told if line.get("event") == "work"] == ["r1", "r1"]


def test_switched_rails_are_told_of_every_rank() -> None:
    rig = Rig()
    rig.begin()
    work = {"request": "r2", "rails": {"4": True, "5": False}}
    rig.bridge.apply_call({"id": "c-8", "call": "work", "arguments": {"work": work}}, 7)
    switch = rig.bridge.take_rail_switch()
    assert switch is not None
    assert (list(switch.ranks), list(switch.borrowed)) == (["4", "5"], [True, False])
    rig.bridge.report_switched_rails(pb.RailResult(done=False), 8)
    assert rig.told[-1]["result"] == {"request": "r2", "codes": {"4": "1", "5": "1"}}
