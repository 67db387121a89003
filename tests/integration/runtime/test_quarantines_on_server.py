"""NodeQuarantines on a real server: its rules and its columns.

An operator's own are tested on a server in memory (tests/unit/runtime/test_quarantines.py): on the same real one the
operators of other tests would write them, too.
"""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.rest import MERGE_PATCH, ApiError
from hajob.api import constants as names

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
