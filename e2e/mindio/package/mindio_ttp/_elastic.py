"""Going on with fewer ranks and growing back: DG_REPAIR, DOWNGRADE, UPGRADE (docs/protocols/mindio.md §7.5)."""

from __future__ import annotations

import time
from typing import Any

from . import _collect as collect
from . import _fault as fault
from . import _settings as settings
from ._controller import Controller, Incident, Pending
from ._machine import State
from ._names import ReportState, Status
from ._repair import broken, restore, resume
from ._wire import Message

STRATEGY = "downgrade"


def scale_in(controller: Controller) -> str:
    """Choose the ranks to drop, tell MindX all of them, rebuild the rest and let it go on."""
    if not settings.on("ready_counts_as_lost"):
        with controller.lock:
            controller.errors = {r: f for r, f in controller.errors.items() if not controller.is_ready(r)}
    refused = refusal(controller, controller.replicas.dropped(controller.errors))
    if refused is not None:
        return refused
    if settings.on("isolate_report"):
        fault.result(controller, 201, "controller notify isolate ranks.", controller.errors, STRATEGY)
    remaining = [r for r in controller.linked() if r not in controller.errors]
    replies = controller.order(Message.DOWNGRADE_REBUILD, downgrade_orders(controller, remaining))
    if broken(replies):
        return fault.failed(controller, f"controller:{controller.flags.rank} downgrade rebuild failed", STRATEGY)
    with controller.lock:
        controller.scaled_in = set(controller.errors)
        for rank in controller.scaled_in:
            entry = controller.ranks[rank]
            if entry.status is not Status.READY:
                entry.status = Status.ISOLATED
        controller.named.clear()
        controller.codes.clear()
        controller.upgrade_params = None
        controller.pending = Pending(STRATEGY, controller.incident.step)
    resume(controller, remaining)
    return "scaled in"


def refusal(controller: Controller, dropped: set[int]) -> str | None:
    """Mark everybody who is to be dropped; the outcome when that cannot be: no copy would be left, or no rank 0."""
    takes_rank_0 = 0 in controller.errors or (0 in dropped and settings.on("rank0_dropped_as_sibling"))
    takes_rank_0 = takes_rank_0 and settings.on("rank0_not_dropped")
    with controller.lock:
        usable = {r for r in range(controller.flags.world_size) if r not in dropped and controller.usable(r)}
    copy_is_first = settings.on("copy_before_rank0") or not takes_rank_0
    has_copy = controller.replicas.has_copy(lambda r: r in usable) or not settings.on("dropped_leaves_copy")
    if copy_is_first and not has_copy:
        text = "controller find no complete duplication to do downgrade running."
        fault.result(controller, 499, text, controller.errors, STRATEGY)
        return "exit"
    if settings.on("drop_rule"):
        for rank in dropped:
            controller.mark(rank, 1)
    if takes_rank_0:
        text = "controller find rank 0 in error ranks, not support downgrade."
        return fault.failed(controller, text, STRATEGY)
    return None


def downgrade_orders(controller: Controller, remaining: list[int]) -> dict[int, dict[str, Any]]:
    """Per rank: its own new group (of the first kind), all that remain, the parameters."""
    orders = {}
    for rank in remaining:
        groups = [g.ranks for g in controller.replicas.groups(0) if rank in g.ranks]
        own = controller.replicas.data_parallel.get(rank) or (groups[0] if groups else ())
        group = [r for r in own if r in remaining]
        orders[rank] = {"group": group, "remaining": remaining, "params": controller.incident.params}
    return orders


def downgrade(controller: Controller) -> str:
    """Train scaled in: the two-second checks of NORMAL, and the conditions of an upgrade."""
    while not controller.closing:
        outcome = fault.check(controller)
        if outcome in {"fault", "stop", "save"}:
            return outcome
        with controller.lock:
            if may_upgrade(controller):
                return "upgrade"
            end = time.monotonic() + settings.TICK_SECONDS
            while not controller.closing and not fault.woken(controller) and (left := end - time.monotonic()) > 0:
                controller.changed.wait(left)
            controller.alarm = False
    return "closed"


def is_save_unheard(controller: Controller) -> bool:
    """Whether a save that is asked for now is lost: ranks are left out, or are being taken back.

    One that was to wait for the ranks that come back takes the growth with it; one that comes while they are taken back
    leaves its name, and the growth's success bears it.
    """
    if controller.incident.strategy == "upgrade" and controller.state is not State.NORMAL:
        if settings.on("growth_told_as_save"):
            controller.incident.claimed = "dump"
        return settings.on("save_unheard_while_smaller")
    if not controller.scaled_in:
        return False
    if settings.on("save_loses_the_growth"):
        controller.upgrade_params = None
    return settings.on("save_unheard_while_smaller")


def may_upgrade(controller: Controller) -> bool:
    """Whether an upgrade was asked for and everybody is there."""
    asked = controller.upgrade_params is not None or not settings.on("upgrade_needs_asking")
    if not settings.on("upgrade_needs_all"):
        return asked and any(controller.ranks[r].status is Status.READY for r in controller.scaled_in)
    return asked and everybody(controller)


def everybody(controller: Controller) -> bool:
    """Whether every rank that ever registered is normal or ready."""
    known = [r for r in controller.ranks.values() if r.registered]
    return all(r.status in {Status.NORMAL, Status.READY} and r.link is not None for r in known)


def upgrade(controller: Controller) -> str:
    """Lock the step of the running ranks again; ENV_CLEAR and REPAIR do the rest."""
    controller.incident = Incident(strategy="upgrade", params=controller.upgrade_params or "")
    controller.upgrade_params = None
    controller.pending = None
    running = [r for r in controller.linked() if r not in controller.errors]
    collect.ask(controller, running)
    collect.lock_step(controller)
    return "locked" if controller.incident.locked else "exit"


def upgrade_repair(controller: Controller) -> str:
    """Rebuild with the ranks that came back, send them their data, roll everybody back."""
    params = controller.incident.params
    back = sorted(controller.scaled_in)
    orders = {r: {"ranks": back, "params": params} for r in controller.linked()}
    if broken(controller.order(Message.UPGRADE_REBUILD, orders)):
        return fault.failed(controller, f"controller:{controller.flags.rank} upgrade rebuild failed", "upgrade")
    for rank in back:
        controller.ranks[rank].state = ReportState.RS_NORMAL
    return restore(controller, back, "upgrade", params=params)
