"""Effects of the table's rows: each changes the conversation's memory and returns commands."""

from __future__ import annotations

from hajob.domain.text import counted_noun
from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.coordinator.conversation.conversation import (
    COMMUNICATION_FAULT,
    FAILED_FOR_GOOD,
    MAX_QUICK_RETRIES,
    PROCESS_FAULT,
    RETRY_DELAY_SECONDS,
    SLOW_RETRY_SECONDS,
    Admit,
    Command,
    ConversationMemory,
    EndRanks,
    EventKind,
    Found,
    HostCall,
    Left,
    MindIOEvent,
    TellMilestone,
)

HELD_AGAIN_SECONDS = 600
NAMED_FOR_NOBODY = {0: COMMUNICATION_FAULT}
"""The name list when MindIO stops the training and names no rank: loses no process, and rank 0 always takes part."""

MARKED_CALLS = {
    "stop_train": pb.STOP_ACCEPTED,
    "pause": pb.STOP_ACCEPTED,
    "on_global_rank": pb.NAMED,
    "change_strategy": pb.STRATEGY_SENT,
    "dump": pb.STRATEGY_SENT,
}


def do_nothing(_memory: ConversationMemory, _event: MindIOEvent) -> list[Command]:
    """Change the state only."""
    return []


def clear_memory(memory: ConversationMemory, _event: MindIOEvent) -> list[Command]:
    """Clear the memory: a new controller process knows nothing of earlier events."""
    memory.lost.clear()
    memory.late.clear()
    memory.named.clear()
    memory.renewed.clear()
    memory.offered, memory.strategy, memory.desired = (), "", None
    memory.due, memory.saved, memory.problem, memory.refusals, memory.hold_until = None, False, "", 0, 0.0
    return []


def begin_again(memory: ConversationMemory, event: MindIOEvent) -> list[Command]:
    """Mark unrepaired ranks as lost again, because another controller has only registered the ranks.

    `strategy`: the one that the former controller had carried out to its end, so that the named ranks are repaired.
    """
    unnamed = {rank: kind for rank, kind in memory.lost.items() if rank not in memory.named}
    through = event.strategy not in ("", "pause")
    lost, desired = (unnamed if through else unrepaired_ranks(memory)), memory.desired
    clear_memory(memory, event)
    memory.lost, memory.desired = lost, desired
    return []


def unrepaired_ranks(memory: ConversationMemory) -> dict[int, int]:
    """Return the ranks that are not known to be repaired."""
    return {**memory.named, **memory.late, **memory.lost}


def adopt_strategy(memory: ConversationMemory, event: MindIOEvent) -> list[Command]:
    """Adopt a controller to which an earlier coordinator gave this strategy."""
    memory.strategy = event.strategy
    return []


def lose_controller(memory: ConversationMemory, event: MindIOEvent) -> list[Command]:
    """Forget the open call; the component that noticed the loss reports it."""
    memory.problem = event.text or memory.problem
    return []


def stop_training(memory: ConversationMemory, _event: MindIOEvent) -> list[Command]:
    """Call `stop_train` with every registered rank that is known dead."""
    return [HostCall("stop_train", {"ranks": _pairs_of_rank_and_kind(memory.lost)})]


def stop_to_save(memory: ConversationMemory, _event: MindIOEvent) -> list[Command]:
    """Lock the step before a save, naming the missing ranks: while ranks are missing MindIO ignores a plain save."""
    desired = memory.desired
    return [
        HostCall(
            "stop_train", {"ranks": _pairs_of_rank_and_kind({**memory.lost, **(desired.names if desired else {})})}
        )
    ]


def report_found_faults(memory: ConversationMemory, event: MindIOEvent) -> list[Command]:
    """Report the faults that MindIO found first."""
    new = {rank: kind for rank, kind in event.ranks.items() if rank not in memory.lost}
    memory.lost.update(new)
    return [Found(new, event.codes)] if new else []


