"""What has changed between two pictures, in sentences: all there is to see where the output is no terminal."""

from __future__ import annotations

from collections.abc import Iterator

from e2e.demo.board import Board, ShownIncident

EVERY = 50


def changes(before: Board, after: Board) -> list[str]:
    """Sentences about what `after` shows and `before` did not."""
    return [*_placements(before, after), *_job(before, after), *_incidents(before, after)]


def phases(incident: ShownIncident) -> str:
    """Phases of an incident as a sum: `Detection 53 + Stop 18 = 71 ms`."""
    parts = " + ".join(f"{name} {length}" for name, length in incident.phases)
    return f"{parts} = {incident.milliseconds} ms" if parts else ""


def _placements(before: Board, after: Board) -> Iterator[str]:
    former = {node.name: node for node in before.nodes}
    for node in after.nodes:
        old = former.get(node.name)
        if node.node_rank >= 0 and (old is None or old.node_rank != node.node_rank):
            first = node.node_rank * after.ranks_per_node
            yield f"{node.name} gets ranks {first} to {first + after.ranks_per_node - 1}"


def _job(before: Board, after: Board) -> Iterator[str]:
    if after.state and after.state != before.state:
        yield f"the job is {after.state}" + (f": {after.problem}" if after.problem else "")
    if after.step // EVERY > before.step // EVERY or (after.step == after.goal != before.step):
        yield f"step {after.step} of {after.goal}"


def _incidents(before: Board, after: Board) -> Iterator[str]:
    for incident in after.incidents:
        old = before.incident(incident.number)
        if old is None or (old.action, old.outcome) != (incident.action, incident.outcome):
            account = phases(incident) if incident.outcome != "Open" else ""
            words = [f"incident {incident.number} ({incident.cause}): {incident.action}, {incident.outcome}", account]
            yield "; ".join(word for word in words if word)
