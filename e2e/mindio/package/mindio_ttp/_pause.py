"""Pause and continue, hot switch and migration (docs/protocols/mindio.md §7.7)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from . import _collect as collect
from . import _fault as fault
from . import _settings as settings
from . import _wire as wire
from ._controller import NO_LINK
from ._names import ReportState, Status
from ._repair import broken, finish, rebuild_on, repair_orders, roll_back
from ._wire import Message

if TYPE_CHECKING:
    from ._controller import Controller

BROKEN = "Controller do pause wait failed."


def stop_at_next_step(controller: Controller, ranks: list[int], *, by_exception: bool) -> bool:
    """Stop `ranks` at the step after the highest one; a hot switch expects to find them there."""
    replies = collect.ask(controller, ranks)
    if broken(replies):
        return False
    controller.incident.step = step = 1 + max((controller.ranks[r].step for r in ranks), default=0)
    if by_exception and settings.on("switch_keeps_its_step"):
        time.sleep(settings.SWITCH_SECONDS)
    done = controller.order(Message.PAUSE, {r: {"step": step, "raise": by_exception} for r in ranks})
    return all(reply.result == wire.OK for reply in done.values())


def pause(controller: Controller) -> str:
    """Hold every rank, report, wait for "continue"."""
    mindx = controller.mindx
    mindx.drop()
    ranks = controller.linked()
    held = stop_at_next_step(controller, ranks, by_exception=not settings.on("pause_orders"))
    if not mindx.present:
        return let_go_on(controller, ranks)
    code, text = (0, "Controller pause train success!") if held else (499, "Controller pause train failed!")
    mindx.drop()
    if not mindx.call("report_stop_complete", code, text, controller.faults()) or not held:
        return "exit"
    answer = wait_paused(controller)
    if answer == "continue":
        mindx.drop()
        return let_go_on(controller, ranks)
    if answer == "stop":
        return "broken"
    mindx.drop()
    fault.result(controller, 406, BROKEN, controller.errors, "")
    controller.pause_failed = True
    return "broken"


def let_go_on(controller: Controller, ranks: list[int]) -> str:
    """End the pause and tell so; what MindX says from then on is forgotten until the controller is at rest again."""
    replies = controller.order(Message.CONTINUE, {r: {} for r in ranks})
    if any(reply.result == NO_LINK for reply in replies.values()) and settings.on("dead_rank_fails_continue"):
        time.sleep(settings.action_seconds())
        fault.result(controller, 499, "Controller continue training failed.", controller.errors, "continue")
        return "exit"
    fault.result(controller, 0, "Controller continue training success.", {}, "continue")
    if settings.on("rest_forgets"):
        time.sleep(settings.BACK_SECONDS)
        controller.mindx.drop()
    return "continued"


def wait_paused(controller: Controller) -> str | None:
    """The answer to a pause, left where it is; None when time is up or a rank has become bad."""
    end = time.monotonic() + controller.mindx.pause_seconds
    with controller.lock:
        while controller.mindx.token is None and not controller.closing:
            now = time.monotonic()
            if now >= end or any(r.fault(now) is not None for r in controller.ranks.values()):
                return None
            controller.changed.wait(min(settings.TICK_SECONDS, end - now))
        return controller.mindx.token


# ---- hot switch


def prepare(controller: Controller, action: str, faults: dict[int, int]) -> bool:
    """Begin or abandon a hot switch; one that no rank is in is refused, one that nobody knows is not."""
    with controller.lock:
        if action == "stop switch":
            if controller.hot_offered:
                controller.mindx.put("stop switch")
            elif not settings.on("stop_switch_before"):
                controller.mindx.put("stop")
            elif settings.on("stop_switch_leaves_a_word"):
                controller.mindx.put("stop switch")
            abandon(controller)
            return True
        known = [controller.ranks.get(r) for r in faults]
        unknown = any(entry is None or not entry.registered for entry in known)
        if not faults or (unknown and not settings.on("switch_of_unknown_ranks")):
            return False
        controller.hot_ranks = set(faults)
        controller.incoming = {}
        controller.counter += 1
        return True


def abandon(controller: Controller) -> None:
    """Forget the hot switch."""
    controller.hot_ranks, controller.incoming = set(), {}


def step_finish(controller: Controller) -> str:
    """Every rank raises "STEP FINISH" at the next step; ask MindX."""
    from ._controller import Incident

    mindx = controller.mindx
    controller.incident = Incident()
    controller.hot_offered = True
    held = stop_at_next_step(controller, controller.linked(), by_exception=True)
    offered = ["migration"] if held and settings.on("hot_switch_orders") else ["exit"]
    if not settings.on("switch_keeps_its_step"):
        controller.incident.step = max((r.step for r in controller.ranks.values()), default=0)
    mindx.drop()
    mindx.offered = offered
    if not mindx.call("report_strategies", controller.faults(), list(offered)):
        return "exit"
    answer = mindx.wait(settings.mindx_wait_seconds(), controller.is_closing)
    controller.hot_offered = False
    if answer == "stop switch" and not settings.on("stop_switch_after"):
        answer = "migration"
    return "migrate" if answer == "migration" else "exit"


def migrate(controller: Controller) -> str:
    """The new processes take their ranks over, get their data, and everybody goes on."""
    strategy = controller.incident.strategy = "migration"
    expected, actual = controller.incident.step, max((r.step for r in controller.ranks.values()), default=0)
    if expected != actual:
        settings.log(f"expect step:{expected}, actual step:{actual}")
        return fault.failed(controller, "notify hot switch migration failed", strategy)
    with controller.lock:
        swapped = sorted(controller.incoming)
        for rank, entry in controller.incoming.items():
            controller.ranks[rank] = entry
        abandon(controller)
        for entry in controller.ranks.values():
            if entry.status is Status.STEP_FINISH:
                entry.status, entry.state = Status.NORMAL, ReportState.RS_NORMAL
    if broken(rebuild_on(controller, swapped)):
        return fault.failed(controller, f"controller:{controller.flags.rank} rebuild failed", strategy)
    transfers = controller.replicas.transfers(swapped, lambda r: r not in swapped and controller.usable(r))
    if transfers is None:
        return fault.failed(controller, "do repair failed, ret: 1", strategy)
    extra = {"type": strategy}
    orders = {r: o | extra for r, o in repair_orders(controller, transfers, 3).items()}
    replies = controller.order(Message.REPAIR, orders)
    if any(reply.result != wire.OK for reply in replies.values()):
        return fault.failed(controller, "do repair failed, ret: 1", strategy)
    if not roll_back(controller, extra):
        text = f"controller:{controller.flags.rank} notify processor rollback failed"
        return fault.failed(controller, text, strategy)
    finish(controller, strategy)
    return "repaired"