def report_found_and_stop(memory: ConversationMemory, event: MindIOEvent) -> list[Command]:
    """Answer MindIO's fault report at once with `stop_train`, naming every rank known dead.

    When no rank is faulty, stop without a name and name rank 0 afterwards.
    """
    memory.lost.update(memory.late)
    memory.late = {}
    if event.ranks or memory.lost:
        return [*report_found_faults(memory, event), *stop_training(memory, event)]
    commands = stop_training(memory, event)
    memory.lost = dict(NAMED_FOR_NOBODY)
    text = "MindIO has stopped the training and named no rank: nobody ended a pause in time"
    return [Found(dict(NAMED_FOR_NOBODY), {}, text), *commands]


def report_stopped(memory: ConversationMemory, event: MindIOEvent) -> list[Command]:
    """Report that the step is locked, and start the wait for an answer."""
    memory.refusals = 0
    _expect_answer(memory)
    return [*report_found_faults(memory, event), TellMilestone(pb.STOPPED, event)]


def report_paused(_memory: ConversationMemory, event: MindIOEvent) -> list[Command]:
    """Report that every rank waits at the end of a step."""
    return [TellMilestone(pb.STOPPED, event)]


def name_lost_ranks(memory: ConversationMemory, _event: MindIOEvent) -> list[Command]:
    """Send the one naming, with every rank that has died so far."""
    desired = memory.desired
    assert desired is not None
    memory.named = {**memory.lost, **desired.names}
    return [
        HostCall(
            "on_global_rank",
            {"ranks": _pairs_of_rank_and_kind(memory.named), "time": min(max(desired.seconds, 1), 3600)},
        )
    ]


def admit_successors(memory: ConversationMemory, _event: MindIOEvent) -> list[Command]:
    """Let the successors pass their gates."""
    return [Admit(frozenset(memory.named))]


def report_offer(memory: ConversationMemory, event: MindIOEvent) -> list[Command]:
    """Report the offered strategies, and start the wait for an answer."""
    memory.offered = event.strategies
    memory.refusals = 0
    _expect_answer(memory)
    return [*admit_successors(memory, event), TellMilestone(pb.STRATEGIES, event)]


def choose_strategy(memory: ConversationMemory, _event: MindIOEvent) -> list[Command]:
    """Send the desired strategy, and admit successors that were ordered after the naming of their ranks."""
    desired = memory.desired
    assert desired is not None
    memory.strategy = desired.strategy
    call = HostCall("change_strategy", {"strategy": desired.strategy, "parameters": desired.parameters})
    return [call, Admit(frozenset(memory.named))] if desired.strategy == "recover" else [call]


def admit_dropped_ranks(memory: ConversationMemory, event: MindIOEvent) -> list[Command]:
    """Admit the dropped ranks, which the controller knows already, so that they need no naming.

    MindIO is asked once and waits for all of them, whichever process they come with.
    """
    assert memory.desired is not None
    asked = memory.strategy == "upgrade"
    memory.named, memory.renewed = dict(memory.desired.names), set()
    memory.late = {rank: kind for rank, kind in memory.late.items() if rank not in memory.named}  # all stand again
    memory.offered = ("upgrade", "dump")  # a growth that fails can still be saved
    admitted = Admit(frozenset(memory.named))
    return [admitted, TellMilestone(pb.STRATEGY_SENT)] if asked else [admitted, *choose_strategy(memory, event)]


def stay_small(memory: ConversationMemory, _event: MindIOEvent) -> list[Command]:
    """Give up the growth while MindIO goes on waiting; other ranks that have died meanwhile are lost."""
    memory.lost = {rank: kind for rank, kind in memory.late.items() if rank not in memory.named}
    memory.late, memory.desired = {}, None
    memory.named, memory.renewed = {}, set()
    return []


def save_without_fault(memory: ConversationMemory, _event: MindIOEvent) -> list[Command]:
    """Save and exit without a fault."""
    memory.strategy = "dump"
    return [HostCall("dump", {})]


