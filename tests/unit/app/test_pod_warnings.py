"""A pod that does not start, whose status does not say why: the leader reads the warning about it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hajob.api import constants as names
from hajob.app.core import OperatorCore
from hajob.app.pod_warnings import SILENT_MS, PodWarnings
from hajob.capacity.caches import Caches
from hajob.kube.client import ApiError
from hajob.plan.state import JobPhase
from hajob.sources.pod import PodView
from tests.rigs.fake_clock import FakeClock
from tests.rigs.fake_kube import FakeKube
from tests.rigs.told_job import POD, told_job

SAID = 'MountVolume.SetUp failed for volume "settings": configmap "absent" not found'


class Look:
    """Pods as the operator knows them, and warnings as the server has them."""

    def __init__(self, *pods: PodView) -> None:
        self.clock = FakeClock()
        self.kube = FakeKube(self.clock)
        self.pods = {pod.key: pod for pod in pods}
        self.told: list[PodView] = []
        core = SimpleNamespace(controllers={POD.job_uid: None}, handle_changed_pod=self.note)
        caches = SimpleNamespace(pods=self.pods)
        self.warnings = PodWarnings(self.kube, self.clock, cast("Caches", caches), cast("OperatorCore", core))

    def note(self, pod: PodView, *, deleted: bool) -> None:
        assert not deleted
        self.told.append(pod)
        self.pods[pod.key] = pod

    def warn(self, pod: PodView, reason: str = "FailedMount", **more: Any) -> None:
        about = {"kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
        told = {"type": "Warning", "lastTimestamp": "2026-01-01T00:00:01Z", "message": SAID, **more}
        name = {"name": f"e{len(self.kube.objects)}"}
        self.kube.put("events", pod.namespace, {"metadata": name, "involvedObject": about, "reason": reason, **told})


def silent(number: int = 0, **changes: Any) -> PodView:
    made = replace(POD, name=f"job-{number}", uid=f"uid-{number}", node_name="node-3", phase="Pending", ready=False)
    return replace(made, started_ms=0, **changes)


async def test_a_warning_about_a_pod_becomes_its_trouble() -> None:
    look = Look(silent())
    look.warn(silent(), "FailedMount", message="an older one", lastTimestamp="2026-01-01T00:00:00Z")
    look.warn(silent())
    look.warn(silent(), "Scheduled", type="Normal", lastTimestamp="2026-01-01T00:00:09Z")
    look.warn(silent(), "FailedScheduling", lastTimestamp="2026-01-01T00:00:09Z")
    look.warn(silent(1), "FailedMount", message="of another pod", lastTimestamp="2026-01-01T00:00:09Z")
    await look.warnings.look_once()
    (told,) = look.told
    assert (told.trouble_code, told.trouble) == ("FailedMount", f"FailedMount: {SAID}")
    await look.warnings.look_once()
    assert len(look.told) == 1, "what is known is not asked for again"


@pytest.mark.parametrize(
    "pod",
    [
        silent(deleting=True),
        silent(trouble="container trainer: ErrImagePull: no such image"),
        silent(job_uid="of-nobody"),
        replace(silent(), phase="Running"),
        replace(silent(), started_ms=None),
        replace(silent(), started_ms=2**53),
    ],
    ids=["leaves", "says why", "of no job", "runs", "without a node", "young"],
)
async def test_other_pods_are_not_asked_about(pod: PodView) -> None:
    look = Look(pod)
    look.warn(pod)
    await look.warnings.look_once()
    assert look.told == []


async def test_of_a_job_one_pod_after_the_other_is_asked_about() -> None:
    many = [silent(number) for number in range(3)]
    look = Look(*many)
    look.warn(many[2])
    for _ in many:
        await look.warnings.look_once()
    assert [pod.name for pod in look.told] == ["job-2"]
    for pod in many:
        look.warn(pod)
    await look.warnings.look_once()
    assert len(look.told) == 2


async def test_without_the_right_nothing_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    look = Look(silent(0), silent(1))
    look.kube.fail(*(ApiError(403, "Forbidden", "no"),) * 2)
    await look.warnings.look_once()
    look.warn(silent(0))
    await look.warnings.look_once()
    assert look.told == []
    assert "the right to list events is missing" in caplog.text


async def test_a_server_that_is_away_is_asked_again() -> None:
    look = Look(silent())
    look.warn(silent())
    look.kube.fail(ApiError(503, "Unavailable", "later"))
    await look.warnings.look_once()
    assert look.told == []
    await look.warnings.look_once()
    assert len(look.told) == 1


def test_the_status_says_what_keeps_a_start() -> None:
    assert SILENT_MS < 60_000, "before a person looks"
    pod = silent(trouble=f"FailedMount: {SAID}", trouble_code="FailedMount")
    status = told_job(JobPhase.STARTING, pods=[pod], record=None)["status"]
    running = next(one for one in status["conditions"] if one["type"] == "Running")
    assert running["message"] == f"pod job-0 on node-3: FailedMount: {SAID}"
    assert status["summary"]["reason"] == "FailedMount"
    assert pod.role == names.ROLE_RANK
