"""Taking up a conversation: what the controller was told and said is heard once more, with the outputs muted.

The controller host's log holds every call that was not refused and every callback since MindIO last was at rest. A
callback is heard by the table as it was heard then. A call is the decision of the coordinator that made it: the table
makes it again, out of what the call itself tells. So the conversation ends where that of the coordinator before ended;
what it had learnt of agents and the operator is learnt from them again. A log whose calls the table would not make (its
beginning is lost) closes the conversation: a wrong guess would be a wrong word, and that is fatal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.coordinator.conversation.callbacks import parse_callback
from trainer_sidecar.coordinator.conversation.conversation import PROCESS_FAULT, Desired, EventKind, MindIOEvent
from trainer_sidecar.coordinator.conversation.states import AT_REST, CARRIES_OUT, REPAIRING, State
from trainer_sidecar.coordinator.repair.driver import OPENING_CALLS, PLANNED_CALLS, carry_out_commands, open_incident
from trainer_sidecar.coordinator.state.effects import Effects
from trainer_sidecar.coordinator.state.job import Job
from trainer_sidecar.units import NANOSECONDS

Entry = Mapping[str, Any]
UNKNOWN = "unknown"
"""A strategy nobody may choose: when ranks were named it had not been told yet."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The last result, and the fault reports that nobody has answered: they are to be heard live."""

    result: pb.Milestone | None
    unanswered: tuple[MindIOEvent, ...]

    @property
    def was_move(self) -> bool:
        """Whether the last thing that succeeded was a move."""
        result = self.result
        return result is not None and (result.result_code, result.strategy) == (0, "migration")


def replay_conversation(job: Job) -> Replayed:
    """Bring conversation and incidents where the log of the controller host ends."""
    with job.muted_effects() as said:
        reading = _Replay(job, said, list(_entries_not_refused(job.controller.log)))
        reading.replay_entries()
        _number_incident(job)
    for request in said.requests:  # made by the table, and missing in the log: nobody was left to send it
        job.effects.request_call(request.call, request.arguments, request.order)
    results = [milestone for milestone in said.outbox.waiting_milestones() if milestone.kind == pb.RESULT]
    return Replayed(results[-1] if results else None, tuple(reading.unanswered))


def _entries_not_refused(log: Sequence[Entry]) -> Iterator[Entry]:
    """The log without the calls that were refused. An answer without an `id` belongs to the last call of its name."""
    calls: list[int] = []
    refused: set[int] = set()
    for index, entry in enumerate(log):
        if "called" in entry:
            calls.append(index)
        elif entry.get("code", 0) != 0 and "answer" in entry:
            refused.update([call for call in reversed(calls) if _is_answer_to(entry, log[call])][:1])
            refused.add(index)
    return (entry for index, entry in enumerate(log) if index not in refused)


def _is_answer_to(answer: Entry, call: Entry) -> bool:
    if answer["answer"] is None:
        return bool(answer.get("call") == call["called"])
    return bool(answer["answer"] == call.get("id"))


def _number_incident(job: Job) -> None:
    """A growth is opened by its order, before MindIO is told anything; of the others the log tells the number."""
    state, order = job.conversation.state, job.order
    if state not in AT_REST and job.incidents.current is None:
        planned = state is State.EXPANDING
        open_incident(job, order.incarnation if order is not None and planned else 0, planned=planned)


