"""Ends what still runs in the pods of a complete job, so that their chips are free; the pods stay, for their logs.

A second container may run for ever, and ranks that died after the final checkpoint leave their start script waiting.
Kubernetes knows one way to end a pod without deleting it: `activeDeadlineSeconds`, which may be set on a running pod.
A start script that goes on after its ranks have finished is left alone until it ends.
"""

from __future__ import annotations

from typing import Final

from hajob.job.snapshot import JobSnapshot
from hajob.job.wants import Patch, Wants, patch_of_pod
from hajob.plan.state import JobPhase, JobState
from hajob.sources.pod import PodView

_AT_ONCE: Final = 1
"""Least deadline that the API server accepts; every pod here is older."""


def want_finished_pods(snapshot: JobSnapshot) -> Wants:
    """Want the idle pods of a complete job ended, each by its kubelet and with its own grace."""
    if snapshot.state.phase is not JobPhase.COMPLETE or not snapshot.pods.complete:
        return Wants()
    return Wants(
        changes=tuple(_patch_to_end(pod) for pod in snapshot.pods.all_pods() if holds_node_in_vain(pod, snapshot.state))
    )


def holds_node_in_vain(pod: PodView, state: JobState) -> bool:
    """Return whether a rank pod of a complete job holds its node for nothing."""
    if state.phase is not JobPhase.COMPLETE or not pod.is_rank_pod or pod.has_ended or pod.deleting:
        return False
    over = state.ending.over if state.ending is not None else ()
    return pod.exit_code is not None or pod.node_rank not in over


def _patch_to_end(pod: PodView) -> Patch:
    return patch_of_pod(
        pod,
        [{"op": "add", "path": "/spec/activeDeadlineSeconds", "value": _AT_ONCE}],
        settled_by=frozenset({404}),
        follows_status=True,
        done=f"pod {pod.name} is ended, the job is complete",
    )
