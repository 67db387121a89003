"""One start of the whole job: its controller process, its ranks, its end; and taking over a running one.

A start waits for three things that come up side by side: the controller with the rendezvous store, the launcher of
every node, the death of whatever ran before. A coordinator that finds ranks of this attempt, running or ended, has been
restarted itself: it takes them over as they are, and with them the controller if that is still the same process; a new
controller would be blind to running ranks and look healthy.
"""

from __future__ import annotations

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.coordinator import checkpoints, migration
from trainer_sidecar.coordinator.conversation import Event, Kind, State
from trainer_sidecar.coordinator.driver import feed, lose
from trainer_sidecar.coordinator.job import Attempt, Incident, Job, Phase, Request
from trainer_sidecar.coordinator.resume import CHOSEN, Resumed, resume
from trainer_sidecar.coordinator.roster import Pod, Target, View

AT_REST = frozenset({State.SERVING, State.SHRUNK, State.FINISHING, State.CLOSED})
PAST_NAMING = frozenset(State) - {State.STOPPING, State.STOPPED, State.NAMING, State.RETRY_REFUSED}
UNNAMED = frozenset({State.SERVING, State.SHRUNK, State.SWITCHING, State.PAUSING, State.PAUSED, State.CONTINUING})
"""States in which MindIO knows no successor yet, so that one that stands at its gate must wait for its naming."""

SUCCESSORS = frozenset({pb.IN_PLACE, pb.REPLACE, pb.EXPAND, pb.MIGRATE})
"""Orders that start one."""


def is_due(job: Job) -> bool:
    """Whether a START order asks for an attempt that has not begun. Order and assignment may come in either order."""
    order, assignment, attempt = job.order, job.assignment, job.attempt
    if order is None or assignment is None or order.action != pb.START or is_for_a_successor(job):
        return False
    return order.incarnation > attempt.incarnation and assignment.attempt > attempt.number


def is_for_a_successor(job: Job) -> bool:
    """Whether a START belongs to a coordinator pod that is made for it: here it only ends what runs.

    Starting it here would let the new ranks register with a controller that goes with this pod in a moment.
    """
    order = job.order
    return order is not None and order.action == pb.START and 0 < job.pod_incarnation < order.incarnation


def begin(job: Job, number: int, incarnation: int) -> None:
    """End what runs, open what is needed."""
    had_run = job.attempt.phase is Phase.RUNNING
    job.attempt = Attempt(number, incarnation, Phase.OPENING, job.now)
    job.incarnation = max(job.incarnation, incarnation)
    job.concluded = max(job.concluded, incarnation)
    job.incident = None
    job.dropped = set()
    job.roster.registered.clear()
    job.steps.begin_again()
    if had_run:
        end_ranks(job)
        job.requests.append(Request("end", {}))
        job.controller.requested = -1


def end(job: Job, order: pb.Order) -> None:
    """A STOP order: every rank is ended, nothing is saved."""
    job.incarnation = max(job.incarnation, order.incarnation)
    job.concluded = max(job.concluded, order.incarnation)
    job.incident = None
    job.attempt.phase = Phase.IDLE
    end_ranks(job)
    job.conversation.state = State.CLOSED
    job.requests.append(Request("end", {}))
    job.controller.requested = -1


def end_ranks(job: Job) -> None:
    """Also ranks this coordinator never started."""
    for pod in job.roster.pods.values():
        for rank, view in pod.views.items():
            job.roster.targets.setdefault(rank, Target(view.incarnation, view.start, pod.uid))
    for target in job.roster.targets.values():
        target.run = target.admitted = False
    job.touch_all()


def advance(job: Job) -> None:
    """Go on with the attempt as far as what is there allows."""
    attempt, assignment = job.attempt, job.assignment
    if assignment is None or job.order is None:
        return
    if is_due(job):
        begin(job, assignment.attempt, job.order.incarnation)
        attempt = job.attempt
    if attempt.phase is Phase.IDLE and job.order.action not in (pb.START, pb.STOP):
        _adopt(job, assignment.attempt, job.order.incarnation)
    elif attempt.phase is Phase.OPENING:
        _open(job)
    elif attempt.phase is Phase.RUNNING:
        _watch_running(job)


