"""The table of the conversation, walked whole: every state, every event, every call."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.coordinator.conversation.conversation import (
    Command,
    Conversation,
    Desired,
    EndRanks,
    EventKind,
    HostCall,
    Left,
    MindIOEvent,
    TellMilestone,
    Unexpected,
)
from trainer_sidecar.coordinator.conversation.states import State
from trainer_sidecar.coordinator.conversation.table import CALLBACKS, TABLE, new_conversation

MAY_BE_CALLED_IN = {
    "stop_train": {
        State.SERVING,
        State.SHRUNK,
        State.PAUSED,
        State.SWITCHING,
        State.EXPANDING,
    },
    "on_global_rank": {State.STOPPED, State.RETRY_REFUSED},
    "change_strategy": {
        State.CHOOSING,
        State.RECOVERING,
        State.FAILED_OPEN,
        State.SHRUNK,
        State.PAUSED,
    },
    "dump": {State.SERVING},  # while ranks are left out or taken back it is ignored
    "pause": {State.SERVING},
    "prepare_action": {State.SERVING, State.SWITCHING},
}
"""What each phase of MindIO waits for. Anything else would stay behind as a wake-up and end it at the next fault.

A fault before the success of a repair or a shrink comes as 406, never as a report that stop_train answers
(docs/protocols/mindio.md, 5.8); while a growth waits for its ranks MindIO trains scaled in, and asks as ever.
"""

TOLD_NOTHING = {
    State.OFFLINE,
    State.FINISHING,
    State.CLOSED,
    State.LOST,
}
DESIRED = [
    Desired(strategy, {1: 1}, ready, "{}", 10)
    for strategy in ("recover", "retry", "dump", "downgrade", "upgrade", "pause", "continue", "migration")
    for ready in (True, False)
]
LIST = ("exit", "dump", "retry", "recover", "downgrade", "upgrade", "migration")
EVENTS = [
    MindIOEvent(kind, ranks={1: 1}, codes={1: ""}, strategies=LIST, strategy="recover", call="stop_train")
    for kind in EventKind
    if kind not in (EventKind.SERVES, EventKind.GONE, EventKind.TAKEN_UP, EventKind.TAKEN_OVER, EventKind.ENDED)
]


def drive(
    state: State, event: MindIOEvent, desired: Desired | None, *, lost: bool
) -> tuple[list[Command], Conversation]:
    conversation = new_conversation(100.0)
    conversation.state = state
    memory = conversation.memory
    memory.desired, memory.offered = desired, LIST
    memory.came_from = State.SERVING
    memory.named = {1: 1}
    if lost:
        memory.lost = {1: 1}
    return conversation.feed_event(event, 5.0), conversation


@pytest.mark.parametrize("state", list(State))
def test_no_state_makes_a_call_its_phase_does_not_ask_for(state: State) -> None:
    """One call at most, and only from a state that may make it."""
    for event in EVENTS:
        for desired in [None, *DESIRED]:
            for lost in (True, False):
                commands, conversation = drive(state, event, desired, lost=lost)
                calls = [command.name for command in commands if isinstance(command, HostCall)]
                for call in calls:
                    assert conversation.memory.came_from in MAY_BE_CALLED_IN[call], (state, event.kind, call)
                assert len(calls) <= 1, (state, event.kind, desired, calls)


@pytest.mark.parametrize("state", sorted(TOLD_NOTHING))
def test_a_controller_that_has_left_is_told_nothing(state: State) -> None:
    for event in EVENTS:
        for desired in DESIRED:
            commands, conversation = drive(state, event, desired, lost=True)
            assert not [command for command in commands if isinstance(command, HostCall)]
            assert conversation.state is state


def test_every_state_can_be_reached_and_left() -> None:
    following: dict[State, set[State]] = defaultdict(set)
    for rows in TABLE.values():
        for row in rows:
            if row.following is not None and row.following is not row.state:
                following[row.state].add(row.following)
    reached, edge = {State.OFFLINE}, [State.OFFLINE]
    while edge:
        for state in following[edge.pop()] - reached:
            reached.add(state)
            edge.append(state)
    assert reached == set(State)
    assert all(following[state] for state in State)


@pytest.mark.parametrize("state", list(State))
def test_new_controller_is_served_from_every_state(state: State) -> None:
    conversation = new_conversation(100.0)
    conversation.state = state
    conversation.memory.lost = {1: 1}
    conversation.memory.late = {2: 1}
    conversation.memory.desired = Desired("recover", {1: 1})
    assert not [c for c in conversation.feed_event(MindIOEvent(EventKind.SERVES), 1.0) if isinstance(c, HostCall)]
    assert conversation.state is State.SERVING
    assert not conversation.memory.lost


@pytest.mark.parametrize("state", list(State))
def test_a_controller_that_goes_is_lost_unless_it_had_left(state: State) -> None:
    conversation = new_conversation(100.0)
    conversation.state = state
    conversation.feed_event(MindIOEvent(EventKind.GONE), 1.0)
    stays = state in (State.CLOSED, State.FINISHING, State.OFFLINE)
    assert conversation.state is (state if stays else State.LOST)


CALM = (
    State.SERVING,
    State.SHRUNK,
    State.SWITCHING,
    State.PAUSING,
    State.PAUSED,
    State.CONTINUING,
)
ANSWERED_THERE = {
    State.SERVING: {EventKind.FAULT},
    State.SHRUNK: {EventKind.FAULT},
    State.SWITCHING: {EventKind.FAULT, EventKind.OFFER},
    State.PAUSING: {EventKind.STOP_OK, EventKind.OPEN_FAILURE},
    State.PAUSED: {EventKind.OPEN_FAILURE, EventKind.FAULT},
    State.CONTINUING: {EventKind.SUCCESS},
}
"""What MindIO may say while the training runs or is held on request; all else means that it is not understood."""


@pytest.mark.parametrize("state", CALM)
@pytest.mark.parametrize("kind", CALLBACKS)
def test_unasked_callback_closes_the_conversation(state: State, kind: EventKind) -> None:
    """It may wait for an answer that nobody knows, or be leaving: it must not look healthy, and is told nothing."""
    event = MindIOEvent(kind, ranks={1: 1}, strategies=LIST, code=499, text="why")
    commands, conversation = drive(state, event, None, lost=False)
    end = conversation.state
    left = [command.text for command in commands if isinstance(command, Left)]
    if kind in ANSWERED_THERE[state]:
        assert not left
        assert end is not State.CLOSED
        return
    assert end is State.CLOSED
    assert not [command for command in commands if isinstance(command, HostCall)]
    assert len(left) == 1
    assert kind.value in left[0]
    assert "why" in left[0]


@pytest.mark.parametrize("state", [State.CONFIRMING, State.SHRINKING])
def test_fault_question_before_a_success_closes(state: State) -> None:
    """It comes as 406; what is remembered as lost there are ranks that have been recovered."""
    commands, conversation = drive(state, MindIOEvent(EventKind.FAULT, {3: 1}), None, lost=True)
    assert [type(command) for command in commands] == [Left]
    assert conversation.state is State.CLOSED


def test_what_no_row_expects_elsewhere_is_counted_and_said() -> None:
    conversation = new_conversation(100.0)
    conversation.state = State.NAMING
    event = MindIOEvent(EventKind.STOP_OK)
    assert conversation.feed_event(event, 1.0) == [Unexpected(event, State.NAMING, 1)]
    assert conversation.state is State.NAMING


@pytest.mark.parametrize("dead", [False, True])
def test_a_pause_that_failed_is_the_end_of_the_controller(*, dead: bool) -> None:
    """MindIO leaves; a stop_train that meets it there would make it forget the ranks."""
    conversation = new_conversation(100.0)
    conversation.feed_event(MindIOEvent(EventKind.SERVES), 0.0)
    conversation.pursue_decision(Desired("pause", seconds=60), 1.0)
    if dead:
        assert conversation.lose_ranks({1: 1}, 2.0) == []
    commands = conversation.feed_event(MindIOEvent(EventKind.STOP_FAILED, code=499, text="no pause points"), 30.0)
    assert conversation.state is State.CLOSED
    assert not [command for command in commands if isinstance(command, HostCall)]
    assert [(mark.kind, mark.event.code) for mark in commands if isinstance(mark, TellMilestone)] == [(pb.RESULT, 499)]
    assert "no pause points" in conversation.memory.problem
    assert conversation.lose_ranks({2: 1}, 31.0) == []


@pytest.mark.parametrize(("accepted", "state"), [(True, State.SERVING), (False, State.CLOSED)])
def test_a_continue_that_meets_the_end_of_its_pause(accepted: bool, state: State) -> None:
    """Taken before MindIO said so, it was dropped; taken afterwards it lies there and is the wrong answer."""
    conversation = new_conversation(100.0)
    conversation.feed_event(MindIOEvent(EventKind.SERVES), 0.0)
    conversation.pursue_decision(Desired("pause", seconds=60), 1.0)
    conversation.feed_event(MindIOEvent(EventKind.STOP_OK), 1.1)
    conversation.pursue_decision(Desired("continue"), 61.0)
    if accepted:
        conversation.feed_event(MindIOEvent(EventKind.ACCEPTED, call="change_strategy"), 61.0)
    conversation.feed_event(MindIOEvent(EventKind.OPEN_FAILURE, code=406), 61.0)
    assert conversation.state is state


@pytest.mark.parametrize(("accepted", "calls"), [(True, ["stop_train"]), (False, [])])
def test_a_stop_that_meets_the_end_of_a_pause_is_heard_once(accepted: bool, calls: list[str]) -> None:
    conversation = new_conversation(100.0)
    conversation.feed_event(MindIOEvent(EventKind.SERVES), 0.0)
    conversation.pursue_decision(Desired("pause", seconds=60), 1.0)
    conversation.feed_event(MindIOEvent(EventKind.STOP_OK), 1.1)
    conversation.lose_ranks({1: 1}, 61.0)
    if accepted:
        conversation.feed_event(MindIOEvent(EventKind.ACCEPTED, call="stop_train"), 61.0)
    commands = conversation.feed_event(MindIOEvent(EventKind.OPEN_FAILURE, code=406), 61.0)
    assert [command.name for command in commands if isinstance(command, HostCall)] == calls
    assert not conversation.feed_event(MindIOEvent(EventKind.FAULT, {1: 1}), 61.1)
    conversation.feed_event(MindIOEvent(EventKind.STOP_OK, {1: 1}), 61.2)
    assert conversation.state is State.STOPPED


def test_a_refused_hot_switch_is_asked_for_again() -> None:
    conversation = new_conversation(100.0)
    conversation.feed_event(MindIOEvent(EventKind.SERVES), 0.0)
    call = HostCall("prepare_action", {"action": "hot switch", "ranks": [[2, 0]]})
    assert conversation.pursue_decision(Desired("migration", {2: 0}), 1.0) == [call]
    assert conversation.feed_event(MindIOEvent(EventKind.REFUSED, code=1, call="prepare_action"), 1.0) == []
    assert conversation.feed_event(MindIOEvent(EventKind.LOOK), 1.05) == []
    assert conversation.feed_event(MindIOEvent(EventKind.LOOK), 1.2) == [call]


def test_stop_crossing_the_offer_of_a_switch_closes() -> None:
    """MindIO takes it for its answer and leaves; what would be said then would make it forget the ranks."""
    conversation = new_conversation(100.0)
    conversation.feed_event(MindIOEvent(EventKind.SERVES), 0.0)
    conversation.pursue_decision(Desired("migration", {2: 0}), 1.0)
    conversation.feed_event(MindIOEvent(EventKind.ACCEPTED, call="prepare_action"), 1.0)
    (call,) = conversation.pursue_decision(Desired("continue"), 2.0)
    assert isinstance(call, HostCall)
    assert call.arguments["action"] == "stop switch"
    commands = conversation.feed_event(MindIOEvent(EventKind.OFFER, strategies=("migration",)), 2.0)
    assert conversation.state is State.CLOSED
    assert [type(command) for command in commands] == [Left]
    assert conversation.lose_ranks({1: 1}, 3.0) == []


def test_move_given_up_after_its_offer_closes() -> None:
    conversation = new_conversation(100.0)
    conversation.feed_event(MindIOEvent(EventKind.SERVES), 0.0)
    conversation.pursue_decision(Desired("migration", {2: 0}), 1.0)
    conversation.pursue_decision(Desired("migration", {2: 0}, ready=False), 1.5)
    conversation.feed_event(MindIOEvent(EventKind.OFFER, strategies=("migration",)), 2.0)
    commands = conversation.pursue_decision(Desired("continue"), 3.0)
    assert conversation.state is State.CLOSED
    assert [mark.event.code for mark in commands if isinstance(mark, TellMilestone)] == [499]
    assert [command for command in commands if isinstance(command, Left)]


def test_a_growth_that_fails_can_still_be_saved() -> None:
    conversation = new_conversation(100.0)
    conversation.state = State.SHRUNK
    conversation.pursue_decision(Desired("upgrade", {2: 1, 3: 1}, True, "{}"), 1.0)
    conversation.feed_event(MindIOEvent(EventKind.OPEN_FAILURE, {3: 1}, code=406, strategy="upgrade"), 5.0)
    commands = conversation.pursue_decision(Desired("dump"), 6.0)
    assert [command.arguments["strategy"] for command in commands if isinstance(command, HostCall)] == ["dump"]


def test_a_growth_told_under_the_name_of_a_save_is_no_save() -> None:
    """MindIO drops a save that comes while the growth's handlers run, and lends its name to the growth's success."""
    conversation = new_conversation(100.0)
    conversation.state = State.SERVING
    conversation.pursue_decision(Desired("dump"), 1.0)
    claimed = MindIOEvent(EventKind.SUCCESS, text="Mindio do repair operation ok", strategy="dump")
    assert conversation.feed_event(claimed, 2.0) == [HostCall("dump", {})]
    true = MindIOEvent(EventKind.SUCCESS, text="do dump success", strategy="dump")
    assert EndRanks(None) in conversation.feed_event(true, 3.0)


def test_an_answer_that_is_refused_is_still_due() -> None:
    conversation = new_conversation(100.0)
    conversation.state = State.STOPPED
    conversation.memory.due = 100.0
    conversation.pursue_decision(Desired("recover", {1: 1}), 1.0)
    conversation.feed_event(MindIOEvent(EventKind.REFUSED, code=1, call="on_global_rank"), 1.0)
    assert str(conversation.state) == "Stopped"
    conversation.memory.desired = None
    conversation.feed_event(MindIOEvent(EventKind.LOOK), 100.0)
    assert conversation.state is State.CLOSED


def test_a_type_1_fault_is_never_lowered() -> None:
    conversation = new_conversation(100.0)
    conversation.feed_event(MindIOEvent(EventKind.SERVES), 0.0)
    conversation.lose_ranks({1: 1}, 0.0)
    conversation.lose_ranks({1: 0}, 0.0)
    assert conversation.memory.lost == {1: 1}


def test_stop_failed_means_that_the_controller_leaves() -> None:
    conversation = new_conversation(100.0)
    conversation.feed_event(MindIOEvent(EventKind.SERVES), 0.0)
    conversation.lose_ranks({1: 1}, 0.0)
    commands = conversation.feed_event(MindIOEvent(EventKind.STOP_FAILED, code=404, text="no replica info"), 1.0)
    assert conversation.state is State.CLOSED
    assert [(c.kind, c.event.code) for c in commands if isinstance(c, TellMilestone)] == [(pb.RESULT, 404)]
    assert "404" in conversation.memory.problem


def test_isolated_ranks_are_ended_whether_they_were_named_or_not() -> None:
    """A named one may have been given up with its node, and live."""
    conversation = new_conversation(100.0)
    conversation.state = State.SHRINKING
    conversation.memory.named = {2: 1}
    commands = conversation.feed_event(MindIOEvent(EventKind.ISOLATED, {2: 1, 3: 1}, code=201), 1.0)
    assert EndRanks(frozenset({2, 3})) in commands


def test_shrink_then_expand() -> None:
    conversation = new_conversation(100.0)
    conversation.feed_event(MindIOEvent(EventKind.SERVES), 0.0)
    conversation.lose_ranks({3: 1}, 0.0)
    conversation.feed_event(MindIOEvent(EventKind.STOP_OK, {3: 1}), 0.1)
    conversation.pursue_decision(Desired("downgrade", {3: 1}, True, "{}"), 0.2)
    commands = conversation.feed_event(MindIOEvent(EventKind.OFFER, strategies=LIST), 0.3)
    (call,) = [one for one in commands if isinstance(one, HostCall)]
    assert call.arguments == {"strategy": "downgrade", "parameters": "{}"}
    conversation.feed_event(MindIOEvent(EventKind.ISOLATED, {2: 1, 3: 1}, code=201), 0.4)
    conversation.feed_event(MindIOEvent(EventKind.SUCCESS, {2: 1, 3: 1}, strategy="downgrade"), 2.4)
    assert conversation.state is State.SHRUNK
    assert not [
        c
        for c in conversation.pursue_decision(Desired("upgrade", {2: 1, 3: 1}, False, "{}"), 3.0)
        if isinstance(c, HostCall)
    ]
    commands = conversation.pursue_decision(Desired("upgrade", {2: 1, 3: 1}, True, "{}"), 4.0)
    assert [c.name for c in commands if isinstance(c, HostCall)] == ["change_strategy"]
    conversation.feed_event(MindIOEvent(EventKind.SUCCESS, strategy="upgrade"), 6.0)
    assert str(conversation.state) == "Serving"


def test_pause_and_continue_and_a_death_in_between() -> None:
    conversation = new_conversation(100.0)
    conversation.feed_event(MindIOEvent(EventKind.SERVES), 0.0)
    assert conversation.pursue_decision(Desired("pause", seconds=60), 1.0) == [HostCall("pause", {"timeout": 60})]
    conversation.feed_event(MindIOEvent(EventKind.STOP_OK), 1.1)
    assert conversation.state is State.PAUSED
    commands = conversation.lose_ranks({1: 1}, 2.0)
    assert commands == [HostCall("stop_train", {"ranks": [[1, 1]]})]


def test_a_pause_that_fails_is_not_asked_for_again() -> None:
    conversation = new_conversation(100.0)
    conversation.feed_event(MindIOEvent(EventKind.SERVES), 0.0)
    conversation.pursue_decision(Desired("pause", seconds=60), 1.0)
    commands = conversation.feed_event(MindIOEvent(EventKind.OPEN_FAILURE, code=406), 60.0)
    assert not [command for command in commands if isinstance(command, HostCall)]
    assert conversation.state is State.SERVING


STEPS = st.lists(
    st.one_of(
        st.sampled_from([("event", event) for event in EVENTS]),
        st.sampled_from([("want", desired) for desired in [None, *DESIRED]]),
        st.sampled_from([("lose", rank) for rank in range(4)]),
        st.sampled_from([("wait", seconds) for seconds in (0.05, 3.0, 90.0)]),
    ),
    max_size=30,
)


@settings(max_examples=400, deadline=None)
@given(STEPS)
def test_whatever_happens_stop_train_and_naming_alternate(steps: list[tuple[str, object]]) -> None:
    """No second stop_train before a naming or a refusal or a success, and no second naming before 405 or a success."""
    conversation = new_conversation(100.0)
    commands = conversation.feed_event(MindIOEvent(EventKind.SERVES), 0.0)
    now, stopped, named = 0.0, False, False
    for kind, value in steps:
        if kind == "event":
            assert isinstance(value, MindIOEvent)
            fresh = value.kind in (
                EventKind.SUCCESS,
                EventKind.REFUSED,
                EventKind.RETRY_REFUSED,
                EventKind.FAULT,
                EventKind.OPEN_FAILURE,
            )
            stopped, named = stopped and not fresh, named and not fresh
            commands = conversation.feed_event(value, now)
        elif kind == "want":
            assert value is None or isinstance(value, Desired)
            commands = conversation.pursue_decision(value, now)
        elif kind == "lose":
            assert isinstance(value, int)
            commands = conversation.lose_ranks({value: 1}, now)
        else:
            assert isinstance(value, float)
            now += value
            commands = conversation.feed_event(MindIOEvent(EventKind.LOOK), now)
        for call in (command for command in commands if isinstance(command, HostCall)):
            if call.name == "stop_train":
                assert not stopped
                stopped, named = True, False
            elif call.name == "on_global_rank":
                assert not named
                named = True
