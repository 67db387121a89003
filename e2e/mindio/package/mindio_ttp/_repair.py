"""ENV_CLEAR, REPAIR and DUMP: handlers on the ranks, in their order (docs/protocols/mindio.md §7)."""

from __future__ import annotations

import time
from typing import Any

from . import _collect as collect
from . import _fault as fault
from . import _settings as settings
from . import _wire as wire
from ._controller import NO_LINK, Controller, Pending, Reply
from ._names import FAULT_OF_STATE, RepairType, ReportState, Status
from ._wire import Message

FAILED = "do repair failed, ret: 1"


def broken(replies: dict[int, Reply]) -> list[int]:
    """Ranks whose handler failed, was too slow or died in it; one that had no link before is passed over."""
    return sorted(n for n, reply in replies.items() if reply.result not in {wire.OK, NO_LINK})


# ---- ENV_CLEAR


def clear(controller: Controller) -> str:
    """Stop handlers, then clean handlers."""
    incident = controller.incident
    retry = incident.strategy == "retry"
    ranks = controller.linked(but=() if retry else controller.errors)
    outcome = stop_and_clean(controller, ranks)
    if outcome is not None:
        return outcome
    return "downgrade" if incident.strategy == "downgrade" else "repair"


def stop_and_clean(controller: Controller, ranks: list[int]) -> str | None:
    """Run both handlers on `ranks`; the outcome when that fails, None when it went well."""
    parts = (stop, clean) if settings.on("stop_before_clean") else (clean, stop)
    for part in parts:
        outcome = part(controller, ranks)
        if outcome is not None:
            return outcome
    return None


def stop(controller: Controller, ranks: list[int]) -> str | None:
    """Stop handlers; the outcome when one fails."""
    if broken(controller.order(Message.STOP, {r: {"type": controller.incident.strategy} for r in ranks})):
        return refused(controller, "controller:-1 notify device stop failed")
    return None


def clean(controller: Controller, ranks: list[int]) -> str | None:
    """Clean handlers; the outcome when one fails."""
    incident = controller.incident
    replies = controller.order(Message.CLEAN, {r: {"type": incident.strategy} for r in ranks})
    bad = broken(replies)
    if not bad:
        return None
    text = f"controller:{controller.flags.rank} notify device clean failed"
    plain = [n for n in bad if replies[n].result == wire.ERROR]
    if incident.strategy == "retry" and controller.enabled("arf") and plain and settings.on("retry_falls_to_recover"):
        return fall_to_recover(controller, plain, text)
    return refused(controller, text)


def fall_to_recover(controller: Controller, bad: list[int], text: str) -> str:
    """405: the ranks that failed are process faults now; ask again."""
    for rank in bad:
        controller.mark(rank, 1)
        controller.ranks[rank].status = Status.FAULTY
    fault.result(controller, 405, text, controller.errors, "retry")
    mindx = controller.mindx
    if mindx.wait(settings.mindx_wait_seconds(), controller.is_closing) != "global":
        return "exit"
    outcome = fault.ask_strategy(controller)
    if outcome == "repair":
        return "downgrade" if controller.incident.strategy == "downgrade" else "repair"
    return outcome


def refused(controller: Controller, text: str) -> str:
    """499 after a failed stop or clean: one more answer is heard, and a dump refused."""
    if not controller.mindx.present:
        return "exit"
    fault.result(controller, 499, text, controller.errors, controller.incident.strategy)
    if not settings.on("refused_after_failed_stop"):
        return "exit"
    answer = controller.mindx.wait(settings.mindx_wait_seconds(), controller.is_closing)
    if answer == "dump":
        text = "stop & clean failed! not allowed to dump!"
        fault.result(controller, 499, text, controller.errors, "dump")
    return "exit"


# ---- REPAIR


def repair(controller: Controller) -> str:
    """Recover or retry, whichever was chosen."""
    strategy = controller.incident.strategy
    if strategy == "recover":
        outcome = wait_for_lost(controller)
        if outcome is not None:
            return outcome
        if settings.on("rebuild_before_repair") and not rebuild(controller):
            return fault.failed(controller, FAILED, strategy)
    lost = sorted(controller.errors)
    if strategy == "retry":
        lost = [r for r in lost if needs_data(controller, r)]
    return restore(controller, lost, strategy)


def needs_data(controller: Controller, rank: int) -> bool:
    """Whether a retry has to send data to this rank: a memory fault whose clean asked for a rebuild."""
    if controller.errors[rank] != 0:
        return False
    return not (controller.ranks[rank].low and settings.on("nothing_to_rebuild"))


