"""`kubectl hajob survive`: every loss of K nodes is put to the planner, and the answers are counted."""

from __future__ import annotations

import copy
import re
from itertools import combinations

import pytest

from hajob.api.spec import HATrainingJobSpec
from hajob.cli import survive
from hajob.cli.cluster import ClusterError
from hajob.cli.output import plain_lines
from hajob.domain.errors import HajobInputError
from tests.rigs.example_jobs import EXAMPLE_MANIFEST, example_job
from tests.rigs.told_job import NAME, NAMESPACE, NOW_MS, told_job
from tests.rigs.told_server import ToldServer

SPEC = HATrainingJobSpec.model_validate(EXAMPLE_MANIFEST["spec"])
NODES, ALL_PODS = "/api/v1/nodes", "/api/v1/pods"
NO_NODE = "1 more node is needed; none became free within 270 s"
SAVED = "no step; the last one is saved, then all starts anew"
COPIES_LOST = "all copies of a part of the optimizer are lost, such as that of ranks 0, 4"
CHIPS = "huawei.com/Ascend910"


def test_two_nodes_at_once_are_counted_by_what_follows() -> None:
    told = survive.answer_for_losses("quickstart", example_job("quickstart").spec, 2, 1).told
    assert [re.sub(" {3,}", " | ", line) for line in plain_lines(told)] == [
        "quickstart loses any 2 nodes at once of 4; 1 free node, 0 spare nodes",
        "ACTION | LOSSES | COST | NODE RANKS | WHY NOT LESS",
        f"Shrink | 2 of 6 | no step; slower until nodes are back | 1+2, 2+3 | {NO_NODE}",
        f"Checkpoint | 2 of 6 | {SAVED} | 0+1, 0+3 | data-parallel rank 0 would be dropped",
        f"Restart | 2 of 6 | the steps since the newest checkpoint | 0+2, 1+3 | {COPIES_LOST}",
        "66% of the losses cost no step",
    ]


def test_a_replacement_without_copies_costs_steps() -> None:
    """Nodes are free, and both holders of a shard are lost: the new pods load the checkpoint, and so do all others."""
    answer = survive.answer_for_losses("quickstart", example_job("quickstart").spec, 2, 2)
    by_cost = {(one["action"], one["state"]): len(one["losses"]) for one in answer.data["outcomes"]}
    assert by_cost == {("Replace", "Copies"): 4, ("Replace", "Checkpoint"): 2}
    assert answer.told[-1] == "66% of the losses cost no step"


def test_every_loss_is_counted_once() -> None:
    for number in range(1, 5):
        data = survive.answer_for_losses("job", SPEC, number, 0).data
        assert sum(len(one["losses"]) for one in data["outcomes"]) == data["played"] == data["possible"]


def test_of_many_losses_an_even_choice_is_played() -> None:
    chosen = list(survive.losses_to_play(100, 3))
    assert 1_000 < len(chosen) <= 2_000
    assert chosen[0] == (0, 1, 2)
    assert chosen[-1][0] > 60


def test_losses_are_in_order_however_many_there_are() -> None:
    assert list(survive.losses_to_play(7, 3)) == list(combinations(range(7), 3))
    half = list(survive.losses_to_play(64, 32))
    assert (len(half), half[0]) == (2_000, tuple(range(32)))
    assert all(len(set(one)) == 32 for one in half)


def test_a_job_that_would_fail_says_so() -> None:
    made = copy.deepcopy(EXAMPLE_MANIFEST["spec"])
    none = [{"name": name, "maxCount": 0} for name in ("Replace", "Shrink", "Checkpoint", "Restart")]
    made["recovery"] = {"actions": none}
    (one,) = survive.answer_for_losses("job", HATrainingJobSpec.model_validate(made), 1, 0).data["outcomes"]
    assert (one["action"], len(one["losses"])) == (None, 4)


@pytest.mark.parametrize(("nodes", "free"), [(0, 0), (5, 0), (1, -1)])
def test_a_loss_that_is_none_is_refused(nodes: int, free: int) -> None:
    with pytest.raises(HajobInputError, match="nodes"):
        survive.answer_for_losses("job", SPEC, nodes, free)


def node_object(name: str, chips: int) -> dict[str, object]:
    ready = [{"type": "Ready", "status": "True"}]
    amounts = {CHIPS: str(chips)}
    status = {"conditions": ready, "allocatable": amounts, "capacity": amounts}
    return {"kind": "Node", "metadata": {"name": name}, "spec": {}, "status": status}


def test_free_nodes_are_those_of_the_cluster() -> None:
    spec = example_job("quickstart").spec
    there = ToldServer(**{NODES: {"items": [node_object("a", 2), node_object("b", 1)]}, ALL_PODS: {"items": []}})
    assert survive.free_nodes_for(there, spec, ("hajob-system", "kube-system"), NOW_MS) == (1, [])


@pytest.mark.parametrize("forbidden", [NODES, ALL_PODS])
def test_free_nodes_that_may_not_be_read_are_unknown(forbidden: str) -> None:
    there = ToldServer(**{NODES: {"items": [node_object("a", 2)]}, ALL_PODS: {"items": []}})
    there.forbidden = {forbidden}
    free, (note,) = survive.free_nodes_for(there, example_job("quickstart").spec, ("hajob-system",), NOW_MS)
    assert free == 0
    assert note.startswith("free nodes: unknown, taken as none")
    assert "needs the right to list" in note


def test_a_job_of_the_cluster_is_read() -> None:
    assert survive.spec_of_job(ToldServer(told_job()), NAMESPACE, NAME).num_nodes == 4
    with pytest.raises(ClusterError, match="there is no HATrainingJob other in namespace team-a"):
        survive.spec_of_job(ToldServer(), NAMESPACE, "other")
