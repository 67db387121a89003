"""What has changed between two pictures, in sentences: all there is to see where the output is no terminal.

The cause comes before what follows from it: an incident, then the job's state, then where its ranks go.
"""

from __future__ import annotations

from collections.abc import Iterator

from e2e.demo.board import Board, ShownIncident
from e2e.demo.words import seconds_in_words

EVERY = 50
EVERY_OF_AN_ENDLESS_ONE = 5000
"""Nobody reads a line every three seconds for hours."""


def changes(before: Board, after: Board) -> list[str]:
    """Sentences about what `after` shows and `before` did not."""
    return [*_incidents(before, after), *_job(before, after), *_placements(before, after), *_others(before, after)]


def phases(incident: ShownIncident) -> str:
    """Phases of an incident as a sum: `Detection 53 ms + Stop 18 ms = 71 ms`."""
    parts = " + ".join(f"{name} {seconds_in_words(length)}" for name, length in incident.phases if length)
    return f"{parts} = {seconds_in_words(incident.milliseconds)}" if parts else ""


def _placements(before: Board, after: Board) -> Iterator[str]:
    former = {node.name: node for node in before.nodes}
    for node in after.nodes:
        old = former.get(node.name)
        if node.node_rank >= 0 and (old is None or old.node_rank != node.node_rank):
            numbers = after.numbers_of(node)
            yield f"{node.name} gets ranks {numbers[0]} to {numbers[-1]}"
        if node.trouble and (old is None or old.trouble != node.trouble):
            yield f"{node.name} is {node.trouble}"


def _job(before: Board, after: Board) -> Iterator[str]:
    if after.state and after.state != before.state:
        yield f"the job is {after.state}" + (f": {after.problem}" if after.problem else "")
    every = EVERY if after.goal else EVERY_OF_AN_ENDLESS_ONE
    if after.step // every > before.step // every or (after.step == after.goal != before.step):
        yield f"step {after.step} of {after.goal}" if after.goal else f"step {after.step}"


def _incidents(before: Board, after: Board) -> Iterator[str]:
    for incident in after.incidents:
        old = before.incident(incident.number)
        if old is None or (old.action, old.outcome) != (incident.action, incident.outcome):
            account = phases(incident) if incident.outcome != "Open" else ""
            yield "; ".join(word for word in (incident.words, account) if word)


def _others(before: Board, after: Board) -> Iterator[str]:
    known = {line.partition(":")[0] for line in before.others}
    yield from (f"also there: {line}" for line in after.others if line.partition(":")[0] not in known)