def _open(job: Job) -> None:
    pods = [job.roster.newest(node_rank) for node_rank in range(job.roster.num_nodes)]
    there = [pod for pod in pods if pod is not None and pod.connected and pod.reported]
    waited = job.now - job.attempt.since >= job.limits.takeover_seconds
    if (len(there) == len(pods) or waited) and _has_begun(job, there):
        _take_over(job, there)
        return
    if _stale_ranks(job):
        return
    _ask_for_controller(job)
    ready = len(there) == len(pods) and all(pod.launcher_ready for pod in there)
    if len(there) == len(pods) and checkpoints.are_verified(job) and ready and job.controller.ready(job.attempt.number):
        _start_ranks(job, there)


def _has_begun(job: Job, pods: list[Pod]) -> bool:
    """A process of this attempt was started by somebody before us, be it that it has ended since."""
    views = [view for pod in pods for view in pod.views.values()]
    return any(view.phase != pb.ABSENT and view.incarnation >= job.attempt.incarnation for view in views)


def _stale_ranks(job: Job) -> bool:
    """A process of an older attempt may still reach the controller: it must be gone before a new one serves."""
    for pod in job.roster.pods.values():
        stale = any(view.alive and view.incarnation < job.attempt.incarnation for view in pod.views.values())
        if not stale:
            continue
        for rank, view in pod.views.items():
            job.roster.targets.setdefault(rank, Target(view.incarnation, view.start, pod.uid, run=False))
        job.dirty.add(pod.uid)
        if pod.connected or not job.leases.expired(pod.uid, job.now):
            return True
    return False


def _ask_for_controller(job: Job) -> None:
    controller, number = job.controller, job.attempt.number
    if not controller.connected:
        return
    failed = "failed" in (controller.controller, controller.store)
    if controller.attempt == number and controller.controller in ("starting", "serving") and not failed:
        return
    once = failed and controller.attempt == number and controller.starts == 1
    patience = job.limits.controller_again_seconds if once else job.limits.controller_retry_seconds
    if controller.requested == number and job.now - controller.requested_at < patience:
        return
    controller.starts = controller.starts + 1 if controller.requested == number else 1
    controller.requested, controller.requested_at = number, job.now
    job.requests.append(Request("start", controller_arguments(job)))


def controller_arguments(job: Job) -> dict[str, object]:
    """What the controller host needs for one attempt. MindIO's switches follow the ranks' own variable."""
    assert job.assignment is not None
    environment = dict(job.assignment.environment)
    wanted = environment.get("HIGH_AVAILABILITY", "dump,retry,recover").split(",")
    return {
        "attempt": job.attempt.number,
        "world_size": job.assignment.world_size,
        "arf": "recover" in wanted,
        "zit": "elastic-training" in wanted,
        "address": job.endpoint.address,
        "port": job.endpoint.mindio_port,
        "store_port": job.endpoint.rendezvous_port,
        "environment": environment,
    }


def _start_ranks(job: Job, pods: list[Pod]) -> None:
    attempt = job.attempt
    job.roster.targets = {
        rank: Target(attempt.incarnation, 0, pod.uid, run=True, admitted=True)
        for pod in pods
        for rank in job.roster.ranks_of(pod.node_rank)
    }
    attempt.phase, attempt.since = Phase.RUNNING, job.now
    feed(job, Event(Kind.SERVES), job.now)
    job.touch_all()
    job.changed = True


def _adopt(job: Job, number: int, incarnation: int) -> None:
    """An order about a running job reached a coordinator that has started nothing: it was restarted."""
    roster, attempt = job.roster, job.attempt
    attempt.since = attempt.since or job.now
    pods = [*(roster.newest(node_rank) for node_rank in range(roster.num_nodes)), *migration.found(job).values()]
    there = [pod for pod in pods if pod is not None and pod.connected and pod.reported]
    waited = job.now - attempt.since >= job.limits.takeover_seconds
    if not job.controller.connected and not waited:
        return
    if len(there) == len(pods) or (waited and there):
        job.attempt = Attempt(number, 0, Phase.OPENING, job.now)
        job.incarnation = max(job.incarnation, incarnation)
        _take_over(job, there)


