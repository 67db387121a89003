"""Everything that writes asks the Lease first: whoever has a write in its code has no other way to the server."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from e2e.bootstrap.paths import CHECKOUT
from e2e.memory_api.client import MemoryKube
from e2e.memory_api.server import MemoryServer
from hajob.app.operator import Operator
from hajob.app.settings import Settings
from hajob.job.ports import Ports
from hajob.kube.client import Kube
from hajob.kube.credentials import ApiCredentials
from hajob.leader.leader_kube import LeaderKube
from tests.rigs.fake_clock import FakeClock

OPERATOR = CHECKOUT / "operator"
VERBS = frozenset({"create_object", "replace_object", "patch_object", "delete_object", "send_write"})

WITHOUT_ASKING = {
    "hajob.leader.lease": "is what is asked",
    "hajob.leader.leader_kube": "asks",
    "hajob.kube.client": "is the way itself",
    "hajob.kube.events": "Events change nothing, and people want to read what the last leader saw",
}
BY_THE_PORTS = {
    "hajob.job.apply",
    "hajob.pki.job_certificates",
    "hajob.job.unserved",
    "hajob.job.pod_maker",
    "hajob.job.status_writer",
}
"""Made for each job, with the way to the server that all jobs are given."""
ONCE = {
    "hajob.pki.authority_store",
    "hajob.faults.quarantines",
}
"""Made once, by the process."""


def writers() -> Iterator[str]:
    """Modules in which something is written to the API server; a dry run is not."""
    for file in sorted(OPERATOR.glob("hajob/**/*.py")):
        if "cli" in file.parts:  # acts with the rights of whoever asks, not with the operator's
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in VERBS:
                way = ast.unparse(node.func.value)
                if way.rpartition(".")[2] in {"kube", "_kube"} and "dry_run=True" not in ast.unparse(node):
                    yield ".".join(file.relative_to(OPERATOR).with_suffix("").parts)


@pytest.fixture
def operator() -> Operator:
    clock = FakeClock()
    settings = Settings(identity="one", metrics_port=0)
    return Operator(settings, MemoryKube(MemoryServer(clock)), ApiCredentials("https://nowhere"), clock)


def parts(root: object) -> Iterator[tuple[object, Any]]:
    """Objects of the process that an object leads to, each with all that it holds, one after the other."""
    seen: set[int] = set()
    left = [root]
    while left:
        one = left.pop()
        if id(one) in seen or not type(one).__module__.startswith("hajob."):
            continue
        seen.add(id(one))
        names = [*getattr(one, "__dict__", ()), *getattr(type(one), "__slots__", ())]
        for name in names:
            value: Any = getattr(one, name, None)
            yield one, value
            left.append(value)


def holders(root: object) -> Iterator[tuple[str, Kube]]:
    """Objects of the process that have a way to the server, by the module of their class."""
    for one, value in parts(root):
        if isinstance(value, Kube) and not isinstance(one, Kube):
            yield type(one).__module__, value


def test_every_module_that_writes_is_in_the_table() -> None:
    assert set(writers()) - WITHOUT_ASKING.keys() == BY_THE_PORTS | ONCE


def test_jobs_have_no_way_that_does_not_ask(operator: Operator) -> None:
    ports = next(value for _, value in parts(operator) if isinstance(value, Ports))
    assert isinstance(ports.kube, LeaderKube)
    for module in BY_THE_PORTS:
        assert "HttpKube" not in Path(str(import_module(module).__file__)).read_text()


def test_what_is_made_once_has_no_way_that_does_not_ask(operator: Operator) -> None:
    found = [(module, way) for module, way in holders(operator) if module in ONCE]
    assert {module for module, _ in found} == ONCE
    assert all(isinstance(way, LeaderKube) for _, way in found)


def test_whoever_has_another_way_only_reads(operator: Operator) -> None:
    past_the_lease = {module for module, way in holders(operator) if not isinstance(way, LeaderKube)}
    assert past_the_lease & set(writers()) <= WITHOUT_ASKING.keys()
