# ruff: noqa: ANN401 - values of strangers pass through here
"""What a rank does with each order, on its one message thread: one table from order to function.

Arguments of the trainer's handlers are exactly those of docs/protocols/mindio.md §8. A handler that raises answers
`TIMEOUT` (4), as the real package counts an exception.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from . import _bodies as bodies
from . import _settings as settings
from . import _wire as wire
from ._names import RepairType, ReportState
from ._processor import Processor, registered
from ._wire import Message

ACCOUNTS = frozenset({Message.COLLECTED, Message.LOCKED, Message.IS_NORMAL})
UCE = frozenset({ReportState.RS_UCE, ReportState.RS_UCE_CORRUPTED})


class Later(Exception):  # noqa: N818 - no error: the answer comes from another thread
    """The action goes on; whoever carries it out answers."""


def serve(processor: Processor) -> None:
    """Carry out orders until the process ends."""
    while True:
        kind, body = processor.inbox.get()
        serial, arguments = bodies.parse_action(kind, body)
        if not is_new(processor, serial):
            continue
        try:
            result = TABLE[Message(kind)](processor, arguments)
        except Later:
            continue
        except Exception as error:  # a stranger's handler may raise anything
            settings.log(f"rank {processor.options.rank}: {Message(kind).name} raised {error!r}")
            result = wire.TIMEOUT if settings.on("raising_handler_fails") else wire.OK
        tell(processor, Message(kind), serial, result)


def is_new(processor: Processor, serial: int) -> bool:
    """A serial below the highest seen is dropped in silence; of the highest the answer is sent again."""
    if serial > processor.serial or not settings.on("old_serials_dropped"):
        processor.serial = serial
        return True
    if serial == processor.serial:
        processor.client.send(processor.answered.get(serial, b""))
    return False


def tell(processor: Processor, kind: Message, serial: int, result: int) -> None:
    """Answer, for some actions with the rank's account."""
    reply = wire.ANSWER_OF.get(kind)
    if reply is None:
        return
    with processor.condition:
        beat = processor.account() if reply in ACCOUNTS else None
        loaded = processor.loaded_step or -1
        if kind is Message.NORMAL:
            processor.loaded_step = 0
    data = bodies.answer(reply, bodies.Answer(result, serial, processor.options.rank, loaded, beat))
    processor.answered = {serial: data}
    processor.client.send(data)
    if kind is Message.NORMAL:
        go_on(processor)


def call(name: str, *arguments: Any) -> Any:
    """Call a registered handler, or nothing."""
    entry = registered.handlers.get(name)
    if entry is None:
        return None
    if settings.fault(f"{name}_raises"):
        raise RuntimeError(f"the fault {name}_raises was asked for")
    if settings.fault(f"{name}_slow"):
        time.sleep(settings.action_seconds() + 1.0)
    if not settings.on("handler_arguments"):
        arguments = arguments[:-1]
    return entry[0](*arguments)


def context(name: str) -> Any:
    """The ctx given when the handler was registered."""
    entry = registered.handlers.get(name)
    return None if entry is None else entry[1]


def collect(processor: Processor, _arguments: dict[str, Any]) -> int:
    """Say where this rank is."""
    with processor.condition:
        processor.pause_held_until = time.monotonic() + settings.HOLD_SECONDS
    return wire.OK


def lock(processor: Processor, arguments: dict[str, Any]) -> int:
    """Let the rank reach the step and hold it there; TIMEOUT when it does not within 30 seconds, NEED_RETRY beyond."""
    step = arguments["step"]
    end, counts = time.monotonic() + settings.LOCK_SECONDS + 0.5, True
    with processor.condition:
        processor.limit, processor.pause_held_until = step, 0.0
        processor.condition.notify_all()
        while processor.state is ReportState.RS_NORMAL and not reached(processor, step):
            left = end - time.monotonic()
            if left <= 0 and counts:
                left, counts = settings.oversleep(settings.LOCK_SECONDS), False
                end = time.monotonic() + left
            if left <= 0:
                return wire.TIMEOUT
            processor.condition.wait(left)
        beyond = processor.step > step and processor.state is ReportState.RS_NORMAL and not processor.options.local_copy
    return wire.NEED_RETRY if beyond else wire.OK


def reached(processor: Processor, step: int) -> bool:
    """Whether the rank stands at `step` and is not updating; with a local copy the copy is enough."""
    if processor.updating:
        return processor.options.local_copy and processor.backup_step >= 0
    return processor.step >= step


