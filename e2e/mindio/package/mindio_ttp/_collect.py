"""How the controller takes stock at a fault: ask every rank, choose the step, lock it (docs/protocols/mindio.md §6)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from . import _settings as settings
from . import _wire as wire
from ._names import FaultType, Status
from ._wire import Heartbeat, Message

if TYPE_CHECKING:
    from ._controller import Controller, Reply


def note(controller: Controller, content: dict[str, Any]) -> None:
    """Take in the account that a rank puts into its answer."""
    beat = Heartbeat(**content["beat"])
    with controller.lock:
        controller.ranks[beat.rank].take(beat)


def ask(controller: Controller, ranks: list[int], *, pause: bool = False) -> dict[int, Reply]:
    """Collect the accounts of `ranks`; each one holds at its next optimizer update (or step, for a pause)."""
    seconds = settings.COLLECT_SECONDS if settings.on("silence_costs_five") else 1.0
    replies = controller.order(Message.COLLECT, {r: {"pause": pause} for r in ranks}, seconds)
    for result, content in replies.values():
        if result == wire.OK:
            note(controller, content)
    return replies


def unlock(controller: Controller) -> None:
    """Let every rank go on as if nothing had happened."""
    controller.order(Message.UNLOCK, {r: {} for r in controller.linked()}, settings.COLLECT_SECONDS)


def take_stock(controller: Controller) -> None:
    """Find out who is faulty; ranks that MindX has named are not asked, every other silent one costs 5 seconds."""
    skip = {Status.ISOLATED, Status.INITIALISED, Status.READY, Status.GONE}
    with controller.lock:
        named = controller.named if settings.on("named_not_asked") else set()
        now = time.monotonic()
        suspects = [
            r.number
            for r in controller.ranks.values()
            if (r.registered or not settings.on("missing_invisible")) and r.status not in skip and r.number not in named
        ]
    asked = suspects
    if not settings.on("frozen_costs"):
        asked = [n for n in suspects if not controller.ranks[n].silent(now)]
    found, controller.found = controller.found, {}
    before: dict[int, int] = {} if settings.on("answer_clears_silence") else found
    replies: dict[int, Reply] = {n: (wire.ERROR, {}) for n in suspects} | ask(controller, asked)
    now = time.monotonic()
    with controller.lock:
        for number in sorted(suspects):
            entry = controller.ranks[number]
            own = entry.fault(now)
            fault = before.get(number) if own is None else int(own)
            answered = replies[number][0] == wire.OK
            if fault is None and not answered:
                fault = FaultType.PROCESS.value if settings.on("unnamed_found") else None
            if fault is not None:
                controller.mark(number, fault)
                controller.codes[number] = entry.code if answered else ""


def lock_step(controller: Controller) -> None:
    """Hold every healthy rank at the highest step; a rank stuck in its update makes this fail or is lost itself."""
    with controller.lock:
        healthy = [
            r for r in controller.ranks.values()
            if r.registered and r.status is Status.NORMAL
            and (r.number not in controller.errors or (r.link is not None and not settings.on("named_not_locked")))
        ]  # fmt: skip
        steps = [r.step + (1 if r.updating and not controller.flags.local_copy else 0) for r in healthy]
        all_steps = steps or [0]
    controller.incident.step = max(all_steps)
    orders = {r.number: {"step": controller.incident.step} for r in healthy}
    replies = controller.order(Message.LOCK, orders)
    for number, (result, content) in replies.items():
        if result == wire.OK:
            note(controller, content)
        elif result == wire.ERROR:
            controller.incident.locked = not settings.on("stuck_fails_the_lock")
        elif settings.on("stuck_is_lost"):
            controller.mark(number, int(FaultType.PROCESS))
            controller.codes[number] = ""


def offer(controller: Controller) -> list[str]:
    """The strategies for the error dict as it is (docs/protocols/mindio.md §5.4)."""
    incident = controller.incident
    empty = incident.step == 0 and settings.on("step_0_offers_exit")
    sound = controller.replicas.consistent() or not settings.on("bad_groups_offer_exit")
    if empty or not incident.locked or not sound:
        return ["exit"]
    filtered = settings.framework_type() == 1 or settings.mindspore() or not settings.on("strategies_unfiltered")
    if filtered and not controller.replicas.has_copy(controller.usable):
        rest = settings.framework_type() == 1 and all(
            group.rest_lives(controller.usable) for group in controller.replicas.groups(0)
        )
        return ["exit", "dump"] if rest else ["exit"]
    if controller.scaled_in and settings.on("no_second_shrink"):
        return ["exit", "dump"]
    offered = ["exit", "dump"]
    process_fault = 1 in controller.errors.values() and settings.on("lists_by_fault")
    if not process_fault and controller.retry_enabled:
        offered.append("retry")
    if controller.enabled("arf"):
        offered.append("recover")
    if process_fault and controller.enabled("zit") and settings.framework_type() == 0:
        offered += ["downgrade", "upgrade"]
    return offered
