"""What an admin does to a job and its nodes through kubectl: taken or refused, and never at the training's cost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.harness.job import Job
from e2e.harness.marks import only_e2e
from e2e.harness.rig import Rig, RigLayout
from e2e.scenarios.nodes_taken import ITERATIONS, STEP_MILLISECONDS, newest, pod_of, shrunk_job
from e2e.scenarios.proofs import assert_recovered, assert_weights_equal

pytestmark = [
    only_e2e,
    pytest.mark.timeout(900),
]
ORPHANED_SECONDS = 240.0
"""The pods of a node without an object are deleted 40 to 60 s later, by the controller manager."""


def kubectl(job: Job, verb: str, *words: str) -> str:
    return job.plane.kubectl("--namespace", job.namespace, verb, "hajob", job.name, *words, timeout=150).stdout


EDITOR = """#!/bin/sh
cat "$2" >>"$0".seen
sed -i "$1" "$2"
"""
"""Of an admin who types the same again when the editor comes back with the reasons of a refusal."""


def edit(rig: Rig, job: Job, change: str) -> str:
    """`kubectl edit`, with sed for an editor; everything that the editor has shown, and what was said in the end."""
    editor = rig.directory / "editor"
    seen = editor.with_suffix(".seen")
    seen.unlink(missing_ok=True)
    editor.write_text(EDITOR)
    editor.chmod(0o755)
    words = ("--namespace", job.namespace, "edit", "hajob", job.name)
    done = job.plane.kubectl(*words, environment={"KUBE_EDITOR": f"{editor} {change}"}, check=False)
    return seen.read_text() + done.stdout + done.stderr


def test_fields_are_edited_or_refused_with_a_way_out(rig: Rig) -> None:
    job = rig.submit(iterations=ITERATIONS, spec={"recovery": {"replacementTimeoutSeconds": 111}})
    job.wait_step(5)
    assert "spec.numNodes cannot be changed: " in edit(rig, job, "/numNodes:/s/4/2/")
    assert "spec.parallelism cannot be changed: " in edit(rig, job, "/tensor:/s/2/4/")
    before = job.get()["metadata"]["generation"]
    assert edit(rig, job, "/replacementTimeoutSeconds:/s/111/222/").endswith(" edited\n")
    now = job.get()
    assert (now["spec"]["recovery"]["replacementTimeoutSeconds"], now["spec"]["numNodes"]) == (222, 4)
    rig.plane.wait("the operator to have read it", lambda: job.status()["observedGeneration"] > before)
    assert job.incidents() == []
    assert_recovered(job, [], ITERATIONS)


def test_cordon_and_deletions_cost_no_step(rig: Rig) -> None:
    """Of a node's use, of a pod, of a node's object: a move, then two replacements."""
    job = rig.submit(iterations=ITERATIONS, step_milliseconds=STEP_MILLISECONDS)
    job.wait_step(10)
    node = job.node_of(0)
    rig.plane.kubectl("cordon", node)
    incident = job.wait_incident(2)
    assert (incident["action"], incident["lostSteps"]) == ("Migrate", 0)
    assert job.node_of(0) != node
    rig.plane.kubectl("uncordon", node)
    job.wait_step(job.common_step() + 20)  # MindIO's own result comes 2 s after the first step
    rig.plane.kubectl("--namespace", job.namespace, "delete", "pod", pod_of(job, 1), timeout=120)
    incident = job.wait_incident(3)
    assert (incident["action"], incident["lostSteps"]) == ("Replace", 0)
    job.wait_step(job.common_step() + 20)
    node = job.node_of(2)
    rig.plane.kubectl("delete", "node", node)
    incident = job.wait_incident(4, seconds=ORPHANED_SECONDS)
    assert (incident["action"], incident["lostSteps"]) == ("Replace", 0)
    assert job.node_of(2) != node
    assert_recovered(job, range(6), ITERATIONS)
    assert len(job.incidents()) == 3


def test_a_shrunk_job_is_suspended_and_resumed(start_rig: Callable[[RigLayout], Rig]) -> None:
    """Its step is saved, though MindIO ignores a plain request to save while shrunk; it comes back at full size."""
    rig, job, node = shrunk_job(start_rig)
    assert edit(rig, job, "/expandDelaySeconds:/s/2/3600/").endswith(" edited\n"), "it stays shrunk"
    rig.plane.kubectl("uncordon", node)
    told = lambda: job.status()["dataParallel"].get("waitReason") == "ExpandDelay"  # noqa: E731
    rig.plane.wait("the node to be seen", told)
    kubectl(job, "patch", "--type=merge", "--patch", '{"spec":{"suspend":true}}')
    suspended = job.wait_condition("Suspended")
    assert "the current step is saved" in suspended["message"]
    rig.plane.wait("its pods to be gone", lambda: not job.pods("rank"))
    stood = job.common_step()
    kubectl(job, "patch", "--type=merge", "--patch", '{"spec":{"suspend":false}}')
    job.wait_step(stood + 5)
    assert job.status()["dataParallel"]["current"] == 4
    assert job.condition("Shrunk")["status"] == "False"
    assert job.status()["restarts"] == {"infrastructure": 0, "program": 0}
    assert_weights_equal(job, ITERATIONS)


@pytest.mark.parametrize("growing", [False, True], ids=["shrunk", "expanding"])
def test_a_job_is_deleted_while_shrunk(start_rig: Callable[[RigLayout], Rig], *, growing: bool) -> None:
    rig, job, node = shrunk_job(start_rig)
    if growing:
        rig.plane.kubectl("uncordon", node)
        rig.plane.wait("the job to grow", lambda: newest(job) == ("Expand", "Open"))
    kubectl(job, "delete", "--timeout=120s")
    rig.plane.wait("its pods to be gone", lambda: not job.pods())
    running = [one for one in rig.nodes.control.processes() if one.pod.startswith(f"{job.name}-")]
    assert running == []
    for kind in ("secrets", "configmaps", "poddisruptionbudgets"):
        listed = rig.plane.kubectl("--namespace", job.namespace, "get", kind, "--output=name").stdout
        assert f"/{job.name}-" not in listed
