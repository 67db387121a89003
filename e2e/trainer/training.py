"""The training loop of one rank and the state that a recovery restores.

The order inside a step is what makes every fault recoverable. All communication a step's update needs lies before the
update; then all ranks agree to go on; then each updates its own shard between `tft_start_updating_os` and
`tft_end_updating_os` without talking to anybody. So at any moment the shards of those who live stand at the same step,
or will without help from the dead, which is what MindIO's lock waits for. Parameters are gathered after the update and
can always be gathered again from the shards.
"""

from __future__ import annotations

import hashlib
import io
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from e2e.trainer import manners, printing
from e2e.trainer.collectives import Collectives
from e2e.trainer.container import leave
from e2e.trainer.corpus import Corpus
from e2e.trainer.model import Stage, Trace
from e2e.trainer.optimizer import KEYS, Shard
from e2e.trainer.pacing import Pace
from e2e.trainer.settings import HURRY
from e2e.trainer.store_client import Client, StoreLostError
from e2e.trainer.transport import Address, Transport

if TYPE_CHECKING:
    from e2e.trainer.events import EventLog
    from e2e.trainer.faults import Faults
    from e2e.trainer.mindio_api import Marks, Processor
    from e2e.trainer.settings import Settings

Array = NDArray[np.float32]
_LOOK_SECONDS = 0.5


class Saver(Protocol):
    """What a form of checkpoints can do."""

    def load(self, step: int | None) -> int | None:
        """Take what was saved at `step`, or newest, into the training; its step, None when there is nothing."""

    def write(self, step: int, shards: list[Shard], kind: str) -> None:
        """Write this rank's part. Raises CheckpointError or OSError."""

    def commit(self, step: int, kind: str) -> None:
        """Make a step's checkpoint the one that is loaded."""

    def periodic(self, step: int) -> None:
        """Save a step on all ranks."""


