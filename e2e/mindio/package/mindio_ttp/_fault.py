"""The front of every fault: NORMAL finds it, ABNORMAL takes stock and asks MindX, EXIT ends it (mindio.md §5, §6)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from . import _bodies as bodies
from . import _collect as collect
from . import _settings as settings
from ._names import Status
from ._wire import Message

if TYPE_CHECKING:
    from ._controller import Controller

#: Words that NORMAL does not leave lying: it acts on them.
CALLS = ("stop", "save", "pause")
WORDS = {"dump": "dump", "exit": "exit", "retry": "repair", "recover": "repair", "downgrade": "repair"}


def normal(controller: Controller) -> str:
    """Check all ranks every two seconds, or when something has happened."""
    while not controller.closing:
        outcome = check(controller)
        if outcome is not None:
            return outcome
        with controller.lock:
            end = time.monotonic() + settings.TICK_SECONDS
            while not (controller.closing or woken(controller)):
                left = end - time.monotonic()
                if left <= 0:
                    break
                controller.changed.wait(left)
            controller.alarm = False
    return "closed"


def woken(controller: Controller) -> bool:
    """Whether there is something to do before the next tick."""
    return controller.alarm or controller.mindx.token in CALLS


def check(controller: Controller) -> str | None:
    """One look at everything; the outcome that leaves NORMAL or DOWNGRADE, or None."""
    word = controller.mindx.token
    if word in CALLS:
        if not settings.on("stop_at_once"):
            _sleep(controller, settings.SETTLE_SECONDS)
        return word
    now = time.monotonic()
    with controller.lock:
        if not settings.on("missing_invisible"):
            controller.imagine_everybody()
        looked = {r.number: r.fault(now) for r in controller.ranks.values() if r.number not in controller.scaled_in}
        faulty = {n: int(fault) for n, fault in looked.items() if fault is not None}
        controller.found = faulty
    if faulty:
        if not settings.on("sticky_wakeups") and controller.mindx.token not in CALLS:
            controller.mindx.drop()
        if settings.on("exception_delay"):
            _sleep(controller, settings.SETTLE_SECONDS, cut=not settings.on("settling_is_not_cut"))
        return "fault"
    report_success(controller)
    with controller.lock:
        ready = controller.incoming and all(r.status is Status.READY for r in controller.incoming.values())
        if ready and controller.hot_ranks == set(controller.incoming):
            return "hot switch"
    return None


def report_success(controller: Controller) -> None:
    """Success of the last repair, once some rank's step is beyond the repaired one."""
    pending = controller.pending
    if pending is None:
        return
    with controller.lock:
        beyond = any(r.step > pending.step for r in controller.ranks.values() if r.number not in controller.errors)
    if not (beyond or pending.at_once or not settings.on("late_success")):
        return
    controller.pending = None
    controller.mindx.offered = None
    shown = controller.faults() if settings.on("success_dicts") else dict.fromkeys(controller.ranks, 1)
    told = result(controller, 0, "Mindio do repair operation ok", shown, pending.strategy)
    if not told and not settings.on("raising_result_is_logged"):
        controller.pending = pending


def result(controller: Controller, code: int, text: str, faults: dict[int, int], strategy: str) -> bool:
    """Report a result, having dropped any word that nobody took; False when MindX's callback raised."""
    controller.mindx.drop()
    if not controller.mindx.present:
        return True
    return controller.mindx.call("report_result", code, text, dict(sorted(faults.items())), strategy)


def _sleep(controller: Controller, seconds: float, *, cut: bool = False) -> None:
    end = time.monotonic() + seconds
    with controller.lock:
        while not controller.closing and (left := end - time.monotonic()) > 0:
            if cut and controller.mindx.token in CALLS:
                return
            controller.changed.wait(left)


def abnormal(controller: Controller) -> str:
    """Take stock, lock the step, talk to MindX."""
    from ._controller import Incident

    with controller.lock:
        word = controller.mindx.token
        stop, save = word == "stop", word == "save"
        if save:
            controller.mindx.token = None
        controller.alarm = False
        controller.counter += 1
        controller.incident = Incident()
    ended = controller.orderly_end and settings.on("orderly_end_exits")
    if save and not settings.on("save_and_exit"):
        return "exit"
    if ended and not save:
        return "exit"
    collect.take_stock(controller)
    new_faults = set(controller.errors) - controller.scaled_in
    told, controller.pause_failed = controller.pause_failed, False
    if not (stop or save or new_faults or told) and settings.on("silent_heart_loops"):
        controller.counter -= int(not settings.on("loop_raises_counter"))
        return "nothing wrong, scaled in" if controller.scaled_in else "nothing wrong"
    collect.lock_step(controller)
    if save:
        controller.incident.strategy = "dump"
        return "dump"
    if not controller.mindx.present:
        return alone(controller)
    if controller.pending is not None and settings.on("last_repair_failed"):
        strategy = controller.pending.strategy
        controller.pending = None
        return failed(controller, "do last repair failed!", strategy)
    controller.pending = None
    return converse(controller)


