"""`kubectl hajob drain`: empty a node of Hajob's pods while their trainings go on.

A cordon asks every job on the node for a planned move (spec.recovery.cordonPolicy). Nothing is evicted: a job that
cannot be moved stays, and it is said why.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from hajob.api import constants as names
from hajob.cli.cluster import ClusterError, ForbiddenError
from hajob.cli.exits import DONE, NOT_DONE, run_reported
from hajob.cli.job_view import JobView, age_in_words, one_line
from hajob.cli.language import say
from hajob.cli.objects import NODES, KubernetesObjects, Objects, find_node, listed, path_of_job
from hajob.cli.options import Commands, add_context_option, add_output_option, add_verb
from hajob.cli.output import FORMATS, UNKNOWN, Answer, print_answer
from hajob.clock import Clock, SystemClock
from hajob.domain.text import counted_noun
from hajob.sources.pod import PodView, pod_view_of
from hajob.sources.reading import mapping, text

_POLL_SECONDS: Final = 2.0
_WHY_WIDTH: Final = 200
_REMINDER_SECONDS: Final = 60.0
"""What still stands in the way is said again after so long, so that a log of the command shows that it lives."""
_ALL_PODS: Final = "/api/v1/pods"


@dataclass(frozen=True, slots=True)
class Resident:
    """A job with pods on the node, and what becomes of it."""

    namespace: str
    name: str
    pods: tuple[PodView, ...]
    outlook: str
    """What will happen, or what keeps it from happening."""

    @property
    def sentence(self) -> str:
        """Return the resident as a line for people."""
        shown = ", ".join(_pod_in_words(pod) for pod in self.pods)
        return f"{self.namespace}/{self.name}: {shown}; {self.outlook}"


@dataclass(frozen=True, slots=True)
class Residents:
    """What is on a node; `unread`: the right that is missing to know."""

    jobs: tuple[Resident, ...] = field(default=())
    unread: str = ""


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_verb(commands, "drain")
    parser.add_argument("node", metavar="NODE", help="name of the node")
    parser.add_argument("--wait", action="store_true", help="wait until no pod of a job is on the node")
    parser.add_argument(
        "--timeout", type=float, default=0.0, metavar="SECONDS", help="wait no longer than this (default: for ever)"
    )
    parser.add_argument("--undo", action="store_true", help="let pods onto the node again, as kubectl uncordon does")
    add_context_option(parser)
    add_output_option(parser, FORMATS)
    parser.set_defaults(run=run_drain)


def run_drain(arguments: argparse.Namespace) -> int:
    """Carry out the command; 1 where the node was to be empty and is not."""

    def drain_or_let_pods_back() -> int:
        objects, node = KubernetesObjects(context=arguments.context), arguments.node
        # People read line by line what is done; a program gets one answer, and what comes before goes to its errors.
        tell = partial(say, to_errors=arguments.output != "text")
        code = DONE
        if arguments.undo:
            tell(uncordon_node(objects, node))
        else:
            for line in cordon_node(objects, node, must_know=arguments.wait):
                tell(line)
            if arguments.wait:
                wait = NodeWait(objects, node, SystemClock(), threading.Event(), tell)
                code = wait.until_empty(arguments.timeout)
        if arguments.output != "text":
            print_answer(answer_of_node(objects, node), arguments.output)
        return code

    return run_reported(drain_or_let_pods_back)


def answer_of_node(objects: Objects, node: str) -> Answer:
    """Return for programs whether a node is cordoned, and the jobs that are on it now."""
    is_cordoned = mapping(find_node(objects, node).get("spec")).get("unschedulable") is True
    found = residents_of_node(objects, node)
    jobs = [
        {
            "namespace": one.namespace,
            "name": one.name,
            "pods": [pod.name for pod in one.pods],
            "outlook": one.outlook,
        }
        for one in found.jobs
    ]
    data = {
        "node": node,
        "cordoned": is_cordoned,
        "empty": None if found.unread else not jobs,
        "jobs": jobs,
        "unknown": [found.unread] if found.unread else [],
    }
    return Answer([], data, [f"node/{node}"])


def cordon_node(objects: Objects, node: str, *, must_know: bool = False) -> Iterator[str]:
    """Write the cordon of a node, and yield what is said about the jobs on it.

    Raises:
        ClusterError: there is no such node, the cluster refuses, or `must_know` and the pods may not be read: then
            the node is left as it is.
    """
    found = find_node(objects, node)
    residents = residents_of_node(objects, node)
    # Asked before anything is written: a wait that could not see its end would leave a cordoned node behind.
    if must_know and residents.unread:
        raise ClusterError(f"what is on {node} is {UNKNOWN}: {residents.unread}; the node is left as it is")
    if mapping(found.get("spec")).get("unschedulable") is True:
        yield f"{node} is cordoned already"
    else:
        objects.patch_object(f"{NODES}/{node}", {"spec": {"unschedulable": True}})
        yield f"{node} is cordoned: no new pod is placed there"
    if residents.unread:
        yield f"which jobs are on it is {UNKNOWN}: {residents.unread}"
    elif not residents.jobs:
        yield f"no pod of a job is on {node}"
    else:
        yield from (one.sentence for one in residents.jobs)


def uncordon_node(objects: Objects, node: str) -> str:
    """Let pods onto a node again; return what was done."""
    if mapping(find_node(objects, node).get("spec")).get("unschedulable") is not True:
        return f"nothing changes: {node} is not cordoned"
    # The field goes, as kubectl uncordon has it: the scheduler reads an absent one as False.
    objects.patch_object(f"{NODES}/{node}", {"spec": {"unschedulable": None}})
    return f"{node} takes pods again"


def residents_of_node(objects: Objects, node: str) -> Residents:
    """Return the jobs that have pods on a node, with what becomes of each."""
    try:
        raw = listed(objects, _ALL_PODS, labelSelector=names.LABEL_JOB_UID, fieldSelector=f"spec.nodeName={node}")
    except ForbiddenError:
        return Residents(unread="needs the right to list pods in all namespaces")
    pods: dict[tuple[str, str], list[PodView]] = {}
    for one in raw:
        view = pod_view_of(one)
        # A server that does not know a field selector answers with more than was asked for.
        if view.node_name == node and view.job_uid and not view.has_ended:
            name = text(mapping(mapping(one.get("metadata")).get("labels")).get(names.LABEL_JOB_NAME))
            pods.setdefault((view.namespace, name), []).append(view)
    found = [
        Resident(namespace, name, tuple(there), _outlook_of_job(objects, namespace, name, there))
        for (namespace, name), there in sorted(pods.items())
    ]
    return Residents(tuple(found))


def _outlook_of_job(objects: Objects, namespace: str, name: str, pods: Sequence[PodView]) -> str:
    """Return what will become of a job's pods on a cordoned node, or what keeps them there."""
    if all(pod.deleting for pod in pods):
        return "they are ending" if len(pods) > 1 else "it is ending"
    try:
        raw = objects.find_object(path_of_job(namespace, name))
    except ForbiddenError:
        return f"what becomes of them is {UNKNOWN}: needs the right to get hatrainingjobs in {namespace}"
    if raw is None:
        return "the job is gone, its pods are ending"
    job = JobView(raw, 0)
    recovery = mapping(job.spec.get("recovery"))
    if recovery.get("cordonPolicy") == "Ignore":
        return "stays: spec.recovery.cordonPolicy is Ignore"
    if recovery.get("mode", "Enforce") != "Enforce":
        return f"stays: spec.recovery.mode is {recovery['mode']}"
    # In the order in which they stand in the way: a move that failed, then a fault that waits for somebody.
    for kind, reason in (("Degraded", "MoveFailed"), ("Held", "")):
        condition = job.condition(kind)
        if condition.get("status") == "True" and reason in {"", condition.get("reason")}:
            return f"waits: {one_line(text(condition.get('message')), _WHY_WIDTH)}"
    if job.state == "Migrating":
        return "moving while the training goes on"
    if job.state in {"Running", "Shrunk"}:
        return "will be moved while the training goes on, as soon as there is a free node"
    return f"waits: the job is {job.state_with_reason}"


