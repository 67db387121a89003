"""Relevance of facts: the ranks that a fact loses, or why it changes nothing (stale, known, tolerated)."""

from dataclasses import dataclass
from typing import Final

from hajob.domain.errors import RankError
from hajob.domain.facts import INFORMATION, NAMES_ITS_RANKS, PROCESS_LIVES, SICK_NODE, TAKES_THE_NODE, Fact, FactKind
from hajob.domain.incidents import Incident, Purpose
from hajob.domain.layout import Layout
from hajob.plan.ignored import Ignored
from hajob.plan.ignored import IgnoreReason as Why
from hajob.plan.policy import NodePolicy, Policy
from hajob.plan.state import JobPhase, JobState


@dataclass(frozen=True, slots=True)
class Relevance:
    """Meaning of a fact for a job.

    Attributes:
        ranks: every rank that the fact loses and whose observed process, or pod, still exists.
        ignored: why the fact changes nothing; None when it changes something.
    """

    ranks: tuple[int, ...] = ()
    ignored: Ignored | None = None


_LEFT_OUT: Final = frozenset({JobPhase.SHRINKING, JobPhase.SHRUNK, JobPhase.UNPROTECTED, JobPhase.HELD})
"""Phases in which the loss of a dropped rank, or of one about to be dropped, does not count."""


def joined_by_faults(state: JobState) -> Incident | None:
    """Return the open incident that a fault joins; one that only awaits MindIO's result is over."""
    incident = state.incident
    if incident is None or incident.purpose is not Purpose.FAULT or state.phase is JobPhase.CONFIRMING:
        return None
    return incident


def relevance_of_fact(fact: Fact, newest: int, state: JobState, layout: Layout, policy: Policy) -> Relevance:
    """Evaluate a fact.

    Args:
        fact: as it was observed.
        newest: the highest incarnation known to the planner or to the sender of the fact.
        state: of the job.
        layout: of the job.
        policy: of the job.
    """
    try:
        named = _named_ranks(fact, layout)
    except RankError as error:
        return Relevance(ignored=Ignored(Why.INVALID, f"fact {fact.id}: {error}"))
    ranks = _ranks_still_current(fact, named, newest, state, layout.chips_per_node)
    found = _why_invalid(fact, named, newest) or _why_over(fact, named, ranks, state) or _why_known(fact, ranks, state)
    if found is None and fact.kind in SICK_NODE:
        found = _why_tolerated(fact, policy)
    return Relevance(ranks, Ignored(found[0], f"fact {fact.id}{found[1]}") if found else None)


Found = tuple[Why, str] | None
"""A reason, and the words that follow the fact's name."""


def _named_ranks(fact: Fact, layout: Layout) -> tuple[int, ...]:
    """Return the fact's own ranks, or all of their nodes'."""
    for rank in fact.ranks:
        layout.check_rank(rank)
    nodes: tuple[int, ...] = ()
    if fact.node_rank is not None and (fact.kind in TAKES_THE_NODE or not (fact.ranks or fact.kind in NAMES_ITS_RANKS)):
        nodes = (fact.node_rank,)
    elif fact.kind in TAKES_THE_NODE:
        nodes = layout.nodes_of_ranks(fact.ranks)
    else:
        return tuple(sorted(set(fact.ranks)))
    return tuple(rank for node in nodes for rank in layout.ranks_of_node(node))


def _ranks_still_current(
    fact: Fact, ranks: tuple[int, ...], newest: int, state: JobState, chips: int
) -> tuple[int, ...]:
    """Return the ranks whose observed process, or pod, still exists."""
    seen = fact.incarnation
    if seen < 0 or seen >= newest:
        return ranks
    if fact.kind in TAKES_THE_NODE:
        return tuple(rank for rank in ranks if seen >= state.pod_incarnation(rank // chips))
    return tuple(rank for rank in ranks if seen >= state.incarnation_of(rank, rank // chips))


def _why_invalid(fact: Fact, named: tuple[int, ...], newest: int) -> Found:
    if not named and fact.kind not in INFORMATION:
        lacking = "no rank" if fact.kind in NAMES_ITS_RANKS else "neither a rank nor a node rank"
        return Why.INVALID, f" of kind {fact.kind} names {lacking}"
    if fact.incarnation > newest:
        return Why.INVALID, f" is of incarnation {fact.incarnation}, the newest is {newest}"
    return None


def _why_over(fact: Fact, named: tuple[int, ...], ranks: tuple[int, ...], state: JobState) -> Found:
    """Return why a fact is a duplicate, or is about a process, pod or controller that no longer exists."""
    incident = state.incident
    if fact.id in state.fact_ids or (incident is not None and fact.id in incident.fact_ids):
        return Why.DUPLICATE, ""
    if fact.kind is FactKind.CONTROLLER_LOST and 0 < fact.incarnation < state.base:
        return Why.STALE, " is about the controller of an earlier attempt"
    if named and not ranks:
        return Why.STALE, f" is of incarnation {fact.incarnation}, rank {named[0]} has a newer one"
    if _is_of_no_place(fact, state):
        return Why.STALE, f" is of incarnation {fact.incarnation}, made for a move that was given up"
    return None


def _is_of_no_place(fact: Fact, state: JobState) -> bool:
    """Whether the silent agent's pod was the second pod of a move that was given up."""
    if fact.kind is not FactKind.AGENT_SILENT or fact.node_rank is None:
        return False
    moves = state.incident is not None and state.incident.purpose is Purpose.MIGRATE
    return not moves and fact.incarnation > state.pod_incarnation(fact.node_rank)


def _why_known(fact: Fact, ranks: tuple[int, ...], state: JobState) -> Found:
    """Return why a fact tells nothing new; a living process keeps its incarnation, so ranks and times decide."""
    alive, incident, shrunk = fact.kind in PROCESS_LIVES, joined_by_faults(state), state.shrunk
    if alive and incident is not None and set(ranks) <= set(incident.lost_ranks):
        worse = fact.kind is FactKind.DATA_CORRUPTED and not incident.corrupted
        if not worse:
            return Why.KNOWN, " concerns ranks that are being recovered already"
    if fact.time_ms < (state.resumed_ms if alive else state.forgotten_ms):
        return Why.STALE, " is older than the recovery it would disturb"
    if shrunk is not None and ranks and set(ranks) <= set(shrunk.ranks) and state.phase in _LEFT_OUT:
        return Why.DROPPED, " concerns ranks that left with the shrink"
    return None


def _why_tolerated(fact: Fact, policy: Policy) -> Found:
    """Return why the policy ignores a fact about a node that still works."""
    sick = fact.kind is FactKind.SUB_HEALTH
    name, answer = ("subHealth", policy.sub_health) if sick else ("cordon", policy.cordon)
    return (Why.TOLERATED, f", {name}Policy is Ignore") if answer is NodePolicy.IGNORE else None