def pause_training(memory: ConversationMemory, _event: MindIOEvent) -> list[Command]:
    """Hold every rank at the end of its step."""
    assert memory.desired is not None
    return [HostCall("pause", {"timeout": max(memory.desired.seconds, 1)})]


def pause_again(memory: ConversationMemory, event: MindIOEvent) -> list[Command]:
    """Pause again: the former controller held every rank, and only a controller that paused them can release them."""
    begin_again(memory, event)
    seconds = memory.desired.seconds if memory.desired is not None else 0
    return [HostCall("pause", {"timeout": max(seconds, HELD_AGAIN_SECONDS)})]


def prepare_switch(memory: ConversationMemory, _event: MindIOEvent) -> list[Command]:
    """Announce the second processes to MindIO."""
    assert memory.desired is not None
    ranks = [[rank, 0] for rank in sorted(memory.desired.names)]
    return [HostCall("prepare_action", {"action": "hot switch", "ranks": ranks})]


def cancel_switch(memory: ConversationMemory, _event: MindIOEvent) -> list[Command]:
    """Cancel the announcement of second processes."""
    memory.named = {}
    return [HostCall("prepare_action", {"action": "stop switch", "ranks": []})]


def admit_second(memory: ConversationMemory, event: MindIOEvent) -> list[Command]:
    """Admit the second processes, because MindIO now expects them."""
    memory.named = dict(memory.desired.names) if memory.desired is not None else {}
    return [Admit(frozenset(memory.named)), *mark_accepted(memory, event)]


def mark_accepted(_memory: ConversationMemory, event: MindIOEvent) -> list[Command]:
    """Report that MindIO accepted a call."""
    kind = MARKED_CALLS.get(event.call)
    return [] if kind is None else [TellMilestone(kind, event)]


def postpone_refused_call(memory: ConversationMemory, event: MindIOEvent) -> list[Command]:
    """Repeat the refused call later: a refusal changes nothing; most often a rank had not registered."""
    memory.refusals += 1
    if event.call == "change_strategy":
        memory.strategy = ""
    quick = memory.refusals <= MAX_QUICK_RETRIES
    memory.hold_until = memory.now + (RETRY_DELAY_SECONDS if quick else SLOW_RETRY_SECONDS)
    memory.problem = (
        f"MindIO refused {event.call}: {event.text or event.code} ({counted_noun(memory.refusals, 'time')})"
    )
    return []


def report_result(_memory: ConversationMemory, event: MindIOEvent) -> list[Command]:
    """Report MindIO's result."""
    return [TellMilestone(pb.RESULT, event)]


def report_failed_pause(memory: ConversationMemory, event: MindIOEvent) -> list[Command]:
    """Report the failed pause; a new one needs a new decision. A fault that broke it is reported next."""
    memory.desired = None
    return report_result(memory, event)


def return_to_rest(memory: ConversationMemory, event: MindIOEvent) -> list[Command]:
    """Return to rest. Ranks that died after the naming, or without one, are lost to the next incident."""
    unnamed = {rank: kind for rank, kind in memory.lost.items() if rank not in memory.named}
    memory.lost = {**unnamed, **memory.late}
    memory.late = {}
    memory.named, memory.renewed = {}, set()
    memory.offered, memory.strategy, memory.desired, memory.problem = (), "", None, ""
    memory.due, memory.refusals, memory.hold_until = None, 0, 0.0
    return report_result(memory, event)


def end_saved_ranks(memory: ConversationMemory, event: MindIOEvent) -> list[Command]:
    """End every rank, because they would leave by themselves only after MindIO's long wait."""
    memory.saved = True
    return [TellMilestone(pb.RESULT, event), EndRanks(None)]


def end_isolated_ranks(memory: ConversationMemory, event: MindIOEvent) -> list[Command]:
    """End the dropped ranks: they stay blocked for ever, and only the coordinator ends them."""
    memory.late = {rank: kind for rank, kind in memory.late.items() if rank not in event.ranks}
    return [TellMilestone(pb.RESULT, event), EndRanks(frozenset(event.ranks))]