def wait_for_lost(controller: Controller) -> str | None:
    """Wait until every rank in the dict is back and ready and all others are well; MindX may change its mind."""
    end, counts = time.monotonic() + settings.recover_wait_seconds(), True
    mindx = controller.mindx
    with controller.lock:
        while not controller.closing:
            answer = mindx.token
            if answer is not None and settings.on("answers_while_waiting"):
                return changed_mind(controller, answer)
            now = time.monotonic()
            if bad_survivor(controller, now):
                break
            if all_back(controller):
                return None
            if now >= end and counts:
                end, counts = now + settings.oversleep(settings.recover_wait_seconds()), False
            if now >= end:
                break
            controller.changed.wait(min(settings.TICK_SECONDS, end - now))
        if controller.closing:
            return "exit"
    return fault.failed(controller, FAILED, controller.incident.strategy)


def changed_mind(controller: Controller, answer: str) -> str:
    """An answer while a recover waits; "exit" leaves its word for EXIT to find."""
    mindx = controller.mindx
    if answer == "exit":
        return "exit"
    mindx.drop()
    if answer == "invalid":
        fault.result(controller, 499, "invalid strategy", controller.errors, controller.incident.strategy)
        return "exit"
    if answer in {"dump", "downgrade"}:
        controller.incident.strategy, controller.incident.params = answer, mindx.params
        return answer
    return "exit"


def bad_survivor(controller: Controller, now: float) -> bool:
    """Whether a rank outside the dict has become bad."""
    return any(r.fault(now) is not None for r in controller.ranks.values() if r.number not in controller.errors)


def all_back(controller: Controller) -> bool:
    """Whether the lost are ready (or initialised) and the others stand still and well."""
    if not settings.on("recover_waits"):
        return any(controller.ranks[r].status is Status.READY for r in controller.errors)
    for rank in controller.errors:
        entry = controller.ranks[rank]
        if entry.link is None or entry.link.contested or entry.status not in {Status.READY, Status.INITIALISED}:
            return False
    others = [r for r in controller.ranks.values() if r.number not in controller.errors and r.registered]
    return all(r.status is Status.NORMAL and r.state is ReportState.RS_NORMAL for r in others)


def rebuild(controller: Controller) -> bool:
    """Rebuild groups on every linked rank; those that only initialised go on and report ready later."""
    lost = sorted(controller.errors)
    if broken(rebuild_on(controller, lost)):
        return False
    end = time.monotonic() + settings.action_seconds()
    with controller.lock:
        while any(controller.ranks[r].status is Status.INITIALISED for r in lost):
            left = end - time.monotonic()
            if left <= 0 or controller.closing:
                return False
            controller.changed.wait(left)
    return True


def rebuild_on(controller: Controller, lost: list[int]) -> dict[int, Reply]:
    """Call the rebuild handler on every linked rank."""
    return controller.order(Message.REBUILD, {r: {"ranks": lost} for r in controller.linked()})


def corrupted(controller: Controller) -> bool:
    """Whether a rank has reported that its data cannot be trusted."""
    return any(controller.ranks[r].state is ReportState.RS_UCE_CORRUPTED for r in controller.errors)


def repair_orders(
    controller: Controller, transfers: list[tuple[int, int, int]], fresh: int
) -> dict[int, dict[str, Any]]:
    """What each rank that sends or receives is told; `fresh` is the repair type of a receiver."""
    everyone = sorted({rank for _, source, to in transfers for rank in (source, to)})
    orders: dict[int, dict[str, Any]] = {}
    for rank in everyone:
        mine = [t for t in transfers if rank in t[1:]]
        receives = any(to == rank for _, _, to in mine)
        kind = fresh if receives else RepairType.RT_SEND.value
        info = {
            "type": [t[0] for t in mine],
            "repair_type": kind,
            "src": [t[1] for t in mine],
            "dst": [t[2] for t in mine],
            "rank_list": everyone,
        }
        orders[rank] = {"step": controller.incident.step, "info": info}
    return orders


def checkpoint_orders(controller: Controller, retry: bool) -> dict[int, dict[str, Any]]:
    """Every rank loads the periodic checkpoint; a memory fault's own rank rebuilds, too."""
    ranks = controller.linked()
    orders = {}
    for rank in ranks:
        own = retry and controller.errors.get(rank) == 0
        kind = RepairType.RT_LOAD_REBUILD if own else RepairType.RT_LOAD_CKPT
        kinds = list(range(max(1, controller.replicas.kinds)))
        same = [rank] * len(kinds)
        info = {"type": kinds, "repair_type": kind.value, "src": same, "dst": same, "rank_list": ranks}
        orders[rank] = {"step": controller.incident.step, "info": info}
    return orders


