"""Steps that are not the recovery of a fault: start and end of a job, what people ask, what is only noted."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from hajob.domain.actions import RUNG, Action, Command
from hajob.domain.incidents import Incident, Outcome, Purpose
from hajob.domain.text import last_lines
from hajob.plan import effects, events
from hajob.plan.books import FACT_LIMIT, abandon, clear_deadlines, close, joined, new_incident, set_deadline
from hajob.plan.choice import FAULT, Judge, Loss, Occasion, Verdict
from hajob.plan.effects import Effect
from hajob.plan.moment import Moment, StepResult
from hajob.plan.policy import ANOTHER_COORDINATOR_SECONDS, COORDINATOR_SECONDS, Refusal
from hajob.plan.state import Deadline, JobState, Phase, Spend
from hajob.plan.steps import launch, save

_EVENT_LIMIT: Final = 240
_MESSAGE_LIMIT: Final = 1024
SAVE_FIRST: Final = Occasion("Asked", (Action.CHECKPOINT,), "only a checkpoint was asked for")


def accept(moment: Moment) -> StepResult:
    """Make pods and coordinator for the first time."""
    state, limit = moment.state, moment.policy.active_deadline_seconds
    if limit is not None:
        state = set_deadline(state, Deadline.ACTIVE, moment.now_ms + 1000 * limit)
    return launch(moment, state, None, [])


def relaunch(moment: Moment) -> StepResult:
    """Make everything anew because somebody asked for it: no budget is spent."""
    state, incident, out = _planned(moment, Purpose.REQUEST, Action.RESTART)
    return launch(moment, state, incident, out)


def restart_unprotected(moment: Moment) -> StepResult:
    """Restart because the MindIO controller is gone."""
    state, incident, out = _planned(moment, Purpose.COORDINATOR, Action.RESTART)
    spends = (*state.spent, Spend(Action.RESTART.value, moment.now_ms))
    restarts = state.restarts_infrastructure + 1
    return launch(moment, replace(state, spent=spends, restarts_infrastructure=restarts), incident, out)


def _planned(moment: Moment, purpose: Purpose, action: Action) -> tuple[JobState, Incident, list[Effect]]:
    """Close what is open and open an incident of this purpose."""
    state, closing = settle(moment, f"{purpose} took over")
    incident = replace(new_incident(moment, state, action, purpose), revision=1)
    return replace(state, incarnation=incident.number), incident, [*closing]


def settle(moment: Moment, why: str) -> tuple[JobState, tuple[Effect, ...]]:
    """Close whatever is open because something else begins."""
    state, incident = moment.state, moment.incident
    if incident is None or state.phase is Phase.CONFIRMING:
        return close(state, Outcome.RECOVERED, why)
    if incident.purpose in {Purpose.EXPAND, Purpose.MIGRATE}:
        return abandon(state, incident, why)
    return close(state, Outcome.FAILED, why)


def save_for(purpose: Purpose) -> Callable[[Moment], StepResult]:
    """Save what can be saved, because somebody asked for a suspend or a restart."""
    return partial(_save_for, purpose)


def _save_for(purpose: Purpose, moment: Moment) -> StepResult:
    incident = moment.incident
    if incident is not None and moment.joins is not None:
        gone = (*incident.escalated_from, incident.action)
        incident = replace(
            incident,
            purpose=purpose,
            action=Action.CHECKPOINT,
            escalated_from=gone,
            revision=incident.revision + 1,
        )
        return save(moment, moment.state, incident, [])
    state, incident, out = _planned(moment, purpose, Action.CHECKPOINT)
    return save(moment, state, incident, out)


def repurpose(purpose: Purpose) -> Callable[[Moment], StepResult]:
    """While a checkpoint is being saved: what follows it changes."""
    return partial(_repurpose, purpose)


def _repurpose(purpose: Purpose, moment: Moment) -> StepResult:
    assert moment.incident is not None
    return replace(moment.state, incident=replace(moment.incident, purpose=purpose)), ()


def suspend(moment: Moment) -> StepResult:
    """Delete every pod and keep what is needed to go on later."""
    saved = _how_saved(moment)
    state, closing = settle(moment, "suspended")
    number = state.incarnation + 1
    stop = effects.SendOrder(Command.STOP, state.incarnation, 1 + (moment.incident.revision if moment.incident else 0))
    state = replace(state, incarnation=number, shrunk=None, renewed={}, pods={}, base=number, problem=saved)
    stale = (Deadline.RECOVERY, Deadline.STARTUP, Deadline.EXPAND, Deadline.COORDINATOR)
    deletes = (effects.DeleteAllPods(below=number), effects.DeleteCoordinator(below=number))
    return clear_deadlines(state, *stale), (stop, *closing, effects.Announce("Suspended", saved), *deletes)


def _how_saved(moment: Moment) -> str:
    """Whether the step where the training stands was saved before it is suspended, and why not."""
    event = moment.event
    if moment.state.phase is not Phase.SAVING:
        why = "; ".join(refusal.message for refusal in _refusals_to_save(moment)) or "no save was asked for"
    elif isinstance(event, events.ResultReported):
        if event.code == 0:
            return "the step where the training stood is saved"
        why = f"the save failed with code {event.code} {event.text}".rstrip()
    elif isinstance(event, events.DeadlineReached):
        why = "the save did not end in time"
    elif isinstance(event, events.StrategiesOffered):
        why = "MindIO offered no save"
    else:
        why = "the MindIO controller was lost while it saved"
    return f"the step where the training stood is not saved ({why}); the newest checkpoint before it counts"


def unsuspend(moment: Moment) -> StepResult:
    """Make everything anew."""
    return launch(moment, moment.state, None, [])


def complete(moment: Moment) -> StepResult:
    """Every rank ended with 0."""
    state = clear_deadlines(moment.state, *Deadline)
    state, closing = close(state, Outcome.RECOVERED, "the training ended")
    return replace(state, shrunk=None), (*closing, effects.CompleteJob())


def delete(moment: Moment) -> StepResult:
    """Stop everything; owner references and the finalizer do the rest."""
    state = clear_deadlines(moment.state, *Deadline)
    state, closing = close(state, Outcome.FAILED, "the job was deleted")
    number = state.incarnation + 1
    return state, (*closing, effects.DeleteAllPods(below=number), effects.DeleteCoordinator(below=number))


def fail(reason: str, sentence: str = "") -> Callable[[Moment], StepResult]:
    """Give up; where the ladder was asked, its last rung says why."""
    return partial(_fail, reason, sentence)


def _fail(reason: str, sentence: str, moment: Moment) -> StepResult:
    verdicts = moment.choice.considered if moment.choice else ()
    why, message = _why_failed(reason, sentence, verdicts)
    incident = moment.incident
    cause = (incident.cause.message if incident else _told(moment)) or moment.state.problem
    state, closing = close(clear_deadlines(moment.state, *Deadline), Outcome.FAILED, message)
    full = f"{message}: {cause}" if cause else message
    return state, (*closing, effects.FailJob(why, full))


def fail_unworkable(moment: Moment) -> StepResult:
    """Give up at once, with the reason that the event names."""
    event = moment.event
    assert isinstance(event, events.Unworkable)
    state, closing = close(clear_deadlines(moment.state, *Deadline), Outcome.FAILED, event.message)
    return state, (*closing, effects.FailJob(event.reason, event.message))


_FAILURES: Final = {
    "ProgramBudgetLeft": "ProgramFailures",
    "Progress": "NoProgress",
    "BudgetLeft": "RestartBudgetSpent",
    "ActionAllowed": "RestartNotAllowed",
}


def _why_failed(reason: str, sentence: str, verdicts: tuple[Verdict, ...]) -> tuple[str, str]:
    """Reason and message; the refusal of the last rung is the one that counts."""
    if not verdicts:
        return reason, sentence
    names = {refusal.name: refusal.message for refusal in verdicts[-1].refusals}
    for name, why in _FAILURES.items():
        if name in names:
            return why, names[name]
    return reason, verdicts[-1].message


# ---------------------------------------------------------------------- notes that change little


def ignore(reason: str) -> Callable[[Moment], StepResult]:
    """Change nothing, and say why so that it can be counted."""
    return partial(_ignore, reason)


def _ignore(reason: str, moment: Moment) -> StepResult:
    moment.ignored = moment.ignored or f"{reason}: in {moment.state.phase}, {str(moment.event)[:_EVENT_LIMIT]}"
    return moment.state, ()


def note(moment: Moment) -> StepResult:
    """Remember what explains a slow start."""
    fact = moment.fact
    ids = (*moment.state.fact_ids, fact.id)[-FACT_LIMIT:]
    text = f"{fact.code or fact.kind}: {fact.message}"[-_MESSAGE_LIMIT:]
    return replace(moment.state, problem=text, fact_ids=ids), (effects.Announce(fact.kind.value, text),)


def observed(moment: Moment) -> StepResult:
    """Say what would be done, and do nothing."""
    fact = moment.fact
    action = moment.decide(FAULT).action
    state = replace(moment.state, fact_ids=(*moment.state.fact_ids, fact.id)[-FACT_LIMIT:])
    return state, (effects.Announce("Observed", f"fact {fact.id} ({fact.kind}): {action or 'nothing'} would follow"),)


def hold(moment: Moment) -> StepResult:
    """Open an incident and start nothing."""
    moment.loss = moment.loss_of_fact()
    incident = replace(
        new_incident(moment, moment.state, moment.first_action(), Purpose.FAULT), lost_ranks=moment.fact_ranks()
    )
    state = replace(moment.state, incident=incident, incarnation=incident.number)
    return state, (effects.Announce("Held", f"fact {moment.fact.id} waits, mode is Hold"),)


def hold_more(moment: Moment) -> StepResult:
    """Another fact joins what is held."""
    incident = moment.incident
    assert incident is not None
    moment.loss = moment.loss_of_fact()
    action = max(incident.action, moment.first_action(), key=RUNG.__getitem__)
    incident = replace(incident, action=action, **joined(moment, incident))
    return replace(moment.state, incident=incident), ()


def lose_coordinator(moment: Moment) -> StepResult:
    """Go on unprotected, with a new coordinator that takes over the agents."""
    state, closing = settle(moment, "the coordinator was lost")
    number = state.incarnation + 1
    stale = (Deadline.RECOVERY, Deadline.EXPAND, Deadline.COORDINATOR)
    state = clear_deadlines(replace(state, incarnation=number), *stale)
    announce = effects.Announce("CoordinatorLost", _told(moment) or "the controller is gone")
    anew = (effects.DeleteCoordinator(below=number), effects.CreateCoordinator(number))
    return state, (announce, *closing, *anew)


def _told(moment: Moment) -> str:
    """What the event, or its fact, says for people; not every kind of event says anything."""
    told: str = getattr(moment.event, "message", moment.fact.message)
    return last_lines(told, _MESSAGE_LIMIT)


def await_coordinator(moment: Moment) -> StepResult:
    """It cannot be reached, but may come back: say so and wait."""
    if Deadline.COORDINATOR in moment.state.deadlines:
        return moment.state, ()
    state = set_deadline(moment.state, Deadline.COORDINATOR, moment.now_ms + 1000 * COORDINATOR_SECONDS)
    return state, (effects.Announce("CoordinatorUnreachable", _told(moment)),)


def await_another(moment: Moment) -> StepResult:
    """The successor of a lost coordinator has ended, too: make another one, but not in a hurry."""
    if Deadline.COORDINATOR in moment.state.deadlines:
        return moment.state, ()
    at_ms = moment.now_ms + 1000 * ANOTHER_COORDINATOR_SECONDS
    state = set_deadline(moment.state, Deadline.COORDINATOR, at_ms)
    return state, (effects.Announce("CoordinatorLost", _told(moment) or "it has ended"),)


def coordinator_back(moment: Moment) -> StepResult:
    """It serves: nothing was lost."""
    return clear_deadlines(moment.state, Deadline.COORDINATOR), ()


def forget_deadline(moment: Moment) -> StepResult:
    """A deadline that nothing waits for any more."""
    event = moment.event
    assert isinstance(event, events.DeadlineReached)
    return clear_deadlines(moment.state, Deadline(event.name)), ()


def checkpoint_seen(moment: Moment) -> StepResult:
    """A periodic checkpoint is complete."""
    event = moment.event
    assert isinstance(event, events.CheckpointVerified)
    return replace(moment.state, step=max(moment.state.step, event.step)), ()


def may_save(moment: Moment) -> bool:
    """Whether MindIO could save the running training now."""
    return not _refusals_to_save(moment)


def _refusals_to_save(moment: Moment) -> tuple[Refusal, ...]:
    lost = moment.incident.lost_ranks if moment.incident and moment.incident.purpose is Purpose.FAULT else ()
    judge = Judge(Loss(ranks=lost, counted=False), SAVE_FIRST, moment.state, moment.view, moment.policy, moment.now_ms)
    return judge.refusals(Action.CHECKPOINT)