def alone(controller: Controller) -> str:
    """Without MindX: retry a memory or communication fault, save at a process fault, else leave."""
    offered = collect.offer(controller)
    controller.pending = None
    if "retry" in offered and controller.errors and settings.on("alone_retries"):
        controller.incident.strategy = "retry"
        return "repair"
    if "dump" in offered and settings.on("alone_saves"):
        controller.incident.strategy = "dump"
        return "dump"
    return "exit"


def converse(controller: Controller) -> str:
    """The two fault reports, the stop and the strategy."""
    mindx = controller.mindx
    wait = settings.mindx_wait_seconds()
    told = mindx.call("report_fault_ranks", controller.faults(), fault_codes(controller))
    if not told and settings.on("raising_fault_report_exits"):
        return "exit"
    longer = mindx.pause_seconds if settings.on("pause_lengthens_waits") else 0
    if mindx.wait(max(wait, longer), controller.is_closing) != "stop":
        return "exit"
    mindx.drop()
    if not controller.replicas.by_rank:
        mindx.call("report_stop_complete", 404, "no replica info", controller.faults())
        return "exit"
    told = mindx.call("report_stop_complete", 0, "stop ok", controller.faults())
    if not told and settings.on("raising_stop_complete_exits"):
        return "exit"
    if not settings.on("stop_after_strategy"):
        controller.order(Message.STOP, {r: {"type": ""} for r in controller.linked(but=controller.errors)})
    if heard(controller, wait, "stop" if not settings.on("second_stop_fatal") else "") != "global":
        return "exit"
    told = True
    if settings.on("second_fault_report"):
        told = mindx.call("report_fault_ranks", controller.faults(), fault_codes(controller))
    if not told and not settings.on("raising_second_report_is_logged"):
        return "exit"
    return ask_strategy(controller)


def heard(controller: Controller, seconds: float, passed_over: str) -> str | None:
    """The next word; one that is passed over is waited for again."""
    word = controller.mindx.wait(seconds, controller.is_closing)
    while word is not None and word == passed_over:
        word = controller.mindx.wait(seconds, controller.is_closing)
    return word


def fault_codes(controller: Controller) -> dict[int, str]:
    """The code of every rank that the controller itself found faulty."""
    if settings.on("partial_codes"):
        return dict(sorted(controller.codes.items()))
    return {rank: controller.codes.get(rank, "") for rank in controller.errors}


def ask_strategy(controller: Controller) -> str:
    """Report what can be done and carry out the answer."""
    mindx = controller.mindx
    offered = collect.offer(controller)
    mindx.drop()
    mindx.offered = offered
    told = mindx.call("report_strategies", controller.faults(), list(offered))
    if not told and settings.on("raising_strategies_exits"):
        return "exit"
    longer = mindx.strategy_seconds if settings.on("global_time_lengthens") else 0
    seconds = max(longer, settings.mindx_wait_seconds())
    answer = heard(controller, seconds, "global" if not settings.on("second_naming_fatal") else "")
    if answer == "invalid":
        result(controller, 499, "invalid strategy", controller.errors, controller.incident.strategy)
        return "exit"
    outcome = WORDS.get(answer or "", "exit")
    if answer in WORDS:
        controller.incident.strategy = answer
        controller.incident.params = mindx.params
    return outcome


def failed(controller: Controller, text: str, strategy: str) -> str:
    """406: tell MindX and wait for dump or exit."""
    if not controller.mindx.present:
        return "dump" if controller.replicas.has_copy(controller.usable) else "exit"
    result(controller, 406, text, controller.errors, strategy)
    answer = controller.mindx.wait(settings.mindx_wait_seconds(), controller.is_closing)
    if answer == "invalid":
        result(controller, 499, "invalid strategy", controller.errors, strategy)
        return "exit"
    if answer == "dump" and settings.on("dump_after_406"):
        controller.incident.strategy = "dump"
        return "dump"
    return "exit"


def leave(controller: Controller) -> str:
    """EXIT and its two faces: told to leave after the window, or forgotten when MindX speaks in it."""
    mindx = controller.mindx
    if mindx.present:
        spoken = mindx.wait(settings.mindx_wait_seconds(), controller.is_closing)
        if spoken is not None and settings.on("exit_two_faces"):
            return "done"
        if not settings.on("no_result_for_exit"):
            result(controller, 0, "exit", controller.errors, "exit")
    serial = controller.next_serial()
    for rank in controller.linked():
        link = controller.ranks[rank].link
        if link is not None:
            link.send(bodies.action(Message.EXIT, serial, {}))
    _sleep(controller, 3.0)
    if controller.server is not None:
        controller.server.stop()
    return "done"
