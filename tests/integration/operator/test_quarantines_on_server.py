"""NodeQuarantines on a real server: its rules, its columns, and an operator that writes, follows and ends them.

The node is only this operator's: those of other tests on the same server look after nodes with their own labels.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Any, cast

import pytest

from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.rest import MERGE_PATCH, ApiError
from hajob.api import constants as names
from hajob.capacity.caches import Caches
from hajob.clock import SystemClock
from hajob.domain.facts import Source
from hajob.domain.hardware import ClusterFact, Level, kind_of_level
from hajob.faults.quarantines import Quarantines
from hajob.faults.rules.cluster_faults import ClusterFaults
from hajob.faults.rules.quarantine import QuarantineSettings
from hajob.faults.rules.settings import FaultSettings
from hajob.faults.watch import FaultWatch
from hajob.kube.http import HttpKube
from hajob.leader.leadership import Leadership
from hajob.sources.node import node_view_of

PATH = f"/apis/{names.API_VERSION}/{names.QUARANTINES}"
Json = dict[str, Any]


@pytest.fixture
def node(control_plane: ControlPlane, crd: Json) -> Any:
    """A node of this test alone; what is said of it goes with it."""
    name = f"node-{secrets.token_hex(4)}"
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    yield control_plane.api.create("/api/v1/nodes", body)
    control_plane.api.delete(f"/api/v1/nodes/{name}")
    control_plane.api.delete(f"{PATH}/{name}")


def quarantine(name: str, **spec: object) -> Json:
    body = {"apiVersion": names.API_VERSION, "kind": names.QUARANTINE_KIND, "metadata": {"name": name}}
    return {**body, "spec": {"nodeName": name, **spec}}


def test_the_server_guards_name_and_node(control_plane: ControlPlane, node: Json) -> None:
    name = node["metadata"]["name"]
    with pytest.raises(ApiError, match="give both the name of the node"):
        control_plane.api.create(PATH, quarantine(name, nodeName="another"))
    made = control_plane.api.create(PATH, quarantine(name))
    assert (made["spec"]["source"], made["spec"]["reason"]) == ("Admin", "ByHand")
    with pytest.raises(ApiError, match="cannot be changed"):
        control_plane.api.request(
            "PATCH", f"{PATH}/{name}", {"spec": {"nodeName": "another"}}, content_type=MERGE_PATCH
        )
    head, row = control_plane.kubectl("get", "hajobnq", name).stdout.splitlines()
    assert head.split() == ["NAME", "STATE", "SOURCE", "REASON", "UNTIL", "OFFENCES", "AGE"]
    assert row.split()[1:3] == ["Active", "Admin"] or row.split()[1] == "Admin"


class Faults:
    """One node on which a fault stands, or not."""

    def __init__(self, node: str) -> None:
        self.node, self.stands, self.complete = node, True, True
        self.settings = FaultSettings(quarantine=QuarantineSettings(first_seconds=1))
        self.cluster = ClusterFaults(())
        self.cluster.nodes_with_faults = lambda: frozenset({node} if self.stands else ())  # type: ignore[method-assign]

    def why_held(self) -> str:
        return ""

    def of_quarantine(self, node: str) -> list[ClusterFact]:
        kind = kind_of_level(Level.SEPARATE)
        fact = ClusterFact("id", Source.DEVICE, kind, node, "Ascend910-3", "40F84E00", Level.SEPARATE, message="chip 3")
        return [fact] if self.stands and node == self.node else []

    def pardon(self, _node: str) -> None:
        """Nothing is counted here."""

    def look_at(self, node: str) -> None:
        """Nobody is to be told."""

    def note_turned_places(self, nodes: frozenset[str]) -> None:
        """Nobody is to be told."""


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # what is waited for has no event
            await asyncio.sleep(0.05)


async def test_an_operator_quarantines_and_lets_in(control_plane: ControlPlane, node: Json, kube: HttpKube) -> None:
    name = node["metadata"]["name"]
    faults = Faults(name)
    caches = Caches()
    caches.store_node(node_view_of(node))
    quarantines = Quarantines(
        kube,
        SystemClock(),
        cast("FaultWatch", faults),
        caches,
        Leadership(),
    )
    tasks = [
        asyncio.create_task(quarantines.informer.list_and_watch()),
        asyncio.create_task(quarantines.write_for_ever()),
    ]
    try:
        await until(quarantines.informer.synced.is_set)
        quarantines.update_all()
        assert quarantines.kept_out >= {name}
        await until(lambda: state_of(control_plane, name) == "Active")
        made = control_plane.api.get(f"{PATH}/{name}")
        assert made["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
        assert made["spec"]["reason"] == "SeparateNPU"
        released = {"spec": {"releaseTime": "2026-01-01T00:00:00Z"}}
        control_plane.api.request("PATCH", f"{PATH}/{name}", released, content_type=MERGE_PATCH)
        await until(lambda: state_of(control_plane, name) == "Released")
        assert name not in quarantines.kept_out
        faults.stands = False
        quarantines.handle_changed_faults({name})
        await until(lambda: control_plane.api.find(f"{PATH}/{name}") is None)
        faults.stands = True
        quarantines.handle_changed_faults({name})
        await until(lambda: state_of(control_plane, name) == "Active")
        assert control_plane.api.get(f"{PATH}/{name}")["status"]["offences"] == 1
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def state_of(control_plane: ControlPlane, name: str) -> str:
    found = control_plane.api.find(f"{PATH}/{name}") or {}
    return str((found.get("status") or {}).get("state"))
