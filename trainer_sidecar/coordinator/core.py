"""The coordinator's core: it takes events in, and leaves in the job the messages to send.

It contains no socket, task or clock. Every input carries the time; afterwards the shell takes what is to be sent
(`take_orders`, `next_report`, and the requests of `job.effects`). Invalid input is counted and shown in every report,
never raised.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from hajob.protocol import sidecar_pb2 as pb
from hajob.protocol.steps import known_step
from trainer_sidecar.controller_protocol import PORT
from trainer_sidecar.coordinator.attempt import node_orders, start
from trainer_sidecar.coordinator.attempt.rank_tables import table_to_start_with
from trainer_sidecar.coordinator.conversation.callbacks import parse_callback
from trainer_sidecar.coordinator.conversation.conversation import EventKind, MindIOEvent
from trainer_sidecar.coordinator.conversation.states import State
from trainer_sidecar.coordinator.conversation.table import new_conversation
from trainer_sidecar.coordinator.repair import migration, orders, standing
from trainer_sidecar.coordinator.repair.driver import (
    carry_out_commands,
    count_heartbeat_step,
    count_printed_step,
    feed_conversation,
    follow_training_end,
    note_finished_rank,
    report_lost_ranks,
)
from trainer_sidecar.coordinator.state.incidents import Incidents
from trainer_sidecar.coordinator.state.job import Job, Setup
from trainer_sidecar.coordinator.state.leases import LEASE_SECONDS, Contacts
from trainer_sidecar.coordinator.state.presence import OperatorPresence
from trainer_sidecar.coordinator.state.roster import RankPod, RankView
from trainer_sidecar.coordinator.takeover import successor, takeover
from trainer_sidecar.coordinator.watch import checkpoints, first_step, hang, lost_results, pause_work
from trainer_sidecar.units import NANOSECONDS

log = logging.getLogger(__name__)

ALL = 1 << 30  # no job has as many pods


class CoordinatorCore:
    """Coordinator of one job, without its connections."""

    def __init__(self, setup: Setup, now: float) -> None:
        conversation = new_conversation(setup.limits.answer_seconds)
        incidents, presence = Incidents(setup.incarnation), OperatorPresence(now)
        self.job = Job(setup, conversation, Contacts(now), now, incidents, presence)
        self._sent: dict[str, pb.NodeOrder] = {}
        self._rank_table = ""  # version of the table that ranks are started with

    # -- from the operator ----------------------------------------------------------------------------------------

    def note_operator(self, fence: int, now: float) -> None:
        """Take in that a leader has opened a stream: it hears everything that none has acknowledged."""
        self.job.operator.note_operator(fence, now)
        self.job.effects.outbox.resend_unacknowledged()

    def apply_assignment(self, assignment: pb.Assignment, now: float) -> None:
        """Take in the pods and settings as they are now; refuse an older revision."""
        job = self.job
        problem = assignment_problem(assignment, job.assignment)
        if problem:
            log.error("assignment %d is refused: %s", assignment.revision, problem)
            job.effects.refuse_input()
            return
        if job.apply_assignment(assignment):
            job.touch_all_pods()
        job.effects.note_change()
        self._advance_job(now)

    def apply_order(self, order: pb.Order, now: float) -> None:
        """Take in the desired step; drop one that is not newer than the order in hand."""
        job = self.job
        if not orders.is_newer_order(job, order):
            if order != job.order:  # a level is repeated on every new stream
                job.effects.refuse_input()
            return
        incident = job.incidents.current
        if incident is not None and order.incarnation < incident.incarnation and order.action != pb.STOP:
            return  # of an incident that is over
        self._carry_out_order(order, now)

    def _carry_out_order(self, order: pb.Order, now: float) -> None:
        job = self.job
        job.set_time(now)
        job.replace_order(order)
        job.effects.note_change(urgent=True)
        log.info(
            "order %s of incarnation %d, revision %d", pb.Action.Name(order.action), order.incarnation, order.revision
        )
        if order.action in (pb.STOP, pb.START):
            self._end_steps()
        if order.action == pb.STOP or start.is_for_a_successor(job):
            start.end_attempt(job, order)
        self._advance_job(now)

    def _end_steps(self) -> None:
        """Gather the last steps, because every rank is about to end; `last_step` reports them a moment later."""
        job, incident = self.job, self.job.incidents.current
        told = not job.is_running or (incident is not None and incident.strategy_sent is not None)
        of = None if told else incident or job.attempt
        job.ending.gather_before_end(job.steps, job.now, job.num_telling, of)

    # -- from the agents ------------------------------------------------------------------------------------------

    def note_connected_agent(self, uid: str, now: float) -> None:
        """Take in an agent's hello on a new stream, on which all orders are repeated."""
        pod = self.job.roster.pods.get(uid)
        if pod is None:
            return
        pod.note_connected()
        self._sent.pop(uid, None)
        self.job.effects.touch_pods(uid)
        self.job.contacts.note_sign_of_life(uid, now)
        self._advance_job(now)

    def note_disconnected_agent(self, uid: str, now: float, *, refused: bool) -> None:
        """Take in the loss of a stream, or a failed redial; `refused`: by the other machine's kernel."""
        pod = self.job.roster.pods.get(uid)
        if pod is None:
            return
        self.job.effects.note_change(changed=pod.note_disconnected())
        if refused:
            self.job.contacts.note_refused_connection(uid, now)

    def answer_heartbeat(self, uid: str, number: int, now: float) -> pb.LeaseGrant | None:
        """Answer a heartbeat with a lease, unless the pod's incarnation is over."""
        pod = self.job.roster.pods.get(uid)
        if pod is None:
            return None
        self.job.effects.note_change(changed=self.job.contacts.note_sign_of_life(uid, now))
        over = pod.over and uid not in self.job.roster.answering
        if over or (not pod.listed and not self.job.is_running):
            return None
        self.job.contacts.note_grant(uid, now)
        return pb.LeaseGrant(heartbeat=number, lease_milliseconds=int(LEASE_SECONDS * 1000))

    def apply_agent_report(self, uid: str, report: pb.AgentReport, now: float) -> None:
        """Take in an agent's report: first the facts, then the ranks' state, then the steps."""
        job = self.job
        pod = job.roster.pods.get(uid)
        if pod is None:
            return
        job.set_time(now)
        first, changed = job.roster.apply_report(pod, report)
        job.effects.note_change(changed=changed)
        if first:
            job.effects.touch_pods(uid)
        if report.HasField("gate"):
            job.change.note_gate_counters(report.gate.serial, report.gate.counter)
        if report.HasField("sign_age_nanoseconds"):
            job.attempt.note_progress(now - report.sign_age_nanoseconds / NANOSECONDS)
        if report.last_step and pod.incarnation >= job.attempt.incarnation:
            job.attempt.set_last_step(report.last_step)
        checkpoints.apply_findings(job, pod, report)
        lost = self._apply_facts(pod, report)
        lost |= self._apply_rank_states(pod, report)
        news = first or bool(lost) or bool(report.facts) or job.effects.changed
        follow_training_end(job)
        if lost:
            report_lost_ranks(job, lost)
        for step in report.steps:
            if job.ending.is_attempt_ending or self._is_of_this_attempt(pod, step.rank):
                at, relieved = now - step.age_nanoseconds / NANOSECONDS, job.roster.is_relieved(uid, step.rank)
                take = count_heartbeat_step if step.heartbeat else count_printed_step
                take(job, step.rank, step.step, at, relieved=relieved)
        if news:
            self._advance_job(now)

    def apply_store_content(self, uid: str, said: pb.StoreContent, now: float) -> None:
        """Take in what an agent's processes had written into the lost store."""
        self.job.set_time(now)
        self.job.keeping.add_content(uid, said, now)
        self._advance_job(now)

    def note_filled_store(self, problem: str, now: float) -> None:
        """Take in that the new store is filled; `problem`: why it is not."""
        self.job.set_time(now)
        self.job.keeping.note_filled(problem)
        self.job.touch_all_pods()
        self._advance_job(now)

    def _apply_facts(self, pod: RankPod, report: pb.AgentReport) -> set[int]:
        """Forward facts about desired processes; return the ranks lost by them."""
        job, lost = self.job, set()
        for fact in report.facts:
            if fact.kind == pb.STACK:
                busy = job.setup.limits.savers.search(fact.message) is not None
                job.steps.standstill.add_stacks(fact.ranks, fact.message, busy=busy)
                continue
            if fact.kind == pb.PROCESS_EXITED:
                process = (fact.incarnation, fact.start)
                desired = {
                    r for r in fact.ranks if job.roster.is_desired_process(pod, r, process) and self._is_desired(r)
                }
                tells_why = fact.exit_code == 0 and not fact.unexplained  # explains exits that were reported first
                if not desired and job.roster.targets and not tells_why:
                    continue  # ended by order, or its process has a successor; before a takeover this is unknown
                if desired and fact.exit_code != 0:
                    lost |= desired
                    first_step.hold_doubtful_facts(job)
            fact.node_rank = pod.node_rank
            job.effects.queue_fact(fact, job.now - fact.age_nanoseconds / NANOSECONDS)
        return lost

    def _is_of_this_attempt(self, pod: RankPod, rank: int) -> bool:
        """Whether the pod is of this attempt: pods that a restart ends repeat older steps."""
        view = pod.views.get(rank)
        return view is None or view.incarnation >= self.job.attempt.incarnation

    def _is_desired(self, rank: int) -> bool:
        return self.job.roster.targets[rank].run

    def _apply_rank_states(self, pod: RankPod, report: pb.AgentReport) -> set[int]:
        job, lost = self.job, set()
        for state in report.ranks:
            view = RankView(state.incarnation, state.start, state.pid, state.phase, known_step(state), state.error_line)
            if not pod.apply_view(state.rank, view):
                continue
            job.effects.note_change()
            job.attempt.note_progress(job.now)
            takeover.take_late_ranks(job, pod, state.rank, view)
            if not job.roster.is_desired_process(pod, state.rank, view.process_name):
                continue
            if view.phase == pb.LINKED:
                job.roster.register_rank(state.rank)
            elif view.phase == pb.FINISHED:
                note_finished_rank(job, state.rank)
            elif view.phase == pb.DEAD and self._is_desired(state.rank):
                lost.add(state.rank)
        return lost

    # -- from the controller host ---------------------------------------------------------------------------------

    def apply_controller_hello(self, state: Mapping[str, Any], entries: list[Mapping[str, Any]], now: float) -> None:
        """Take in the host's hello; `entries` is its log since MindIO last was at rest.

        Entries from now until the takeover of a running attempt, which waits for the agents, belong to that log.
        """
        self.job.controller.apply_hello(entries)
        self.apply_controller_state(state, now)

    def apply_controller_state(self, state: Mapping[str, Any], now: float) -> None:
        """Take in the state of controller and store."""
        job, controller = self.job, self.job.controller
        job.set_time(now)
        controller.apply_state(state)
        job.effects.note_change(urgent=True)
        if controller.kind == PORT:
            job.effects.queue_fact(job.new_fact(pb.PORT_TAKEN, "controller", controller.problem), now)
        successor.handle_controller_state(job)
        job.touch_all_pods()
        self._advance_job(now)

    def note_lost_controller_host(self, now: float) -> None:
        """Take in the loss of the host: its container is gone, and the controller with it."""
        if self.job.controller.note_disconnected():
            self.job.set_time(now)
            successor.handle_lost_container(self.job, "the controller container has ended")
            self.job.effects.note_change(urgent=True)
            self._advance_job(now)

    def note_refused_controller_host(self, text: str) -> None:
        """Take in that the host's socket may not be opened; empty `text`: it may again."""
        if text:
            log.error("the controller host cannot be reached: %s", text)
        self.job.controller.note_refusal(text)
        self.job.effects.note_change(urgent=True)

    def apply_callback(self, name: str, arguments: list[Any], at: float, now: float) -> None:
        """Take in one of MindIO's four callbacks."""
        event = parse_callback(name, arguments)
        if event is None:
            log.warning("callback not understood: %s %s", name, arguments)
            self.job.effects.refuse_input()
            return
        self.job.set_time(now)
        if self.job.conversation.state is State.OFFLINE:
            self.job.controller.append_to_log({"event": name, "arguments": arguments})
        elif self.job.change.is_under_way:
            if not self.job.change.keep_event(event, at):
                log.warning("the lost MindIO controller is not heard any more: %s %s", name, arguments)
        else:
            feed_conversation(self.job, event, at)
        self._advance_job(now)

    def note_answered_call(self, call: str, code: int, exception: str, at: float, now: float) -> None:
        """Take in that the controller accepted a call (code 0) or refused it."""
        self.job.set_time(now)
        kind = EventKind.ACCEPTED if code == 0 else EventKind.REFUSED
        if kind is EventKind.REFUSED:
            log.warning("MindIO refused %s: %s %s", call, code, exception)
        if self.job.conversation.state is State.OFFLINE:
            self.job.controller.append_to_log({"answer": None, "call": call, "code": code})
        else:
            feed_conversation(self.job, MindIOEvent(kind, code=code, text=exception, call=call), at)

    def apply_pause_result(self, result: dict[str, Any], now: float) -> None:
        """Take in what TaskD has said of the work of a pause."""
        self.job.set_time(now)
        pause_work.apply_pause_result(self.job, result)

    # -- time -----------------------------------------------------------------------------------------------------

    def check_time_limits(self, now: float, lag: float) -> None:
        """Check the time limits, about every tenth of a second; `lag`: seconds beyond that."""
        job = self.job
        job.set_time(now)
        job.contacts.forgive_lag(lag)
        before = job.contacts.unreachable
        for uid, seconds in job.contacts.take_newly_silent(now, self._is_silence_a_loss).items():
            self._report_silent_agent(uid, seconds)
        job.effects.note_change(changed=job.contacts.unreachable != before)
        job.effects.release_overdue(now)  # no answer came in time: report the held-back facts unchanged
        self._forget_pods()
        last = job.ending.take_due_step(now)
        if last is not None:
            of, step, at = last
            job.mark_milestone_of(of, pb.STEP_BEFORE, at, pb.Milestone(step=step))
        hanging = hang.due_hang_fact(job)
        if hanging is not None:
            job.effects.queue_fact(hanging, now)
        shown = lost_results.result_by_steps(job)
        if shown is not None:
            log.warning("%s", shown.text)
            feed_conversation(job, shown, now)
        order = standing.standing_order(job) if not job.contacts.doubts else None
        if order is not None:
            self._carry_out_order(order, now)
        self._advance_job(now)

    def _is_silence_a_loss(self, uid: str) -> bool:
        """Whether the silence of this pod's agent is a loss: its ranks may have ended in order, and it with them."""
        job = self.job
        pod = job.roster.pods.get(uid)
        if pod is None or not pod.is_current or job.attempt.done:
            return False
        return not job.attempt.finished.issuperset(job.roster.ranks_of_node(pod.node_rank))

    def _report_silent_agent(self, uid: str, seconds: float) -> None:
        if not self._is_silence_a_loss(uid):
            return
        job, pod = self.job, self.job.roster.pods[uid]
        fact = job.new_fact(pb.AGENT_SILENT, uid, f"nothing heard from the agent of {pod.name} for {seconds:.1f} s")
        fact.node_rank = pod.node_rank
        fact.ranks.extend(job.roster.ranks_of_node(pod.node_rank))
        fact.incarnation = pod.incarnation
        job.steps.lose_sight_of_ranks(fact.ranks)
        first_step.follow_first_step(job, fact.ranks)
        job.effects.queue_fact(fact, job.now)

    def _forget_pods(self) -> None:
        job = self.job
        for pod in list(job.roster.pods.values()):
            # After this long the pod's agent, if any is left, has ended the ranks that lived when the node fell silent.
            patience = job.setup.limits.forget_seconds if pod.has_live_process() else 0.0
            harmless = not pod.listed and job.contacts.is_lease_expired(pod.uid, job.now, patience)
            if harmless and not pod.connected and all(t.pod_uid != pod.uid for t in job.roster.targets.values()):
                job.roster.forget_pod(pod.uid)
                job.contacts.forget_agent(pod.uid)
                self._sent.pop(pod.uid, None)

    def _advance_job(self, now: float) -> None:
        job = self.job
        job.set_time(now)
        checkpoints.follow_checkpoints(job)
        start.begin_attempt_if_due(job)
        if not takeover.take_up_running_ranks(job):
            start.advance_start(job)
        if job.is_running:
            successor.advance_takeover(job)
        if job.is_running and not (job.change.is_under_way and job.change.adopted):
            orders.apply_order(job)
            orders.track_replacements(job)
            if migration.is_move_given_up(job):
                successor.begin_instead_of_a_move(job)
            if not job.contacts.doubts:
                carry_out_commands(job, job.conversation.pursue_decision(orders.desired_decision(job), now), now)
        pause_work.follow_pause_work(job)
        checkpoints.advance_reported_save(job)
        orders.tell_retired_pods(job)
        migration.follow_move(job)

    @property
    def has_news(self) -> bool:
        """Whether facts or milestones are still to be sent to the operator."""
        return self.job.ending.is_step_untold or not self.job.effects.outbox.is_empty

    # -- what is to be sent ---------------------------------------------------------------------------------------

    def take_orders(self, limit: int = ALL) -> dict[str, pb.NodeOrder]:
        """Return orders for at most `limit` touched pods; a pod without a stream gets its order at its hello."""
        job, due = self.job, {}
        self._follow_rank_table()
        for uid in job.effects.take_touched_pods(limit):
            pod = job.roster.pods.get(uid)
            order = node_orders.node_order(job, pod) if pod is not None and pod.connected else None
            if order is not None:
                order.rank_table = self._rank_table
            if order is not None and order != self._sent.get(uid):
                self._sent[uid] = due[uid] = order
        return due

    def _follow_rank_table(self) -> None:
        """Look whether ranks start with another table, before orders are made; all pods are told of another one."""
        if not self.job.effects.dirty or self.job.assignment is None or not self.job.assignment.HasField("rank_table"):
            return
        # A rank that waits may be in another pod than the one that has come: an order of its own would not follow.
        before, self._rank_table = self._rank_table, table_to_start_with(self.job)
        if before != self._rank_table:
            self.job.touch_all_pods()

    def next_report(self, now: float) -> pb.Report:
        """Return the next report to the operator."""
        return self.job.effects.next_report(node_orders.coordinator_state(self.job), now)


def assignment_problem(assignment: pb.Assignment, before: pb.Assignment | None) -> str:
    """Return why an assignment cannot be followed; empty when it can."""
    if before is not None and assignment.revision < before.revision:
        return f"revision {before.revision} was here already"
    if not assignment.world_size or not assignment.ranks_per_node:
        return "it has no ranks"
    nodes = -(-assignment.world_size // assignment.ranks_per_node)
    beyond = [pod.pod_name for pod in assignment.pods if pod.node_rank >= nodes or not pod.pod_uid]
    return f"pods {beyond} have no UID or a node rank beyond {nodes - 1}" if beyond else ""
