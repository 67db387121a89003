"""`kubectl delete` in the middle of whatever a job does, on a real API server: nothing of it stays.

Every job is brought into its phase by what an admin or a fault would do, and its coordinator carries out no order then.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from e2e.cluster.control_plane import ControlPlane
from hajob.protocol import sidecar_pb2 as wire
from tests.integration.operator.scripted_jobs import CHIPS, ScriptedJobs, lane_nodes
from tests.rigs.jobs_on_server import path_of_jobs

Object = dict[str, Any]
Act = Callable[[ScriptedJobs, str], Awaitable[None]]


def edit(**spec: Any) -> Act:
    async def act(jobs: ScriptedJobs, job: str) -> None:
        await asyncio.to_thread(jobs.plane.api.merge, f"{path_of_jobs(jobs.namespace)}/{job}", {"spec": spec})

    return act


def fact(kind: wire.FactKind, **fields: Any) -> Act:
    async def act(jobs: ScriptedJobs, job: str) -> None:
        jobs.coordinators[job].report_fact(kind, **fields)

    return act


async def silence(jobs: ScriptedJobs, job: str) -> None:
    jobs.coordinators[job].report_silence([1], CHIPS)


async def cordon(jobs: ScriptedJobs, job: str) -> None:
    (pod,) = jobs.rank_pods(job)[1]
    await asyncio.to_thread(jobs.plane.kubectl, "cordon", pod["spec"]["nodeName"])


ORDERED: dict[str, tuple[Act, int]] = {
    "retry": (fact(wire.MEMORY_FAULT, code="507053"), wire.RETRY),
    "in-place": (fact(wire.PROCESS_EXITED, exit_code=-9), wire.IN_PLACE),
    "replace": (silence, wire.REPLACE),
    "move": (cordon, wire.MIGRATE),
    "save": (edit(suspend=True), wire.CHECKPOINT),
    "restart": (fact(wire.LOG_RULE, code="nan"), wire.START),
    "pause": (edit(pause={"requestTime": "2026-01-01T00:00:00Z"}), wire.PAUSE),
}
"""What brings a job that trains there, and the order that stays undone."""
RUNNING, GATED, STARTING = "running", "gated", "starting"
NODES = {**dict.fromkeys((*ORDERED, RUNNING, STARTING), 2), "move": 3, "replace": 3}


@contextmanager
def operator(plane: ControlPlane, namespace: str) -> Iterator[None]:
    environment = {
        "HAJOB_KUBECONFIG": str(plane.kubeconfig),
        "HAJOB_NAMESPACE": namespace,
        "HAJOB_WATCH_NAMESPACES": namespace,
        "HAJOB_FAULT_NODE_SELECTOR": f"pool={namespace}",
        "HAJOB_METRICS_PORT": "0",
    }
    process = plane.run.spawn(f"operator-{namespace}", [sys.executable, "-m", "hajob.app.operator"], environment)
    try:
        yield
    finally:
        process.kill()
        process.wait()


async def test_a_job_can_be_deleted_in_every_phase(control_plane: ControlPlane, crd: Object, namespace: str) -> None:
    assert crd
    jobs = ScriptedJobs(control_plane, namespace)
    jobs.stalling.add(STARTING)
    with lane_nodes(control_plane, namespace, NODES), operator(control_plane, namespace):
        async with jobs.living():
            for job in (*NODES, GATED):
                await asyncio.to_thread(jobs.apply, job, 2, {})
            trained = [*ORDERED, RUNNING]
            await jobs.until("the jobs to train", lambda: all(jobs.state(job) == "Running" for job in trained), 240)
            await asyncio.gather(*(_bring(jobs, job) for job in ORDERED))
            await jobs.until("a start to wait for ranks", lambda: _given(jobs, STARTING) == wire.START)
            await jobs.until("a start to wait for nodes", lambda: len(jobs.rank_pods(GATED)) == 2)
            words = ("delete", "hatrainingjobs", "--all", "--namespace", namespace, "--timeout=120s")
            await asyncio.to_thread(control_plane.kubectl, *words)
            await jobs.until("every pod to be gone", lambda: not jobs.pods)
            left = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
            await asyncio.to_thread(control_plane.wait, "budgets to be gone", lambda: not control_plane.api.items(left))


async def _bring(jobs: ScriptedJobs, job: str) -> None:
    act, action = ORDERED[job]
    jobs.stalling.add(job)
    jobs.coordinators[job].stalls = True
    await act(jobs, job)
    await jobs.until(f"{job} to be ordered", lambda: _given(jobs, job) == action)


def _given(jobs: ScriptedJobs, job: str) -> int:
    there = jobs.coordinators.get(job)
    return int(there.given[-1].action) if there is not None and there.given else -1