class Training:
    """One rank's part; `mindio` is the module `mindio_ttp.framework_ttp`, `marks` is `mindio_ttp.utils`."""

    def __init__(  # noqa: PLR0917 - what one rank is made of
        self,
        settings: Settings,
        events: EventLog,
        faults: Faults,
        mindio: Processor,
        marks: Marks,
        saver_for: Callable[[Training], Saver],
    ) -> None:
        place = settings.place
        self.settings, self.events, self.faults, self.mindio, self._marks = settings, events, faults, mindio, marks
        self.layout = settings.layout
        self.rank = place.rank
        self.place = self.layout.coordinate(place.rank)
        self.stage = Stage(settings.model, self.layout, self.place.tensor, self.place.pipeline)
        self.parameters = self.stage.initial(settings.seed)
        self.shard = Shard.fresh(self._own_part(self.parameters))
        self.store = Client(place.store_host, place.store_port, place.attempt, settings.store_version)
        self._addresses: dict[int, Address] = {}
        self._generation, self._has_left = 0, False
        self._hurry = settings.log_dir / HURRY
        self.transport = Transport(place.rank, place.address, self.address_of)
        self.collectives = Collectives(self.transport, self.layout, settings.micro_batches)
        self.is_new_process = False
        self.loaded_in_recovery = False
        self.has_left_mindio = threading.Event()
        self.printer = printing.Printer(settings.speaker)
        self.saver = saver_for(self)
        self.pace = Pace(settings.step_seconds, is_uneven=manners.UNEVEN in settings.manners)
        self._parameters_are_stale = False
        self._gather_seconds = 0.0
        self._corpus = Corpus(settings.seed, settings.model.vocabulary, settings.model.context)
        faults.pause = self.transport.pause

    def join(self) -> None:
        """Publish where the other ranks reach this one."""
        self.store.set(f"address/{self.rank}", list(self.transport.address))

    def meet_mates(self) -> None:
        """The barrier of a node whose ranks all came back, with `--no-shared-storage`; it waits for ever."""
        place = self.settings.place
        self.store.set(f"back/{place.incarnation}/{self.rank}", 1)
        for mate in self.settings.mates:
            while self.store.wait(f"back/{place.incarnation}/{mate}", _LOOK_SECONDS) is None:
                pass

    def run(self) -> None:
        """Train to the end; called again by MindIO's decorator after every recovery."""
        try:
            self._announce()
            self.resume()
            while self.shard.step < self.settings.train_iters:
                self._step()
            self.collectives.agree(b"finish", {})  # nobody leaves while another still needs it
            self.printer.mark("after training is done")
        except RuntimeError as error:
            self._echo(str(error))
            self.events.add("left", step=self.shard.step, reason=str(error)[:200])
            self.propose_generation()
            raise

    def finish(self) -> None:
        """After the training: the final save where none was due at the last step, and the weights for a comparison."""
        settings, step = self.settings, self.shard.step
        if settings.save and settings.save_interval and step % settings.save_interval:
            self.saver.periodic(step)
        path = settings.log_dir / f"final-rank{self.rank}.npz"
        place = np.array([step, *self.place], dtype=np.int64)
        np.savez(path, place=place, parameters=self.parameters, **self.shard.arrays())  # type: ignore[arg-type]
        self.events.add("finish", step=step)

    def regroup(self, lost: list[int]) -> None:
        """Take on the generation all who left the training have proposed; `lost` ranks have new addresses."""
        if self._has_left:  # once is enough: until the training goes on, nobody can leave and propose another one
            self._generation, self._has_left = self._proposed_generation(), False
        self.transport.regroup(self._generation, lost)
        for rank in lost:
            self._addresses.pop(rank, None)
        self.collectives.forget()
        self._parameters_are_stale = True

    def _proposed_generation(self) -> int:
        """The highest that anybody has proposed.

        A handler does not fail for a store that is lost: the real ones only restart the device and forget their groups,
        and what needs the store comes later.
        """
        try:
            generation = self.store.get("generation")
        except StoreLostError as error:
            self.events.add("store_lost", reason=str(error))
            return self.transport.generation + 1
        return generation if isinstance(generation, int) else 0

    def snapshot(self, *, with_parameters: bool) -> bytes:
        """Shard, step and random state as bytes, with the gathered parameters if wanted."""
        buffer = io.BytesIO()
        extra = {"parameters": self.parameters} if with_parameters else {}
        state = np.array([self.shard.step, self.settings.seed], dtype=np.int64)
        np.savez(buffer, state=state, **self.shard.arrays(), **extra)  # type: ignore[arg-type]
        return buffer.getvalue()

    def restore(self, data: bytes) -> None:
        """Take over shard, step and parameters from a snapshot of the rank that holds the other copy."""
        with np.load(io.BytesIO(data)) as archive:
            arrays = {key: archive[key] for key in KEYS}
            self.shard = Shard.from_arrays(arrays, int(archive["state"][0]))
            self.parameters = archive["parameters"]
        if self.settings.flip_restored_byte:
            self.shard.master.view(np.uint8)[2] ^= 0x40
        self._parameters_are_stale = True

    def load(self, step: int | None = None) -> int | None:
        """Load what was saved newest (or at `step`) below --load; returns its step, None when there is nothing."""
        return self.saver.load(step)

    def shard_from(self, data: bytes) -> Shard:
        """Shard inside a snapshot."""
        with np.load(io.BytesIO(data)) as archive:
            return Shard.from_arrays({key: archive[key] for key in KEYS}, int(archive["state"][0]))

    def commit(self, step: int, kind: str) -> None:
        """Make the step's checkpoint the one that is loaded, where its form has such a step."""
        self.saver.commit(step, kind)

    def write_checkpoint(self, step: int, shards: list[Shard], kind: str) -> None:
        """Write this rank's part of a checkpoint."""
        self.saver.write(step, shards, kind)

    def take_time(self, seconds: float) -> None:
        """Let time pass on the rank the others wait for, unless the training is to be hurried."""
        if seconds > 0 and self.collectives.leads and not self._hurry.exists():
            self.transport.pause(seconds)

    def _own_part(self, vector: Array) -> Array:
        length = len(vector) // self.layout.shards
        start = self.layout.shard_of(self.place.data) * length
        return vector[start : start + length]

    def address_of(self, rank: int) -> Address | None:
        """Where a rank is reached; None while nobody knows."""
        if rank not in self._addresses:
            found = self.store.wait(f"address/{rank}", timeout=_LOOK_SECONDS)
            if not isinstance(found, list):
                return None
            self._addresses[rank] = (str(found[0]), int(found[1]))
        return self._addresses[rank]

    def learn_addresses(self) -> None:
        """Of all who take part, also of those this rank has nothing to say to yet: the store may be gone when it has.

        Not of the others: what their processes wrote may have gone with a store, and comes again when they do.
        """
        while missing := [rank for rank in self.collectives.members() if rank not in self._addresses]:
            self.transport.check()
            found = self.store.gather("address", missing, _LOOK_SECONDS)
            for rank, address in zip(missing, found or (), strict=found is not None):
                if isinstance(address, list):
                    self._addresses[rank] = (str(address[0]), int(address[1]))

    def _announce(self) -> None:
        if self.is_new_process:
            self.is_new_process = False
            self.pace.has_compiled()
            self.faults.at("ready")
            self.events.add("arf_finish")
            raise RuntimeError("ARF FINISH")

    def propose_generation(self) -> None:
        """Everybody who leaves a generation proposes the next one, before MindIO hears that it has left."""
        self._has_left = True
        try:
            self.store.highest("generation", self.transport.generation + 1)
        except StoreLostError as error:
            self.events.add("store_lost", reason=str(error))

    def resume(self) -> None:
        """Get ready for the first step after a start or a recovery."""
        self.loaded_in_recovery = False
        self._gather_seconds = 0.0  # the first step after an outage is a whole one
        self.learn_addresses()
        if self._parameters_are_stale:
            self.events.add("resume", step=self.shard.step, generation=self.transport.generation)
            self._gather()

    def _gather(self) -> None:
        self.parameters = self.collectives.gather_parameters(self.shard.master, self.shard.step)
        self._parameters_are_stale = False

    def _step(self) -> None:
        started = time.monotonic() - self._gather_seconds  # what is gathered after a step is the next one's
        step = self.shard.step + 1
        self.faults.look()
        self.faults.at("forward", step)
        self.collectives.begin_step(step)
        gradients, losses = self._compute(step)
        self.take_time(self.pace.step(step) - (time.monotonic() - started))
        gradient = self.collectives.reduce_gradients(gradients)
        losses = self.collectives.agree(b"step.%d" % step, losses)
        self._update(step, gradient * np.float32(1 / self.settings.micro_batches))
        self.events.add("step_end", step=step)
        updated = time.monotonic()
        self._gather()
        self._gather_seconds = time.monotonic() - updated
        if self.settings.digests:
            self.events.add("state", step=step, digest=self._digest(), flush=False)
        self._print(step, losses, time.monotonic() - started, float(np.linalg.norm(gradient)))
        self.faults.at("updated", step)
        self.mindio.tft_pause_train(step)
        self._after_step(step, losses)

    def _after_step(self, step: int, losses: dict[str, float]) -> None:
        """Evaluation, save and early end, each where its interval says so; none of them prints a step line."""
        settings = self.settings
        if settings.eval_interval and step % settings.eval_interval == 0:
            self.take_time(self.pace.evaluation(settings.eval_iters))
            self.printer.evaluated(step, _mean(losses))
        saves = settings.save is not None and settings.save_interval and step % settings.save_interval == 0
        if saves:
            self.saver.periodic(step)
        if settings.exit_interval and step % settings.exit_interval == 0:
            if settings.save is not None and not saves:
                self.saver.periodic(step)
            self.printer.mark(f"exiting program at iteration {step}")
            self.events.flush()
            leave(0)  # sys.exit(): the processor is not deregistered

    def _echo(self, reason: str) -> None:
        """What a healthy rank prints when somebody else's fault stops it; its own fault prints where it is raised."""
        if "FORCE STOP" in reason and manners.ECHOES in self.settings.manners:
            printing.error(self.rank, "ERR02200", "DIST call hccl api failed.")
            printing.error(self.rank, "ERR00100", f"PTA call acl api failed. {reason}")

    def _digest(self) -> str:
        """Of parameters, master weights and moments: two states are the same, bit for bit, when it is the same."""
        found = hashlib.blake2b(self.parameters.tobytes(), digest_size=12)
        for key in KEYS:
            found.update(self.shard.arrays()[key].tobytes())
        return found.hexdigest()

    def _update(self, step: int, gradient: Array) -> None:
        self.mindio.tft_start_updating_os()
        self._marks.tft_set_update_start_time(time.time_ns() // 1000)
        self.faults.at("update", step)
        self.shard.update(gradient, self.settings.learning_rate)
        self._marks.tft_set_update_end_time(time.time_ns() // 1000)
        self.mindio.tft_end_updating_os(step)

    def _compute(self, step: int) -> tuple[dict[int, Array], dict[str, float]]:
        """Gradient of each micro batch of the own share, and losses by micro batch on the ranks that report them."""
        traces: dict[range, Trace] = {}
        losses: dict[str, float] = {}
        for stack in self._stacks():
            tokens, targets = self._corpus.micro_batches(
                step, stack, self.settings.micro_batch_size, self.settings.micro_batches
            )
            trace = traces[stack] = self._forward(stack, tokens)
            if self.stage.last:
                found = self.stage.losses(self.parameters, trace, targets)
                losses.update(zip(map(str, stack), found, strict=True))
        gradients: dict[int, Array] = {}
        for stack, trace in traces.items():
            gradients.update(zip(stack, self._backward(stack, trace), strict=True))
        return gradients, losses if self.place.tensor == 0 else {}

    def _stacks(self) -> list[range]:
        """Own micro batches in the stacks they are computed in: one by one through a pipeline, else all at once."""
        share = self.collectives.share()
        return [share] if self.layout.pipeline == 1 else [range(index, index + 1) for index in share]

    def _shape(self, stack: range) -> tuple[int, int, int]:
        return (len(stack), self.settings.micro_batch_size, self.settings.model.hidden)

    def _forward(self, stack: range, tokens: NDArray[np.int64]) -> Trace:
        one_hot = None
        if self.stage.first:
            hidden, one_hot = self.stage.embed(self.parameters, tokens)
        else:
            hidden = self.collectives.receive_stage(b"activation", stack.start, self._shape(stack))
        hidden, trace = self.stage.forward(self.parameters, hidden, self.collectives.sum_over_tensor)
        trace.one_hot = one_hot
        if not self.stage.last:
            self.collectives.send_stage(1, b"activation", stack.start, hidden)
        return trace

    def _backward(self, stack: range, trace: Trace) -> Array:
        above = None
        if not self.stage.last:
            above = self.collectives.receive_stage(b"error", stack.start, self._shape(stack))
        gradient, below = self.stage.backward(self.parameters, trace, above, self.collectives.sum_over_tensor)
        if not self.stage.first:
            self.collectives.send_stage(-1, b"error", stack.start, below)
        return gradient

    def _print(self, step: int, losses: dict[str, float], seconds: float, norm: float) -> None:
        """The step line, where Megatron prints it: after the parameters are gathered."""
        settings = self.settings
        batch = settings.micro_batches * settings.micro_batch_size
        self.printer.step(
            step, loss=_mean(losses), seconds=seconds, batch=batch, learning_rate=settings.learning_rate, norm=norm
        )
        self.events.flush()


def _mean(losses: dict[str, float]) -> float:
    """Mean over the micro batches, in their order."""
    return sum(losses[key] for key in sorted(losses, key=int)) / len(losses)
