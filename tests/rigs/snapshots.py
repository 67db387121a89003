"""Snapshots of jobs for tests of policies: the job and its pods are given, and what is dear to compute, too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from hajob.api import constants as names
from hajob.job.cluster import Cluster
from hajob.job.places import JobPlaces
from hajob.job.pod_index import PodIndex
from hajob.job.snapshot import JobSnapshot
from hajob.plan.placements import placements
from hajob.plan.policy import from_spec, layout_of
from hajob.plan.state import JobPhase, JobState
from hajob.pods.settings import PodSettings
from hajob.sources.pod import PodView
from tests.rigs.example_jobs import UID, example_job

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
    dear: Mapping[str, Any] | None = None,
    **fields: Any,
) -> JobSnapshot:
    """Take a snapshot of the quickstart job.

    Args:
        spec: fields of its spec, beside or instead of its own.
        pods: of the job.
        state: the planner's.
        dear: what would be computed of the cluster, by name; nothing else of it can be asked for.
        fields: other fields of the snapshot.
    """
    job = example_job("quickstart", **(spec or {}))
    index = PodIndex()
    for pod in pods:
        index.seen(pod, deleted=False)
    index.was_listed("1")
    layout = layout_of(job.spec)
    given: dict[str, Any] = {
        "now": NOW,
        "now_ms": 5_000_000,
        "wall_seconds": 1_795_255_200.0,
        "admitted": True,
        "completed": None,
        "restart_asked": False,
        "pause_answer": ("", ""),
        "refusals": {},
    }
    made = JobSnapshot(
        job=job,
        state=state,
        policy=from_spec(job.spec, (), 0),
        layout=layout,
        desired=placements(state, layout.num_nodes),
        pods=index,
        settings=PodSettings("hajob/sidecar:dev"),
        _places=cast("JobPlaces", None),
        _cluster=cast("Cluster", None),
        **{**given, **fields},
    )
    vars(made).update(dear or {})
    return made
