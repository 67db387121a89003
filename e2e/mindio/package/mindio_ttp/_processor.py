"""The rank's side: the state that the training thread and the controller share.

The training thread comes in through the public functions, the controller's orders through `_handlers`, which run one
after the other on the processor's one message thread. One condition guards everything.
"""

from __future__ import annotations

import collections
import ctypes
import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import _bodies as bodies
from . import _settings as settings
from . import _wire as wire
from ._client import Client
from ._names import ReportState
from ._wire import Heartbeat, Message

FORCED_EXIT = 2
REGISTER_TRIES = 5
Handler = Callable[..., Any]


@dataclass
class Options:
    """What the rank was initialised with."""

    rank: int
    world_size: int
    local_copy: bool
    uce: bool
    arf: bool
    zit: bool


@dataclass
class Registered:
    """Handlers and arguments that belong to the process, not to a processor."""

    handlers: dict[str, tuple[Handler, Any]] = field(default_factory=dict)
    exceptions: list[tuple[str, str, Handler]] = field(default_factory=list)
    args: Any = None
    args_fixed: bool = False
    exported: bool = False
    decrypt: Handler | None = None


registered = Registered()


class Processor:
    """One rank's processor; `start` may be called once."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.condition = threading.Condition()
        self.state = ReportState.RS_NORMAL
        self.code = ""
        self.step = 0
        self.backup_step = -1
        self.loaded_step = 0
        self.updating = self.copying = False
        self.limit: int | None = None
        self.stopping = self.leaving = self.outside = self.ended = False
        self.inside = False
        self.pause_step: int | None = None
        self.pause_held_until = 0.0
        self.paused = self.pause_by_exception = False
        self.repair_step = 0
        self.repair_type = "unknow"
        self.counter = 0
        self.serial = 0
        self.answered: dict[int, bytes] = {}
        self.reboot = self.isolated = self.low = self.cleaned = False
        self.stopped = self.repaired = False  # since it last went on training
        self.hot_switch = False
        self.groups: list[dict[str, Any]] = []
        self.data_parallel: list[int] = []
        self.go: collections.deque[str] = collections.deque()
        self.inbox: queue.SimpleQueue[tuple[int, bytes]] = queue.SimpleQueue()
        self.replies: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.client = Client(options.rank, self._take, lambda: self.account().pack())

    # ---- life

    def start(self, address: str, port: int, local: str, work: Callable[[Processor], None]) -> bool:
        """Connect, register, begin to beat; False when that fails."""
        if not self.client.connect(address, port, local):
            return False
        threading.Thread(target=work, args=(self,), name="mindio-handlers", daemon=True).start()
        for attempt in range(REGISTER_TRIES):
            if attempt:
                time.sleep(1.0)
            result = self._ask(Message.REGISTER, wire.REGISTER.pack(self.options.rank))
            if result in {wire.OK, wire.ISOLATED}:
                self.reboot, self.isolated = self.counter != 0, result == wire.ISOLATED
                self.client.start_heart()
                if self.groups:
                    self.report_replicas()
                return True
        return False

    def _ask(self, kind: Message, body: bytes) -> int:
        """Tell the controller something and wait for its reply, which also brings its repair counter."""
        self.client.send(wire.frame(kind, body))
        try:
            reply = self.replies.get(timeout=settings.action_seconds())
        except queue.Empty:
            return wire.ERROR
        result, self.counter, hot = wire.REPLY.unpack(reply)
        self.hot_switch = bool(hot)  # only the reply to a registration ever says so
        return int(result)

    def _take(self, kind: int, body: bytes) -> None:
        if kind in wire.REPLIES:
            self.replies.put(body)
        elif kind == Message.DESTROY:
            self.client.stop()
        elif kind in wire.ACTIONS:
            self.inbox.put((kind, body))

    def account(self) -> Heartbeat:
        """The rank's account of itself."""
        return Heartbeat(
            rank=self.options.rank,
            repair_counter=self.counter,
            step=self.step,
            state=self.state,
            updating=self.updating,
            copying=self.copying,
            ended=self.ended,
            isolated=self.isolated,
            low=self.low,
            backup_step=self.backup_step,
            code=self.code,
        )

    def report_replicas(self) -> None:
        """Tell the controller the groups and what this rank has enabled."""
        o = self.options
        body = bodies.replicas(o.rank, self.groups, arf=o.arf, retry=o.uce, zit=o.zit)
        self._ask(Message.REPLICAS, body)
        self.report_data_parallel()

    def report_data_parallel(self) -> None:
        """Tell the pure data-parallel group where it counts: with elastic training, and shorter than every other."""
        group = self.data_parallel
        if self.options.zit and group and all(len(one["rank_list"]) > len(group) for one in self.groups):
            self._ask(Message.DATA_PARALLEL, bodies.data_parallel(self.options.rank, group))

    def destroy(self) -> None:
        """Say goodbye, in a heartbeat with the last step; with the fault `destroy_hangs` it never returns."""
        if self.state is not ReportState.RS_UNKNOWN:
            self.ended = True
            self.client.beat()
        if settings.fault("destroy_hangs"):
            threading.Event().wait()
        self.client.stop()

    def forced_exit(self) -> None:
        """End this process the way the package does: code 2, ten seconds late."""
        time.sleep(settings.exit_delay_seconds())
        os._exit(FORCED_EXIT if settings.on("exit_code_2") else 1)

    # ---- the training thread

    def report(self, state: ReportState, code: str = "") -> None:
        """The training thread has left its function; tell the controller why, at once."""
        with self.condition:
            self.state, self.code = state, code
            self.outside, self.inside = True, False
            self.updating = False
            self.go.clear()
            self.condition.notify_all()
        self.client.beat()

    def wait_go(self) -> int:
        """Block until the controller lets the thread go on (0) or wants it to leave (1)."""
        with self.condition:
            while not (self.go or self.leaving):
                self.condition.wait()
            if self.leaving:
                return 1
            self.go.popleft()
            return 0

    def start_update(self, backup_step: int) -> None:
        """Before the optimizer update; blocks while locked, raises "FORCE STOP" when stopped."""
        with self.condition:
            self._hold()
            if self.stopping and not settings.mindspore():
                raise RuntimeError("FORCE STOP: the step was stopped before its optimizer update")
            self.updating, self.backup_step = True, backup_step

    def _hold(self) -> None:
        while self.limit is not None and self.step >= self.limit and settings.on("locked_not_stopped"):
            self.condition.wait()

    def end_update(self, step: int) -> None:
        """After the optimizer update; blocks while locked."""
        if settings.fault("stuck_in_update"):
            threading.Event().wait()
        with self.condition:
            self.step, self.updating, self.copying = step, False, False
            self.condition.notify_all()
            self._hold()

    def pause_point(self, step: int) -> None:
        """Once per step: block, or raise "STEP FINISH", when a pause is due."""
        with self.condition:
            while (left := self.pause_held_until - time.monotonic()) > 0 and not self.stopping:
                self.condition.wait(left)
            if self.pause_step is None or step < self.pause_step:
                return
            if self.pause_by_exception:
                self.pause_step = None
                raise RuntimeError("STEP FINISH: the step has ended for a hot switch")
            self.paused = True
            self.condition.notify_all()
            while self.pause_step is not None and not self.stopping:
                self.condition.wait()
            self.paused = False
            if self.stopping and not settings.mindspore():
                raise RuntimeError("FORCE STOP: stopped while paused")


def ignore_signals() -> None:
    """From here on only SIGKILL ends the process, whichever thread calls."""
    if not settings.on("ignore_sigterm"):
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            signal.signal(number, signal.SIG_IGN)
        except ValueError:
            ctypes.CDLL(None).signal(int(number), ctypes.c_void_p(1))
