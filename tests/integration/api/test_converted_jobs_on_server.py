"""What `kubectl hajob convert` makes of other kinds of jobs is accepted by a real API server, and can become pods."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from e2e.cluster.control_plane import ControlPlane
from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.conditions import Reason
from hajob.api.job import HATrainingJob
from hajob.cli.manifests import read_objects
from hajob.convert.convert import convert_objects
from hajob.domain.errors import HajobInputError
from hajob.job.admission import evaluate_pods
from hajob.kube.credentials import from_kubeconfig
from hajob.kube.http import HttpKube
from hajob.pods.settings import PodSettings
from tests.rigs.example_jobs import pods_of_every_kind
from tests.rigs.foreign_jobs import FILES, real_samples


@pytest.fixture
async def kube(control_plane: ControlPlane, crd: Json) -> AsyncIterator[HttpKube]:
    async with HttpKube(await from_kubeconfig(str(control_plane.kubeconfig))) as made:
        yield made


async def check(kube: HttpKube, manifest: Json) -> None:
    namespaced = {**manifest, "metadata": {**manifest["metadata"], "namespace": "default"}}
    stored = HATrainingJob.from_object(await kube.create_object(names.PLURAL, "default", namespaced, dry_run=True))
    assert await evaluate_pods(kube, stored, PodSettings("hajob/sidecar:dev")) == (Reason.VALID, "")
    for pod in pods_of_every_kind(stored):
        await kube.create_object("pods", "default", pod, dry_run=True)


async def test_every_kind_is_accepted_with_all_its_pods(kube: HttpKube) -> None:
    for objects in FILES.values():
        (job,), _ = convert_objects(objects)
        await check(kube, job.manifest)


async def test_real_samples_are_accepted_with_all_their_pods(kube: HttpKube) -> None:
    """Of the directory in HAJOB_SAMPLES."""
    if not real_samples():
        pytest.skip("HAJOB_SAMPLES names no directory with samples")
    refused: list[str] = []
    for file in real_samples():
        try:
            jobs, _ = convert_objects(read_objects(str(file)))
        except HajobInputError:
            continue
        for job in jobs:
            try:
                pod = job.manifest["spec"]["template"]["spec"]
                for name in ("serviceAccountName", "priorityClassName"):
                    pod.pop(name, None)  # they are objects of their own, which this cluster does not have
                await check(kube, job.manifest)
            except Exception as error:
                refused.append(f"{file.name}: {job.source}: {error}"[:500])
    assert not refused, "\n".join(refused)
