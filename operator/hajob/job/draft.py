"""The status of one job, computed from what is known now: as a whole, whoever writes it leaves out an unchanged one."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Final

from hajob.api.conditions import Reason
from hajob.api.derived import nodes_per_block
from hajob.api.log_rules import log_rule_notes
from hajob.api.status import HATrainingJobStatus
from hajob.capacity.shortfall import shortfall_of_nodes
from hajob.capacity.unsatisfiable import why_none_fits
from hajob.job.memory import JobMemory
from hajob.job.observe import cluster_view
from hajob.job.policies.all_policies import PolicyMemos
from hajob.job.policies.start_gate import why_start_waits
from hajob.job.snapshot import JobSnapshot
from hajob.job.status.build import RUNNING_REASON, CoordinatorView, Snapshot, build_goodput, build_status
from hajob.plan.recoverability import protection_in_words, recoverability
from hajob.plan.state import ENDED, UNTRAINED
from hajob.plan.waits import wait_of_job
from hajob.pods.review import notes_on_spec
from hajob.sources.shortage import shortage_of_pods

SHORTFALL_SECONDS: Final = 30.0
"""So long the numbers of free and used nodes stand in the status of a waiting job: each pod of others changes them."""


def draft_status(
    snapshot: JobSnapshot, memory: JobMemory, memos: PolicyMemos, before: HATrainingJobStatus, fence: int
) -> HATrainingJobStatus:
    """Compute the status as it is now.

    Args:
        snapshot: of the job.
        memory: of the job.
        memos: what its policies remember.
        before: the status that was computed last.
        fence: number of this leader.
    """
    state, policy, now, reports = snapshot.state, snapshot.policy, snapshot.now_ms, snapshot.coordinator
    journal, record, view = memory.journal, memory.recorder.record, cluster_view(snapshot)
    pods, not_created = snapshot.pods.all_pods(), snapshot.creation.why_missing
    trains = RUNNING_REASON[state.going_on] is Reason.TRAINING
    return build_status(
        Snapshot(
            job=snapshot.job.model_copy(update={"status": before}),
            state=state,
            fence=fence,
            now_ms=now,
            step=reports.newest_step,
            pods=[pod for pod in pods if not pod.is_hook_pod],
            not_created=not_created,
            spares_ready=len(snapshot.ready_spares),
            spares_not_created=memos.spares.why_missing,
            coordinator=CoordinatorView(
                connected=reports.connected,
                serving=reports.is_serving,
                problem="; ".join(filter(None, (reports.problem, snapshot.why_cut_off))),
                shares_node=snapshot.coordinator_shares_node,
                problems=reports.problems_by_code,
            ),
            accepted=snapshot.answers.accepted,
            accepted_message=snapshot.answers.message,
            spec_not_read=memory.spec_not_read,
            warnings="; ".join(filter(None, (protection_in_words(policy), *_notes_on_job(snapshot)))),
            crd_is_older=snapshot.cluster.crd_is_older,
            failed_reason=journal.failed_reason,
            failed_message=journal.failed_message,
            record=record,
            settled=memory.recorder.settled,
            journal=journal.to_text(now, record),
            goodput=build_goodput(journal.account, now),
            held_back=snapshot.cluster.faults.why_held() if state.phase not in ENDED else "",
            start_waits=why_start_waits(snapshot) if memos.start.held_since is not None else "",
            to_leave=snapshot.nodes_to_leave,
            wait=wait_of_job(
                state, view, policy, now, snapshot.gang_wait or shortage_of_pods(pods, not_created) or memos.tables.told
            ),
            rank_table_wait=memos.tables.told,
            step_ms=snapshot.pace.milliseconds_per_step,
            unsatisfiable=_why_unsatisfiable(snapshot),
            shortfall=_shortfall_in_words(snapshot),
            gang_wait=snapshot.gang_wait,
            checkpoint_step=view.checkpoint_step if (view.checkpoint_step or 0) > 0 else None,
            batch=policy.batch,
            queue_wait=snapshot.queue_wait if state.phase not in ENDED and not snapshot.job.spec.suspend else "",
            spares_wait=snapshot.queue.why_spares_wait,
            queue_stops=snapshot.queue.turn.asks_to_stop,
            recoverability=recoverability(state, view, policy, now) if trains else (),
        )
    )


def _notes_on_job(snapshot: JobSnapshot) -> Iterator[str]:
    """Yield what works and is worth knowing.

    Nothing of a job that is not accepted: its template may hold anything anywhere, and what is wrong is said.
    """
    if not snapshot.answers.admitted:
        return
    job, kept = snapshot.job, snapshot.kept
    if job.metadata.generation != kept.notes[0]:
        kept.notes = job.metadata.generation, (log_rule_notes(job.spec), *notes_on_spec(job))
    yield from kept.notes[1]
    yield snapshot.answers.claim_note
    yield snapshot.answers.edit_note


def _shortfall_in_words(snapshot: JobSnapshot) -> str:
    """Return what a job without nodes needs, and who has it; looked up anew after a while, as it always changes."""
    kept, pods = snapshot.kept, snapshot.serving_pods.values()
    if snapshot.state.phase not in UNTRAINED or not pods or all(pod.node_name for pod in pods):
        kept.shortfall = (-inf, "")
    # Each pod of another job changes the numbers; who waits needs them twice a minute, not each time.
    elif snapshot.now - kept.shortfall[0] >= SHORTFALL_SECONDS:
        cluster, need, uid = snapshot.cluster, snapshot.layout.num_nodes, snapshot.job.metadata.uid
        told = shortfall_of_nodes(
            need,
            snapshot.demand,
            cluster.capacity,
            cluster.marks.quarantined,
            uid,
            nodes_per_block=nodes_per_block(snapshot.job.spec),
        )
        kept.shortfall = snapshot.now, told
    return kept.shortfall[1]


def _why_unsatisfiable(snapshot: JobSnapshot) -> str:
    """Return why no node will ever do, while the job has none; empty where one would.

    Every node is looked at only when nodes or the spec have changed.
    """
    if not snapshot.answers.admitted or snapshot.state.phase not in UNTRAINED:
        return ""
    if any(pod.node_name for pod in snapshot.serving_pods.values()):
        return ""
    seen, kept = (snapshot.cluster.capacity.node_changes, snapshot.job.metadata.generation), snapshot.kept
    if seen != kept.unfit[0]:
        kept.unfit = seen, why_none_fits(snapshot.job.spec, snapshot.demand, snapshot.nodes.values())
    return kept.unfit[1]