def lose_unretried_ranks(memory: ConversationMemory, event: MindIOEvent) -> list[Command]:
    """Count these ranks as lost processes, and drop the decision, so that all are named anew."""
    memory.lost.update(dict.fromkeys(event.ranks, PROCESS_FAULT) | memory.late)
    memory.late, memory.named = {}, {}
    memory.desired = None
    _expect_answer(memory)
    return report_result(memory, event)


def await_save_decision(memory: ConversationMemory, event: MindIOEvent) -> list[Command]:
    """Report the failure, after which a checkpoint may be chosen, and start the wait for an answer."""
    _expect_answer(memory)
    return report_result(memory, event)


def close_conversation(memory: ConversationMemory, event: MindIOEvent) -> list[Command]:
    """Report MindIO's last result; its controller has left."""
    memory.due = None
    return report_result(memory, event)


def close_overdue(memory: ConversationMemory, _event: MindIOEvent) -> list[Command]:
    """Report the failure in MindIO's place: it leaves without a callback when its wait is over."""
    memory.due = None
    memory.problem = "nobody decided before MindIO's wait was over; its controller has left"
    return [TellMilestone(pb.RESULT, MindIOEvent(EventKind.FAILURE, code=FAILED_FOR_GOOD, text=memory.problem))]


def close_pause_failed(memory: ConversationMemory, event: MindIOEvent) -> list[Command]:
    """Close: MindIO ends the ranks after its wait, or forgets them at the next call."""
    text = f"the training could not be paused, and MindIO's controller leaves: {_describe_event(event)}"
    return _lose_track(memory, text, event)


def close_unexpected(memory: ConversationMemory, event: MindIOEvent) -> list[Command]:
    """Close without a call: MindIO's state is unknown, and a wrong call would make it forget the ranks."""
    text = f"MindIO's controller said what it was not asked for, so it is told nothing more: {_describe_event(event)}"
    return _lose_track(memory, text, event)


def close_given_up(memory: ConversationMemory, _event: MindIOEvent) -> list[Command]:
    """Close: the ranks wait at the end of a step for a cancelled move, and every other answer makes MindIO leave."""
    text = "a move was given up when MindIO had stopped every rank for it already; its controller leaves"
    return _lose_track(memory, text, MindIOEvent(EventKind.FAILURE, code=FAILED_FOR_GOOD, text=text))


def close_nothing_left(memory: ConversationMemory, _event: MindIOEvent) -> list[Command]:
    """Close: MindIO would hold every rank for its whole wait, and then leave."""
    offer = ", ".join(memory.offered) or "nothing"
    text = f"MindIO holds the training, and nothing but the end is left (it offered {offer}); its controller leaves"
    return _lose_track(memory, text, MindIOEvent(EventKind.FAILURE, code=FAILED_FOR_GOOD, text=text))


def close_stop_failed(memory: ConversationMemory, event: MindIOEvent) -> list[Command]:
    """Report that MindIO could not even lock the step, and leaves."""
    memory.problem = f"MindIO could not stop the training: {event.code} {event.text}"
    return [TellMilestone(pb.RESULT, event)]


def _lose_track(memory: ConversationMemory, text: str, event: MindIOEvent) -> list[Command]:
    memory.due, memory.desired, memory.problem = None, None, text
    results = (EventKind.STOP_FAILED, EventKind.FAILURE)
    return [*([TellMilestone(pb.RESULT, event)] if event.kind in results else []), Left(text)]


def _describe_event(event: MindIOEvent) -> str:
    what = event.strategy or ", ".join(event.strategies)
    return " ".join(part for part in (event.kind.value, str(event.code or ""), what, event.text) if part)


def _expect_answer(memory: ConversationMemory) -> None:
    memory.due = memory.now + memory.answer_seconds


def _pairs_of_rank_and_kind(ranks: dict[int, int]) -> list[list[int]]:
    return [[rank, kind] for rank, kind in sorted(ranks.items())]