def stop(processor: Processor, arguments: dict[str, Any]) -> int:
    """Make the training thread leave its function and wait until it has."""
    with processor.condition:
        processor.stopping, processor.limit = True, None
        processor.pause_step, processor.pause_held_until = None, 0.0
        processor.repair_type = shown_type(arguments["type"])
        processor.condition.notify_all()
    failed = _stop_raises()
    if failed and not settings.on("raising_handler_fails"):
        return wire.OK
    end = time.monotonic() + settings.action_seconds()
    with processor.condition:
        while not processor.outside or (processor.stopped and settings.on("stopped_once")):
            left = end - time.monotonic()
            if left <= 0:
                return wire.ERROR
            processor.condition.wait(left)
        processor.stopped = True  # whoever is stopped again waits for a word that was said already
    return wire.ERROR if failed else wire.OK


def _stop_raises() -> bool:
    """A stop handler that raises makes its action fail, but the thread is waited for all the same."""
    try:
        call("stop", registered.args, context("stop"))
    except Exception as error:  # a stranger's handler may raise anything
        settings.log(f"stop raised {error!r}")
        return True
    return False


def shown_type(strategy: str) -> str:
    """What `tft_get_repair_type` says."""
    return strategy if strategy in {"dump", "retry", "recover"} else "unknow"


def clean(processor: Processor, arguments: dict[str, Any]) -> int:
    """Clean, then let the thread go on to its second wait; "nothing to rebuild" is told by the device's status."""
    processor.repair_type = shown_type(arguments["type"])
    is_uce = processor.state in UCE and settings.on("clean_tells_memory_fault")
    returned = call("clean", is_uce, registered.args, context("clean"))
    if not isinstance(returned, int):
        wrong_type("clean")
    result = returned if isinstance(returned, int) else wire.OK
    if result == wire.NO_REBUILD:
        processor.low, result = True, wire.OK
        processor.client.beat()
    if result == wire.OK:
        processor.cleaned = True
        if not settings.mindspore():
            release(processor, "cleaned")
    return result


def wrong_type(name: str) -> None:
    """A handler that must return an int and does not: C++ throws a director type mismatch, the process aborts."""
    if name in registered.handlers and settings.on("wrong_type_aborts"):
        os.write(2, b"terminate called after throwing an instance of 'Swig::DirectorTypeMismatchException'\n")
        os.abort()


def release(processor: Processor, word: str) -> None:
    """Let the training thread pass its next wait."""
    with processor.condition:
        processor.go.append(word)
        processor.condition.notify_all()


def rebuild(processor: Processor, arguments: dict[str, Any]) -> int:
    """Rebuild the groups that a lost rank is in."""
    processor.counter = arguments["counter"]
    call("rebuild_group", arguments["ranks"], registered.args, context("rebuild_group"))
    if processor.state is ReportState.RS_INIT_FINISH:
        release(processor, "initialise")
    return wire.OK


def repair(processor: Processor, arguments: dict[str, Any]) -> int:
    """Send, receive or load."""
    return _repair(processor, arguments, "repair", registered.args, context("repair"))


def _repair(processor: Processor, arguments: dict[str, Any], name: str, *last: Any) -> int:
    if processor.repaired and settings.on("repaired_once"):
        time.sleep(settings.BARRIER_SECONDS)  # its barrier is used up until it trains again
        raise Later
    processor.repaired = True
    info = arguments["info"]
    processor.repair_step, processor.loaded_step = arguments["step"], 0
    processor.repair_type, processor.counter = shown_type(arguments["type"]), arguments["counter"]
    rebuilds = info["repair_type"] in {RepairType.RT_UCE_HIGHLEVEL.value, RepairType.RT_LOAD_REBUILD.value}
    call(name, arguments["step"], rebuilds, info["dst"], info, *last)
    return wire.OK


def rollback(processor: Processor, arguments: dict[str, Any]) -> int:
    """Back to the locked step."""
    processor.repair_step, processor.counter = arguments["step"], arguments["counter"]
    call("rollback", arguments["step"], registered.args, context("rollback"))
    return rolled_back(processor, arguments["step"])


def rolled_back(processor: Processor, step: int) -> int:
    """The state after a roll-back: at the step, whole, not updating."""
    with processor.condition:
        processor.step = processor.loaded_step or step
        processor.updating, processor.copying = False, False
    return wire.OK


def normal(processor: Processor, _arguments: dict[str, Any]) -> int:
    """Everything is as it should be again; the function is called once this has been answered."""
    with processor.condition:
        processor.state, processor.code = ReportState.RS_NORMAL, ""
        processor.isolated = processor.low = processor.cleaned = False
        processor.stopping = processor.outside = processor.stopped = processor.repaired = False
        processor.pause_step, processor.pause_held_until = None, 0.0
    return wire.OK


def go_on(processor: Processor) -> None:
    """Call the training function again."""
    release(processor, "repaired")


