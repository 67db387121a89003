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
from dataclasses import asdict
from typing import Any

from . import _settings as settings
from . import _wire as wire
from ._names import RepairType, ReportState
from ._processor import Processor, registered
from ._wire import Message

Result = tuple[int, dict[str, Any]]


def serve(processor: Processor) -> None:
    """Carry out orders until the process ends."""
    while True:
        kind, body = processor.inbox.get()
        serial, arguments = wire.parse_action(body)
        try:
            result, content = TABLE[Message(kind)](processor, arguments)
        except Exception as error:  # a stranger's handler may raise anything
            settings.log(f"rank {processor.options.rank}: {Message(kind).name} raised {error!r}")
            result, content = wire.TIMEOUT if settings.on("raising_handler_fails") else wire.OK, {}
        processor.client.send(wire.answer(serial, result, content))


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


def account(processor: Processor) -> Result:
    """The rank's account as an answer."""
    return wire.OK, {"beat": asdict(processor.account())}


def collect(processor: Processor, arguments: dict[str, Any]) -> Result:
    """Say where this rank is, and hold it there."""
    with processor.condition:
        if arguments["pause"]:
            processor.pause_held = True
        elif processor.state is ReportState.RS_NORMAL:
            processor.limit = processor.step + int(processor.updating)
        beat = processor.account()
        passed = processor.pause_passed
    return wire.OK, {"beat": asdict(beat), "passed": passed}


def lock(processor: Processor, arguments: dict[str, Any]) -> Result:
    """Let the rank reach the step and hold it there; ERROR when it does not within 30 seconds."""
    step = arguments["step"]
    end = time.monotonic() + settings.LOCK_SECONDS + 0.5
    with processor.condition:
        processor.limit = step
        processor.condition.notify_all()
        while processor.state is ReportState.RS_NORMAL and not reached(processor, step):
            left = end - time.monotonic()
            if left <= 0:
                return wire.ERROR, {}
            processor.condition.wait(left)
    return account(processor)


def reached(processor: Processor, step: int) -> bool:
    """Whether the rank stands at `step` and is not updating; with a local copy the copy is enough."""
    if processor.updating:
        return processor.options.local_copy and processor.backup_step >= 0
    return processor.step >= step


def unlock(processor: Processor, _arguments: dict[str, Any]) -> Result:
    """Nothing was wrong: go on."""
    with processor.condition:
        processor.limit = None
        processor.pause_held = False
        processor.condition.notify_all()
    return wire.OK, {}


def stop(processor: Processor, arguments: dict[str, Any]) -> Result:
    """Make the training thread leave its function and wait until it has."""
    with processor.condition:
        processor.stopping, processor.limit = True, None
        processor.pause_step, processor.pause_held = None, False
        processor.repair_type = shown_type(arguments.get("type", ""))
        processor.condition.notify_all()
    call("stop", registered.args, context("stop"))
    end = time.monotonic() + settings.action_seconds()
    with processor.condition:
        while not processor.outside:
            left = end - time.monotonic()
            if left <= 0:
                return wire.TIMEOUT, {}
            processor.condition.wait(left)
    return wire.OK, {}


def shown_type(strategy: str) -> str:
    """What `tft_get_repair_type` says."""
    return strategy if strategy in {"dump", "retry", "recover"} else "unknow"


def clean(processor: Processor, arguments: dict[str, Any]) -> Result:
    """Clean, then let the thread go on to its second wait."""
    returned = call("clean", arguments["uce"], registered.args, context("clean"))
    if not isinstance(returned, int):
        wrong_type("clean")
    result = returned if isinstance(returned, int) else wire.OK
    if result in {wire.OK, wire.NO_REBUILD} and not settings.mindspore():
        release(processor, "cleaned")
    return result, {}


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


def rebuild(processor: Processor, arguments: dict[str, Any]) -> Result:
    """Rebuild the groups that a lost rank is in."""
    processor.repair_type = shown_type(arguments.get("type", ""))
    call("rebuild_group", arguments["ranks"], registered.args, context("rebuild_group"))
    if processor.state is ReportState.RS_INIT_FINISH:
        release(processor, "initialise")
    return wire.OK, {}


def repair(processor: Processor, arguments: dict[str, Any]) -> Result:
    """Send, receive or load."""
    return _repair(processor, arguments, "repair", registered.args, context("repair"))


def _repair(processor: Processor, arguments: dict[str, Any], name: str, *last: Any) -> Result:
    info = arguments["info"]
    processor.repair_step, processor.loaded_step = arguments["step"], 0
    processor.repair_type = shown_type(arguments["type"])
    rebuilds = info["repair_type"] in {RepairType.RT_UCE_HIGHLEVEL.value, RepairType.RT_LOAD_REBUILD.value}
    call(name, arguments["step"], rebuilds, info["dst"], info, *last)
    return wire.OK, {"loaded": processor.loaded_step}


