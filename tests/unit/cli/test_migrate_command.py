"""`kubectl hajob migrate`: an admin's word goes into the job's spec, and can be taken back."""

from __future__ import annotations

from typing import Any

import pytest

from hajob.cli.cluster import ClusterError, ForbiddenError
from hajob.cli.migrate import write_excluded_nodes
from tests.rigs.command_objects import FakeCommandObjects

PATH = "/apis/training.hajob.io/v1alpha1/namespaces/ns/hatrainingjobs/job"


def objects(*excluded: str) -> FakeCommandObjects:
    scheduling = {"excludedNodeNames": list(excluded)} if excluded else {}
    nodes: dict[str, Any] = {f"/api/v1/nodes/n{number}": {} for number in range(300)}
    return FakeCommandObjects(
        **nodes, **{PATH: {"metadata": {"resourceVersion": "7"}, "spec": {"scheduling": scheduling}}}
    )


def written(found: FakeCommandObjects) -> Any:
    return found.found[PATH]["spec"]["scheduling"].get("excludedNodeNames")


def test_nodes_to_leave_join_those_that_were_excluded() -> None:
    found = objects("n1")
    assert write_excluded_nodes(found, "ns", "job", ["n2", "n1"]).startswith(
        "ns/job leaves n2, n1; watch it with: kubectl get"
    )
    assert written(found) == ["n1", "n2"]
    assert write_excluded_nodes(found, "ns", "job", ["n2"]) == "nothing changes: the job already excludes n2"


def test_a_word_that_is_taken_back_lets_the_job_in_again() -> None:
    found = objects("n1", "n2")
    assert write_excluded_nodes(found, "ns", "job", ["n1"], undo=True) == "ns/job may use n1 again"
    assert written(found) == ["n2"]


def test_no_such_job_and_too_many_nodes_are_refused() -> None:
    with pytest.raises(ClusterError, match="no HATrainingJob job in namespace ns"):
        write_excluded_nodes(FakeCommandObjects(), "ns", "job", ["n1"])
    with pytest.raises(ValueError, match="at most 256"):
        write_excluded_nodes(objects(), "ns", "job", [f"n{number}" for number in range(257)])


def test_a_node_that_is_not_there_cannot_be_left_but_taken_back() -> None:
    found = objects("gone")
    with pytest.raises(ClusterError, match="there is no node n999: kubectl get nodes"):
        write_excluded_nodes(found, "ns", "job", ["n1", "n999"])
    assert written(found) == ["gone"]
    assert write_excluded_nodes(found, "ns", "job", ["gone"], undo=True) == "ns/job may use gone again"


def test_who_may_not_read_nodes_is_told_that_nobody_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    found = objects()
    look = found.find_object

    def find(path: str) -> Any:
        if "/nodes/" in path:
            raise ForbiddenError("nodes is forbidden")
        return look(path)

    monkeypatch.setattr(found, "find_object", find)
    assert "whether there is such a node could not be looked up" in write_excluded_nodes(found, "ns", "job", ["n1"])
    assert written(found) == ["n1"]
