"""What a spare's pod asks for is what a rank pod asks for; a warm one is a rank pod that nobody has named yet."""

from __future__ import annotations

import pytest

from hajob.api import constants as names
from hajob.api.enums import SpareMode
from hajob.pods.rank_pod import build_rank_pod
from hajob.pods.settings import PodSettings
from hajob.pods.spare_pod import build_spare_pod
from hajob.sources.pod import pod_view_of
from tests.rigs.example_jobs import Object, example_job

SETTINGS = PodSettings("image")


def built(mode: SpareMode) -> tuple[Object, Object]:
    """A spare's pod and a rank pod of one job."""
    job = example_job("full")
    job = job.model_copy(
        update={
            "spec": job.spec.model_copy(
                update={"scheduling": job.spec.scheduling.model_copy(update={"spare_mode": mode, "num_spare_nodes": 1})}
            )
        }
    )
    return build_spare_pod(job, 0, SETTINGS), build_rank_pod(job, 0, 1, SETTINGS)


def chips(pod: Object) -> tuple[tuple[str, int], ...]:
    return pod_view_of(pod).requests


@pytest.mark.parametrize("mode", list(SpareMode))
def test_a_spare_takes_the_place_of_a_rank_pod(mode: SpareMode) -> None:
    spare, rank = built(mode)
    assert chips(spare) == chips(rank) != ()
    for part in ("nodeSelector", "tolerations", "priorityClassName", "schedulerName"):
        assert spare["spec"].get(part) == rank["spec"].get(part)
    apart = spare["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    roles = {term["labelSelector"]["matchLabels"][names.LABEL_ROLE] for term in apart if "labelSelector" in term}
    assert {names.ROLE_RANK, names.ROLE_COORDINATOR, names.ROLE_SPARE} <= roles
    seen = pod_view_of(spare)
    assert (seen.role, seen.node_rank, seen.warm) == ("spare", -1, mode is SpareMode.WARM)


def test_a_placeholder_runs_the_image_and_nothing_of_the_users() -> None:
    spare, rank = built(SpareMode.PLACEHOLDER)
    (trainer,) = (one for one in rank["spec"]["containers"] if one["name"] == "trainer")
    image, agent = spare["spec"]["containers"]
    assert (image["image"], agent["image"]) == (trainer["image"], SETTINGS.sidecar_image)
    assert "volumes" not in spare["spec"]
    assert all(one["command"][:2] == ["python3", "-c"] for one in (image, agent))


def test_a_warm_spare_runs_what_a_rank_pod_runs() -> None:
    spare, rank = built(SpareMode.WARM)
    commands = [[one.get("command") for one in pod["spec"]["containers"]] for pod in (spare, rank)]
    assert commands[0] == commands[1]
    for container in (*spare["spec"]["containers"], spare["spec"]["initContainers"][1]):
        if container["name"] in {"trainer", "agent"}:
            assert {"name": "HAJOB_SPARE", "value": "true"} in container["env"]
