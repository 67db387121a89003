"""Pictures are made from raw objects and log lines alone."""

from __future__ import annotations

from typing import Any

from e2e.demo.board import (
    Board,
    ShownNode,
    ShownRank,
    dropped_after,
    incidents_of,
    nodes_of,
    problem_of,
    rank_after,
)

PREFIX = "training.hajob.io"


def event(name: str, pid: int = 7, **more: object) -> dict[str, Any]:
    return {"rank": 3, "pid": pid, "event": name, **more}


def seen(*events: dict[str, Any]) -> ShownRank:
    rank = None
    for each in events:
        rank = rank_after(rank, each)
    assert rank is not None
    return rank


def node(name: str, chips: int = 2) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"capacity": {"huawei.com/Ascend910": str(chips)}}}


def pod(where: str, role: str = "rank", node_rank: int = 0, incarnation: int = 1) -> dict[str, Any]:
    labels = {f"{PREFIX}/role": role, f"{PREFIX}/node-rank": str(node_rank), f"{PREFIX}/incarnation": str(incarnation)}
    return {"metadata": {"labels": labels}, "spec": {"nodeName": where}}


def test_a_rank_does_what_its_last_line_says() -> None:
    assert seen(event("exec")) == ShownRank(3, 7, 0, "starting")
    assert seen(event("exec"), event("registered"), event("step_end", step=5)) == ShownRank(3, 7, 5, "training")
    assert seen(event("step_end", step=5), event("save", step=5)).does == "training"


def test_after_a_takeover_the_old_process_is_not_heard_again() -> None:
    rank = seen(event("step_end", step=5), event("exec", pid=8), event("step_end", step=6), event("first_call", pid=8))
    assert rank == ShownRank(3, 8, 5, "starting")
    assert rank_after(rank, event("step_end", pid=8, step=6)) == ShownRank(3, 8, 6, "training")


def test_the_step_of_a_board_is_the_one_all_ranks_have_finished() -> None:
    assert Board().step == 0
    assert Board(ranks={0: ShownRank(0, 1, 9), 1: ShownRank(1, 2, 7)}).step == 7


def test_a_shrunk_board_does_not_wait_for_dropped_ranks() -> None:
    dropped = dropped_after(frozenset(), {"event": "downgrade", "ranks": [1], "rank": 0})
    assert dropped == dropped_after(dropped, {"event": "step_end", "rank": 0})
    assert Board(ranks={0: ShownRank(0, 1, 9), 1: ShownRank(1, 2, 7)}, dropped=dropped).step == 9
    assert dropped_after(dropped, {"event": "upgrade", "ranks": [1], "rank": 0}) == frozenset()


def test_nodes_are_in_order_with_what_is_placed_there() -> None:
    operator = {"metadata": {"labels": {"app.kubernetes.io/name": "hajob-operator"}}, "spec": {"nodeName": "node-cpu"}}
    pods = [pod("node-10", node_rank=1), operator, pod("node-cpu", role="coordinator"), pod("", node_rank=2)]
    found = nodes_of([node("node-cpu", 0), node("node-2"), node("node-10")], pods, off=["node-2"])
    assert found == (
        ShownNode("node-2", 2, (), -1, is_off=True),
        ShownNode("node-10", 2, (), 1),
        ShownNode("node-cpu", 0, ("operator", "coordinator")),
    )


def test_ranks_of_a_node_are_those_of_its_node_rank() -> None:
    board = Board(ranks={number: ShownRank(number, number) for number in range(3)})
    assert [rank.number for rank in board.ranks_of(ShownNode("a", 2, node_rank=1))] == [2]
    assert board.ranks_of(ShownNode("b", 2)) == []


def test_a_replaced_pod_counts_no_more() -> None:
    pods = [pod("node-1", node_rank=0, incarnation=3), pod("node-0", node_rank=0, incarnation=1)]
    found = nodes_of([node("node-0"), node("node-1")], pods, off=["node-0"])
    assert [each.node_rank for each in found] == [-1, 0]


def test_incidents_are_oldest_first_with_their_cause_in_words() -> None:
    cause = {"code": "SIGKILL", "firstRank": 3, "numRanks": 1}
    late = {"incarnation": 3, "cause": cause | {"numRanks": 2}, "action": "Replace", "outcome": "Open"}
    early = {"incarnation": 2, "cause": cause, "action": "InPlace", "outcome": "Recovered"}
    early["phases"] = [{"name": "Detection", "milliseconds": 53}, {"name": "Stop", "milliseconds": 18}]
    one, two = incidents_of({"incidents": [late, early]})
    assert (one.number, one.cause, one.milliseconds) == (2, "SIGKILL, rank 3", 71)
    assert (two.number, two.cause, two.phases) == (3, "SIGKILL, ranks 3 to 4", ())


def test_a_cause_that_hit_no_rank_names_none() -> None:
    cause = {"code": "ExpandDue", "firstRank": -1, "numRanks": 0}
    grown = {"incarnation": 4, "cause": cause, "action": "Expand", "outcome": "Recovered"}
    assert incidents_of({"incidents": [grown]})[0].cause == "ExpandDue"


def test_a_failed_job_says_why() -> None:
    condition = {"type": "Failed", "status": "True", "reason": "ImageMissing", "message": "no such image"}
    assert problem_of({"conditions": [condition]}) == "ImageMissing: no such image"
    assert problem_of({"conditions": [condition | {"status": "False"}]}) == ""
    assert problem_of({}) == ""
