"""One rank of the toy training: `python3 -m e2e.trainer.train --tensor-model-parallel-size 2 …`.

It is what MindSpeed-LLM's pretraining is to MindIO, and nothing else: it imports `mindio_ttp.framework_ttp` (whichever
package is on the path) and never torch, Kubernetes or anything of Hajob. All that takes long at the start is done
before the first call into MindIO, because from then on others may be waiting for this rank.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING, NoReturn

from e2e.trainer.container import compile_helpers, leave, prepare, start_child
from e2e.trainer.manners import CHILDREN, COMPILES, LATE_END
from e2e.trainer.printing import MINDFORMERS

if TYPE_CHECKING:
    from e2e.trainer.training import Training

_CHOSEN = ("RESTART_FAULT_PROCESS_TYPE", "HCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "OMP_NUM_THREADS")
_TOLD = {name: os.environ.get(name, "") for name in _CHOSEN}
"""What somebody else has to choose, as it was at the start; for the log."""
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before NumPy is imported: more threads only make a small machine slower

_STARTED = time.time_ns()
_LEAVE_SECONDS = 3.0
_SPREAD_SECONDS = 1.5


def main(arguments: list[str]) -> int:
    """Train as one rank; returns the exit code. A failure before MindIO takes over is printed."""
    from e2e.trainer.refusals import RefusedStartError
    from e2e.trainer.settings import settings_from

    try:
        settings = settings_from(arguments)
    except RefusedStartError as error:
        print(f"Traceback (most recent call last):\n{error}", file=sys.stderr)
        return 1
    except (ValueError, KeyError) as error:
        print(f"e2e.trainer.train: {error}", file=sys.stderr)
        return 2
    prepare(settings.manners)
    from e2e.trainer.events import EventLog
    from e2e.trainer.faults import Faults
    from e2e.trainer.rank_table import log_rank_table
    from e2e.trainer.recovery import Handlers
    from e2e.trainer.saving import saver_for
    from e2e.trainer.training import Training
    from e2e.trainer.without_mindio import mindio_of

    mindio, marks = mindio_of(is_on=settings.protected)
    place = settings.place
    events = EventLog(settings.log_dir, place.rank, place.incarnation, place.attempt)
    leads, unbuffered = os.getsid(0) == os.getpid(), "-u" in sys.orig_argv[:3]
    at = place.exec_time_ns or _STARTED
    events.add("exec", at=at, flush=False, variables=_TOLD, leads_session=leads, unbuffered=unbuffered)
    log_rank_table(events, os.environ, place.rank, place.world)
    faults = Faults(place.rank, settings.log_dir, settings.faults)
    faults.at("startup")
    training = Training(settings, events, faults, mindio, marks, saver_for)
    _say_sizes(training)
    if CHILDREN in settings.manners:
        start_child(place.rank)
    events.add("first_call")
    tls = settings.mindio_tls
    mindio.tft_init_processor(
        place.rank, place.world, False, bool(tls), tls, settings.enable_uce, settings.enable_arf, settings.enable_zit
    )
    mindio.tft_start_processor(*_controller(training))
    handlers = Handlers(training)
    if settings.registers:
        handlers.register(mindio, elastic=settings.enable_zit, rolls_back=settings.face != MINDFORMERS)
    _begin(training)
    if settings.face == MINDFORMERS and settings.protected:
        from e2e.trainer import mindspore

        mindspore.run(training, handlers)
    elif not settings.registers:
        training.run()
        mindio.tft_destroy_processor()  # as MindIO does itself at the end of an interpreter
    else:
        mindio.tft_exception_handler(_train)(training)
    training.has_left_mindio.set()
    _end(training)
    faults.at("end")
    return 0


def _say_sizes(training: Training) -> None:
    layout, printer = training.layout, training.printer
    printer.first(
        f"using world size: {layout.world}, data-parallel size: {layout.data}, context-parallel size: 1, "
        f"tensor-model-parallel size: {layout.tensor}, encoder-tensor-model-parallel size: 0, "
        f"pipeline-model-parallel size: {layout.pipeline}, encoder-pipeline-model-parallel size: 0"
    )
    printer.first("> initializing torch distributed ...")


def _end(training: Training) -> None:
    """What comes after MindIO was left, unprotected: the final save, and an end that is not the same for all ranks."""
    training.events.flush()
    if LATE_END not in training.settings.manners and training.settings.face != MINDFORMERS:
        return
    training.finish()
    rank, last = training.rank, training.layout.world - 1
    time.sleep(_SPREAD_SECONDS if rank in {0, last} else _SPREAD_SECONDS * (rank % 7) / 14)


def _controller(training: Training) -> tuple[str, int]:
    """Where the rank reaches the controller: directly, or through a relay that a fault may order to swallow."""
    place = training.settings.place
    if not training.settings.relays:
        return place.controller_host, place.controller_port
    from e2e.trainer.relay import Relay

    relay = Relay(place.address, place.controller_host, place.controller_port)
    training.faults.mute = relay.mute
    return relay.address


def _begin(training: Training) -> None:
    """Join the others: report the optimizer copies, and load a checkpoint unless a partner will bring the state."""
    mindio, layout, rank = training.mindio, training.layout, training.rank
    group = layout.data_group(rank)
    training.is_new_process = bool(mindio.tft_is_reboot_node())
    training.events.add("registered", reboot=training.is_new_process)
    training.join()
    if training.is_new_process:
        training.meet_mates()
    if COMPILES in training.settings.manners and training.settings.face != MINDFORMERS:
        compile_helpers(training.printer, os.environ)
    if training.settings.registers:
        kind = {"rank_list": group, "replica_cnt": layout.copies, "replica_shift": 0}
        if training.settings.face == MINDFORMERS:
            kind["type"] = 1
        mindio.tft_set_optimizer_replica(rank, [kind])
    if training.settings.enable_zit:
        mindio.tft_set_dp_group_info(rank, group)
    if not training.is_new_process:
        from e2e.trainer.loading import load_at_start

        load_at_start(training)
    training.printer.first(f"time to initialize megatron (seconds): {(time.time_ns() - _STARTED) / 1e9:.3f}")
    training.printer.mark("after megatron is initialized")
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


def run(arguments: list[str]) -> NoReturn:
    """Train and end the process, whatever threads of MindIO and of the transport are left."""
    try:
        code = main(arguments)
    except Exception:
        import traceback

        traceback.print_exc()
        code = 1
    leave(code)


if __name__ == "__main__":
    run(sys.argv[1:])
