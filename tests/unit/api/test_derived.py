"""What follows from a spec."""

from __future__ import annotations

from typing import Any

import pytest

from hajob.api.derived import (
    action_limits,
    allowed_actions,
    coordinator_ports,
    data_parallel_size,
    effective_status,
    why_not_served,
    world_size_of,
)
from hajob.domain.actions import FAULT_ACTIONS, Action
from hajob.domain.errors import LayoutError
from tests.rigs.example_jobs import smallest_spec


def test_the_product_gives_the_chips() -> None:
    assert world_size_of(smallest_spec()) == 32
    assert world_size_of(smallest_spec(accelerator={"product": "A3"})) == 64
    assert (
        world_size_of(smallest_spec(accelerator={"product": "A3", "chipsPerNode": 2}, parallelism={"tensor": 2})) == 8
    )


def test_data_parallel_is_what_is_left() -> None:
    assert data_parallel_size(smallest_spec()) == 4
    assert data_parallel_size(smallest_spec(parallelism={"tensor": 4, "pipeline": 2, "context": 2})) == 2
    with pytest.raises(LayoutError, match="no multiple"):
        data_parallel_size(smallest_spec(parallelism={"tensor": 3}))


def test_the_second_copy_costs_memory_that_is_told_beforehand() -> None:
    assert effective_status(smallest_spec()).extra_bytes_per_chip == 0
    model = {"parameters": 8_000_000_000}
    assert effective_status(smallest_spec(model=model)).extra_bytes_per_chip == 16 * 1_000_000_000 // 4
    assert effective_status(smallest_spec(model=model, optimizer={"copies": 1})).extra_bytes_per_chip == 0


def test_who_holds_the_same_shard_is_told_within_bounds() -> None:
    told = effective_status(smallest_spec())
    assert told.num_copy_groups == 16
    assert [group.ranks for group in told.copy_groups][:3] == [(0, 16), (8, 24), (1, 17)]
    assert {group.num_ranks for group in effective_status(smallest_spec(optimizer={"copies": 1})).copy_groups} == {1}
    big = effective_status(smallest_spec(numNodes=1024, optimizer={"sharding": "None"}))
    assert (big.num_copy_groups, len(big.copy_groups)) == (8, 4)
    assert (big.copy_groups[0].num_ranks, len(big.copy_groups[0].ranks)) == (1024, 4)
    assert len(effective_status(smallest_spec(numNodes=1024)).copy_groups) == 4


def test_limits_are_the_written_ones_else_those_of_the_action() -> None:
    assert allowed_actions(smallest_spec()) == FAULT_ACTIONS
    written = smallest_spec(
        recovery={"actions": [{"name": "Replace", "maxCount": 0}, {"name": "Retry", "windowSeconds": 5}]}
    )
    assert Action.REPLACE not in allowed_actions(written)
    assert action_limits(written, Action.RETRY).window_seconds == 5
    assert action_limits(written, Action.RETRY).max_count == action_limits(smallest_spec(), Action.RETRY).max_count


def test_a_request_that_cannot_be_met_is_named() -> None:
    assert why_not_served(smallest_spec()) == ""
    asked = {"launcher": "TaskD", "framework": "MindSpore", "checkpoint": {"path": "/ckpt", "savedLimit": 3}}
    told = why_not_served(smallest_spec(**asked))
    assert "launcher: TaskD with framework: MindSpore, checkpoint.savedLimit" in told


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        (
            {"framework": "MindSpore", "elastic": {"restartSize": "Available"}},
            "elastic.restartSize: Available with framework: MindSpore",
        ),
        ({"checkpoint": {"path": "/ckpt", "savedLimit": 3}}, "checkpoint.savedLimit"),
    ],
)
def test_what_nothing_reads_is_named(fields: dict[str, Any], named: str) -> None:
    assert f"does not support {named} yet" in why_not_served(smallest_spec(**fields))


def test_what_means_nothing_is_no_selector() -> None:
    assert why_not_served(smallest_spec(accelerator={"product": "A2", "superPodChips": 16})) == ""
    assert (
        why_not_served(
            smallest_spec(checkpoint={"path": "/ckpt", "savedLimit": 2}, elastic={"restartSize": "Original"})
        )
        == ""
    )
    assert why_not_served(smallest_spec(elastic={"restartSize": "Available"})) == ""


NODES_NETWORK = {"spec": {"hostNetwork": True, "containers": [{"name": "trainer"}]}}


def test_a_coordinator_listens_where_its_gates_do() -> None:
    assert coordinator_ports(smallest_spec()) == (7070, 8000, 29500)
    assert coordinator_ports(smallest_spec(network={"mindIOPort": 8100, "coordinatorPort": 7170})) == (
        7170,
        8100,
        29500,
    )


@pytest.mark.parametrize(
    ("network", "ports"),
    [
        pytest.param({}, (7070, 7072, 7073), id="the defaults"),
        pytest.param({"coordinatorPort": 7080}, (7080, 7081, 7082), id="another coordinatorPort"),
        pytest.param({"mindIOPort": 7072, "rendezvousPort": 7074}, (7070, 7073, 7075), id="ranks between"),
        pytest.param(
            {"agentPort": 65531, "mindIOPort": 65532, "rendezvousPort": 65533, "coordinatorPort": 65530},
            (65530, 65534, 65535),
            id="the last ones",
        ),
    ],
)
def test_on_the_host_it_leaves_the_ranks_their_ports(network: dict[str, int], ports: tuple[int, ...]) -> None:
    assert coordinator_ports(smallest_spec(network=network, template=NODES_NETWORK)) == ports
