"""What of MindSpore needs a chip, played on a CPU, for `_tft_handler` and `TrainFaultTolerance` as they are.

A step's collective, and the sending of parameters in a repair, go over files on a volume that all ranks share. A rank
that waits there for a lost one stands until its device is stopped, then it raises MindSpore's own text, as on chips.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import mindspore
import numpy
from mindspore import context
from mindspore.train import model
from mindspore.train.callback import _train_fault_tolerance as callback
from mindspore.utils import utils

POLL_SECONDS = 0.005
REPAIR_SECONDS = 120.0


class AscendContext:
    """The context with "Ascend" for its device and data parallelism for its mode, as the callback asks for them."""

    def get_context(self, name: str) -> Any:  # noqa: ANN401 - as the real one
        """Return the value of an option."""
        if name == "device_target":
            return "Ascend"
        return int(os.environ["DEVICE_ID"]) if name == "device_id" else context.get_context(name)

    def get_auto_parallel_context(self, name: str) -> Any:  # noqa: ANN401 - as the real one
        """Return the value of an option."""
        return "data_parallel" if name == "parallel_mode" else context.get_auto_parallel_context(name)


class Chips:
    """The chips of one rank's group.

    Attributes:
        is_new: This process takes a lost one's place and has not trained yet.
    """

    def __init__(self, directory: Path, rank: int, world: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.is_new = False
        self._directory, self._rank, self._world = directory, rank, world
        self._is_stopped = False
        self._stand(-1)

    def install(self) -> None:
        """Put what is played in the place of MindSpore's own, where the callback and the handler look for it."""
        for module in (callback, utils):
            module.context = AscendContext()
        played = {
            "_stop_device": self._stop,
            "_finalize_comm": lambda: None,
            "_rebuild_group": self._rebuild,
            "_pre_launch_send_recv": lambda _device: None,
            "set_is_arf": lambda _is_arf: None,
            "check_is_arf": lambda: False,
            "clean_tdt_channel": lambda: None,
            "send_recv": self._send_or_receive,
            "reset_params": lambda _parameters: 0,
            "direct_copy_to_host": lambda parameter: parameter.asnumpy()[0],
            "_reset_snapshot_state": lambda: None,
            "_reset_opt_event_info": lambda: None,
        }
        for name, function in played.items():
            setattr(callback, name, function)
        utils.set_is_reboot_node = self._take_a_place
        utils.set_reboot_type = lambda _kind: None
        setattr(model, "_reset_error_state", lambda: None)  # noqa: B010 - one of MindSpore's own

    def meet(self, step: int) -> None:
        """Wait for all ranks at this step: the collective. RuntimeError: the device was stopped meanwhile."""
        if self.is_new:
            self.is_new = False
            raise RuntimeError("ARF FINISH, do next step repair weight.")
        self._stand(step)
        while not all(self._where(rank) >= step for rank in range(self._world)):
            self.raise_if_stopped()
            time.sleep(POLL_SECONDS)

    def raise_if_stopped(self) -> None:
        """RuntimeError with MindSpore's own text: the device was stopped, and what is launched on it fails."""
        if self._is_stopped:
            raise RuntimeError("ForceStopError: the device was stopped")

    def _take_a_place(self, is_new: bool) -> None:
        self.is_new = is_new

    def _stop(self, _device: int) -> None:
        self._is_stopped = True
        self._stand(-1)

    def _rebuild(self) -> None:
        self._is_stopped = False

    def _stand(self, step: int) -> None:
        own = self._directory / f"rank-{self._rank}"
        new = own.with_suffix(".new")
        new.write_text(str(step))
        new.rename(own)

    def _where(self, rank: int) -> int:
        try:
            return int((self._directory / f"rank-{rank}").read_text())
        except FileNotFoundError:
            return -1

    def _send_or_receive(self, parameters: list[Any], source: int, target: int) -> int:
        """Send every parameter, or take those that were sent; 0 when all are there."""
        sent = self._directory / f"repair-{source}-{target}.npz"
        if self._rank == source:
            whole = sent.with_suffix(".part.npz")
            numpy.savez(whole, **{one.name: one.asnumpy() for one in parameters})
            whole.rename(sent)
            return 0
        deadline = time.monotonic() + REPAIR_SECONDS
        while not sent.exists():
            if time.monotonic() > deadline:
                return 1
            time.sleep(POLL_SECONDS)
        with numpy.load(sent) as values:
            for one in parameters:
                one.set_data(mindspore.Tensor(values[one.name], one.dtype))
        sent.unlink()
        return 0