class _Replay:
    def __init__(self, job: Job, said: Effects, log: list[Entry]) -> None:
        self._job, self._said, self._log = job, said, log
        self._at = max(job.now - job.setup.limits.answer_seconds / 2, 0.0)  # where the log has no times
        self.unanswered: list[MindIOEvent] = []

    def replay_entries(self) -> None:
        """Hear and decide, entry by entry."""
        self._hear_event(MindIOEvent(EventKind.SERVES))
        events = [parse_callback(entry["event"], entry["arguments"]) for entry in self._log[:1] if "event" in entry]
        if events and events[0] is not None and events[0].kind is EventKind.SUCCESS:  # a success opens the log anew
            strategy = events[0].strategy
            self._hear_event(
                MindIOEvent(EventKind.TAKEN_UP, strategy=strategy if strategy in CARRIES_OUT else "recover")
            )
            self._job.incidents.conclude_up_to(self._log[0].get("order", 0))
        for index, entry in enumerate(self._log):
            self._at = entry["t"] / NANOSECONDS if "t" in entry else self._at
            if "called" in entry:
                self._replay_call(entry["called"], entry.get("arguments", {}), entry.get("order") or 0)
            elif "answer" in entry:
                self._hear_event(MindIOEvent(EventKind.ACCEPTED, call=entry.get("call", "")))
            elif (event := parse_callback(entry.get("event", ""), entry.get("arguments", []))) is not None:
                self._replay_callback(event, self._log[index + 1 :])

    def _replay_callback(self, event: MindIOEvent, following: list[Entry]) -> None:
        conversation = self._job.conversation
        if event.kind is EventKind.OFFER and conversation.state is State.SWITCHING and not conversation.memory.accepted:
            self._hear_event(MindIOEvent(EventKind.ACCEPTED, call="prepare_action"))  # or there would be no offer
        if event.kind is EventKind.FAULT and conversation.state in REPAIRING:
            self._hear_event(MindIOEvent(EventKind.STEP))  # or it would have come as 406
        if event.kind is EventKind.FAULT and conversation.would_answer(event):
            answer = next((entry for entry in following if entry.get("called") == "stop_train"), None)
            if answer is None:
                self.unanswered.append(event)
                return
            open_incident(self._job, answer.get("arguments", {}).get("incarnation", 0))
        self._hear_event(event)

    def _hear_event(self, event: MindIOEvent) -> None:
        carry_out_commands(self._job, self._job.conversation.hear_event(event, self._at), self._at)

    def _replay_call(self, name: str, arguments: Mapping[str, Any], order: int) -> None:
        """Make this call again, unless it was the answer to what was heard and has been made already."""
        job, conversation, ranks = self._job, self._job.conversation, dict(arguments.get("ranks", []))
        if name == "stop_train" and conversation.state is State.EXPANDING:  # what was given up comes back no more
            self._follow_decision(Desired("downgrade", conversation.memory.named))
        if name in OPENING_CALLS:
            open_incident(job, arguments.get("incarnation", 0), planned=name in PLANNED_CALLS)
        elif order and job.incidents.current is None:
            open_incident(job, order, planned=True)  # a growth, which its order has opened
        if job.incidents.current is not None:
            job.incidents.current.join_order(order)
        if name == "stop_train":
            conversation.miss_ranks(ranks)
        if not self._said.requests:
            self._follow_decision(_decision_behind_call(name, arguments, job.roster.dropped))
        made = [request.call for request in self._said.take_requests()]
        if made != [name]:
            self._hear_event(MindIOEvent(EventKind.FAILURE, text="what it was told before cannot be followed"))

    def _follow_decision(self, desired: Desired | None) -> None:
        self._job.conversation.suppose_decision(desired)
        carry_out_commands(self._job, self._job.conversation.make_decision() or [], self._at)


def _decision_behind_call(name: str, arguments: Mapping[str, Any], dropped: set[int]) -> Desired | None:
    """The decision behind a call."""
    ranks, parameters = dict(arguments.get("ranks", [])), str(arguments.get("parameters", ""))
    if name == "change_strategy":
        strategy = str(arguments["strategy"])
        names = dict.fromkeys(dropped if strategy == "upgrade" else (), PROCESS_FAULT)
        return Desired(strategy, names, parameters=parameters, again=True)
    if name == "prepare_action":
        return Desired("migration" if arguments.get("action") == "hot switch" else "continue", ranks)
    return {"on_global_rank": Desired(UNKNOWN, ranks), "pause": Desired("pause"), "dump": Desired("dump")}.get(name)