def rollback(processor: Processor, arguments: dict[str, Any]) -> Result:
    """Back to the locked step."""
    processor.repair_type = shown_type(arguments["type"])
    processor.repair_step = arguments["step"]
    call("rollback", arguments["step"], registered.args, context("rollback"))
    return rolled_back(processor, arguments["step"])


def rolled_back(processor: Processor, step: int) -> Result:
    """The state after a roll-back: at the step, whole, not updating."""
    with processor.condition:
        processor.step = processor.loaded_step or step
        processor.updating, processor.copying, processor.available = False, False, True
    return wire.OK, {}


def resume(processor: Processor, _arguments: dict[str, Any]) -> Result:
    """Call the training function again."""
    with processor.condition:
        processor.state, processor.code = ReportState.RS_NORMAL, ""
        processor.stopping, processor.limit, processor.outside = False, None, False
        processor.pause_step, processor.pause_held, processor.pause_passed = None, False, -1
        processor.loaded_step = 0
        processor.go.append("repaired")
        processor.condition.notify_all()
    return wire.OK, {}


def save(processor: Processor, arguments: dict[str, Any]) -> Result:
    """Save in a thread of its own; a second answer tells that it is done."""
    processor.repair_type, processor.repair_step = "dump", arguments["step"]
    threading.Thread(target=_save, args=(processor, arguments), name="mindio-save", daemon=True).start()
    return wire.OK, {}


def _save(processor: Processor, arguments: dict[str, Any]) -> None:
    result = wire.OK
    try:
        call("save_ckpt", arguments["step"], arguments["info"], registered.args, context("save_ckpt"))
    except Exception as error:  # whatever the trainer's save raises
        settings.log(f"rank {processor.options.rank}: save raised {error!r}")
        result = wire.TIMEOUT
    processor.client.send(wire.answer(arguments["done"], result))


def rename(_processor: Processor, arguments: dict[str, Any]) -> Result:
    """Give the checkpoint its final name."""
    last = context("rename") if settings.mindspore() else registered.args
    call("rename", arguments["step"], last)
    return wire.OK, {}


def leave(processor: Processor, _arguments: dict[str, Any]) -> Result:
    """The controller wants this process to end."""
    with processor.condition:
        processor.leaving = True
        processor.condition.notify_all()
    if settings.mindspore() and "exit" in registered.handlers:
        call("exit", context("exit"))
    else:
        threading.Thread(target=processor.forced_exit, name="mindio-exit", daemon=True).start()
    return wire.OK, {}


def pause(processor: Processor, arguments: dict[str, Any]) -> Result:
    """Block the thread at a step, or let it raise there; with the block the streams are synchronised."""
    by_exception = arguments["raise"]
    end = time.monotonic() + settings.action_seconds()
    with processor.condition:
        processor.pause_step, processor.pause_by_exception = arguments["step"], by_exception
        processor.pause_held = False
        processor.condition.notify_all()
        while not (processor.outside if by_exception else processor.paused):
            left = end - time.monotonic()
            if left <= 0:
                processor.pause_step = None
                processor.condition.notify_all()
                return wire.TIMEOUT, {}
            processor.condition.wait(left)
    if not by_exception:
        call("stream_sync")
    return account(processor)


def unpause(processor: Processor, _arguments: dict[str, Any]) -> Result:
    """End a pause."""
    with processor.condition:
        processor.pause_step, processor.pause_held = None, False
        processor.condition.notify_all()
    return wire.OK, {}


def downgrade_rebuild(_processor: Processor, arguments: dict[str, Any]) -> Result:
    """Go on with fewer ranks; the ctx of the four elastic handlers is never passed on."""
    call("zit_downgrade_rebuild", arguments["group"], arguments["remaining"], registered.args, arguments["params"])
    return wire.OK, {}


def upgrade_rebuild(_processor: Processor, arguments: dict[str, Any]) -> Result:
    """Take ranks back in."""
    call("zit_upgrade_rebuild", arguments["ranks"], registered.args, arguments["params"])
    return wire.OK, {}


def upgrade_repair(processor: Processor, arguments: dict[str, Any]) -> Result:
    """As `repair`; the last argument is the text given with "upgrade"."""
    return _repair(processor, arguments, "zit_upgrade_repair", registered.args, arguments["params"])


def upgrade_rollback(processor: Processor, arguments: dict[str, Any]) -> Result:
    """Back to the locked step, after an upgrade."""
    processor.repair_type = "unknow"
    call("zit_upgrade_rollback", arguments["step"], registered.args, arguments["params"])
    return rolled_back(processor, arguments["step"])


TABLE: dict[Message, Callable[[Processor, dict[str, Any]], Result]] = {
    Message.COLLECT: collect,
    Message.LOCK: lock,
    Message.UNLOCK: unlock,
    Message.STOP: stop,
    Message.CLEAN: clean,
    Message.REBUILD: rebuild,
    Message.REPAIR: repair,
    Message.ROLLBACK: rollback,
    Message.RESUME: resume,
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
