"""What this trainer does when MindIO calls: its handlers, as MindSpeed-LLM registers them.

Handlers run on MindIO's threads while the training thread is parked, with the arguments of docs/protocols/mindio.md.
They never wait for anything but what the same recovery brings; a handler that cannot do its work raises, which MindIO
turns into a failed recovery.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Final

from e2e.trainer import checkpoint, manners
from e2e.trainer.container import leave
from e2e.trainer.faults import OrderedError
from e2e.trainer.printing import MINDFORMERS
from e2e.trainer.rank_table import log_rank_table

if TYPE_CHECKING:
    from e2e.trainer.events import EventLog
    from e2e.trainer.layout import Layout
    from e2e.trainer.mindio_api import Processor, SaveGroup, Transfers
    from e2e.trainer.training import Training

LOADS: Final = frozenset({5, 6})  # repair types that read the periodic checkpoint
_HANG_SECONDS: Final = float(os.environ.get("HCCL_EXEC_TIMEOUT") or 1836)
"""torch_npu's default."""
_LOOK_SECONDS: Final = 0.2  # how often a handler that waits for another rank looks whether it is still there
KINDS: Final = {0: "send", 1: "uce high level", 2: "uce low level", 3: "receive", 5: "load", 6: "load and rebuild"}


def one_copy(layout: Layout, rank: int, save_info: list[SaveGroup]) -> list[int]:
    """The ranks of this one's data-parallel group that MindIO has chosen to save, in the order of their shards."""
    chosen = {one for entry in save_info for one in entry["ranks"]}
    mine = [one for one in layout.data_group(rank) if one in chosen]
    mine.sort(key=lambda one: layout.shard_of(layout.coordinate(one).data))
    return mine


def tell_repair(events: EventLog, step: int, asked: int, *, need_rebuild: bool, info: Transfers) -> None:
    """A repair is done; `step`: of the shard now."""
    kind = int(info["repair_type"])
    events.add(
        "repair",
        step=step,
        asked=asked,
        source="checkpoint" if kind in LOADS else "optimizer copy",
        type=kind,
        name=KINDS.get(kind, "unknown"),
        src=info["src"],
        dst=info["dst"],
        need_rebuild=need_rebuild,
    )


