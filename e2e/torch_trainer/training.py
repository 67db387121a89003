"""The training loop of one rank: gradients over the data-parallel group, the own shard's update, parameters gathered.

As with MindSpeed-LLM's high availability the update stands behind a barrier of the whole world, between
`tft_start_updating_os` and `tft_end_updating_os`, and the step is reported before it is printed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch

from e2e.torch_trainer.groups import Communicator, GlooGroup, World
from e2e.torch_trainer.model import Model, batch
from e2e.torch_trainer.optimizer import ShardedAdam
from e2e.trainer import manners, printing
from e2e.trainer.layout import shares as layout_shares
from e2e.trainer.pacing import Pace
from e2e.trainer.settings import HURRY

if TYPE_CHECKING:
    from e2e.trainer.events import EventLog
    from e2e.trainer.faults import Faults
    from e2e.trainer.mindio_api import Marks, Processor
    from e2e.trainer.settings import Settings


class Training:
    """One rank's part; `mindio` is the module `mindio_ttp.framework_ttp`, `marks` is `mindio_ttp.utils`."""

    def __init__(self, settings: Settings, events: EventLog, faults: Faults, mindio: Processor, marks: Marks) -> None:
        self.settings, self.events, self.faults, self.mindio, self._marks = settings, events, faults, mindio, marks
        self.rank, self.layout = settings.place.rank, settings.layout
        self.place = self.layout.coordinate(self.rank)
        self.shard = self.layout.shard_of(self.place.data)
        self.printer = printing.Printer(settings.speaker)
        self.pace = Pace(settings.step_seconds, is_uneven=manners.UNEVEN in settings.manners)
        self.has_left_mindio = threading.Event()
        self.loaded_in_recovery = False
        self.active = tuple(range(self.layout.data))
        """Data-parallel ranks that train."""
        self.save: Callable[[int], None] = lambda _: None  # a periodic checkpoint
        self._hurry = settings.log_dir / HURRY

    def join(self, *, is_rebooted: bool) -> None:
        """Connect to the store and describe the groups; communicators are made when they are used."""
        layout, place = self.layout, self.settings.place
        self.world = World(self.rank, layout.world, place.address, place.attempt)
        self.world.is_rebooted = is_rebooted
        self.data_ranks = layout.data_group(self.rank)
        half = self.place.data // layout.shards
        self.default = Communicator(self.world, "default_pg", range(layout.world))
        self.tensor = Communicator(self.world, f"tp_{self.place.data}", layout.tensor_group(self.rank))
        self.data = Communicator(self.world, f"dp_{self.place.tensor}", self.data_ranks)
        self.half = Communicator(
            self.world,
            f"replica_{self.place.tensor}_{half}",
            self.data_ranks[half * layout.shards : (half + 1) * layout.shards],
        )
        self._original = self.default, self.data
        self.data_gloo = GlooGroup(self.world, self.data_ranks, 0)
        self.repair_number = 0

    def build(self) -> None:
        """Model and optimizer, from the seed."""
        model, settings = self.settings.model, self.settings
        self.model = Model(model.layers, model.hidden, model.feed_forward, self.tensor, settings.seed)
        self.optimizer = ShardedAdam(self.model, self.half, settings.learning_rate)

    def rebuild(self) -> None:
        """Groups after a rank was started anew: every communicator, then gloo groups under a new name."""
        self.world.is_rebooted = False
        self.repair_number = self.world.agreed_number("rebuilds", self.layout.world)
        self.reset_communicators()
        old = self.data_gloo
        self.data_gloo = GlooGroup(self.world, self.data_ranks, self.repair_number)
        self.world.give_up(old)

    def shrink(self, active: tuple[int, ...]) -> None:
        """World and data-parallel group of the data-parallel ranks that are left; who calls it ends with a barrier.

        A tensor group is dropped whole or stays whole; it was broken by the stop.
        """
        layout, tensor = self.layout, self.place.tensor
        ranks = sorted(rank for position in active for rank in layout.tensor_group(self.data_ranks[position]))
        number = self.world.agreed_number(f"downgrades to {active}", len(ranks))
        suffix = f"{'_'.join(map(str, active))}_{number}"
        self.tensor.rebuild()
        self.default = Communicator(self.world, f"scale_in_{suffix}", ranks)
        self.data = Communicator(
            self.world, f"scale_in_dp_{tensor}_{suffix}", [self.data_ranks[position] for position in active]
        )
        self.active = active

    def grow(self) -> None:
        """The original groups, over the store that stands where it stood; ranks that came back do the same."""
        for group in (self.default, self.data):
            if group not in self._original:
                group.rebuild()
        self.default, self.data = self._original
        self.active = tuple(range(self.layout.data))
        self.rebuild()

    def gather(self) -> None:
        """Parameters from the shards: those of the own half, or the first that is there of each."""
        optimizer = self.optimizer
        if len(self.active) == self.layout.data:
            optimizer.gather()
        else:
            optimizer.take(self.whole("master"))

    def whole(self, key: str) -> torch.Tensor:
        """One of the optimizer's vectors in full, from its shards."""
        mine = self.optimizer.state[key]
        if len(self.active) == self.layout.data:
            return self.half.gather(mine)
        parts = dict(zip(self.active, self.data.gather(mine).split(len(mine)), strict=True))
        return torch.cat([parts[source] for source in self.layout.sources(self.place.data, self.active)])

    def reset_communicators(self) -> None:
        """`reinit_process_group` for each; nothing is connected before the next collective."""
        for group in (self.default, self.data, self.tensor, self.half):
            group.rebuild()

    def run(self) -> None:
        """Train to the end; called again by MindIO's decorator after every recovery."""
        try:
            self._announce()
            while self.optimizer.step < self.settings.train_iters:
                self._step()
            self.default.barrier()
            self.printer.mark("after training is done")
        except RuntimeError as error:
            if "FORCE STOP" in str(error) and manners.ECHOES in self.settings.manners:
                printing.error(self.rank, "ERR00100", f"PTA call acl api failed. {error}")
            self.events.add("left", step=self.optimizer.step, reason=str(error)[:200])
            raise

    def _announce(self) -> None:
        """A rank that was started anew is ready: MindIO's decorator waits for this exception."""
        if self.world.is_rebooted:
            self.pace.has_compiled()
            self.faults.at("ready")
            self.events.add("arf_finish")
            raise RuntimeError("ARF FINISH")

    def finish(self) -> None:
        """After MindIO was left: the final save where none was due, and the weights for a comparison."""
        settings, step = self.settings, self.optimizer.step
        if settings.save and settings.save_interval and step % settings.save_interval:
            self.save(step)
        place = np.array([step, *self.place], dtype=np.int64)
        state = {key: value.numpy() for key, value in self.optimizer.state.items()}
        path = settings.log_dir / f"final-rank{self.rank}.npz"
        np.savez(path, place=place, parameters=self.optimizer.parameters().numpy(), **state)
        self.events.add("finish", step=step)

    def _step(self) -> None:
        started, step, settings = time.monotonic(), self.optimizer.step + 1, self.settings
        self.faults.look()
        self.faults.at("forward", step)
        loss, gradient = self._gradient(step)
        if not self._hurry.exists():
            self.world.pause(self.pace.step(step) - (time.monotonic() - started))
        self.default.barrier()
        self._update(step, gradient)
        self.events.add("step_end", step=step, flush=False)
        self.gather()
        seconds, batch_size = time.monotonic() - started, settings.micro_batch_size * self.layout.data
        rate, norm = settings.learning_rate, float(gradient.norm())
        self.printer.step(step, loss=loss, seconds=seconds, batch=batch_size, learning_rate=rate, norm=norm)
        self.events.flush()
        self.faults.at("updated", step)
        self.mindio.tft_pause_train(step)
        if settings.save and settings.save_interval and step % settings.save_interval == 0:
            self.save(step)

    def _gradient(self, step: int) -> tuple[float, torch.Tensor]:
        """Mean over the global batch, a micro batch for each data-parallel rank of the original size.

        The sum goes through them in order, whoever has computed which: its last bits do not depend on the size.
        """
        settings, found, losses = self.settings, [], []
        self.optimizer.clear_gradients()  # where Megatron zeroes its own
        shares = layout_shares(self.layout.data, self.active)
        for number in shares[self.place.data]:
            loss = self.model(batch(settings.seed, step, number, settings.micro_batch_size))
            loss.backward()
            losses.append(float(loss))
            found.append(self.optimizer.gradient())
        most = max(map(len, shares.values()))
        padded = found + [torch.zeros_like(found[0])] * (most - len(found))
        gathered = self.data.gather(torch.cat(padded)).split(len(found[0]))
        total = torch.zeros_like(found[0])
        for index, position in enumerate(self.active):
            for number in range(len(shares[position])):
                total += gathered[index * most + number]
        return sum(losses) / len(losses), total / self.layout.data

    def _update(self, step: int, gradient: torch.Tensor) -> None:
        self.mindio.tft_start_updating_os()
        self._marks.tft_set_update_start_time(time.time_ns() // 1000)
        self.faults.at("update", step)
        self.optimizer.update(gradient)
        self._marks.tft_set_update_end_time(time.time_ns() // 1000)
        self.mindio.tft_end_updating_os(step)
