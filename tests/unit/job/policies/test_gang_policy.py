"""When the gates of a start are opened: for all of its pods at once, or for none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hajob.api import constants as names
from hajob.domain.actions import Action
from hajob.domain.facts import Origin
from hajob.domain.incidents import Cause, Incident, Purpose
from hajob.job.policies.gang_start import GangMemo, want_gang_start
from hajob.job.wants import Patch
from hajob.plan.state import JobPhase, JobState
from hajob.sources.node import NodeView
from tests.rigs.example_jobs import example_job
from tests.rigs.snapshots import RUNNING, rank, snapshot

STARTING = replace(RUNNING, phase=JobPhase.PENDING)
INCIDENT = Incident(2, 2, 0, Purpose.FAULT, Origin.INFRASTRUCTURE, Action.RESTART, Cause(), 0)
HELD = replace(STARTING, phase=JobPhase.HELD, held_from=JobPhase.PENDING, incident=INCIDENT)
GATED = [rank(number, node_name="", phase="Pending", ready=False, gate=0) for number in range(4)]


@pytest.mark.parametrize("state", [STARTING, HELD], ids=["starts", "held at its start"])
@pytest.mark.parametrize("may_start", [True, False])
def test_gates_open_once_there_are_nodes_for_all(
    state: JobState, may_start: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start goes on beside a fault that is held back, and takes no node before it can have all."""
    seen = snapshot(state=state, pods=GATED)
    monkeypatch.setattr(type(seen), "may_start", may_start)
    opened = [change for change in want_gang_start(seen, GangMemo()).changes if isinstance(change, Patch)]
    assert len(opened) == (4 if may_start else 0)


@pytest.mark.parametrize("selector", [{}, {"pool": "a"}])
def test_an_opened_pod_is_held_to_its_super_pod(selector: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block to one with room for it: Kubernetes' scheduler knows nothing of super pods."""
    names_of_nodes = [f"{where}-{number}" for where in "ab" for number in range(2)]
    labels = {name: {names.LABEL_NODE_SUPER_POD: name[0], **selector} for name in names_of_nodes}
    chips = {names.DEFAULT_RESOURCE_NAME: 2}
    nodes = [NodeView(name, chips=chips, labels=labels[name]) for name in names_of_nodes]
    spec = example_job("quickstart").spec.to_json()
    template = spec["template"]
    template["spec"]["nodeSelector"] = selector
    blocks = {"accelerator": {"product": "A3", "chipsPerNode": 2, "superPodChips": 4}, "template": template}
    seen = snapshot(blocks, state=STARTING, pods=GATED, nodes=nodes)
    monkeypatch.setattr(type(seen), "may_start", True)
    found = [change.body for change in want_gang_start(seen, GangMemo()).changes if isinstance(change, Patch)]
    label = names.LABEL_NODE_SUPER_POD
    path = f"/spec/nodeSelector/{label.replace('/', '~1')}" if selector else "/spec/nodeSelector"
    values = [next(one["value"] for one in body if one["path"] == path) for body in found if isinstance(body, list)]
    assert values == [where if selector else {label: where} for where in ("a", "a", "b", "b")]


def test_super_pods_without_room_name_the_lack() -> None:
    own = {"accelerator": {"product": "A3", "chipsPerNode": 2, "superPodChips": 4}}
    where = {0: "a", 1: "a", 2: "b", 3: "b", 4: "b"}
    chips = {names.DEFAULT_RESOURCE_NAME: 2}
    nodes = [
        NodeView(f"node-{at}", chips=chips, all_chips=chips, labels={names.LABEL_NODE_SUPER_POD: one})
        for at, one in where.items()
    ]
    seen = snapshot(own, pods=[rank(number) for number in range(4)], nodes=nodes, dear={"free_node_names": {"node-4"}})
    assert seen.bare_super_pods == ("a",)
    assert seen.super_pods_of_blocks == {0: "a", 1: "a", 2: "b", 3: "b"}
    assert snapshot(pods=[rank(0)], nodes=nodes).bare_super_pods == ()
