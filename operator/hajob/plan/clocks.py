"""Deadlines of a whole job, derived from its state and spec after every event.

`activeDeadlineSeconds` counts from the start, not while the job is suspended; `scheduling.capacityTimeoutSeconds`
counts while a start waits for quota or nodes; `startupDeadlineSeconds` while a start goes on; `finishTimeoutSeconds`
from the last step on. Each may be changed at any time.
"""

from dataclasses import replace
from typing import Final

from hajob.domain.incidents import Purpose
from hajob.plan.incident_state import clear_deadlines, set_deadline
from hajob.plan.policy import FIT_SECONDS, LOOK_AGAIN_SECONDS, RELEASE_SECONDS, Policy
from hajob.plan.state import ENDED, UNTRAINED, Deadline, JobPhase, JobState

_INACTIVE: Final = ENDED | {JobPhase.NEW, JobPhase.SUSPENDED}


def follow_deadlines(state: JobState, policy: Policy, now_ms: int) -> JobState:
    """Return the state with its current deadlines; the same object when nothing changes."""
    state = _move_startup_deadline(_follow_active_time(state, policy, now_ms), policy)
    limit, since = policy.active_deadline_seconds, state.active_since_ms
    active = None if limit is None or since is None else since + 1000 * limit - state.active_ms
    if state.waiting is not None and state.phase not in UNTRAINED:
        state = replace(state, waiting=None)
    patience, waiting = policy.capacity_timeout_seconds, state.waiting
    capacity = None if patience is None or waiting is None else waiting.since_ms + 1000 * patience
    state = _with_deadline(_with_deadline(state, Deadline.ACTIVE, active), Deadline.CAPACITY, capacity)
    ending, finish = state.ending, None
    if state.phase is JobPhase.ENDING and ending is not None and state.incident is None:
        finish = ending.since_ms + 1000 * policy.finish_timeout_seconds
    state = _with_deadline(state, Deadline.FINISH, finish)
    return _set_fit_deadline(
        _schedule_growth(_set_release_deadline(state, policy, now_ms), policy, now_ms), policy, now_ms
    )


def _move_startup_deadline(state: JobState, policy: Policy) -> JobState:
    """Move the deadline of a start by as much as `startupDeadlineSeconds` was edited since it was set."""
    waits, seconds = state.waiting is not None and state.waiting.start_left_ms, policy.startup_deadline_seconds
    if Deadline.STARTUP not in state.deadlines and not waits:
        return replace(state, startup_seconds=0) if state.startup_seconds else state
    if state.startup_seconds == seconds:
        return state
    more_ms = 1000 * (seconds - state.startup_seconds) if state.startup_seconds else 0
    state = replace(state, startup_seconds=seconds)
    if state.waiting is not None and waits:
        return replace(state, waiting=replace(state.waiting, start_left_ms=max(waits + more_ms, 1)))
    return set_deadline(state, Deadline.STARTUP, state.deadlines[Deadline.STARTUP] + more_ms)


def _schedule_growth(state: JobState, policy: Policy, now_ms: int) -> JobState:
    """Schedule the next try to grow a job that was started smaller; a fault resets how long capacity has lasted."""
    smaller, incident = state.smaller, state.incident
    if smaller is None:
        return state
    if incident is not None and incident.purpose is not Purpose.GROW and smaller.capacity_ms:
        return replace(state, smaller=replace(smaller, capacity_ms=0))
    if state.phase is not JobPhase.RUNNING or Deadline.EXPAND in state.deadlines:
        return state
    return set_deadline(state, Deadline.EXPAND, now_ms + 1000 * max(policy.expand_delay_seconds, LOOK_AGAIN_SECONDS))


def _set_fit_deadline(state: JobState, policy: Policy, now_ms: int) -> JobState:
    """Set the deadline after which a waiting restart may use fewer nodes."""
    if state.waiting is None or policy.sizes is None or state.attempt < 2:
        return _with_deadline(state, Deadline.FIT, None)
    return state if Deadline.FIT in state.deadlines else set_deadline(state, Deadline.FIT, now_ms + 1000 * FIT_SECONDS)


def _set_release_deadline(state: JobState, policy: Policy, now_ms: int) -> JobState:
    """Set the deadline at which a waiting start releases its chips, if `waitingPodPolicy` is Release."""
    if state.waiting is None or not (policy.release_waiting_pods or state.waiting.released):
        return _with_deadline(state, Deadline.RELEASE, None)
    if state.waiting.released or Deadline.RELEASE in state.deadlines:
        return state
    return set_deadline(state, Deadline.RELEASE, now_ms + 1000 * RELEASE_SECONDS)


def _follow_active_time(state: JobState, policy: Policy, now_ms: int) -> JobState:
    """Start or stop the clock of active time."""
    counts, since = state.phase not in _INACTIVE, state.active_since_ms
    if counts and since is None:
        known, limit = state.deadlines.get(Deadline.ACTIVE), policy.active_deadline_seconds
        began = now_ms if known is None or limit is None else known - 1000 * limit  # 0.1 stored only the deadline
        return replace(state, active_since_ms=began)
    if not counts and since is not None:
        return replace(state, active_since_ms=None, active_ms=state.active_ms + now_ms - since)
    return state


def _with_deadline(state: JobState, name: Deadline, at_ms: int | None) -> JobState:
    if state.deadlines.get(name) == at_ms:
        return state
    return clear_deadlines(state, name) if at_ms is None else set_deadline(state, name, at_ms)