def save(processor: Processor, arguments: dict[str, Any]) -> int:
    """Save in a thread of its own, which answers when it is done; where that is set, stop and clean first."""
    processor.repair_type, processor.repair_step = "dump", arguments["step"]
    processor.counter = arguments["counter"]
    serial = processor.serial
    thread = threading.Thread(target=_save, args=(processor, arguments, serial), name="mindio-save", daemon=True)
    thread.start()
    raise Later


def _save(processor: Processor, arguments: dict[str, Any], serial: int) -> None:
    result = wire.OK
    try:
        first = settings.stop_clean_before_dump() and settings.on("stop_clean_before_save")
        if first and not processor.cleaned:
            result = stop_and_clean(processor)
        if result == wire.OK:
            call("save_ckpt", arguments["step"], arguments["info"], registered.args, context("save_ckpt"))
    except Exception as error:  # whatever the trainer's save raises
        settings.log(f"rank {processor.options.rank}: save raised {error!r}")
        result = wire.ERROR
    tell(processor, Message.SAVE, serial, result)


def stop_and_clean(processor: Processor) -> int:
    """Before a save; only what clean says counts."""
    parts = (stop, clean) if settings.on("stop_before_clean") else (clean, stop)
    results = {part: part(processor, {"type": "dump"}) for part in parts}
    return results[clean]


def rename(processor: Processor, _arguments: dict[str, Any]) -> int:
    """Give the checkpoint its final name; the step is the one that was saved."""
    last = context("rename") if settings.mindspore() else registered.args
    call("rename", processor.repair_step, last)
    return wire.OK


def leave(processor: Processor, _arguments: dict[str, Any]) -> int:
    """The controller wants this process to end."""
    with processor.condition:
        processor.leaving = True
        processor.condition.notify_all()
    if settings.mindspore() and "exit" in registered.handlers:
        call("exit", context("exit"))
    else:
        threading.Thread(target=processor.forced_exit, name="mindio-exit", daemon=True).start()
    return wire.OK


def pause(processor: Processor, arguments: dict[str, Any]) -> int:
    """Block the thread at a step, or let it raise there; with the block the streams are synchronised."""
    by_exception = arguments["raise"]
    end = time.monotonic() + settings.action_seconds()
    with processor.condition:
        processor.pause_step, processor.pause_by_exception = arguments["step"], by_exception
        processor.pause_held_until = 0.0
        processor.condition.notify_all()
        while not (processor.outside if by_exception else processor.paused):
            left = end - time.monotonic()
            if left <= 0:
                processor.pause_step = None
                processor.condition.notify_all()
                return wire.TIMEOUT
            processor.condition.wait(left)
    call("stream_sync")
    return wire.OK


def unpause(processor: Processor, _arguments: dict[str, Any]) -> int:
    """End a pause."""
    with processor.condition:
        processor.pause_step = None
        processor.condition.notify_all()
    return wire.OK


def downgrade_rebuild(_processor: Processor, arguments: dict[str, Any]) -> int:
    """Go on with fewer ranks; the ctx of the four elastic handlers is never passed on."""
    call("zit_downgrade_rebuild", arguments["group"], arguments["remaining"], registered.args, arguments["params"])
    return wire.OK


def upgrade_rebuild(_processor: Processor, arguments: dict[str, Any]) -> int:
    """Take ranks back in."""
    call("zit_upgrade_rebuild", arguments["ranks"], registered.args, arguments["params"])
    return wire.OK


def upgrade_repair(processor: Processor, arguments: dict[str, Any]) -> int:
    """As `repair`; the last argument is the text given with "upgrade"."""
    return _repair(processor, arguments, "zit_upgrade_repair", registered.args, arguments["params"])


def upgrade_rollback(processor: Processor, arguments: dict[str, Any]) -> int:
    """Back to the locked step, after an upgrade."""
    processor.repair_type = "unknow"
    call("zit_upgrade_rollback", arguments["step"], registered.args, arguments["params"])
    return rolled_back(processor, arguments["step"])


TABLE: dict[Message, Callable[[Processor, dict[str, Any]], int]] = {
    Message.COLLECT: collect,
    Message.LOCK: lock,
    Message.STOP: stop,
    Message.CLEAN: clean,
    Message.REBUILD: rebuild,
    Message.REPAIR: repair,
    Message.ROLLBACK: rollback,
    Message.NORMAL: normal,
    Message.SAVE: save,
    Message.RENAME: rename,
    Message.EXIT: leave,
    Message.PAUSE: pause,
    Message.CONTINUE: unpause,
    Message.DOWNGRADE_REBUILD: downgrade_rebuild,
    Message.UPGRADE_REBUILD: upgrade_rebuild,
    Message.UPGRADE_REPAIR: upgrade_repair,
    Message.UPGRADE_ROLLBACK: upgrade_rollback,
}
