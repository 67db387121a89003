"""What a rank does when MindIO calls, in the order and with the collectives of MindSpeed-LLM's handlers.

Stop breaks the waits, clean must return an int, rebuild resets every communicator and makes the gloo groups new, repair
sends size and bytes of the shard over a group, rollback gathers parameters and ends in a barrier of
the world. To shrink, world and data-parallel group are made new with the ranks that are left, and a barrier of these
ends it; to grow, all come together over the same store in the original groups.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import torch

from e2e.torch_trainer import saving
from e2e.torch_trainer.groups import GlooGroup
from e2e.torch_trainer.optimizer import KEYS
from e2e.trainer import checkpoint
from e2e.trainer.recovery import LOADS, expect_strategy, one_copy, tell_repair

if TYPE_CHECKING:
    from e2e.torch_trainer.training import Training
    from e2e.trainer.mindio_api import Processor, SaveGroup, Transfers

Tensor = Any


class Handlers:
    """The handlers of one rank."""

    def __init__(self, training: Training) -> None:
        self._training = training

    def register(self, mindio: Processor, *, elastic: bool) -> None:
        """Hand all handlers to MindIO."""
        mindio.tft_register_stop_handler(self.stop)
        mindio.tft_register_clean_handler(self.clean)
        mindio.tft_register_rebuild_group_handler(self.rebuild_group)
        mindio.tft_register_repair_handler(self.repair)
        mindio.tft_register_rollback_handler(self.rollback)
        mindio.tft_register_save_ckpt_handler(self.save_checkpoint)
        mindio.tft_register_rename_handler(self.rename)
        mindio.tft_register_stream_sync_handler(self.stream_sync)
        mindio.tft_register_exit_handler(self.exit)
        if elastic:
            mindio.tft_register_zit_downgrade_rebuild_handler(self.downgrade_rebuild)
            mindio.tft_register_zit_upgrade_rebuild_handler(self.upgrade_rebuild)
            mindio.tft_register_zit_upgrade_repair_handler(self.repair)
            mindio.tft_register_zit_upgrade_rollback_handler(self.rollback)

    def stop(self, _arguments: object, _context: object) -> None:
        """Break every wait of the training thread with FORCE STOP."""
        training = self._training
        training.faults.at("stop")
        training.events.add("stop", step=training.optimizer.step)
        training.world.stop()

    def clean(self, is_uce: bool, _arguments: object, _context: object) -> int:
        """Make ready to go on; a retry keeps every process, so its communicators are resumed here."""
        training = self._training
        training.faults.at("clean")
        if is_uce:
            training.optimizer.lose()
        training.world.resume()
        if training.mindio.tft_get_repair_type() == "retry":
            training.reset_communicators()
        training.events.add("clean", is_uce=bool(is_uce), generation=training.repair_number)
        return 0

    def rebuild_group(self, fault_ranks: list[int], _arguments: object, _context: object) -> None:
        """New links for everybody."""
        training = self._training
        training.faults.at("rebuild")
        training.world.resume()
        training.rebuild()
        training.events.add("rebuild", ranks=list(fault_ranks), generation=training.repair_number)

    def repair(
        self, step: int, need_rebuild: bool, _errors: list[int], info: Transfers, _arguments: object, _context: object
    ) -> None:
        """Send the own shard, take it from the partner, or read the newest checkpoint."""
        training = self._training
        training.faults.at("repair")
        if int(info["repair_type"]) in LOADS:
            self._load()
        else:
            self._exchange(info)
        tell_repair(training.events, training.optimizer.step, step, need_rebuild=need_rebuild, info=info)

    def rollback(self, step: int, _arguments: object, _context: object) -> None:
        """Parameters from the shards, then a barrier of the world; raises where the own shard stands elsewhere."""
        training = self._training
        training.faults.at("rollback")
        if not training.loaded_in_recovery and training.optimizer.step != step:
            raise RuntimeError(f"rollback to {step}, but rank {training.rank} is at {training.optimizer.step}")
        training.loaded_in_recovery = False
        training.gather()
        training.default.barrier()
        training.events.add("rollback", step=training.optimizer.step, asked=step)

    def save_checkpoint(self, step: int, save_info: list[SaveGroup], _arguments: object, _context: object) -> None:
        """Save one complete copy: the chosen ranks of a data-parallel group bring their shards to the first of them."""
        training = self._training
        training.events.add("save", phase="begin", kind="dump", step=step, save_info=save_info)
        training.faults.at("dump", step)
        mine = one_copy(training.layout, training.rank, save_info)
        group = self.group_of(mine)
        whole = {key: group.gather(training.optimizer.state[key]) for key in KEYS}
        root = training.settings.save
        if root is None:
            raise checkpoint.CheckpointError("--save is not given: there is nowhere to save to")
        if training.rank == min(mine):
            training.optimizer.take(whole["master"])
            saving.write(training, root / f"{checkpoint.directory_name(step)}_tmp", step, whole, "dump")

    def rename(self, step: int, _arguments: object) -> None:
        """Make the dump the newest checkpoint."""
        saving.rename(self._training, step)

    def stream_sync(self) -> None:
        """Nothing runs beside the training thread."""
        self._training.events.add("stream_sync")

    def exit(self, _context: object) -> None:
        """MindIO ends the process itself; this only leaves a trace."""
        self._training.events.add("exit")

    def downgrade_rebuild(self, data_group: list[int], ranks: list[int], _arguments: object, params: str) -> None:
        """New, smaller groups for the ranks that are left, then a barrier of these."""
        training, layout = self._training, self._training.layout
        training.faults.at("rebuild")
        expect_strategy(params, "scale-in-strategy")
        active = tuple(sorted({layout.coordinate(rank).data for rank in ranks}))
        if sorted(data_group) != [training.data_ranks[position] for position in active]:
            raise RuntimeError(f"data-parallel group {data_group} does not follow from the ranks left, {ranks}")
        training.world.resume()
        training.shrink(active)
        training.gather()
        training.default.barrier()
        gone = sorted(set(range(layout.world)) - set(ranks))
        training.printer.leave_to(max(ranks))
        training.events.add("downgrade", ranks=gone, generation=training.repair_number, active=list(active))

    def upgrade_rebuild(self, ranks: list[int], _arguments: object, params: str) -> None:
        """The original groups for everybody, with the ranks that came back."""
        training = self._training
        training.faults.at("rebuild")
        expect_strategy(params, "scale-out-strategy")
        training.world.resume()
        training.grow()
        training.printer.leave_to(training.layout.world - 1)
        active = list(training.active)
        training.events.add("upgrade", ranks=list(ranks), generation=training.repair_number, active=active)

    def _exchange(self, info: Transfers) -> None:
        """Each transfer in which this rank takes part: the size of the state, then its bytes.

        MindSpeed-LLM sends within one group of all who take part. gloo's sends cannot be given up, its broadcasts
        can, so each pair has a group.
        """
        training = self._training
        self.group_of(sorted(info["rank_list"]))
        for source, target in zip(info["src"], info["dst"], strict=True):
            state = self._pass_on(self.group_of([source, target]), source)
            if target == training.rank != source:
                training.optimizer.restore(state["shard"], state["step"])

    def _pass_on(self, group: GlooGroup, source: int) -> dict[str, Any]:
        training = self._training
        buffer = io.BytesIO()
        if training.rank == source:
            torch.save({"step": training.optimizer.step, "shard": training.optimizer.state}, buffer)
        size = group.broadcast(torch.tensor([buffer.getbuffer().nbytes], dtype=torch.long), source)
        sent = bytearray(buffer.getvalue()) or bytearray(int(size))
        data = group.broadcast(torch.frombuffer(sent, dtype=torch.uint8), source)
        found: dict[str, Any] = torch.load(io.BytesIO(data.numpy().tobytes()))
        return found

    def group_of(self, ranks: list[int]) -> GlooGroup:
        """A group for one use, in this order of its ranks; kept, because a slower rank may still be connecting."""
        world = self._training.world
        group = GlooGroup(world, ranks, world.agreed_number(f"repair {ranks}", len(ranks)))
        world.give_up(group)
        return group

    def _load(self) -> None:
        training = self._training
        step = saving.load_newest(training)
        if step is None:
            raise checkpoint.CheckpointError(f"no checkpoint below --load {training.settings.load}")
        training.loaded_in_recovery = True
        training.mindio.tft_report_load_ckpt_step(step)
