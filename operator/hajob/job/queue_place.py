"""The place of one job in its queue: whether Kueue lets it have pods, where they go then, and why it waits.

Like the snapshot that shows it, it is read-only, and used up within the call that took the snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from hajob.api import constants as names
from hajob.api.job import HATrainingJob
from hajob.capacity.queues import Queues, wait_in_words
from hajob.plan.state import JobPhase, JobState
from hajob.pods.workload import COORDINATOR, RANKS, SPARES, place_job_in_queue, place_spares_in_queue
from hajob.sources.workload import NO_PLACING, QueuePriority, QueueTurn, WorkloadView


@dataclass(frozen=True)
class QueuePlace:
    """What the queue of one job says of it.

    Attributes:
        job: the CR.
        state: the planner's.
        queues: what is known of Kueue.
        workload: of the ranks and the coordinator; None where there is none.
        spare_workload: of the spares; None where there is none.
    """

    job: HATrainingJob
    state: JobState
    queues: Queues
    workload: WorkloadView | None
    spare_workload: WorkloadView | None

    @property
    def queue_name(self) -> str:
        """Return the name of the queue that the job asks Kueue for; empty: none."""
        return self.job.metadata.labels.get(names.LABEL_QUEUE, "")

    @cached_property
    def turn(self) -> QueueTurn:
        """Return whether the queue lets the job have pods.

        A job whose label is taken away keeps its quota for as long as it runs, and then goes without.
        """
        if not self.queue_name and (self.workload is None or self.state.phase in {JobPhase.NEW, JobPhase.SUSPENDED}):
            return QueueTurn.NO_QUEUE
        if not self.queues.is_namespace_read(self.job.metadata.namespace):
            return QueueTurn.UNKNOWN
        return self.queues.turn_of_workload(self.workload)

    @property
    def may_make_pods(self) -> bool:
        """Whether missing pods may be made: for a start only once the queue has admitted the job."""
        return self.turn.lets_start or not self.state.is_untrained

    @property
    def has_spare_quota(self) -> bool:
        """Whether the queue lets the job have all of its spares."""
        if self.turn is QueueTurn.NO_QUEUE:
            return True
        workload, wanted = self.spare_workload, self.job.spec.scheduling.num_spare_nodes
        granted = workload.grant_of_pod_set(SPARES) if workload is not None else None
        admitted = self.queues.turn_of_workload(workload) is QueueTurn.ADMITTED
        return admitted and granted is not None and granted.count == wanted

    @property
    def priority(self) -> QueuePriority | None:
        """Return the priority of the job in its queue; None where its class is not known."""
        name = self.job.metadata.labels.get(names.LABEL_QUEUE_PRIORITY, "")
        return self.queues.classes.get(name) if name else QueuePriority("", 0)

    @property
    def why_waiting(self) -> str:
        """Return why the queue lets the job have no pods, in words, its name first; empty: it does."""
        if self.turn is QueueTurn.NO_QUEUE:
            return ""
        if self.priority is None:
            label = names.LABEL_QUEUE_PRIORITY
            missing = self.job.metadata.labels[label]
            return f"queue {self.queue_name}: there is no WorkloadPriorityClass {missing} (label {label})"
        return wait_in_words(self.queues, self.job.metadata.namespace, self.queue_name, self.workload)

    @property
    def why_spares_wait(self) -> str:
        """Return why the queue lets the job have no spares, in words; empty: it does, or is not asked."""
        if self.has_spare_quota or not self.job.spec.scheduling.num_spare_nodes:
            return ""
        return wait_in_words(self.queues, self.job.metadata.namespace, self.queue_name, self.spare_workload)

    @cached_property
    def placed_job(self) -> HATrainingJob:
        """Return the job with what its queue says of the nodes of its ranks and its coordinator."""
        placings = (self.queues.placing_of_pod_set(self.workload, pod_set) for pod_set in (RANKS, COORDINATOR))
        ranks, coordinator = placings
        return self.job if ranks == coordinator == NO_PLACING else place_job_in_queue(self.job, ranks, coordinator)

    @property
    def job_of_spares(self) -> HATrainingJob:
        """Return the job with what its queue says of the nodes of its spares."""
        placing = self.queues.placing_of_pod_set(self.spare_workload, SPARES)
        return self.job if placing == NO_PLACING else place_spares_in_queue(self.job, placing)
