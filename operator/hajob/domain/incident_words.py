"""An incident in sentences: what happened, what follows, and how it ended. Events, status and terminal share them."""

from __future__ import annotations

from typing import Final

from hajob.domain.actions import Action
from hajob.domain.cause_words import headline_of_output, sentence_of_cause
from hajob.domain.facts import FactKind
from hajob.domain.incidents import Cause, Incident, IncidentOutcome, Purpose
from hajob.domain.text import counted_noun

PLANNED: Final = frozenset(
    {
        Purpose.REQUEST,
        Purpose.SUSPEND,
        Purpose.EVICT,
        Purpose.EXPAND,
        Purpose.GROW,
        Purpose.MIGRATE,
        Purpose.PAUSE,
    }
)
"""Purposes of work that somebody asked for, or that Hajob does when it suits: nobody has to look at it."""

_REQUESTS: Final = {
    Purpose.COORDINATOR: "the MindIO controller is lost",
    Purpose.REQUEST: "a restart is requested",
    Purpose.SUSPEND: "the job is to be suspended",
    Purpose.EVICT: "the queue takes the job's quota back",
    Purpose.EXPAND: "there are nodes to grow back",
    Purpose.GROW: "there are nodes to grow back",
    Purpose.MIGRATE: "nodes are to be left",
    Purpose.PAUSE: "a pause is requested",
}

_OF_NODES: Final = {
    FactKind.AGENT_SILENT: "{} fell silent",
    FactKind.NODE_NOT_READY: "{} is not ready",
    FactKind.NODE_DELETED: "{} was deleted",
    FactKind.CORDONED: "{} is to be emptied",
}

_OF_CHIPS: Final = frozenset({FactKind.CHIP_FAULT, FactKind.CHIP_ERROR, FactKind.SUB_HEALTH})


def is_planned(incident: Incident) -> bool:
    """Return whether the incident is planned work, and no fault."""
    return incident.purpose in PLANNED


def ranks_in_words(first: int, number: int) -> str:
    """Return `rank 3` or `ranks 0-7`; empty for none."""
    if number < 1 or first < 0:
        return ""
    return f"rank {first}" if number == 1 else f"ranks {first}-{first + number - 1}"


def what_happened(incident: Incident) -> str:
    """Return the cause in words, without a full stop."""
    cause = incident.cause
    if incident.purpose is Purpose.FAULT:
        return _cause_in_words(cause)
    asked = _REQUESTS[incident.purpose]
    if incident.purpose is Purpose.EVICT and cause.message:
        return f"{asked}: {cause.message.rstrip('.')}"
    return f"{asked}: {_cause_in_words(cause)}" if cause.kind is not None else asked


def _cause_in_words(cause: Cause) -> str:
    if cause.kind in _OF_NODES:
        return _OF_NODES[cause.kind].format(cause.node_name or "a node")
    if cause.kind in _OF_CHIPS:
        said = headline_of_output(cause.message) or cause.code
        return f"{said} on {cause.node_name}" if cause.node_name and cause.node_name not in said else said
    if cause.kind is FactKind.PROCESS_EXITED:
        return _ended_process_in_words(cause)
    return sentence_of_cause(cause)


def _ended_process_in_words(cause: Cause) -> str:
    who = ranks_in_words(cause.first_rank, cause.num_ranks) or "a rank"
    node, said = cause.node_name, headline_of_output(cause.message)
    why = ": ".join(filter(None, (cause.code if cause.code not in said else "", said)))
    if node:
        return f"{who} on {node} ended: {why}" if why else f"{who} on {node} ended"
    return f"{who} ended: {why}" if why else f"{who} ended"


def what_follows(incident: Incident) -> str:
    """Return what is done about it, with the name of the action."""
    cause = incident.cause
    hit = ranks_in_words(cause.first_rank, cause.num_ranks) or _ranks_that_are_named(incident.lost_ranks)
    # What is planned names no ranks of its own, only pods that move.
    who = hit or counted_noun(len(incident.replaced_nodes) or 1, "pod")
    one = who.startswith(("rank ", "1 "))
    told = {
        Action.RETRY: "the step is done again",
        Action.IN_PLACE: f"{who} starts again in its pod" if one else f"{who} start again in their pods",
        Action.REPLACE: f"{who} goes to another node" if one else f"{who} go to another node",
        Action.SHRINK: f"the training goes on without {hit or 'the lost ranks'}",
        Action.CHECKPOINT: "the last step is saved",
        Action.RESTART: "the whole job starts again from its newest checkpoint",
        Action.EXPAND: "the job takes back what it gave up",
        Action.MIGRATE: f"{who} {'moves' if one else 'move'} while the training goes on",
        Action.PAUSE: "every rank waits at the end of a step",
    }.get(incident.action, "")
    return f"{told} ({incident.action})" if told else str(incident.action)


def _ranks_that_are_named(numbers: tuple[int, ...]) -> str:
    if not numbers:
        return ""
    whole = numbers[-1] - numbers[0] + 1 == len(numbers)
    return (
        ranks_in_words(numbers[0], len(numbers))
        if whole
        else f"{counted_noun(len(numbers), 'rank')} from {numbers[0]} on"
    )


def first_sentence(incident: Incident) -> str:
    """Return the sentence of an incident that begins."""
    return f"{what_happened(incident)}; {what_follows(incident)}"


def whole_sentence(incident: Incident, outcome: IncidentOutcome, outage_ms: int | None, lost_steps: int) -> str:
    """Return the sentence of an incident as it stands: what happened, what was done, how it ended and what it cost."""
    told = f"{what_happened(incident)}; {what_follows(incident)}"
    again = f", {incident.restarts} restarts" if incident.restarts > 1 else ""
    if outcome is IncidentOutcome.OPEN:
        return f"{told}, not done yet{again}"
    if outcome is IncidentOutcome.DONE:
        return f"{told}, done"
    if outcome is IncidentOutcome.FAILED:
        return f"{told}, which did not work{again}"
    took = f" after {outage_ms / 1000:.1f} s" if outage_ms is not None else ""
    lost = f"{counted_noun(lost_steps, 'step')} done again" if lost_steps else "no step lost"
    return f"{told}; training again{took}{again}, {lost}"
