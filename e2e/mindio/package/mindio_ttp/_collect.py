"""How the controller takes stock at a fault: ask every rank, choose the step, lock it (docs/protocols/mindio.md §6)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from . import _settings as settings
from . import _wire as wire
from ._controller import NO_ANSWER, Reply
from ._names import FaultType, Status
from ._wire import Message

if TYPE_CHECKING:
    from ._controller import Controller

LOCK_TRIES = 3


def note(controller: Controller, reply: Reply) -> None:
    """Take in the account that a rank puts into its answer."""
    if reply.beat is not None:
        with controller.lock:
            controller.ranks[reply.beat.rank].take(reply.beat)


def ask(controller: Controller, ranks: list[int]) -> dict[int, Reply]:
    """Collect the accounts of `ranks`; nobody is held by it."""
    seconds = settings.COLLECT_SECONDS if settings.on("silence_costs_five") else 1.0
    replies = controller.order(Message.COLLECT, {r: {} for r in ranks}, seconds)
    for reply in replies.values():
        note(controller, reply)
    return replies


def take_stock(controller: Controller) -> None:
    """Find out who is faulty; dead ranks that MindX has named are not asked, every other silent one costs 5 seconds.

    One that was named with another type is asked while its link is open, and stays in the dict as it was named.
    """
    skip = {Status.ISOLATED, Status.INITIALISED, Status.READY, Status.GONE}
    with controller.lock:
        processes = {n for n in controller.named if controller.errors.get(n) == int(FaultType.PROCESS)}
        named = controller.named if settings.on("named_not_asked") else set()
        still_linked = {n for n in named - processes if controller.ranks[n].link is not None}
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
    replies = {n: Reply(wire.ERROR) for n in suspects} | ask(controller, [*asked, *sorted(still_linked)])
    now = time.monotonic()
    with controller.lock:
        for number in sorted(suspects):
            entry = controller.ranks[number]
            own = entry.fault(now)
            fault = before.get(number) if own is None else int(own)
            answered = replies[number].result == wire.OK
            if fault is None and not answered:
                fault = FaultType.PROCESS.value if settings.on("unnamed_found") else None
            if fault is not None:
                controller.mark(number, fault)
                controller.codes[number] = entry.code if answered else ""


def lock_step(controller: Controller) -> None:
    """Hold every healthy rank at the highest step; a rank stuck in its update makes this fail or is lost itself.

    A rank that has run past the step meanwhile asks for another try with its own; so does one that does not answer.
    """
    for _ in range(LOCK_TRIES):
        again = _try_to_lock(controller)
        if again is None or not controller.incident.locked:
            return
    controller.incident.locked = False


def _try_to_lock(controller: Controller) -> bool | None:
    """None: everybody stands there."""
    with controller.lock:
        healthy = [
            r for r in controller.ranks.values()
            if r.registered and r.status is Status.NORMAL
            and (r.number not in controller.errors or (r.link is not None and not settings.on("named_not_locked")))
        ]  # fmt: skip
        controller.incident.step = max((r.step for r in controller.ranks.values()), default=0)
    if not controller.incident.step:
        return None
    orders = {r.number: {"step": controller.incident.step} for r in healthy}
    replies = controller.order(Message.LOCK, orders)
    again = False
    for number, reply in replies.items():
        note(controller, reply)
        if reply.result == NO_ANSWER and settings.on("stuck_is_lost"):
            controller.mark(number, int(FaultType.PROCESS))
            controller.codes[number] = ""
        elif reply.result in {wire.ERROR, wire.TIMEOUT}:
            controller.incident.locked = not settings.on("stuck_fails_the_lock")
        again = again or reply.result == wire.NEED_RETRY
    return True if again else None


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
