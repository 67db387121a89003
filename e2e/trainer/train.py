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
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from e2e.trainer.training import Training

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before NumPy is imported: more threads only make a small machine slower

_STARTED = time.time_ns()
_LEAVE_SECONDS = 3.0


def main(arguments: list[str]) -> int:
    """Train as one rank; returns the exit code. A failure before MindIO takes over is printed."""
    from e2e.trainer.settings import settings_from

    try:
        settings = settings_from(arguments)
    except (ValueError, KeyError) as error:
        print(f"e2e.trainer.train: {error}", file=sys.stderr)
        return 2
    from mindio_ttp import framework_ttp as mindio
    from mindio_ttp import utils as marks

    from e2e.trainer.events import EventLog
    from e2e.trainer.faults import Faults
    from e2e.trainer.recovery import Handlers
    from e2e.trainer.training import Training

    place = settings.place
    events = EventLog(settings.log_dir, place.rank, place.incarnation, place.attempt)
    events.add("exec", at=place.exec_time_ns or _STARTED, flush=False)
    faults = Faults(place.rank, settings.log_dir, settings.faults)
    faults.at("startup")
    training = Training(settings, events, faults, mindio, marks)
    events.add("first_call")
    tls = settings.mindio_tls
    mindio.tft_init_processor(
        place.rank, place.world, False, bool(tls), tls, settings.enable_uce, settings.enable_arf, settings.enable_zit
    )
    mindio.tft_start_processor(*_controller(training))
    Handlers(training).register(mindio, elastic=settings.enable_zit)
    _begin(training)
    mindio.tft_exception_handler(_train)(training)
    events.flush()
    return 0


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
    if training.settings.tells_copies:
        kind = {"rank_list": group, "replica_cnt": layout.copies, "replica_shift": 0}
        mindio.tft_set_optimizer_replica(rank, [kind])
    if training.settings.enable_zit:
        mindio.tft_set_dp_group_info(rank, group)
    if not training.is_new_process:
        training.load()


def _train(training: Training) -> None:
    """The function MindIO guards. Its return destroys the processor, which may hang: then the process just ends."""
    training.run()
    threading.Thread(target=_leave_late, name="leave", daemon=True).start()


def _leave_late() -> None:
    time.sleep(_LEAVE_SECONDS)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    try:
        _code = main(sys.argv[1:])
    except Exception:
        import traceback

        traceback.print_exc()
        _code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(_code)  # threads of MindIO and of the transport have nothing left to do
