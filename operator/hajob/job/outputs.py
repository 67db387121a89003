"""The outputs of one job: its status to the API server, orders and assignments to its coordinator, as levels.

Nothing here waits or decides; each call states the current value, and an unchanged value is not sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from hajob.api.conditions import Reason
from hajob.api.log_rules import log_rule_notes
from hajob.api.status import HATrainingJobStatus
from hajob.capacity.shortfall import shortfall_of_nodes
from hajob.capacity.unsatisfiable import why_none_fits
from hajob.clock import Alarm
from hajob.coordinator_link import orders
from hajob.domain.actions import OrderCommand
from hajob.job.admission import Admission
from hajob.job.memory import JobMemory
from hajob.job.observer import JobObserver
from hajob.job.policies.all_policies import PolicyMemos
from hajob.job.policies.start_gate import holds_start, why_closed
from hajob.job.ports import Ports
from hajob.job.snapshot import JobSnapshot
from hajob.job.status.build import RUNNING_REASON, CoordinatorView, Snapshot, build_status, goodput, is_urgent
from hajob.job.status_publisher import SOON_SECONDS, Draft, StatusPublisher
from hajob.job.status_writer import StatusWriter
from hajob.plan import effects
from hajob.plan.recoverability import protection_in_words, recoverability
from hajob.plan.state import UNTRAINED, JobState
from hajob.plan.waits import wait_of_job
from hajob.pods.environment import rank_environment
from hajob.pods.review import notes_on_spec
from hajob.sources.shortage import shortage_of_pods

SHORTFALL_SECONDS: Final = 30.0
"""So long the numbers of free and used nodes stand in the status of a waiting job: each pod of others changes them."""
ASSIGN_SECONDS_PER_POD: Final = 0.0002
"""Between two assignments, for each node of the job: building and reading one takes a tenth of it."""


class JobOutputs:
    """The outputs of one job.

    Args:
        memory: of the job.
        observer: of the job.
        admission: of the job.
        ports: to the world.
        memos: what its policies remember.

    Attributes:
        status: the publisher that decides when it is written.
    """

    def __init__(
        self,
        memory: JobMemory,
        observer: JobObserver,
        admission: Admission,
        ports: Ports,
        memos: PolicyMemos,
    ) -> None:
        self._memory, self._observer, self._admission, self._ports = memory, observer, admission, ports
        self._memos = memos
        job = memory.job
        self._assigning = Alarm(ports.clock)
        self._assigned = -math.inf
        self._recorded = memory.journal.order  # the newest that the server has
        self._told_shortfall = (-math.inf, "")
        self._noted: tuple[int | None, tuple[str, ...]] = (None, ())
        self.status = StatusPublisher(
            ports.clock,
            StatusWriter(ports.kube, ports.clock, job.metadata, job.status.to_json(), ports.leadership),
            job.status,
            self._draft_status,
            ports.pace,
        )

    def follow(self, before: JobState, told: Iterable[effects.Effect]) -> None:
        """Send what follows from a step of the planner: a new order first, then the status when it must."""
        if any(isinstance(effect, effects.SendOrder) for effect in told):
            self._send_order()
        self.status.publish(lazy=not is_urgent(before, self._memory.state, self._memory.job.spec.num_nodes))

    def tell_coordinator(self) -> None:
        """Send the coordinator everything, because it may have received nothing yet."""
        self.assign()
        self._send_order()

    def start_if_held(self) -> None:
        """Send a start that waited for ranks of the previous attempt."""
        if self._memos.start.held_since is not None:
            self._send_order()

    def _send_order(self) -> None:
        wanted = self._memory.journal.order
        if wanted is not None and not self._is_held(wanted) and self._may_be_repeated(wanted):
            incident = self._memory.state.incident
            of_this = incident is not None and incident.incarnation == wanted.incarnation
            self._observer.coordinator.order(orders.build_order(wanted, incident.number if incident and of_this else 0))

    def _is_held(self, order: effects.SendOrder) -> bool:
        """Whether an order that starts ranks waits; to the earlier attempt's coordinator it only ends what that runs.

        An order to take over a training starts nothing.
        """
        state = self._memory.state
        starts = order.command is OrderCommand.START and state.phase in UNTRAINED
        # A coordinator of the attempt before starts nothing: it must hear of the new one at once, to end its ranks.
        if starts and self._observer.coordinator.incarnation >= state.base:
            return holds_start(self._observer.snapshots.take(), self._memos.start)
        self._memos.start.held_since = None
        return False

    def _may_be_repeated(self, order: effects.SendOrder) -> bool:
        """Whether a leader that knows only what is recorded would decide the same again, and no harm done.

        A size that has changed is not changed again: the next leader would take the answers for those to the order
        before, and wait in vain for others.
        """
        return order.command is not OrderCommand.SHRINK or order == self._recorded

    def assign_soon(self) -> None:
        """Send the coordinator the changed pods in a moment, several changes in one message.

        The message names every pod, so during a storm it is sent less often the larger the job is.
        """
        if self._assigning.is_set or not self._observer.coordinator.address:
            return  # a coordinator that is dialled later gets everything
        now = self._ports.clock.monotonic()
        rest = self._assigned + ASSIGN_SECONDS_PER_POD * self._memory.layout.num_nodes - now
        self._assigning.set_alarm(max(rest, SOON_SECONDS), self.assign)

    def close(self) -> None:
        """Send nothing any more."""
        self.status.end()
        self._assigning.cancel()

    def assign(self) -> None:
        """Send the coordinator the job's description and the addresses of its pods."""
        self._assigning.cancel()
        self._assigned = self._ports.clock.monotonic()
        job, layout, journal = self._memory.started, self._memory.layout, self._memory.journal
        pods = self._observer.pods.ranks()
        self._observer.coordinator.assign(
            lambda revision: orders.build_assignment(
                revision=revision,
                world_size=layout.world_size,
                ranks_per_node=layout.chips_per_node,
                attempt=journal.state.attempt,
                environment=rank_environment(job, self._memory.policy),
                pods=pods,
                standing=orders.build_standing_orders(self._memory.policy),
                recovery=job.spec.recovery,
                checkpoint_rules=orders.build_checkpoint_rules(job.spec.framework, layout, journal.state.passed_over),
            ),
            self._memory.time.now(),
        )

    def _then_acknowledge(self) -> Callable[[], None]:
        """Return a call that acknowledges reports once their effects are written; a new leader hears others again."""
        reports = self._observer.coordinator.reports
        return partial(self._written, self._memory.journal.order, reports.conversation, reports.sequence)

    def _written(self, order: effects.SendOrder | None, conversation: int, sequence: int) -> None:
        coordinator = self._observer.coordinator
        # Another process counts its reports anew: its own would be forgotten that nobody has written down yet.
        if conversation == coordinator.reports.conversation:
            coordinator.acknowledge(sequence)
        if order != self._recorded:
            self._recorded = order
            self._send_order()

    def _cut_off(self) -> str:
        return self._ports.cut_off() if self._observer.cut_off else ""

    def _draft_status(self, before: HATrainingJobStatus) -> Draft:
        return build_status(self._snapshot(before)), self._then_acknowledge()

    def _advice(self) -> Iterator[str]:
        """Yield what works and is worth knowing.

        Nothing of a job that is not accepted: its template may hold anything anywhere, and what is wrong is said.
        """
        if not self._admission.admitted:
            return
        job = self._memory.job
        if job.metadata.generation != self._noted[0]:
            self._noted = job.metadata.generation, (log_rule_notes(job.spec), *notes_on_spec(job))
        yield from self._noted[1]
        yield self._admission.claim_note

    def _shortfall_in_words(self, snapshot: JobSnapshot) -> str:
        """Return what a job without nodes needs, and who has it; looked up anew after a while, as it always changes."""
        pods = snapshot.serving.values()
        if self._memory.state.phase not in UNTRAINED or not pods or all(pod.node_name for pod in pods):
            self._told_shortfall = (-math.inf, "")
        # Each pod of another job changes the numbers; who waits needs them twice a minute, not each time.
        elif snapshot.now - self._told_shortfall[0] >= SHORTFALL_SECONDS:
            cluster, need = snapshot.cluster, snapshot.layout.num_nodes
            uid = snapshot.job.metadata.uid
            told = shortfall_of_nodes(need, snapshot.demand, cluster.capacity, cluster.marks.quarantined, uid)
            self._told_shortfall = snapshot.now, told
        return self._told_shortfall[1]

    def _why_unsatisfiable(self, snapshot: JobSnapshot) -> str:
        """Return why no node will ever do, while the job has none; empty where one would."""
        if not self._admission.admitted or self._memory.state.phase not in UNTRAINED:
            return ""
        if any(pod.node_name for pod in snapshot.serving.values()):
            return ""
        return why_none_fits(snapshot.job.spec, snapshot.demand, snapshot.nodes.values())

    def _snapshot(self, before: HATrainingJobStatus) -> Snapshot:
        memory, coordinator, pods = self._memory, self._observer.coordinator, self._observer.pods
        snapshot = self._observer.snapshots.take()
        now, journal, record = memory.time.now(), memory.journal, memory.recorder.record
        trains, view = RUNNING_REASON[memory.state.going_on] is Reason.TRAINING, self._observer.view()
        return Snapshot(
            job=memory.job.model_copy(update={"status": before}),
            state=memory.state,
            fence=self._ports.leadership.fence,
            now_ms=now,
            step=coordinator.reports.step,
            pods=[pod for pod in pods.all() if not pod.is_hook_pod],
            not_created=snapshot.creation.why_missing,
            spares_ready=len(snapshot.ready_spares),
            spares_not_created=self._memos.spares.why_missing,
            coordinator=CoordinatorView(
                connected=coordinator.reports.connected,
                serving=coordinator.reports.serving,
                problem="; ".join(filter(None, (coordinator.reports.problem, self._cut_off()))),
                shares_node=snapshot.coordinator_shares_node,
                problems=coordinator.reports.problems,
            ),
            accepted=self._admission.reason,
            accepted_message=self._admission.message,
            spec_not_read=memory.spec_not_read,
            warnings="; ".join(filter(None, (protection_in_words(memory.policy), *self._advice()))),
            crd_is_older=self._ports.crd_is_older(),
            failed_reason=journal.failed_reason,
            failed_message=journal.failed_message,
            record=record,
            settled=memory.recorder.settled,
            journal=journal.dump(now, record),
            goodput=goodput(journal.account, now),
            held_back=self._ports.cluster.faults.why_held() if not memory.ended else "",
            start_waits=why_closed(snapshot) if self._memos.start.held_since is not None else "",
            to_leave=snapshot.to_leave,
            wait=wait_of_job(
                memory.state, view, memory.policy, now, shortage_of_pods(pods.all(), snapshot.creation.why_missing)
            ),
            step_ms=memory.pace.milliseconds_per_step,
            unsatisfiable=self._why_unsatisfiable(snapshot),
            shortfall=self._shortfall_in_words(snapshot),
            checkpoint_step=view.checkpoint_step if (view.checkpoint_step or 0) > 0 else None,
            batch=memory.policy.batch,
            recoverability=recoverability(memory.state, view, memory.policy, now) if trains else (),
        )
