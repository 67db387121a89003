"""Which pods nobody can reach: those are deleted without waiting for their node."""

from dataclasses import replace

from hajob.api import constants as names
from hajob.runtime.pod_table import PodTable
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView

POD = PodView("default", "job-0-a", "uid-0", "job", names.ROLE_RANK, 0, 1, node_name="here")
NODES = {"here": NodeView("here"), "dead": NodeView("dead", ready=False)}


def test_a_pod_on_a_ready_node_is_within_reach() -> None:
    assert not PodTable().unreachable(POD, NODES)


def test_a_pod_on_a_dead_node_or_on_none_that_is_left_is_not() -> None:
    table = PodTable()
    assert table.unreachable(replace(POD, node_name="dead"), NODES)
    assert table.unreachable(replace(POD, node_name="deleted"), NODES)


def test_a_pod_whose_agent_is_silent_is_not() -> None:
    table = PodTable()
    table.silent.add(POD.uid)
    assert table.unreachable(POD, NODES)


def test_a_pod_that_had_no_node_when_it_was_looked_at_gets_its_grace() -> None:
    """Its containers may have been started since; without grace their chips would be given away while they run."""
    assert not PodTable().unreachable(replace(POD, node_name=""), NODES)
