"""Snapshots of jobs for tests of policies: the job and its pods are given, and what is dear to compute, too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from hajob.api import constants as names
from hajob.capacity.nodes import Capacity
from hajob.job.cluster import Cluster
from hajob.job.coordinator_reports import CoordinatorReports
from hajob.job.pod_index import PodIndex
from hajob.job.snapshot import JobSnapshot, ServerAnswers
from hajob.plan.policy import layout_from_spec, policy_from_spec
from hajob.plan.state import JobPhase, JobState
from hajob.pods.settings import PodSettings
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources.node import NodeView
from hajob.sources.pod import PodView
from tests.rigs.example_jobs import UID, example_job
from tests.rigs.fake_clock import FakeClock

NOW = 1000.0
"""Seconds of the monotonic clock; the wall clock shows another number."""
RUNNING = JobState(phase=JobPhase.RUNNING, incarnation=1, attempt=1, base=1, coordinator=1)


def rank(node_rank: int, **fields: Any) -> PodView:
    """Return the rank pod of the first start on a node of its own; `fields`: what is different."""
    name = f"job-{node_rank}"
    pod = PodView("team-a", name, f"uid-of-{name}", UID, names.ROLE_RANK, node_rank, 1, phase="Running", ready=True)
    return replace(pod, **{"node_name": f"node-{node_rank}", **fields})


def snapshot(
    spec: Mapping[str, Any] | None = None,
    *,
    pods: Iterable[PodView] = (),
    state: JobState = RUNNING,
    nodes: Iterable[NodeView] = (),
    answers: Mapping[str, Any] | None = None,
    dear: Mapping[str, Any] | None = None,
    **fields: Any,
) -> JobSnapshot:
    """Take a snapshot of the quickstart job.

    Args:
        spec: fields of its spec, beside or instead of its own.
        pods: of the job.
        state: the planner's.
        nodes: of the cluster; nothing but the job's pods is on them.
        answers: what the API server has said, beside that it accepts the job's pods.
        dear: what would be computed of the cluster, by name.
        fields: other fields of the snapshot.
    """
    job = example_job("quickstart", **(spec or {}))
    index = PodIndex()
    for pod in pods:
        index.store_pod(pod, deleted=False)
    index.note_list("1")
    layout = layout_from_spec(job.spec)
    given: dict[str, Any] = {"now": NOW, "now_ms": 5_000_000, "wall_seconds": 1_795_255_200.0, "restart_seen": ""}
    clock, coordinator = FakeClock(), CoordinatorReports()
    coordinator.note_connection_change(True, "")
    coordinator.store_report(wire.Report(state=wire.CoordinatorState(controller_ready=True)))
    made = JobSnapshot(
        job=job,
        state=state,
        policy=policy_from_spec(job.spec, (), 0),
        layout=layout,
        pods=index,
        coordinator=coordinator,
        cluster=Cluster(clock, Capacity.from_nodes_and_pods(nodes, ())),
        answers=ServerAnswers(**{"admitted": True, **(answers or {})}),
        settings=PodSettings("hajob/sidecar:dev"),
        **{**given, **fields},
    )
    vars(made).update(dear or {})
    return made