def restore(controller: Controller, lost: list[int], strategy: str, *, params: str | None = None) -> str:
    """Repair, roll back, resume."""
    upgrade = params is not None
    transfers = [] if not lost else controller.replicas.transfers(lost, controller.usable)
    from_checkpoint = lost and (transfers is None or corrupted(controller))
    if from_checkpoint:
        if settings.mindspore() or upgrade or not settings.on("checkpoint_repair"):
            return fault.failed(controller, FAILED, strategy)
        orders = checkpoint_orders(controller, strategy == "retry")
    else:
        receives = RepairType.RT_UCE_HIGHLEVEL if strategy == "retry" else RepairType.RT_RECV_REPAIR
        orders = repair_orders(controller, transfers or [], receives.value)
        if not settings.on("repair_selection"):
            orders = dict.fromkeys(controller.linked(), next(iter(orders.values()), {})) | orders
    extra = {"type": strategy} | ({"params": params} if upgrade else {})
    kind = Message.UPGRADE_REPAIR if upgrade else Message.REPAIR
    if not settings.on("handler_order"):
        roll_back(controller, extra)
    replies = controller.order(kind, {r: o | extra for r, o in orders.items()})
    if any(reply.result != wire.OK for reply in replies.values()):
        return fault.failed(controller, FAILED, strategy)
    if not roll_back(controller, extra):
        text = f"controller:{controller.flags.rank} notify processor rollback failed"
        return fault.failed(controller, text, strategy)
    if not settings.on("rebuild_before_repair"):
        rebuild_on(controller, lost)
    finish(controller, strategy)
    return "repaired"


def roll_back(controller: Controller, extra: dict[str, Any]) -> bool:
    """Roll back every rank that has a link."""
    kind = Message.UPGRADE_ROLLBACK if "params" in extra else Message.ROLLBACK
    replies = controller.order(kind, {r: {"step": controller.incident.step} | extra for r in controller.linked()})
    return not broken(replies)


def finish(controller: Controller, strategy: str) -> None:
    """The repair is done: everybody is normal again and goes on; success is told later.

    A rank that has died since it was named has no link, and goes on counting as well until its silence is too long.
    """
    with controller.lock:
        for entry in controller.ranks.values():
            if entry.registered and entry.status is not Status.GONE:
                entry.status, entry.state = Status.NORMAL, ReportState.RS_NORMAL
        controller.errors.clear()
        controller.codes.clear()
        controller.named.clear()
        controller.scaled_in.clear()
    loaded = resume(controller, controller.linked())
    at_once = 0 < loaded < controller.incident.step and settings.on("checkpoint_success_at_once")
    step = controller.incident.step if not at_once else loaded
    controller.pending = Pending(controller.incident.claimed or strategy, step, at_once)


def resume(controller: Controller, ranks: list[int]) -> int:
    """Call the training function again on `ranks`; the step of the checkpoint that they have loaded, or -1."""
    replies = controller.order(Message.NORMAL, {r: {} for r in ranks})
    for reply in replies.values():
        collect.note(controller, reply)
    return min((reply.loaded for reply in replies.values() if reply.loaded > 0), default=-1)


# ---- DUMP


def dump(controller: Controller) -> str:
    """Save a last checkpoint from one complete copy and rename it."""
    from ._store import probe_store

    problem = save(controller) if probe_store(controller) else "DumpCallback: save ckpt failed, ret: 1"
    if problem is None:
        controller.mindx.offered = None
        fault.result(controller, 0, "do dump success", controller.errors, "dump")
    else:
        fault.result(controller, 499, problem, controller.errors, "dump")
    return "exit"


def save(controller: Controller) -> str | None:
    """The save itself; the text of what went wrong, or None."""
    none = "DumpCallback: save ckpt failed, ret: 1"
    if corrupted(controller):
        return "do not support dump!"
    chosen = controller.replicas.saving_ranks(controller.usable)
    if not chosen or not controller.incident.step:
        return none
    ranks = sorted({r for kind in chosen for group in kind for r in group})
    if not settings.on("selection"):
        ranks = controller.linked()
    saved = controller.order(Message.SAVE, {r: save_order(controller, chosen, r) for r in ranks})
    if any(reply.result != wire.OK for reply in saved.values()):
        return none
    order = [r for kind in chosen for group in kind for r in group]
    namer = next((r for r in order if r != 0), ranks[0]) if settings.on("rename_rule") else order[0]
    renamed = controller.order(Message.RENAME, {namer: {"rank": namer}})
    return None if renamed[namer].result == wire.OK else "DumpCallback: rename failed, ret: 1"


def save_order(controller: Controller, chosen: list[list[list[int]]], rank: int) -> dict[str, Any]:
    """What one rank is told to save: per kind the ranks of its own group that save."""
    info = [
        {"type": kind, "ranks": group} for kind, groups in enumerate(chosen) for group in groups if rank in group
    ]  # fmt: skip
    return {"step": controller.incident.step, "info": info}


__all__ = ["FAULT_OF_STATE", "clear", "collect", "dump", "repair"]