def _take_over(job: Job, pods: list[Pod]) -> None:
    attempt, roster = job.attempt, job.roster
    resumed = None
    is_blind = job.controller.requested == attempt.number  # this coordinator's own, the ranks never saw it
    if job.controller.serves(attempt.number) and not is_blind:
        resumed = resume(job.conversation, job.controller_log, job.now)
    else:
        _controller_was_lost(job)
    roster.registered = set(range(roster.world_size)) - _never_linked(job, pods)
    _take_processes(job, pods, resumed)
    attempt.phase, attempt.since = Phase.RUNNING, job.now
    attempt.linked = attempt.stepped = True
    job.touch_all()
    if resumed is not None:
        _take_up_incident(job, resumed)
    for rank in [rank for rank in roster.targets if roster.phase(rank) == pb.FINISHED]:
        rank_finished(job, rank)
    left = job.dropped.union(job.conversation.memory.named if job.conversation.state is State.SHRINKING else ())
    lose(job, [rank for rank in roster.targets if roster.phase(rank) == pb.DEAD and rank not in left])
    if resumed is not None and resumed.asked is not None:
        feed(job, resumed.asked, job.now)


def _never_linked(job: Job, pods: list[Pod]) -> set[int]:
    """Ranks that a start in the middle has not brought to MindIO yet: naming one would refuse the whole call."""
    if not job.attempt.incarnation:
        return set()
    first = (job.attempt.incarnation, 0)
    heard = [(rank, pod.views.get(rank)) for pod in pods for rank in job.roster.ranks_of(pod.node_rank)]
    return {
        rank
        for rank, view in heard
        if view is None
        or view.phase == pb.ABSENT
        or (view.phase in (pb.STARTING, pb.AT_GATE) and view.process == first)
    }


def _take_processes(job: Job, pods: list[Pod], resumed: Resumed | None) -> None:
    """Every process as it is; in the middle of a move the second ones stand beside the first ones."""
    roster = job.roster
    second = migration.found(job)
    for uid, first in list(second.items()):
        if migration.has_relieved(job, roster.pods[uid], first, moved=resumed is not None and resumed.moved):
            del second[uid]
            first.over = True
            job.dirty.add(first.uid)
    newest_last = sorted(roster.pods.values(), key=lambda pod: pod.incarnation)
    for pod in [*(pod for pod in newest_last if pod not in pods), *sorted(pods, key=lambda pod: pod.incarnation)]:
        for rank, view in pod.views.items():
            if pod.uid not in second:
                roster.targets[rank] = _as_it_is(job, pod, view)
            elif view.phase != pb.ABSENT:
                expected = resumed is not None and rank in resumed.expected
                admitted = view.alive and (view.phase == pb.LINKED or expected)
                roster.spares[rank] = Target(view.incarnation, view.start, pod.uid, True, admitted)
        job.silence.watch(pod.uid, job.now)
    for first in second.values():
        for rank in roster.ranks_of(first.node_rank):  # its agent has not been heard; its processes came with the pod
            roster.targets.setdefault(rank, Target(first.incarnation, 0, first.uid, True, True))


def _as_it_is(job: Job, pod: Pod, view: View) -> Target:
    """What was found is what is wanted; a rank that a start in the middle has left out is started, too."""
    if view.phase == pb.ABSENT and job.attempt.incarnation:
        return Target(job.attempt.incarnation, 0, pod.uid, True, job.conversation.state in PAST_NAMING)
    known = job.conversation.state in PAST_NAMING and not _is_unnamed(job, view)
    admitted = view.phase == pb.LINKED or (view.alive and known)
    return Target(view.incarnation, view.start, pod.uid, True, admitted)


