"""The coordinator's core: it takes events in, and leaves in the job the messages to send.

It contains no socket, task or clock. Every input carries the time; afterwards the shell takes what is to be sent
(`take_orders`, `report`, and the requests of `job.effects`). Invalid input is counted and shown in every report, never
raised.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from hajob.protocol import sidecar_pb2 as pb
from hajob.protocol.steps import known_step
from trainer_sidecar.controller_protocol import PORT
from trainer_sidecar.coordinator.attempt import node_orders, start
from trainer_sidecar.coordinator.conversation.callbacks import parse_callback
from trainer_sidecar.coordinator.conversation.conversation import EventKind, MindIOEvent
from trainer_sidecar.coordinator.conversation.states import State
from trainer_sidecar.coordinator.conversation.table import new_conversation
from trainer_sidecar.coordinator.repair import migration, orders, standing
from trainer_sidecar.coordinator.repair.driver import (
    carry_out,
    feed,
    follow_the_end,
    heartbeat_told,
    lose,
    rank_finished,
    step_finished,
)
from trainer_sidecar.coordinator.state.incidents import Incidents
from trainer_sidecar.coordinator.state.job import Job, Setup
from trainer_sidecar.coordinator.state.leases import LEASE_SECONDS, Contacts
from trainer_sidecar.coordinator.state.presence import OperatorPresence
from trainer_sidecar.coordinator.state.roster import RankPod, RankView
from trainer_sidecar.coordinator.takeover import successor, takeover
from trainer_sidecar.coordinator.watch import checkpoints, first_step, hang, saving
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

    # -- from the operator ----------------------------------------------------------------------------------------

    def operator_came(self, now: float) -> None:
        """Take in that a leader has opened a stream: it hears everything that none has acknowledged."""
        self.job.operator.comes(now)
        self.job.effects.outbox.rewind()

    def assign(self, assignment: pb.Assignment, now: float) -> None:
        """Take in the pods and settings as they are now; refuse an older revision."""
        job = self.job
        problem = assignment_problem(assignment, job.assignment)
        if problem:
            log.error("assignment %d is refused: %s", assignment.revision, problem)
            job.effects.refuse_input()
            return
        if job.take_assignment(assignment):
            job.touch_all()
        job.effects.note()
        self._advance(now)

    def order(self, order: pb.Order, now: float) -> None:
        """Take in the desired step; drop one that is not newer than the order in hand."""
        job = self.job
        if not orders.is_newer(job, order):
            if order != job.order:  # a level is repeated on every new stream
                job.effects.refuse_input()
            return
        incident = job.incidents.current
        if incident is not None and order.incarnation < incident.incarnation and order.action != pb.STOP:
            return  # of an incident that is over
        self._carry_out(order, now)

    def _carry_out(self, order: pb.Order, now: float) -> None:
        job = self.job
        job.look_at(now)
        job.take_order(order)
        job.effects.note(urgent=True)
        log.info(
            "order %s of incarnation %d, revision %d", pb.Action.Name(order.action), order.incarnation, order.revision
        )
        if order.action in (pb.STOP, pb.START):
            self._end_steps()
        if order.action == pb.STOP or start.is_for_a_successor(job):
            start.end(job, order)
        self._advance(now)

    def _end_steps(self) -> None:
        """Gather the last steps, because every rank is about to end; `last_step` reports them a moment later."""
        job, incident = self.job, self.job.incidents.current
        told = not job.runs or (incident is not None and incident.strategy_sent is not None)
        of = None if told else incident or job.attempt
        job.ending.end(job.steps, job.now, job.num_telling, of)

    # -- from the agents ------------------------------------------------------------------------------------------

    def connected(self, uid: str, now: float) -> None:
        """Take in an agent's hello on a new stream, on which all orders are repeated."""
        pod = self.job.roster.pods.get(uid)
        if pod is None:
            return
        pod.connect()
        self._sent.pop(uid, None)
        self.job.effects.touch(uid)
        self.job.contacts.heard(uid, now)
        self._advance(now)

    def disconnected(self, uid: str, now: float, *, refused: bool) -> None:
        """Take in the loss of a stream, or a failed redial; `refused`: by the other machine's kernel."""
        pod = self.job.roster.pods.get(uid)
        if pod is None:
            return
        self.job.effects.note(changed=pod.disconnect())
        if refused:
            self.job.contacts.refused(uid, now)

    def heartbeat(self, uid: str, number: int, now: float) -> pb.LeaseGrant | None:
        """Answer a heartbeat with a lease, unless the pod's incarnation is over."""
        pod = self.job.roster.pods.get(uid)
        if pod is None:
            return None
        self.job.effects.note(changed=self.job.contacts.heard(uid, now))
        over = pod.over and uid not in self.job.roster.answering
        if over or (not pod.listed and not self.job.runs):
            return None
        self.job.contacts.grant(uid, now)
        return pb.LeaseGrant(heartbeat=number, lease_milliseconds=int(LEASE_SECONDS * 1000))

    def agent_report(self, uid: str, report: pb.AgentReport, now: float) -> None:
        """Take in an agent's report: first the facts, then the ranks' state, then the steps."""
        job = self.job
        pod = job.roster.pods.get(uid)
        if pod is None:
            return
        job.look_at(now)
        first, changed = job.roster.report(pod, report)
        job.effects.note(changed=changed)
        if first:
            job.effects.touch(uid)
        if report.HasField("gate"):
            job.change.saw(report.gate.serial, report.gate.counter)
        if report.HasField("sign_age_nanoseconds"):
            job.attempt.goes_on(now - report.sign_age_nanoseconds / NANOSECONDS)
        if report.last_step and pod.incarnation >= job.attempt.incarnation:
            job.attempt.aims_at(report.last_step)
        checkpoints.take(job, pod, report)
        lost = self._take_facts(pod, report)
        lost |= self._take_views(pod, report)
        news = first or bool(lost) or bool(report.facts) or job.effects.changed
        follow_the_end(job)
        if lost:
            lose(job, lost)
        for step in report.steps:
            if job.ending.is_gathered or self._is_of_this_attempt(pod, step.rank):
                at, relieved = now - step.age_nanoseconds / NANOSECONDS, job.roster.is_relieved(uid, step.rank)
                take = heartbeat_told if step.heartbeat else step_finished
                take(job, step.rank, step.step, at, relieved=relieved)
        if news:
            self._advance(now)

    def store_content(self, uid: str, said: pb.StoreContent, now: float) -> None:
        """Take in what an agent's processes had written into the lost store."""
        self.job.look_at(now)
        self.job.keeping.told(uid, said, now)
        self._advance(now)

    def store_filled(self, problem: str, now: float) -> None:
        """Take in that the new store is filled; `problem`: why it is not."""
        self.job.look_at(now)
        self.job.keeping.filled(problem)
        self.job.touch_all()
        self._advance(now)

    def _take_facts(self, pod: RankPod, report: pb.AgentReport) -> set[int]:
        """Forward facts about desired processes; return the ranks lost by them."""
        job, lost = self.job, set()
        for fact in report.facts:
            if fact.kind == pb.STACK:
                busy = job.setup.limits.savers.search(fact.message) is not None
                job.steps.standstill.take_stack(fact.ranks, fact.message, busy=busy)
                continue
            if fact.kind == pb.PROCESS_EXITED:
                process = (fact.incarnation, fact.start)
                desired = {r for r in fact.ranks if job.roster.is_current(pod, r, process) and self._is_desired(r)}
                tells_why = fact.exit_code == 0 and not fact.unexplained  # explains exits that were reported first
                if not desired and job.roster.targets and not tells_why:
                    continue  # ended by order, or its process has a successor; before a takeover this is unknown
                if desired and fact.exit_code != 0:
                    lost |= desired
                    first_step.doubt(job)
            fact.node_rank = pod.node_rank
            job.effects.tell(fact, job.now - fact.age_nanoseconds / NANOSECONDS)
        return lost

    def _is_of_this_attempt(self, pod: RankPod, rank: int) -> bool:
        """Whether the pod is of this attempt: pods that a restart ends repeat older steps."""
        view = pod.views.get(rank)
        return view is None or view.incarnation >= self.job.attempt.incarnation

    def _is_desired(self, rank: int) -> bool:
        return self.job.roster.targets[rank].run

    def _take_views(self, pod: RankPod, report: pb.AgentReport) -> set[int]:
        job, lost = self.job, set()
        for state in report.ranks:
            view = RankView(state.incarnation, state.start, state.pid, state.phase, known_step(state), state.error_line)
            if not pod.take_view(state.rank, view):
                continue
            job.effects.note()
            job.attempt.goes_on(job.now)
            takeover.take_late(job, pod, state.rank, view)
            if not job.roster.is_current(pod, state.rank, view.process):
                continue
            if view.phase == pb.LINKED:
                job.roster.register(state.rank)
            elif view.phase == pb.FINISHED:
                rank_finished(job, state.rank)
            elif view.phase == pb.DEAD and self._is_desired(state.rank):
                lost.add(state.rank)
        return lost

    # -- from the controller host ---------------------------------------------------------------------------------

    def controller_hello(self, state: Mapping[str, Any], entries: list[Mapping[str, Any]], now: float) -> None:
        """Take in the host's hello; `entries` is its log since MindIO last was at rest.

        Entries from now until the takeover of a running attempt, which waits for the agents, belong to that log.
        """
        self.job.controller.connect(entries)
        self.controller_state(state, now)

    def controller_state(self, state: Mapping[str, Any], now: float) -> None:
        """Take in the state of controller and store."""
        job, controller = self.job, self.job.controller
        job.look_at(now)
        controller.take(state)
        job.effects.note(urgent=True)
        if controller.kind == PORT:
            job.effects.tell(job.new_fact(pb.PORT_TAKEN, "controller", controller.problem), now)
        successor.handle_controller_state(job)
        job.touch_all()
        self._advance(now)

    def controller_unreachable(self, now: float) -> None:
        """Take in the loss of the host: its container is gone, and the controller with it."""
        if self.job.controller.disconnect():
            self.job.look_at(now)
            successor.handle_lost_container(self.job, "the controller container has ended")
            self.job.effects.note(urgent=True)
            self._advance(now)

    def controller_refused(self, text: str) -> None:
        """Take in that the host's socket may not be opened; empty `text`: it may again."""
        if text:
            log.error("the controller host cannot be reached: %s", text)
        self.job.controller.refuse(text)
        self.job.effects.note(urgent=True)

    def callback(self, name: str, arguments: list[Any], at: float, now: float) -> None:
        """Take in one of MindIO's four callbacks."""
        event = parse_callback(name, arguments)
        if event is None:
            log.warning("callback not understood: %s %s", name, arguments)
            self.job.effects.refuse_input()
            return
        self.job.look_at(now)
        if self.job.conversation.state is State.OFFLINE:
            self.job.controller.write_down({"event": name, "arguments": arguments})
        elif self.job.change.is_under_way:
            if not self.job.change.hear(event, at):
                log.warning("the lost MindIO controller is not heard any more: %s %s", name, arguments)
        else:
            feed(self.job, event, at)
        self._advance(now)

    def answered(self, call: str, code: int, exception: str, at: float, now: float) -> None:
        """Take in that the controller accepted a call (code 0) or refused it."""
        self.job.look_at(now)
        kind = EventKind.ACCEPTED if code == 0 else EventKind.REFUSED
        if kind is EventKind.REFUSED:
            log.warning("MindIO refused %s: %s %s", call, code, exception)
        if self.job.conversation.state is State.OFFLINE:
            self.job.controller.write_down({"answer": None, "call": call, "code": code})
        else:
            feed(self.job, MindIOEvent(kind, code=code, text=exception, call=call), at)

    # -- time -----------------------------------------------------------------------------------------------------

    def tick(self, now: float, lag: float) -> None:
        """Check the time limits, about every tenth of a second; `lag`: seconds beyond that."""
        job = self.job
        job.look_at(now)
        job.contacts.forgive(lag)
        before = job.contacts.unreachable
        for uid, seconds in job.contacts.newly_silent(now, self._is_missed).items():
            self._silent(uid, seconds)
        job.effects.note(changed=job.contacts.unreachable != before)
        job.effects.release_due(now)  # no answer came in time: report the held-back facts unchanged
        self._forget_pods()
        last = job.ending.due(now)
        if last is not None:
            of, step, at = last
            job.mark_in(of, pb.STEP_BEFORE, at, pb.Milestone(step=step))
        hanging = hang.fact(job)
        if hanging is not None:
            job.effects.tell(hanging, now)
        order = standing.order(job) if not job.contacts.doubts else None
        if order is not None:
            self._carry_out(order, now)
        self._advance(now)

    def _is_missed(self, uid: str) -> bool:
        """Whether the silence of this pod's agent is a loss: its ranks may have ended in order, and it with them."""
        job = self.job
        pod = job.roster.pods.get(uid)
        if pod is None or not pod.counts or job.attempt.done:
            return False
        return not job.attempt.finished.issuperset(job.roster.ranks_of(pod.node_rank))

    def _silent(self, uid: str, seconds: float) -> None:
        if not self._is_missed(uid):
            return
        job, pod = self.job, self.job.roster.pods[uid]
        fact = job.new_fact(pb.AGENT_SILENT, uid, f"nothing heard from the agent of {pod.name} for {seconds:.1f} s")
        fact.node_rank = pod.node_rank
        fact.ranks.extend(job.roster.ranks_of(pod.node_rank))
        fact.incarnation = pod.incarnation
        job.steps.lose_sight(fact.ranks)
        first_step.follow(job, fact.ranks)
        job.effects.tell(fact, job.now)

    def _forget_pods(self) -> None:
        job = self.job
        for pod in list(job.roster.pods.values()):
            # After this long the pod's agent, if any is left, has ended the ranks that lived when the node fell silent.
            patience = job.setup.limits.forget_seconds if pod.any_alive() else 0.0
            harmless = not pod.listed and job.contacts.expired(pod.uid, job.now, patience)
            if harmless and not pod.connected and all(t.pod_uid != pod.uid for t in job.roster.targets.values()):
                job.roster.forget(pod.uid)
                job.contacts.forget(pod.uid)
                self._sent.pop(pod.uid, None)

    def _advance(self, now: float) -> None:
        job = self.job
        job.look_at(now)
        checkpoints.follow(job)
        start.begin_if_due(job)
        if not takeover.take_up(job):
            start.advance(job)
        if job.runs:
            successor.advance(job)
        if job.runs and not (job.change.is_under_way and job.change.adopted):
            orders.apply(job)
            orders.track(job)
            if migration.is_given_up(job):
                successor.begin_instead_of_a_move(job)
            if not job.contacts.doubts:
                carry_out(job, job.conversation.pursue(orders.desired(job), now), now)
        saving.advance(job)
        orders.tell_retired(job)
        migration.follow(job)

    @property
    def has_news(self) -> bool:
        """Whether facts or milestones are still to be sent to the operator."""
        return self.job.ending.is_owed or not self.job.effects.outbox.is_empty

    # -- what is to be sent ---------------------------------------------------------------------------------------

    def take_orders(self, limit: int = ALL) -> dict[str, pb.NodeOrder]:
        """Return orders for at most `limit` touched pods; a pod without a stream gets its order at its hello."""
        job, due = self.job, {}
        for uid in job.effects.take_dirty(limit):
            pod = job.roster.pods.get(uid)
            order = node_orders.node_order(job, pod) if pod is not None and pod.connected else None
            if order is not None and order != self._sent.get(uid):
                self._sent[uid] = due[uid] = order
        return due

    def report(self, now: float) -> pb.Report:
        """Return the next report to the operator."""
        return self.job.effects.report(node_orders.coordinator_state(self.job), now)


def assignment_problem(assignment: pb.Assignment, before: pb.Assignment | None) -> str:
    """Return why an assignment cannot be followed; empty when it can."""
    if before is not None and assignment.revision < before.revision:
        return f"revision {before.revision} was here already"
    if not assignment.world_size or not assignment.ranks_per_node:
        return "it has no ranks"
    nodes = -(-assignment.world_size // assignment.ranks_per_node)
    beyond = [pod.pod_name for pod in assignment.pods if pod.node_rank >= nodes or not pod.pod_uid]
    return f"pods {beyond} have no UID or a node rank beyond {nodes - 1}" if beyond else ""
