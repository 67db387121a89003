"""One rank of the GPT in real PyTorch: `python -m e2e.torch_trainer.train --tensor-model-parallel-size 2 …`.

Flags, events, faults and lines are those of `e2e.trainer.train`; the order of a start is MindSpeed-LLM's: MindIO first,
then the store, groups, model, checkpoint, handlers, and the decorated training function.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from functools import partial
from typing import TYPE_CHECKING

from e2e.trainer.container import compile_helpers, leave, prepare, start_child
from e2e.trainer.manners import CHILDREN, COMPILES, LATE_END
from e2e.trainer.refusals import RefusedStartError
from e2e.trainer.settings import Settings, settings_from

if TYPE_CHECKING:
    from e2e.torch_trainer.training import Training

_STARTED = time.time_ns()
_LEAVE_SECONDS = 3.0
_SPREAD_SECONDS = 1.5


def main(arguments: list[str]) -> int:
    """Train as one rank; returns the exit code."""
    try:
        settings = _fitting(settings_from(arguments))
    except RefusedStartError as error:
        print(f"Traceback (most recent call last):\n{error}", file=sys.stderr)
        return 1
    except (ValueError, KeyError) as error:
        print(f"e2e.torch_trainer.train: {error}", file=sys.stderr)
        return 2
    prepare(settings.manners)
    training = _made(settings)
    mindio = training.mindio
    training.events.add("first_call")
    place = settings.place
    mindio.tft_init_processor(
        place.rank, place.world, False, False, "", settings.enable_uce, settings.enable_arf, settings.enable_zit
    )
    mindio.tft_start_processor(place.controller_host, place.controller_port)
    _begin(training)
    mindio.tft_exception_handler(_train)(training)
    training.has_left_mindio.set()
    _end(training)
    return 0


def _fitting(settings: Settings) -> Settings:
    """The settings as the GPT can have them; raises RefusedStartError for a pipeline."""
    if settings.layout.pipeline > 1:
        raise RefusedStartError("the GPT has one pipeline stage")
    return settings


def _made(settings: Settings) -> Training:
    """Everything that is imported before MindIO is called."""
    from e2e.torch_trainer.groups import threads_of_torch
    from e2e.torch_trainer.training import Training
    from e2e.trainer.events import EventLog
    from e2e.trainer.faults import Faults
    from e2e.trainer.without_mindio import mindio_of

    mindio, marks = mindio_of(is_on=settings.protected)
    threads_of_torch()
    place = settings.place
    events = EventLog(settings.log_dir, place.rank, place.incarnation, place.attempt)
    events.add("exec", at=place.exec_time_ns or _STARTED, flush=False)
    faults = Faults(place.rank, settings.log_dir, settings.faults)
    faults.at("startup")
    if CHILDREN in settings.manners:
        start_child(place.rank)
    return Training(settings, events, faults, mindio, marks)


def _begin(training: Training) -> None:
    from e2e.torch_trainer.handlers import Handlers
    from e2e.torch_trainer.saving import load_newest, save_periodic

    mindio, layout, rank = training.mindio, training.layout, training.rank
    is_rebooted = bool(mindio.tft_is_reboot_node())
    training.events.add("registered", reboot=is_rebooted)
    training.printer.first("> initializing torch distributed ...")
    training.join(is_rebooted=is_rebooted)
    training.faults.pause = training.world.pause
    if COMPILES in training.settings.manners:
        compile_helpers(training.printer, os.environ)
    training.build()
    training.save = partial(save_periodic, training)
    if not is_rebooted:
        load_newest(training)
    kind = {"rank_list": layout.data_group(rank), "replica_cnt": layout.copies, "replica_shift": 0}
    mindio.tft_set_optimizer_replica(rank, [kind])
    if training.settings.enable_zit:
        mindio.tft_set_dp_group_info(rank, layout.data_group(rank))
    Handlers(training).register(mindio, elastic=training.settings.enable_zit)
    training.printer.mark("before the start of training step")


def _train(training: Training) -> None:
    """The function MindIO guards. Its return destroys the processor, which may hang: then the process ends late."""
    training.run()
    if LATE_END not in training.settings.manners:
        training.finish()
    threading.Thread(target=_leave_late, args=(training,), name="leave", daemon=True).start()


def _leave_late(training: Training) -> None:
    if not training.has_left_mindio.wait(_LEAVE_SECONDS):
        _end(training)
        leave(0)


def _end(training: Training) -> None:
    """What comes after MindIO was left, unprotected."""
    training.events.flush()
    if LATE_END in training.settings.manners:
        training.finish()
        rank, last = training.rank, training.layout.world - 1
        time.sleep(_SPREAD_SECONDS if rank in {0, last} else _SPREAD_SECONDS * (rank % 7) / 14)


if __name__ == "__main__":
    try:
        _code = main(sys.argv[1:])
    except Exception:
        traceback.print_exc()
        _code = 1
    leave(_code)
