"""Fixtures for tests that need a real API server: one for the session, a namespace of its own for each test.

A namespace keeps tests apart without the seconds that a control plane costs. It is deleted without waiting: the
control plane goes with the session anyway.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator

import pytest

from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.shared import end_shared_control_plane, session_owner, shared_control_plane


@pytest.fixture(scope="session")
def control_plane() -> ControlPlane:
    """The session's control plane, started when the first test asks for it."""
    return shared_control_plane(session_owner())


@pytest.fixture
def namespace(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace for one test, with its default service account."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40].strip("-")
    name = f"{words}-{secrets.token_hex(3)}"
    control_plane.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    control_plane.wait(f"service account of namespace {name}", lambda: control_plane.api.find(account))
    yield name
    control_plane.api.delete(f"/api/v1/namespaces/{name}")


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the session's control plane, in the main process only."""
    if not hasattr(config, "workerinput"):
        end_shared_control_plane(session_owner())
