"""The one table: (state, event, guard, effect, next).

Code, diagram (docs/internals/state-machine.md) and the exhaustive test all come from these rows. The planner tests the
rows of a cell from top to bottom and takes the first whose guard holds; the last row of every cell has the guard
`always`, so that every event has an answer. Rows that do nothing say why; the shell counts them.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from hajob.domain.actions import Action
from hajob.domain.incidents import Purpose
from hajob.plan import coordinators as c
from hajob.plan import elastic, ending, fencing
from hajob.plan import guards as g
from hajob.plan import lifecycle as life
from hajob.plan import pause as hold
from hajob.plan import recovery as r
from hajob.plan import resize as size
from hajob.plan.context import Guard, Handler, TableRow
from hajob.plan.evaluator import (
    DUMP_OR_EXIT,
    EXIT_ONLY,
    FAULT,
    LATE,
    PROCESS_LATE,
    RETRY_LATE,
    UNREPAIRABLE,
    UNTRAINED,
    Trigger,
)
from hajob.plan.events import (
    EVENTS,
    Accepted,
    AllFinished,
    AllRanksStarted,
    CapacityAvailable,
    CapacityLost,
    CheckpointVerified,
    ControllerTakenOver,
    CoordinatorLost,
    CoordinatorMoveRequested,
    CoordinatorPlaced,
    CoordinatorReachable,
    CoordinatorReady,
    CoordinatorUnplaced,
    CoordinatorUnreachable,
    DeadlineReached,
    Deleted,
    FactSeen,
    FactsWithdrawn,
    JobEvent,
    LastStepEnded,
    MigrateRequested,
    Named,
    PauseEnded,
    PauseRequested,
    PlacesFound,
    PlacesMissing,
    PodsFinished,
    PodsReady,
    PolicyChanged,
    RanksUnreachable,
    ReplacementsReady,
    RestartRequested,
    ResultReported,
    Resumed,
    ResumeRequested,
    Stopped,
    StrategiesOffered,
    SuspendRequested,
    Unworkable,
)
from hajob.plan.ignored import IGNORE_SENTENCE
from hajob.plan.ignored import IgnoreReason as Why
from hajob.plan.state import HELD_UP, LIVE, JobPhase

P = JobPhase
States = tuple[JobPhase, ...] | JobPhase

_BEGIN: Final = {
    Action.RETRY: (
        Handler("retry", "hold the training, repeat the step", partial(r.begin_process, Action.RETRY)),
        P.GATHERING,
    ),
    Action.IN_PLACE: (
        Handler(
            "restart processes",
            "hold the training, start the lost processes anew",
            partial(r.begin_process, Action.IN_PLACE),
        ),
        P.GATHERING,
    ),
    Action.REPLACE: (
        Handler("replace pods", "hold the training, make the lost pods anew", partial(r.begin_process, Action.REPLACE)),
        P.GATHERING,
    ),
    Action.SHRINK: (Handler("shrink", "drop the lost data-parallel ranks", r.begin_shrink), P.SHRINKING),
    Action.CHECKPOINT: (Handler("save", "save the step where the training stands", r.begin_checkpoint), P.SAVING),
    Action.RESTART: (Handler("restart", "end every process and start anew", r.begin_restart), P.RESTARTING),
}
_SAVED: Final = Handler("restart from saved", "start anew from the checkpoint just saved", r.restart_from_saved)
_FAIL: Final = Handler("fail", "give up; the last action evaluated says why", partial(life.fail_job, "NothingLeft", ""))
_UNWORKABLE: Final = Handler("fail", "give up: no restart changes it", life.fail_unworkable)
_COMPLETE: Final = Handler("complete", "the job is complete", life.complete_job)
_SUSPEND: Final = Handler("delete all", "delete every pod", life.suspend_job)
_DELETE: Final = Handler("delete", "delete every pod and close what is open", life.delete_job)
_UNPROTECTED: Final = Handler("new coordinator", "go on unprotected with a new coordinator", c.lose_coordinator)
_RESTART_ALONE: Final = Handler("restart for controller", "restart with a new controller", c.restart_unprotected)
_ANOTHER: Final = Handler("another goes on", "make another one, which goes on with it", c.another_goes_on)
_BACK: Final = Handler("back", "nothing was lost", c.coordinator_back)
_PROTECTED: Final = Handler("protected", "another controller knows every rank", c.protected_again)
_PROTECTED_SMALL: Final = Handler("protected", "another controller knows who takes part", elastic.protected_again)
_HOLD: Final = Handler(
    "wait", "open an incident, decide when a controller protects the job again", c.hold_until_protected
)
_NOTE_LOSS: Final = Handler("note", "note whether it is for good", c.stay_unprotected)
_LET_GO: Final = Handler("let go", "close the incident", life.close_withdrawn_hold)
_BLIND_NOW: Final = g.both_guards(g.BLIND_FACT, g.RESTART_NOW)
_RELEASED_NOW: Final = g.both_guards(g.RELEASED, g.SERVING)
_SERVES_ON: Final = g.both_guards(g.RELIEVED_HEARD, _RELEASED_NOW)
_SHRUNK: Final = Handler("shrunk", "go on with what is left", elastic.go_on_shrunk)
_GROW_LATER: Final = Handler("delay", "grow after the delay", elastic.await_expand)
_WAIT_FOR_NODES: Final = Handler("wait", "look for capacity again after the delay", elastic.await_capacity)
_EXPANDED: Final = Handler("grown", "back at full size", elastic.close_expand)
_GO_ON: Final = Handler("go on", "have every rank go on", hold.continue_after_pause)
_PAUSE_OVER: Final = Handler("close", "close the incident", hold.close_pause)
_PAUSE_BROKEN: Final = Handler("give up pausing", "the training was not held, or goes on by itself", hold.abandon_pause)
_AWAIT_END: Final = Handler("none", "nothing, the training goes on in a moment", r.change_nothing)
_GATHERED: Final = Handler("all there", "the action's own deadline counts", r.start_own_deadline)
_RECOVERED: Final = Handler("close", "close the incident", r.close_as_recovered)
_KEPT_LOST: Final = Handler("give up a kept pod", "make it anew when the job grows", elastic.release_kept_pod)
_NO_MOVE: Final = Handler("say why not", "say that no move is made now", elastic.refuse_migrate)
_LET_END: Final = Handler("let end", "end what is under way: nothing is left to train", ending.begin_ending)
_HEAR: Final = Handler("another", "make another one, which reports how the ranks end", c.hear_of_the_end)
_MAY_SAVE: Final = Guard("may save", "MindIO could save now", life.may_save_training)
_MUST_SAVE: Final = Guard(
    "must save",
    "the restart must not lose the present step",
    lambda context: context.event_of(RestartRequested).must_save,
)
_REFUSE_UNSAVED: Final = Handler("say why not", "say why the step cannot be saved", life.refuse_unsaved_restart)


def _table_row(
    states: States,
    event: type[JobEvent],
    guard: Guard,
    handler: Handler,
    target: JobPhase | None = None,
    *,
    trigger: Trigger | None = None,
) -> TableRow:
    return TableRow(states if isinstance(states, tuple) else (states,), event, guard, handler, target, trigger)


def _rows_by_action(
    states: States,
    event: type[JobEvent],
    trigger: Trigger,
    when: Guard | None = None,
    by: Callable[[Handler], Handler] = lambda handler: handler,
) -> tuple[TableRow, ...]:
    """Return one row for each action of the trigger, and one for giving up; `by` says who carries it out."""
    rows = []
    for action in trigger.actions:
        chosen = g.chooses_action(trigger, action)
        handler, target = _BEGIN[action]
        rows.append(
            _table_row(
                states, event, g.both_guards(when, chosen) if when else chosen, by(handler), target, trigger=trigger
            )
        )
    rows.append(_table_row(states, event, when or g.ALWAYS, _FAIL, P.FAILED, trigger=trigger))
    return tuple(rows)


def _with_old_coordinator(handler: Handler) -> Handler:
    sentence = f"{handler.sentence}; the coordinator that was to be relieved stays"
    return Handler(handler.name, sentence, partial(c.keep_old_coordinator, handler.run))


def _ignored_row(states: States, event: type[JobEvent], reason: Why, guard: Guard = g.ALWAYS) -> TableRow:
    return _table_row(
        states,
        event,
        guard,
        Handler("ignore", f"nothing: {IGNORE_SENTENCE[reason]}", partial(life.ignore_event, reason)),
    )


def _milestone_handler(name: str, **changes: bool) -> Handler:
    return Handler(f"note {name}", f"note the time of {name}", partial(r.note_milestone, name, **changes))


_STARTING = (P.PENDING, P.STARTING, P.WARMING, P.RESTARTING)
_TRAINING = (P.RUNNING, P.CONFIRMING, P.SHRUNK, P.EXPANDING, P.MIGRATING)
_AT_WORK = (P.RUNNING, P.SHRUNK)
_ACTING = (*HELD_UP, P.SAVING)
_WITH_PODS = (*_STARTING, *_TRAINING, *_ACTING, P.UNPROTECTED, P.HELD, P.ENDING)
_BEYOND_START = (P.WARMING, *_TRAINING, *_ACTING, P.UNPROTECTED, P.HELD, P.ENDING)
_ACTIVE = (*HELD_UP, P.CONFIRMING, P.SAVING, P.EXPANDING, P.MIGRATING)

_LIFE = (
    _table_row(P.NEW, Accepted, g.ALWAYS, Handler("create", "make pods and coordinator", life.accept_job), P.PENDING),
    _table_row(
        (P.PENDING, P.RESTARTING), PodsReady, g.ALWAYS, Handler("none", "nothing", r.change_nothing), P.STARTING
    ),
    _ignored_row(_STARTING, AllRanksStarted, Why.OTHER_ATTEMPT, g.OTHER_ATTEMPT),
    _table_row(
        (P.PENDING, P.RESTARTING, P.STARTING), AllRanksStarted, g.ALWAYS, _milestone_handler("Started"), P.WARMING
    ),
    _ignored_row(_STARTING, Resumed, Why.OTHER_INCARNATION, g.FOREIGN),
    _table_row(
        (P.STARTING, P.WARMING),
        Resumed,
        g.ALWAYS,
        Handler("trained", "close what is open", r.close_as_recovered),
        P.RUNNING,
    ),
    _table_row(_STARTING, Unworkable, g.ALWAYS, _UNWORKABLE, P.FAILED),
    _table_row(_WITH_PODS, AllFinished, g.ALWAYS, _COMPLETE, P.COMPLETE),
    _table_row(
        P.HELD,
        Resumed,
        g.GOES_ON_STARTING,
        Handler("trains", "note that it trains, the incident stays open", life.note_training),
    ),
    _ignored_row((P.PENDING, P.STARTING, P.RESTARTING), PodsFinished, Why.NOT_TRAINED),
    _ignored_row(P.HELD, PodsFinished, Why.NOT_TRAINED, g.HELD_AT_START),
    _table_row(_BEYOND_START, PodsFinished, g.ALWAYS, _COMPLETE, P.COMPLETE),
    _table_row(
        LIVE,
        RanksUnreachable,
        g.ALWAYS,
        Handler("note", "no start beside ranks that may live on", fencing.note_fenced_nodes),
    ),
    _table_row(LIVE, Deleted, g.ALWAYS, _DELETE, P.DELETED),
    _table_row(P.FAILED, RestartRequested, _MUST_SAVE, _REFUSE_UNSAVED),
    _table_row(
        P.FAILED,
        RestartRequested,
        g.ALWAYS,
        Handler("revive", "start anew, with every budget", life.revive_failed_job),
        P.PENDING,
    ),
    _table_row((P.COMPLETE, P.FAILED), Deleted, g.ALWAYS, _DELETE, P.DELETED),
)

_ENDING = (
    # a report may hold more: what comes first in it can have started another attempt
    _ignored_row(_WITH_PODS, LastStepEnded, Why.OTHER_ATTEMPT, g.OTHER_ATTEMPT),
    _table_row((*_STARTING, *_TRAINING, P.PAUSED, P.UNPROTECTED), LastStepEnded, g.ALWAYS, _LET_END, P.ENDING),
    _table_row(
        (P.GATHERING, P.RESUMING, P.SHRINKING, P.SAVING, P.HELD),
        LastStepEnded,
        ending.REPORTED_SAVED,
        _LET_END,
        P.ENDING,
    ),
    _table_row(
        P.ENDING,
        LastStepEnded,
        g.ALWAYS,
        Handler("note", "note who has finished, and what is saved", ending.follow_ending),
    ),
    _table_row(P.ENDING, DeadlineReached, g.both_guards(g.DUE_ACTIVE, ending.SAVED), _COMPLETE, P.COMPLETE),
    _table_row(P.ENDING, DeadlineReached, g.both_guards(ending.DUE_FINISH, ending.SAVED), _COMPLETE, P.COMPLETE),
    _table_row(
        P.ENDING,
        DeadlineReached,
        ending.DUE_FINISH,
        Handler("await the checkpoint", "look at the final checkpoint once more", ending.await_late_checkpoint),
    ),
    *_rows_by_action(P.ENDING, DeadlineReached, EXIT_ONLY, g.both_guards(g.DUE_RECOVERY, g.RELEASED)),
    _table_row(
        P.ENDING, DeadlineReached, g.DUE_RECOVERY, Handler("hold", "wait for the policy", ending.hold_loss_again)
    ),
    _table_row(P.ENDING, DeadlineReached, g.both_guards(g.DUE_COORDINATOR, g.SERVING), _BACK),
    _table_row(P.ENDING, DeadlineReached, g.DUE_COORDINATOR, _HEAR),
    _table_row(P.ENDING, CoordinatorLost, g.ALWAYS, Handler("another", "make another one soon", c.await_another)),
    _ignored_row(P.ENDING, SuspendRequested, Why.ENDING),
)

_FACTS = (
    _table_row(P.SHRUNK, FactSeen, g.KEPT_POD_LOST, _KEPT_LOST),
    _ignored_row(_WITH_PODS, FactSeen, Why.INVALID, g.UNCONCERNED),
    _table_row(
        _WITH_PODS, FactSeen, g.NOTE, Handler("note", "remember what explains a slow start", life.note_slow_start)
    ),
    _ignored_row(P.ENDING, FactSeen, Why.ENDING, ending.HARMLESS),
    _table_row(
        P.ENDING,
        FactSeen,
        g.ALWAYS,
        Handler("await the checkpoint", "open an incident, look at the final checkpoint", ending.await_checkpoint),
    ),
    # the first step has not ended, or there is no controller: only a restart is left
    _table_row(P.UNPROTECTED, FactSeen, g.both_guards(g.CONTROLLER_FACT, _BLIND_NOW), _RESTART_ALONE, P.RESTARTING),
    _table_row(
        P.UNPROTECTED,
        FactSeen,
        g.CONTROLLER_FACT,
        _NOTE_LOSS,
    ),
    _table_row((*_STARTING, P.HELD, P.UNPROTECTED), FactSeen, g.SICK_NODE, _NO_MOVE),
    _table_row(
        (P.PENDING, P.RESTARTING),
        FactSeen,
        g.NEVER_PLACED,
        Handler("place anew", "make the pod anew, and nothing else", life.remake_taken_pod),
    ),
    _table_row(
        (P.PENDING, P.RESTARTING),
        FactSeen,
        g.TAKEN_BY_CLUSTER,
        Handler("make it anew", "make the pod anew, and nothing else", life.remake_taken_pod),
        trigger=UNTRAINED,
    ),
    _table_row(
        _STARTING,
        FactSeen,
        g.MISSING_COMMAND,
        Handler(
            "fail",
            "give up: another start finds the same",
            partial(
                life.fail_job, "ProgramFailures", "not tried again: the command does not exist or cannot be executed"
            ),
        ),
        P.FAILED,
    ),
    *_rows_by_action(_STARTING, FactSeen, UNTRAINED),
    # a move off a node that still works
    _table_row(
        P.RUNNING,
        FactSeen,
        g.both_guards(g.MOVE, g.MAY_MIGRATE),
        Handler("second pods", "make second pods elsewhere", elastic.begin_migration),
        P.MIGRATING,
    ),
    _table_row(P.RUNNING, FactSeen, g.MOVE, _NO_MOVE),
    _table_row((P.CONFIRMING, P.SHRUNK, P.EXPANDING, P.MIGRATING, *_ACTING), FactSeen, g.SICK_NODE, _NO_MOVE),
    # a lost controller costs nothing as long as the training goes on
    _table_row(_TRAINING, FactSeen, g.both_guards(g.CONTROLLER_FACT, _BLIND_NOW), _RESTART_ALONE, P.RESTARTING),
    _table_row(_TRAINING, FactSeen, g.CONTROLLER_FACT, _UNPROTECTED, P.UNPROTECTED),
    _table_row((*_ACTING, P.HELD), FactSeen, g.both_guards(g.CONTROLLER_FACT, g.ANOTHER_GOES_ON), _ANOTHER),
    _table_row(P.SAVING, FactSeen, g.both_guards(g.CONTROLLER_FACT, g.SUSPENDING), _SUSPEND, P.SUSPENDED),
    *_rows_by_action(_ACTING, FactSeen, EXIT_ONLY, g.CONTROLLER_FACT),
    _table_row(
        P.EXPANDING,
        FactSeen,
        g.RETURNING,
        Handler("give up growing", "train on shrunk", elastic.give_up_expand),
        P.SHRUNK,
    ),
    _table_row(_TRAINING, FactSeen, g.MISSED, _HOLD, P.HELD),
    *_rows_by_action(P.RUNNING, FactSeen, FAULT),
    *_rows_by_action(P.UNPROTECTED, FactSeen, DUMP_OR_EXIT, g.both_guards(_SERVES_ON, g.SMALL), _with_old_coordinator),
    *_rows_by_action(P.UNPROTECTED, FactSeen, FAULT, _SERVES_ON, _with_old_coordinator),
    _table_row(P.UNPROTECTED, FactSeen, g.TAKING_OVER, _HOLD, P.HELD),
    *_rows_by_action(P.UNPROTECTED, FactSeen, EXIT_ONLY),
    *_rows_by_action(
        P.HELD, FactSeen, EXIT_ONLY, g.both_guards(g.CONTROLLER_FACT, g.both_guards(g.BLIND_FACT, g.RELEASED))
    ),
    _table_row(P.HELD, FactSeen, g.CONTROLLER_FACT, _NOTE_LOSS),
    _table_row(P.HELD, FactSeen, g.ALWAYS, Handler("hold", "the fact joins what is held", life.add_held_fact)),
    *_rows_by_action((P.GATHERING, P.PAUSED), FactSeen, FAULT),
    *_rows_by_action((P.RESUMING, P.SHRINKING, P.CONFIRMING, P.SHRUNK), FactSeen, DUMP_OR_EXIT),
    *_rows_by_action(P.EXPANDING, FactSeen, DUMP_OR_EXIT),
    *_rows_by_action(P.MIGRATING, FactSeen, FAULT),
    _ignored_row(P.SAVING, FactSeen, Why.SAVING),
    # no action was taken yet: withdrawn facts need none
    _table_row(P.HELD, FactsWithdrawn, g.both_guards(g.NOTHING_LEFT, g.HELD_AT_START), _LET_GO, P.PENDING),
    _table_row(P.HELD, FactsWithdrawn, g.both_guards(g.NOTHING_LEFT, g.UNSERVED), _LET_GO, P.UNPROTECTED),
    _table_row(P.HELD, FactsWithdrawn, g.both_guards(g.NOTHING_LEFT, g.SMALL), _LET_GO, P.SHRUNK),
    _table_row(P.HELD, FactsWithdrawn, g.NOTHING_LEFT, _LET_GO, P.RUNNING),
    _table_row(
        P.MIGRATING,
        FactsWithdrawn,
        g.NOTHING_LEFT,
        Handler("give up moving", "train on", elastic.give_up_second_pods),
        P.RUNNING,
    ),
    _table_row(
        (P.HELD, P.MIGRATING),
        FactsWithdrawn,
        g.ALWAYS,
        Handler("forget the fact", "the others still count", life.withdraw_facts),
    ),
)

# MindIO has stopped a training that trains for all the operator knows, as the facts were stale here or never came.
# What succeeded trains on; the rest has ended the training, or is about to.
_UNOPENED_RESULTS = (
    _table_row(
        _AT_WORK,
        ResultReported,
        g.both_guards(g.both_guards(g.UNOPENED, g.STANDING_SAVE), g.chooses_action(EXIT_ONLY, Action.RESTART)),
        _SAVED,
        P.RESTARTING,
        trigger=EXIT_ONLY,
    ),
    _table_row(
        _AT_WORK, ResultReported, g.both_guards(g.UNOPENED, g.STANDING_SAVE), _FAIL, P.FAILED, trigger=EXIT_ONLY
    ),
    *_rows_by_action(_AT_WORK, ResultReported, DUMP_OR_EXIT, g.both_guards(g.UNOPENED, g.has_result(405, 406))),
    *_rows_by_action(_AT_WORK, ResultReported, EXIT_ONLY, g.both_guards(g.UNOPENED, g.has_result(404, 499))),
)

_RECOVERY = (
    *(
        _ignored_row(_ACTIVE, event, Why.OTHER_INCARNATION, g.FOREIGN)
        for event in (Stopped, ReplacementsReady, Named, StrategiesOffered, Resumed, ResultReported)
    ),
    _ignored_row((P.SHRUNK, P.UNPROTECTED), ResultReported, Why.OTHER_INCARNATION, g.FOREIGN),
    *(
        _ignored_row((*_ACTIVE, P.SHRUNK), event, Why.UNKNOWN_STRATEGY, g.STRANGE)
        for event in (StrategiesOffered, ResultReported)
    ),
    _table_row(
        P.GATHERING,
        Stopped,
        g.MORE_RANKS,
        Handler("widen", "restart these as well", r.widen_by_mindio),
        trigger=FAULT,
    ),
    _table_row(_ACTING, Stopped, g.ALWAYS, _milestone_handler("Stopped", stopped=True)),
    _ignored_row(P.GATHERING, ReplacementsReady, Why.OLDER_ORDER, g.OLD_REVISION),
    _table_row((P.GATHERING, P.EXPANDING, P.MIGRATING), ReplacementsReady, g.ALWAYS, _GATHERED),
    *_rows_by_action(P.GATHERING, Named, DUMP_OR_EXIT, g.NAMED_TOO_FEW),
    _table_row(P.GATHERING, Named, g.ALWAYS, _milestone_handler("Named", named=True), P.RESUMING),
    _table_row((P.SHRINKING, P.SAVING), Named, g.ALWAYS, _milestone_handler("Named", named=True)),
    *_rows_by_action((P.GATHERING, P.RESUMING, P.SHRINKING), StrategiesOffered, EXIT_ONLY, g.NO_SAVE_OFFERED),
    *_rows_by_action((P.GATHERING, P.RESUMING, P.SHRINKING), StrategiesOffered, DUMP_OR_EXIT, g.NOT_OFFERED),
    _table_row(P.SAVING, StrategiesOffered, g.both_guards(g.NOT_OFFERED, g.SUSPENDING), _SUSPEND, P.SUSPENDED),
    *_rows_by_action(P.SAVING, StrategiesOffered, EXIT_ONLY, g.NOT_OFFERED),
    _table_row((*_ACTING, P.MIGRATING, P.EXPANDING), StrategiesOffered, g.ALWAYS, _milestone_handler("Strategies")),
    _table_row(P.PAUSED, Resumed, hold.GOING_ON, _PAUSE_OVER, P.RUNNING),
    _table_row(P.RESUMING, Resumed, g.CONFIRMED, _RECOVERED, P.RUNNING),
    _table_row(
        (P.GATHERING, P.RESUMING),
        Resumed,
        g.ALWAYS,
        Handler("first step", "note the end of the outage", r.note_first_step),
        P.CONFIRMING,
    ),
    _table_row(P.SHRINKING, Resumed, g.ALWAYS, _SHRUNK, P.SHRUNK),
    _table_row(P.EXPANDING, Resumed, g.ALWAYS, _EXPANDED, P.RUNNING),
    _table_row(
        P.MIGRATING, Resumed, g.ALWAYS, Handler("moved", "the old pods go", elastic.finish_migration), P.RUNNING
    ),
)

_RESULTS = (
    *(
        _table_row(HELD_UP, ResultReported, g.both_guards(g.STANDING_SAVE, guard), step, target, trigger=trigger)
        for guard, step, target, trigger in (
            (g.chooses_action(EXIT_ONLY, Action.RESTART), _SAVED, P.RESTARTING, None),
            (g.ALWAYS, _FAIL, P.FAILED, EXIT_ONLY),
        )
    ),
    _table_row(P.PAUSED, ResultReported, g.has_result(0), _PAUSE_OVER, P.RUNNING),
    _table_row(P.PAUSED, ResultReported, g.has_result(406), _PAUSE_BROKEN, P.RUNNING),
    _table_row(P.RESUMING, ResultReported, g.has_result(0), _milestone_handler("Result")),
    _table_row(P.CONFIRMING, ResultReported, g.has_result(0), _RECOVERED, P.RUNNING),
    _table_row(
        P.SHRINKING,
        ResultReported,
        g.has_result(201),
        Handler("isolate", "take over MindIO's set", elastic.adopt_isolated),
    ),
    _table_row(P.SHRINKING, ResultReported, g.has_result(0), _SHRUNK, P.SHRUNK),
    _table_row(P.EXPANDING, ResultReported, g.has_result(0), _EXPANDED, P.RUNNING),
    _table_row(
        P.MIGRATING,
        ResultReported,
        g.has_result(0),
        Handler("moved", "the old pods go", elastic.finish_migration),
        P.RUNNING,
    ),
    *_rows_by_action((P.GATHERING, P.RESUMING), ResultReported, UNREPAIRABLE, g.has_result(405)),
    *_rows_by_action(
        (*HELD_UP, P.CONFIRMING, P.EXPANDING, P.MIGRATING, P.SHRUNK), ResultReported, DUMP_OR_EXIT, g.has_result(406)
    ),
    *_rows_by_action(
        (*HELD_UP, P.CONFIRMING, P.EXPANDING, P.MIGRATING, P.SHRUNK), ResultReported, EXIT_ONLY, g.has_result(404, 499)
    ),
    *_rows_by_action(P.UNPROTECTED, ResultReported, DUMP_OR_EXIT, g.both_guards(g.has_result(406), g.SMALL)),
    _table_row(
        P.SAVING, ResultReported, g.both_guards(g.has_result(0, strategy="dump"), g.SUSPENDING), _SUSPEND, P.SUSPENDED
    ),
    *(
        _table_row(
            P.SAVING,
            ResultReported,
            g.both_guards(g.has_result(0, strategy="dump"), guard),
            step,
            target,
            trigger=trigger,
        )
        for guard, step, target, trigger in (
            (g.chooses_action(EXIT_ONLY, Action.RESTART), _SAVED, P.RESTARTING, None),
            (g.ALWAYS, _FAIL, P.FAILED, EXIT_ONLY),
        )
    ),
    _table_row(P.SAVING, ResultReported, g.both_guards(g.has_result(404, 499), g.SUSPENDING), _SUSPEND, P.SUSPENDED),
    *_rows_by_action(P.SAVING, ResultReported, EXIT_ONLY, g.has_result(404, 499)),
    _ignored_row((*HELD_UP, *_TRAINING, P.SAVING), ResultReported, Why.ENDS_NOTHING),
)

_DEADLINES = (
    _table_row(
        LIVE,
        DeadlineReached,
        g.DUE_ACTIVE,
        Handler("fail", "give up", partial(life.fail_job, "ActiveDeadlineExceeded", "activeDeadlineSeconds are over")),
        P.FAILED,
    ),
    _table_row(
        _STARTING,
        DeadlineReached,
        g.DUE_CAPACITY,
        Handler(
            "fail",
            "give up",
            partial(life.fail_job, "CapacityTimeoutExceeded", "scheduling.capacityTimeoutSeconds are over"),
        ),
        P.FAILED,
    ),
    _table_row(
        _STARTING,
        DeadlineReached,
        g.both_guards(g.DUE_STARTUP, g.START_GOES_ON),
        Handler("wait on", "wait startupDeadlineSeconds from its last sign on", life.start_goes_on),
    ),
    _table_row(
        _STARTING,
        DeadlineReached,
        g.both_guards(g.DUE_STARTUP, g.FIRST_START),
        Handler(
            "fail", "give up", partial(life.fail_job, "StartupDeadlineExceeded", "startupDeadlineSeconds are over")
        ),
        P.FAILED,
    ),
    *_rows_by_action(_STARTING, DeadlineReached, UNTRAINED, g.DUE_STARTUP),
    _table_row(
        _ACTING,
        DeadlineReached,
        g.both_guards(g.DUE_RECOVERY, g.AWAITED),
        Handler("wait on", "nobody could be told what follows: look again in a moment", c.extend_deadline),
    ),
    *_rows_by_action(P.GATHERING, DeadlineReached, RETRY_LATE, g.both_guards(g.DUE_RECOVERY, g.RETRYING)),
    *_rows_by_action(P.GATHERING, DeadlineReached, PROCESS_LATE, g.both_guards(g.DUE_RECOVERY, g.NO_POD_AWAITED)),
    *_rows_by_action((P.GATHERING, P.RESUMING), DeadlineReached, LATE, g.DUE_RECOVERY),
    *_rows_by_action(P.SHRINKING, DeadlineReached, DUMP_OR_EXIT, g.DUE_RECOVERY),
    *_rows_by_action(P.HELD, DeadlineReached, EXIT_ONLY, g.both_guards(g.DUE_RECOVERY, g.RELEASED)),
    _table_row(P.PAUSED, DeadlineReached, g.both_guards(g.DUE_RECOVERY, hold.HELD), _GO_ON),
    _table_row(P.PAUSED, DeadlineReached, g.DUE_RECOVERY, _PAUSE_BROKEN, P.RUNNING),
    _table_row(P.CONFIRMING, DeadlineReached, g.DUE_RECOVERY, _RECOVERED, P.RUNNING),
    _table_row(P.SAVING, DeadlineReached, g.both_guards(g.DUE_RECOVERY, g.SUSPENDING), _SUSPEND, P.SUSPENDED),
    *_rows_by_action(P.SAVING, DeadlineReached, EXIT_ONLY, g.DUE_RECOVERY),
    _table_row(
        P.EXPANDING,
        DeadlineReached,
        g.DUE_RECOVERY,
        Handler("give up growing", "train on", elastic.give_up_expand),
        P.SHRUNK,
    ),
    _table_row(
        P.MIGRATING,
        DeadlineReached,
        g.DUE_RECOVERY,
        Handler("give up moving", "train on", elastic.give_up_migrate),
        P.RUNNING,
    ),
    _table_row(
        P.SHRUNK,
        DeadlineReached,
        g.both_guards(g.DUE_EXPAND, g.STEADY_CAPACITY),
        Handler("grow", "make the dropped pods anew", elastic.begin_expand),
        P.EXPANDING,
    ),
    _table_row(P.SHRUNK, DeadlineReached, g.both_guards(g.DUE_EXPAND, g.FRESH_CAPACITY), _GROW_LATER),
    _table_row(P.SHRUNK, DeadlineReached, g.DUE_EXPAND, _WAIT_FOR_NODES),
    _table_row(
        _WITH_PODS, DeadlineReached, g.DUE_UNPLACED, Handler("share", "let it share a node", c.share_node_with_rank)
    ),
    _table_row(
        (*_TRAINING, *_ACTING, P.UNPROTECTED, P.HELD, P.ENDING),
        DeadlineReached,
        g.DUE_UNREACHABLE,
        Handler("wait for it", "say so and wait", c.await_coordinator),
    ),
    _table_row((*_TRAINING, *_ACTING, P.HELD), DeadlineReached, g.both_guards(g.DUE_COORDINATOR, g.SERVING), _BACK),
    _table_row((*_TRAINING, P.UNPROTECTED), DeadlineReached, g.DUE_COORDINATOR, _UNPROTECTED, P.UNPROTECTED),
    _table_row((*_ACTING, P.HELD), DeadlineReached, g.both_guards(g.DUE_COORDINATOR, g.ANOTHER_GOES_ON), _ANOTHER),
    _table_row(P.SAVING, DeadlineReached, g.both_guards(g.DUE_COORDINATOR, g.SUSPENDING), _SUSPEND, P.SUSPENDED),
    *_rows_by_action(_ACTING, DeadlineReached, EXIT_ONLY, g.DUE_COORDINATOR),
    *_rows_by_action(P.HELD, DeadlineReached, EXIT_ONLY, g.both_guards(g.DUE_COORDINATOR, g.RELEASED)),
    _table_row(
        P.HELD,
        DeadlineReached,
        g.both_guards(g.DUE_COORDINATOR, g.HELD_AT_START),
        Handler("forget", "no other one can go on with a start", life.forget_deadline),
    ),
    _table_row(P.HELD, DeadlineReached, g.DUE_COORDINATOR, _ANOTHER),
    _table_row(LIVE, DeadlineReached, g.PASSED, Handler("forget", "forget the deadline", life.forget_deadline)),
    _ignored_row(tuple(P), DeadlineReached, Why.NOT_DUE),
)

_TAKE_UP: Final = Handler("make all anew", "make every rank pod anew", life.take_up_start)
_CAPACITY = (
    _table_row(
        _STARTING,
        DeadlineReached,
        g.both_guards(g.DUE_RELEASE, g.both_guards(g.RELEASED_CHIPS, g.NODES_FOR_ALL)),
        _TAKE_UP,
    ),
    _table_row(
        _STARTING,
        DeadlineReached,
        g.both_guards(g.DUE_RELEASE, g.RELEASED_CHIPS),
        Handler("forget", "wait for nodes", life.forget_deadline),
    ),
    _table_row(
        _STARTING,
        DeadlineReached,
        g.both_guards(g.DUE_RELEASE, g.HOLDS_CHIPS),
        Handler("give back", "delete every rank pod", life.give_back_chips),
    ),
    _table_row(_STARTING, DeadlineReached, g.DUE_RELEASE, Handler("forget", "it holds none", life.forget_deadline)),
    _table_row(
        _STARTING,
        CapacityAvailable,
        g.both_guards(g.RELEASED_CHIPS, g.both_guards(g.RESTED, g.NODES_FOR_ALL)),
        _TAKE_UP,
    ),
    _table_row(
        _STARTING, PlacesMissing, g.ALWAYS, Handler("wait", "the start-up clock stands still", life.await_places)
    ),
    _table_row(_STARTING, PlacesFound, g.ALWAYS, Handler("go on", "the start-up clock goes on", life.places_found)),
    _table_row(P.SHRUNK, CapacityAvailable, g.ENOUGH_NODES, _GROW_LATER),
    _table_row(P.SHRUNK, CapacityLost, g.ALWAYS, _WAIT_FOR_NODES),
)

_RESIZE = (
    _table_row(
        _STARTING,
        DeadlineReached,
        g.both_guards(g.DUE_FIT, size.FITS_SMALLER),
        Handler("start smaller", "make everything anew for the nodes that are there", size.start_smaller),
        P.RESTARTING,
    ),
    _table_row(
        P.RUNNING,
        DeadlineReached,
        g.both_guards(g.DUE_EXPAND, size.MAY_GROW),
        Handler("save to grow", "save, then start with all nodes", size.begin_growth),
        P.SAVING,
    ),
    _table_row(
        P.RUNNING,
        DeadlineReached,
        g.both_guards(g.DUE_EXPAND, size.SMALLER),
        Handler("look again", "look for nodes again after the delay", size.note_capacity),
    ),
    _table_row(
        P.RUNNING,
        CheckpointVerified,
        size.ROOM_HAS_LASTED,
        Handler("grow", "start with all nodes from this checkpoint", size.grow_from_periodic),
        P.RESTARTING,
    ),
    _table_row(P.RUNNING, CapacityAvailable, size.ENOUGH, Handler("delay", "grow after the delay", size.note_capacity)),
    _table_row(P.RUNNING, CapacityLost, size.SMALLER, Handler("wait", "wait for nodes again", size.note_lost_capacity)),
)

_REQUESTS = (
    _table_row(
        P.RUNNING,
        MigrateRequested,
        g.MAY_MIGRATE,
        Handler("second pods", "make second pods elsewhere", elastic.begin_migration),
        P.MIGRATING,
    ),
    _table_row(_WITH_PODS, MigrateRequested, g.ALWAYS, _NO_MOVE),
    _table_row(
        P.RUNNING,
        PauseRequested,
        hold.MAY_PAUSE,
        Handler("pause", "have every rank wait at the end of its step", hold.begin_pause),
        P.PAUSED,
    ),
    _table_row(
        P.RUNNING, PauseRequested, hold.NEVER_PAUSES, Handler("refuse", "say why it is not paused", hold.refuse_pause)
    ),
    _table_row(P.PAUSED, PauseEnded, hold.HELD, _GO_ON),
    # another request ends the pause, and is carried out once the job trains again
    *(_table_row(P.PAUSED, event, hold.HELD, _GO_ON) for event in (SuspendRequested, RestartRequested)),
    *(_table_row(P.PAUSED, event, g.ALWAYS, _AWAIT_END) for event in (SuspendRequested, RestartRequested)),
    _table_row(
        (P.RUNNING, P.SHRUNK),
        CoordinatorMoveRequested,
        g.MAY_HAND_OVER,
        Handler(
            "hand over",
            "make another one elsewhere, which takes over while the training goes on",
            c.hand_over_to_second,
        ),
        P.UNPROTECTED,
    ),
    _table_row(
        (P.RUNNING, P.SHRUNK),
        CoordinatorMoveRequested,
        g.ALWAYS,
        Handler("say why not", "say that the coordinator is not moved now", c.refuse_coordinator_move),
    ),
    _table_row(
        P.NEW, SuspendRequested, g.ALWAYS, Handler("none", "nothing has been made yet", r.change_nothing), P.SUSPENDED
    ),
    _table_row((*_STARTING, P.UNPROTECTED), SuspendRequested, g.ALWAYS, _SUSPEND, P.SUSPENDED),
    _table_row(
        (*_TRAINING, P.GATHERING, P.RESUMING, P.SHRINKING, P.HELD),
        SuspendRequested,
        _MAY_SAVE,
        Handler("save for suspend", "save, then delete", life.save_for_suspend),
        P.SAVING,
    ),
    _table_row((*_TRAINING, *HELD_UP, P.HELD), SuspendRequested, g.ALWAYS, _SUSPEND, P.SUSPENDED),
    _table_row(
        P.SAVING,
        SuspendRequested,
        g.ALWAYS,
        Handler("suspend after", "delete afterwards", partial(life.change_save_purpose, Purpose.SUSPEND)),
    ),
    _table_row(
        P.SUSPENDED, ResumeRequested, g.ALWAYS, Handler("create", "make everything anew", life.accept_job), P.PENDING
    ),
    _table_row(
        P.SAVING,
        ResumeRequested,
        g.SUSPENDING,
        Handler("restart after", "start anew afterwards", partial(life.change_save_purpose, Purpose.REQUEST)),
    ),
    _table_row((*_STARTING, P.UNPROTECTED, P.ENDING), RestartRequested, _MUST_SAVE, _REFUSE_UNSAVED),
    _table_row(
        (*_STARTING, P.UNPROTECTED, P.ENDING),
        RestartRequested,
        g.ALWAYS,
        Handler("restart asked", "start anew, no budget is spent", life.relaunch_on_request),
        P.RESTARTING,
    ),
    _table_row(
        (*_TRAINING, *HELD_UP, P.HELD),
        RestartRequested,
        _MAY_SAVE,
        Handler("save for restart", "save, then start anew", partial(life.save_for_purpose, Purpose.REQUEST)),
        P.SAVING,
    ),
    _table_row((*_TRAINING, *HELD_UP, P.HELD), RestartRequested, _MUST_SAVE, _REFUSE_UNSAVED),
    _table_row(
        (*_TRAINING, *HELD_UP, P.HELD),
        RestartRequested,
        g.ALWAYS,
        Handler("restart asked", "start anew, no budget is spent", life.relaunch_on_request),
        P.RESTARTING,
    ),
    *_rows_by_action(P.HELD, PolicyChanged, EXIT_ONLY, g.both_guards(g.RELEASED, g.ONLY_A_START)),
    *_rows_by_action(P.HELD, PolicyChanged, DUMP_OR_EXIT, g.both_guards(_RELEASED_NOW, g.NAMED_ALREADY)),
    *_rows_by_action(P.HELD, PolicyChanged, FAULT, _RELEASED_NOW),
    _table_row(
        P.HELD,
        PolicyChanged,
        g.RELEASED,
        Handler("wait", "decide when a controller protects the job again", c.await_protection),
    ),
)

_COORDINATOR = (
    _table_row(
        (*_TRAINING, *_ACTING, P.UNPROTECTED, P.HELD, P.ENDING),
        CoordinatorUnreachable,
        g.ALWAYS,
        Handler("miss it", "give it a moment", c.miss_coordinator),
    ),
    _table_row(
        _WITH_PODS, CoordinatorUnplaced, g.ALWAYS, Handler("await a node", "give it a moment", c.await_free_node)
    ),
    _table_row(_WITH_PODS, CoordinatorPlaced, g.ALWAYS, Handler("placed", "nothing is awaited", c.stop_place_wait)),
    _table_row(_TRAINING, CoordinatorReachable, g.ALWAYS, Handler("heard", "nothing was lost", c.hear_coordinator)),
    _table_row((*_ACTING, P.UNPROTECTED, P.HELD, P.ENDING), CoordinatorReachable, g.ALWAYS, _BACK),
    _table_row((*_TRAINING, P.ENDING), CoordinatorReady, g.ALWAYS, _BACK),
    _table_row(
        _ACTING,
        CoordinatorReady,
        g.ALWAYS,
        Handler("go on", "nothing was lost; what is under way has its own time from here on", c.limit_to_own_deadline),
    ),
    _table_row((*_ACTING, P.HELD), CoordinatorLost, g.ANOTHER_GOES_ON, _ANOTHER),
    _ignored_row(P.HELD, CoordinatorLost, Why.NOTHING_TO_DO, g.both_guards(g.WATCHING, g.HELD_AT_START)),
    _table_row(P.HELD, CoordinatorLost, g.WATCHING, Handler("another", "make another one soon", c.await_another)),
    *_rows_by_action((*_STARTING, *HELD_UP, P.HELD), CoordinatorLost, EXIT_ONLY),
    _table_row(P.SAVING, CoordinatorLost, g.SUSPENDING, _SUSPEND, P.SUSPENDED),
    *_rows_by_action(P.SAVING, CoordinatorLost, EXIT_ONLY),
    _table_row(_TRAINING, CoordinatorLost, g.ALWAYS, _UNPROTECTED, P.UNPROTECTED),
    _table_row(P.UNPROTECTED, CoordinatorLost, g.ALWAYS, Handler("another", "make another one soon", c.await_another)),
    _table_row(
        (P.UNPROTECTED, P.HELD),
        CoordinatorReady,
        g.RELIEVED_HEARD,
        Handler("await the other", "nothing, another one is about to relieve it", r.change_nothing),
    ),
    _table_row(P.UNPROTECTED, CoordinatorReady, g.SMALL, _PROTECTED_SMALL, P.SHRUNK),
    _table_row(P.UNPROTECTED, CoordinatorReady, g.ALWAYS, _PROTECTED, P.RUNNING),
    *_rows_by_action(P.HELD, CoordinatorReady, DUMP_OR_EXIT, g.both_guards(g.RELEASED, g.NAMED_ALREADY)),
    *_rows_by_action(P.HELD, CoordinatorReady, FAULT, g.RELEASED),
    _table_row(
        P.UNPROTECTED, CheckpointVerified, g.both_guards(g.BLIND, g.RESTART_AT_CHECKPOINT), _RESTART_ALONE, P.RESTARTING
    ),
    _table_row(P.UNPROTECTED, PolicyChanged, g.both_guards(g.BLIND, g.RESTART_NOW), _RESTART_ALONE, P.RESTARTING),
    _table_row(_WITH_PODS, ControllerTakenOver, g.ALWAYS, Handler("count", "count it", c.count_takeover)),
    _table_row(
        LIVE, CheckpointVerified, g.ALWAYS, Handler("note checkpoint", "remember its step", life.checkpoint_seen)
    ),
)

_WRITTEN = (
    *_LIFE,
    *_ENDING,
    *_FACTS,
    *_UNOPENED_RESULTS,
    *_RECOVERY,
    *_RESULTS,
    *_RESIZE,
    *_CAPACITY,
    *_DEADLINES,
    *_REQUESTS,
    *_COORDINATOR,
)


def _remaining_rows() -> tuple[TableRow, ...]:
    """Return the rows for everything else: a counted no-op for each kind of event."""
    rows = []
    for event in EVENTS:
        answered = {state for row in _WRITTEN if row.event is event and row.guard is g.ALWAYS for state in row.states}
        states = tuple(phase for phase in JobPhase if phase not in answered)
        if states:
            rows.append(_ignored_row(states, event, Why.NOTHING_TO_DO))
    return tuple(rows)


TABLE: Final[tuple[TableRow, ...]] = (*_WRITTEN, *_remaining_rows())
