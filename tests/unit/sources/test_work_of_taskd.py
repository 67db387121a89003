"""Work that TaskD does in a pause: what it is asked for by rank, and what its codes mean for the nodes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hajob.api.spec import PlannedPause
from hajob.sources import pause
from hajob.sources.pod import PodView

SERVING = {
    rank: PodView(
        uid=f"u{rank}",
        name=f"job-{rank}",
        namespace="n",
        job_uid="j",
        role="rank",
        node_rank=rank,
        incarnation=1,
        node_name=f"node-{rank}",
    )
    for rank in range(3)
}
REQUEST = "2026-11-22T01:00:00Z"


def asked(**work: Any) -> PlannedPause:
    return PlannedPause.model_validate({"requestTime": REQUEST, **work})


def told(codes: dict[str, str], request: str = "") -> str:
    nodes = {str(rank): pod.node_name for rank, pod in SERVING.items()}
    return json.dumps({"request": request or pause.identity_of_request(asked()), "nodes": nodes, "codes": codes})


def test_a_stress_test_is_for_every_rank_of_its_nodes() -> None:
    work = json.loads(pause.work_for_taskd(asked(stressTest={}, nodeNames=["node-1"]), SERVING, 2))
    assert work["stress"] == {"2": [0, 1], "3": [0, 1]}
    one = json.loads(pause.work_for_taskd(asked(stressTest={"operations": ["PointToPoint"]}), SERVING, 2))
    assert one["stress"] == {str(rank): [1] for rank in range(6)}


def test_rails_are_switched_there_and_back() -> None:
    switches = [{"nodeName": "node-2", "chips": [0, 1, 9]}, {"nodeName": "node-0", "chips": [1], "rail": "Own"}]
    work = json.loads(pause.work_for_taskd(asked(switchRails=switches), SERVING, 2))
    assert work["rails"] == {"4": True, "5": True, "1": False}, "a chip that no rank has, nobody switches"


def test_a_pause_without_work_asks_taskd_for_nothing() -> None:
    assert pause.work_for_taskd(asked(), SERVING, 2) == ""


@pytest.mark.parametrize(
    ("codes", "node", "code"),
    [
        ({"2": "0", "3": "0"}, 1, 0),
        ({"2": "3", "3": "2"}, 1, 2),
        ({"2": "4", "3": "1"}, 1, 4),
        ({"9": "2"}, 1, 0),
    ],
)
def test_a_fault_counts_more_than_work_left_undone(codes: dict[str, str], node: int, code: int) -> None:
    works = pause.works_of_taskd(asked(stressTest={}), told(codes), 2)
    assert works[node].exit_code == code
    assert pause.is_node_unfit(works[node]) is (code == 2)
    assert bool(works[node].trouble) is bool(code)


def test_the_word_of_another_pause_counts_for_nothing() -> None:
    wanted = asked(stressTest={})
    assert pause.works_of_taskd(wanted, told({"2": "2"}, "another"), 2) == {}
    assert pause.works_of_taskd(wanted, "", 2) == {}
