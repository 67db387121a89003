"""Every trap of TaskD's is a row: what is sent before a call, and what holds the stream after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.taskd.plugins import MindIOCall, Plugins
from e2e.taskd.plugins import Signal as Seen
from trainer_sidecar.agent.taskd.signals import Call, Signal
from trainer_sidecar.agent.taskd.table import APART_SECONDS, ROWS, Hold, SignalStream

STOP = Call("stop_train", {"ranks": [[2, 1], [3, 1]]})
PAUSE = Call("pause", {"timeout": 900})
NAME = Call("on_global_rank", {"ranks": [[2, 1]], "time": 1})
SAVE = Call("dump")
GONE = Call("isolated")


def choose(strategy: str, *in_place: int) -> Call:
    return Call("change_strategy", {"strategy": strategy, "parameters": "", "in_place": list(in_place)})


def switch(*ranks: int) -> Call:
    return Call("prepare_action", {"action": "hot switch", "ranks": [[rank, 0] for rank in ranks]})


def signals_of(stream: SignalStream) -> Iterator[Signal]:
    """All that waits, each as soon as it is due."""
    now = 0.0
    while (wait := stream.wait_seconds(now)) is not None:
        now += wait
        signal = stream.take_due_signal(now)
        assert signal is not None
        yield signal


def told_to_mindio(*calls: Call) -> list[str]:
    """What TaskD, as the stand-in plays it, makes of the signals for these calls."""
    stream, plugins, told = SignalStream(2), Plugins(), []
    for call in calls:
        stream.queue_signals_of_call(call)
        for signal in signals_of(stream):
            message = signal.to_message()
            ranks = {int(one.rank): int(one.kind) for one in message.ranks}
            told_of = (message.type, message.uuid, tuple(message.actions), ranks, message.strategy)
            plugins.take_signal(Seen(*told_of, message.timeout, tuple(message.nodes), message.parameters))
            for _ in range(3):
                told += [deed.name for deed in plugins.tick() if isinstance(deed, MindIOCall)]
    return told


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        ((STOP, NAME, choose("recover")), ["stop_train", "on_global_rank", "change_strategy"]),
        ((STOP, NAME, choose("retry"), NAME, choose("recover", 2)), None),  # 405: named a second time
        ((PAUSE, STOP, NAME, choose("dump")), None),  # a rank dies in a pause
        ((PAUSE, choose("continue"), PAUSE, choose("continue")), None),
        ((STOP, NAME, choose("downgrade"), choose("upgrade")), None),  # 201 was lost
        ((STOP, NAME, choose("downgrade"), GONE, choose("upgrade"), STOP, NAME, choose("dump")), None),
        ((switch(2), switch(4), choose("migration"), switch(2)), None),
        ((STOP, SAVE), None),
        ((SAVE, SAVE), None),
    ],
)
def test_mindio_hears_every_call_and_none_twice(calls: tuple[Call, ...], words: list[str] | None) -> None:
    names = {"pause": "stop_train"}
    wanted = [names.get(call.name, call.name) for call in calls if call is not GONE]
    assert told_to_mindio(*calls) == (words or wanted)


@pytest.mark.parametrize("call", [choose("exit"), Call("end")])
@pytest.mark.parametrize("hold", Hold)
def test_what_would_block_or_repeat_is_not_sent(hold: Hold, call: Call) -> None:
    stream = SignalStream(2)
    stream.memory.hold = hold
    stream.queue_signals_of_call(call)
    assert list(signals_of(stream)) == []
    assert stream.memory.hold is hold


def test_signals_are_apart() -> None:
    stream = SignalStream(2)
    stream.queue_signals_of_call(STOP)
    stream.queue_signals_of_call(NAME)
    assert stream.take_due_signal(5.0) is not None
    assert stream.take_due_signal(5.0 + APART_SECONDS / 2) is None
    assert stream.wait_seconds(5.0) == pytest.approx(APART_SECONDS)
    assert stream.take_due_signal(5.0 + APART_SECONDS + 0.001) is not None


def test_a_recovery_in_place_names_nodes_and_ranks() -> None:
    stream = SignalStream(2)
    stream.queue_signals_of_call(choose("recover", 2, 3, 6))
    (signal,) = signals_of(stream)
    assert (signal.nodes, sorted(signal.ranks), signal.parameters) == ((1, 3), [2, 3, 6], "recover-in-place")
    stream.queue_signals_of_call(choose("recover"))
    (signal,) = signals_of(stream)
    assert (signal.nodes, signal.ranks, signal.parameters) == ((), {}, "")


def test_every_signal_has_a_uuid_of_its_own() -> None:
    signal = Signal("globalFault")
    assert len({signal.to_message().uuid for _ in range(100)}) == 100


def test_a_call_without_a_row_is_refused() -> None:
    with pytest.raises(ValueError, match="TaskD takes no query while its stream is free"):
        SignalStream(2).queue_signals_of_call(Call("query"))


@pytest.mark.parametrize("call", ["stop_train", "pause", "on_global_rank", "change_strategy", "dump", "prepare_action"])
def test_every_hold_has_a_row_for_every_call(call: str) -> None:
    assert {row.hold for row in ROWS if row.call == call} == set(Hold)


def test_numbers_of_others_do_not_end_a_signal() -> None:
    arguments: dict[str, Any] = {"ranks": [["7", "1"]]}
    assert Call("stop_train", arguments).ranks == {7: 1}