def _is_unnamed(job: Job, view: View) -> bool:
    """A successor that was started by the order in hand, about which MindIO has not been told yet."""
    order = job.order
    if order is None or order.action not in SUCCESSORS or job.conversation.state not in UNNAMED:
        return False
    return view.incarnation >= order.incarnation


def take_late(job: Job, pod: Pod, rank: int, view: View) -> None:
    """An agent that could not be reached when its job was taken over tells of its ranks now."""
    if job.attempt.phase is Phase.RUNNING and rank not in job.roster.targets and view.phase != pb.ABSENT:
        job.roster.targets[rank] = _as_it_is(job, pod, view)
        job.touch(rank)


def _take_up_incident(job: Job, resumed: Resumed) -> None:
    """An incident in the middle goes on under its number; an order that was carried out is not carried out again."""
    order = job.order
    job.dropped = set(resumed.dropped)
    if job.conversation.is_blind:
        job.tell_controller_lost(job.conversation.memory.problem, job.now)
    if resumed.state not in AT_REST:
        ordered = order.incarnation if order is not None and resumed.planned else job.incarnation + 1
        incarnation = resumed.incarnation or ordered
        job.incarnation = max(job.incarnation, incarnation)
        job.incident = Incident(incarnation, job.now, resumed.planned, stopped=None if resumed.planned else job.now)
        if resumed.state in CHOSEN.values():
            job.incident.strategy_sent = job.now
    elif order is not None and _carried_out(job, order):
        job.concluded = max(job.concluded, order.incarnation)
        if resumed.result is not None:
            milestone = pb.Milestone(kind=pb.RESULT, incarnation=order.incarnation, **resumed.result)
            job.outbox.add_milestone(milestone, job.now)


def _carried_out(job: Job, order: pb.Order) -> bool:
    """Whether MindIO, at rest, has this order behind it: its successors are linked."""
    if order.action in (pb.SHRINK, pb.EXPAND):
        return (job.conversation.state is State.SHRUNK) is (order.action == pb.SHRINK)
    if order.action not in SUCCESSORS:
        return order.action in (pb.RETRY, pb.CONTINUE, pb.START)
    ranks = set(order.restart_ranks)
    for node_rank in order.replaced_nodes:
        ranks.update(job.roster.ranks_of(node_rank))
    targets = {rank: job.roster.targets[rank] for rank in ranks if rank in job.roster.targets}
    there = all(job.roster.phase(rank) not in (pb.STARTING, pb.AT_GATE) for rank in targets)
    return there and all(target.incarnation >= order.incarnation for target in targets.values())


def _controller_was_lost(job: Job) -> None:
    """Whatever was ordered cannot be done any more: the ranks' controller has taken it along."""
    if job.order is not None:
        job.concluded = max(job.concluded, job.order.incarnation)
    job.requests.append(Request("end", {}))
    job.conversation.state = State.LOST
    text = "ranks run, but the MindIO controller they registered with is gone; the next fault cannot be recovered"
    job.conversation.memory.problem = text
    job.tell_controller_lost(text, job.now)


def _watch_running(job: Job) -> None:
    attempt, roster = job.attempt, job.roster
    if not attempt.linked and roster.linked(range(roster.world_size)):
        attempt.linked = True
        job.mark(pb.STARTED, job.now)
    if attempt.first_finish is None or attempt.done:
        return
    live = [rank for rank in range(roster.world_size) if rank not in attempt.finished | job.dropped]
    if not live:
        attempt.done = True
        job.mark(pb.FINISHED_ALL, job.now, pb.Milestone(step=job.steps.newest))
        return
    quiet_since = max(attempt.first_finish, job.steps.latest or 0.0)
    if job.now - quiet_since >= job.limits.finish_seconds:
        for rank in roster.targets.keys() & live:  # nobody has heard of the others since this process was restarted
            roster.targets[rank].run = False
            job.touch(rank)


def rank_finished(job: Job, rank: int) -> None:
    """A rank left in order: from here on MindIO recovers nothing."""
    attempt = job.attempt
    attempt.finished.add(rank)
    if attempt.first_finish is None:
        attempt.first_finish = job.now
        feed(job, Event(Kind.FINISH), job.now)
