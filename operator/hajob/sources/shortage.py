"""What pods wait for, parsed from the messages of scheduler or API server.

The scheduler says "0/6 nodes are available: 1 node(s) had untolerated taint {a: b}, 5 Insufficient example.com/chips.
preemption: ...": one clause for each reason, with the number of nodes that it rules out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from hajob.domain.text import counted_noun
from hajob.sources.creation import NotCreated
from hajob.sources.pod import PodView

_NODES: Final = re.compile(r"^\d+/(\d+) nodes are available: (.*)$", re.DOTALL)
_CLAUSE: Final = re.compile(r"(\d+) (Insufficient (\S+)|Too many pods|node\(s\) ((?:\{[^}]*\}|[^,{])+))(?:, |$)")
_VOLUME: Final = re.compile(
    r'persistentvolumeclaim "[^"]+" (?:not found|is being deleted|bound to non-existent persistentvolume "[^"]+")'
    r"|unbound immediate PersistentVolumeClaims"
)
"""What the scheduler says where no node would help."""
# As much as a condition of the job keeps; the whole message is the pod's own condition.
_MESSAGE_LIMIT: Final = 1024
_SHOWN: Final = 5
HELD_BACK: Final = (
    "{} held back: there are not enough free nodes for all pods at once, or an earlier job gets them "
    "(scheduling.gangPolicy: SchedulingGates)"
)


def unplaced_pods(pods: Sequence[PodView]) -> list[PodView]:
    """Return the pods for which the scheduler finds no node."""
    return [pod for pod in pods if pod.unschedulable and not pod.node_name]


def shortage_of_pods(pods: Sequence[PodView], refused: NotCreated | None) -> str:
    """Return what the pods of a job lack; empty where nothing is known."""
    if refused is not None and refused.over_quota:
        return refused.message
    waiting = unplaced_pods(pods)
    told = []
    if held_back := sum(pod.is_gated for pod in pods):
        told.append(HELD_BACK.format(counted_noun(held_back, "pod")))
    if waiting:
        first = waiting[0]
        short = summarize_reasons(first.unschedulable)
        who = f"{counted_noun(len(waiting), 'pod')} without a node"
        told.append(f"{who}: {short}{_describe_kept_off(first)} ({first.name}: {first.unschedulable})")
    return "; ".join(told)[:_MESSAGE_LIMIT]


def volume_wait_of_pods(pods: Sequence[PodView]) -> str:
    """Return which volume a pod waits for, in the scheduler's words; empty where none is missing."""
    for pod in unplaced_pods(pods):
        if (found := _VOLUME.search(pod.unschedulable)) is not None:
            return f"pod {pod.name} waits for its volume: {found.group()}"
    return ""


def _describe_kept_off(pod: PodView) -> str:
    """Describe the nodes that Hajob or the job excludes, which the scheduler counts and does not name."""
    names = sorted(pod.excluded)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"; avoids {', '.join(names[:_SHOWN])}{more}" if names else ""


def summarize_reasons(message: str) -> str:
    """Summarize how many nodes each reason rules out."""
    found = _NODES.match(message)
    if found is None:
        return message
    nodes, reasons = found.groups()
    clauses = [
        _reason_in_words(*clause.groups()) for clause in _CLAUSE.finditer(reasons.partition(". ")[0].rstrip("."))
    ]
    if not clauses:
        return message
    ruled_out = ", ".join(clauses)
    return f"of {nodes} node {ruled_out}" if nodes == "1" else f"of {nodes} nodes {ruled_out}"


def _reason_in_words(count: str, whole: str, resource: str | None, other: str | None) -> str:
    if resource:
        return f"{count} lacks {resource}" if count == "1" else f"{count} lack {resource}"
    # The scheduler says `node(s) were` of one, too.
    return f"{count} {(other or whole).replace('were ', 'was ', 1) if count == '1' else other or whole}"
