"""Fixtures for tests that need a real API server: one for the session, a namespace of its own for each test.

A namespace keeps tests apart without the seconds that a control plane costs. It is cleared, not deleted: the control
plane goes with the session anyway.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

import pytest

from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.rest import ApiError
from e2e.cluster.shared import end_shared_control_plane, session_owner, shared_control_plane
from e2e.harness.job import Job
from e2e.harness.rig import Rig, RigLayout
from hajob.api import constants as names

RunHajob = Callable[..., tuple[int, str, str]]
RIGS = pytest.StashKey[list[Rig]]()
PROXIES = ("http_proxy", "https_proxy", "all_proxy")


@pytest.fixture(scope="session")
def control_plane() -> ControlPlane:
    """The session's control plane, started when the first test asks for it."""
    return shared_control_plane(session_owner())


@contextmanager
def a_namespace(plane: ControlPlane, name: str) -> Iterator[str]:
    """A namespace of this name with its default service account; what could act in it is deleted in the end."""
    plane.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    plane.wait(f"service account of namespace {name}", lambda: plane.api.find(account))
    try:
        yield name
    finally:
        _clear(plane, name)


def _clear(plane: ControlPlane, namespace: str) -> None:
    """Delete the namespace's jobs and pods, so that nobody acts on them any more; the rest stays.

    The namespace itself is not deleted: that would be two requests for each of fifty kinds of objects, several times,
    which was more than half of all that the API server had to do in a session.
    """
    jobs = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.PLURAL}"
    for job in (plane.api.find(jobs) or {}).get("items", []):
        try:
            # Its operator has ended and will not do it.
            plane.api.merge(f"{jobs}/{job['metadata']['name']}", {"metadata": {"finalizers": None}})
        except ApiError as error:
            if error.status != 404:  # it has gone meanwhile
                raise
    plane.api.delete(jobs)
    plane.api.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)


@pytest.fixture
def namespace(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace for one test, with its default service account."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40].strip("-")
    with a_namespace(control_plane, f"{words}-{secrets.token_hex(3)}") as name:
        yield name


@pytest.fixture
def start_rig(
    control_plane: ControlPlane, namespace: str, request: pytest.FixtureRequest
) -> Iterator[Callable[[RigLayout], Rig]]:
    """Starts the rig of a test with the layout it wants; says where the logs are when the test fails."""
    started: list[Rig] = []
    request.node.stash[RIGS] = started

    def start(layout: RigLayout) -> Rig:
        started.append(Rig.start(control_plane, namespace, layout))
        return started[-1]

    yield start
    for rig in started:
        rig.stop()


@pytest.fixture
def rig(start_rig: Callable[[RigLayout], Rig]) -> Rig:
    """The usual rig: five nodes with two chips each, one without, one operator."""
    return start_rig(RigLayout())


@pytest.fixture
def run_hajob(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> RunHajob:
    """`kubectl hajob` in this process: takes a verb, a job and words; returns the exit code, stdout and stderr."""
    from hajob.cli import main as cli  # only where it is wanted: tests without a cluster do not pay for it

    for name in PROXIES:  # it goes by its environment, as kubectl does; the cluster is on this machine
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)

    def call(verb: str, job: Job, *words: object) -> tuple[int, str, str]:
        capfd.readouterr()
        monkeypatch.setenv("KUBECONFIG", str(job.plane.kubeconfig))
        monkeypatch.setenv("HAJOB_LANG", "en")
        code = cli.main([verb, job.name, *map(str, words), "--namespace", job.namespace])
        return code, *capfd.readouterr()

    return call


@pytest.fixture
def hajob_logs(run_hajob: RunHajob) -> Callable[..., tuple[str, str]]:
    """`kubectl hajob logs` of a job: takes its words, returns what it printed, stdout and stderr."""

    def call(job: Job, *words: object) -> tuple[str, str]:
        code, out, err = run_hajob("logs", job, *words, "--kubeconfig", job.plane.kubeconfig)
        assert code == 0
        return out, err

    return call


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """When a test has failed, write down what its rigs look like while they still stand, and say where."""
    report = yield
    if report.failed and report.when in {"setup", "call"}:
        report.sections += [("rig", f"logs are kept in {rig.explain()}") for rig in item.stash.get(RIGS, [])]
    return report


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the session's control plane, in the main process only."""
    if not hasattr(config, "workerinput"):
        end_shared_control_plane(session_owner())