class Handlers:
    """The handlers of one rank."""

    def __init__(self, training: Training) -> None:
        self._training = training

    def register(self, mindio: Processor, *, elastic: bool, rolls_back: bool = True) -> None:
        """Hand all handlers to MindIO; MindSpore has none to roll back, it asks for the step when it goes on."""
        mindio.tft_register_stop_handler(self.stop)
        mindio.tft_register_clean_handler(self.clean)
        mindio.tft_register_repair_handler(self.repair)
        if rolls_back:
            mindio.tft_register_rollback_handler(self.rollback)
        mindio.tft_register_rebuild_group_handler(self.rebuild_group)
        mindio.tft_register_save_ckpt_handler(self.save_checkpoint)
        mindio.tft_register_rename_handler(self.rename)
        mindio.tft_register_stream_sync_handler(self.stream_sync)
        mindio.tft_register_exit_handler(self.exit)
        if elastic:
            mindio.tft_register_zit_downgrade_rebuild_handler(self.downgrade_rebuild)
            mindio.tft_register_zit_upgrade_rebuild_handler(self.upgrade_rebuild)
            mindio.tft_register_zit_upgrade_repair_handler(self.upgrade_repair)
            mindio.tft_register_zit_upgrade_rollback_handler(self.upgrade_rollback)

    def stop(self, _arguments: object, _context: object) -> None:
        """Break every wait of the training thread with FORCE STOP."""
        self._training.faults.at("stop")
        self._training.events.add("stop", step=self._training.shard.step)
        self._training.transport.stop("stopped by MindIO")

    def clean(self, is_uce: bool, _arguments: object, _context: object) -> object:
        """Make ready for a new generation; a rank with a memory fault loses what its memory held."""
        training = self._training
        try:
            training.faults.at("clean")
        except OrderedError:
            return 1
        if is_uce:
            training.shard.lose()
            training.parameters[:] = float("nan")
        training.regroup([])
        training.events.add("clean", is_uce=bool(is_uce), generation=training.transport.generation)
        return training.faults.answer("clean", 0)

    def rebuild_group(self, fault_ranks: list[int], _arguments: object, _context: object) -> object:
        """Forget the connections of ranks that have a new process."""
        self._rebuild("rebuild", fault_ranks)
        training = self._training
        log_rank_table(training.events, os.environ, training.rank, training.layout.world)
        return self._training.faults.answer("rebuild")

    def repair(
        self, step: int, need_rebuild: bool, _errors: list[int], info: Transfers, _arguments: object, _context: object
    ) -> object:
        """Send the own copy, take it from the partner, or read the periodic checkpoint."""
        self._repair(step, need_rebuild, info)
        return self._training.faults.answer("repair")

    def rollback(self, step: int, _arguments: object, _context: object) -> object:
        """Go on from `step`; raises RuntimeError when the own shard stands elsewhere."""
        self._rollback(step)
        return self._training.faults.answer("rollback")

    def go_on(self) -> None:
        """Go on from the step that MindIO says, as MindSpore does after its wait."""
        self._rollback(self._training.mindio.tft_get_repair_step())

    def save_checkpoint(self, step: int, save_info: list[SaveGroup], _arguments: object, _context: object) -> object:
        """Save one complete copy at `step`: the ranks of a group bring their shards to the first of them."""
        self._save(step, save_info)
        return self._training.faults.answer("dump")

    def _save(self, step: int, save_info: list[SaveGroup]) -> None:
        training = self._training
        training.events.add("save", phase="begin", kind="dump", step=step, save_info=save_info)
        training.faults.at("dump", step)
        layout, rank = training.layout, training.rank
        mine = one_copy(layout, rank, save_info)
        if [layout.shard_of(layout.coordinate(one).data) for one in mine] != list(range(layout.shards)):
            raise checkpoint.CheckpointError(f"ranks {mine} are not one complete copy of {layout.shards} shards")
        writer = min(mine)
        if rank != writer:
            training.transport.send(writer, b"dump.%d.%d" % (step, rank), training.snapshot(with_parameters=False))
            return
        shards = []
        for one in mine:
            shards.append(
                training.shard if one == rank else training.shard_from(self._take(one, b"dump.%d.%d" % (step, one)))
            )
        training.write_checkpoint(step, shards, "dump")

    def rename(self, step: int, _arguments: object) -> None:
        """Make the dumped checkpoint the newest one."""
        self._training.commit(step, "dump")

    def stream_sync(self) -> None:
        """Nothing runs beside the training thread, so there is nothing to wait for."""
        self._training.events.add("stream_sync")

    def exit(self, _context: object) -> None:
        """MindIO ends the process itself; with MindSpore this does."""
        self._training.events.add("exit")
        if self._training.settings.face == MINDFORMERS:
            leave(1)

    def downgrade_rebuild(self, data_group: list[int], ranks: list[int], _arguments: object, params: str) -> None:
        """Go on with the data-parallel ranks that are left; the share of each grows."""
        training, layout = self._training, self._training.layout
        expect_strategy(params, "scale-in-strategy")
        active = tuple(sorted({layout.coordinate(rank).data for rank in ranks}))
        expected = [rank for rank in layout.data_group(training.rank) if layout.coordinate(rank).data in active]
        if sorted(data_group) != sorted(expected):
            raise RuntimeError(f"data-parallel group {data_group} does not follow from the ranks left, {ranks}")
        training.collectives.active = active
        training.printer.leave_to(max(ranks))
        self._rebuild("downgrade", sorted(set(range(layout.world)) - set(ranks)))

    def upgrade_rebuild(self, ranks: list[int], _arguments: object, params: str) -> None:
        """Take the ranks that came back in again."""
        expect_strategy(params, "scale-out-strategy")
        training = self._training
        training.collectives.active = tuple(range(training.layout.data))
        training.printer.leave_to(training.layout.world - 1)
        self._rebuild("upgrade", ranks)

    def upgrade_repair(
        self, step: int, need_rebuild: bool, _errors: list[int], info: Transfers, _arguments: object, _params: str
    ) -> None:
        """Bring the returned ranks' shards, as `repair` does."""
        self._repair(step, need_rebuild, info)

    def upgrade_rollback(self, step: int, _arguments: object, _params: str) -> None:
        """Go on from `step`, as `rollback` does."""
        self._rollback(step)

    def _rebuild(self, event: str, ranks: list[int]) -> None:
        training = self._training
        training.faults.at("rebuild")
        training.regroup(list(ranks))
        active = list(training.collectives.active)
        training.events.add(event, ranks=list(ranks), generation=training.transport.generation, active=active)

    def _repair(self, step: int, need_rebuild: bool, info: Transfers) -> None:
        training = self._training
        training.faults.at("repair")
        if int(info["repair_type"]) in LOADS:
            self._repair_from_checkpoint()
        else:
            self._exchange_copies(list(zip(info["src"], info["dst"], strict=True)))
        tell_repair(training.events, training.shard.step, step, need_rebuild=need_rebuild, info=info)

    def _exchange_copies(self, transfers: list[tuple[int, int]]) -> None:
        """Do the transfers in which this rank sends or receives."""
        training = self._training
        tag = b"copy.%d.%%d.%%d" % training.transport.generation
        for source, target in transfers:
            if source == training.rank != target:
                training.transport.send(target, tag % (source, target), training.snapshot(with_parameters=True))
        for source, target in transfers:
            if target == training.rank != source:
                training.restore(self._take(source, tag % (source, target)))

    def _take(self, source: int, tag: bytes) -> bytes:
        """Wait for a message another rank's handler sends.

        A collective on the device hangs where that rank has died; the kind way is to raise RuntimeError when it is
        found to be gone.
        """
        transport = self._training.transport
        if manners.HANGS in self._training.settings.manners:
            hung = transport.receive(tag, _HANG_SECONDS, from_handler=True)
            if hung is None:
                raise RuntimeError(f"the communication with rank {source} has timed out, error code is 107020")
            return hung
        while (data := transport.receive(tag, _LOOK_SECONDS, from_handler=True)) is None:
            transport.send(source, b"?are you there", b"")
            if transport.is_lost(source):
                raise RuntimeError(f"rank {source} is gone: nothing came from it")
        return data

    def _repair_from_checkpoint(self) -> None:
        training = self._training
        step = training.load()
        if step is None:
            raise checkpoint.CheckpointError(
                f"no checkpoint below --load {training.settings.load}: nothing to repair from"
            )
        training.loaded_in_recovery = True
        training.mindio.tft_report_load_ckpt_step(step)

    def _rollback(self, step: int) -> None:
        """The step MindIO names is the locked one, also when a checkpoint was loaded; then the loaded one counts."""
        training = self._training
        training.faults.at("rollback")
        if not training.loaded_in_recovery and training.shard.step != step:
            raise RuntimeError(
                f"rollback to step {step}, but the shard of rank {training.rank} is at {training.shard.step}"
            )
        training.regroup([])
        training.events.add("rollback", step=training.shard.step, asked=step)


def expect_strategy(params: str, key: str) -> None:
    """Raise RuntimeError unless params is the JSON text MindSpeed-LLM expects."""
    try:
        value = json.loads(params)
    except ValueError as error:
        raise RuntimeError(f"params {params!r} is not JSON; expected {{{key!r}: 'DP'}}") from error
    if not isinstance(value, dict) or value.get(key) != "DP":
        raise RuntimeError(f"params {params!r} must hold {key!r} with the value 'DP'")