def _pod_in_words(pod: PodView) -> str:
    if pod.is_rank_pod:
        return f"node rank {pod.node_rank} (pod {pod.name})"
    return f"{pod.role} (pod {pod.name})"


class NodeWait:
    """Waits until a node is empty, and says what it waits for whenever that changes.

    Args:
        objects: of the cluster.
        node: its name.
        clock: the machine's.
        pause: waits between two looks; one that is set ends the wait.
        tell: says a sentence to the person who waits.
    """

    def __init__(
        self, objects: Objects, node: str, clock: Clock, pause: threading.Event, tell: Callable[[str], None] = say
    ) -> None:
        self._objects, self._node, self._clock, self._pause = objects, node, clock, pause
        self._tell = tell
        self._said: tuple[str, ...] = ()
        self._said_at = 0.0

    def until_empty(self, timeout_seconds: float = 0.0) -> int:
        """Return 0 when no pod of a job is left on the node, 1 when the time is over; 0 seconds: wait for ever."""
        began = self._clock.monotonic()
        while True:
            residents = residents_of_node(self._objects, self._node)
            if residents.unread:
                raise ClusterError(f"what is on {self._node} is {UNKNOWN}: {residents.unread}")
            waited = self._clock.monotonic() - began
            if not residents.jobs:
                self._tell(f"{self._node} is empty of Hajob's pods after {age_in_words(round(waited))}")
                return DONE
            self._say_if_changed(residents, waited)
            if 0 < timeout_seconds <= waited:
                left = counted_noun(len(residents.jobs), "job")
                self._tell(f"{left} still on {self._node} after {age_in_words(round(waited))}; it stays cordoned")
                return NOT_DONE
            self._pause.wait(_POLL_SECONDS)

    def _say_if_changed(self, residents: Residents, waited: float) -> None:
        said = tuple(one.sentence for one in residents.jobs)
        if said != self._said or waited - self._said_at >= _REMINDER_SECONDS:
            for line in said:
                self._tell(f"{age_in_words(round(waited)):>5}  {line}")
            self._said, self._said_at = said, waited
