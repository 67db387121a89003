"""MindIO's controller, the store and all ranks of one training under one roof, without Kubernetes.

It does what a supervisor of the processes can do at best: it knows of a death at once, stops the training, starts the
dead ranks again as soon as MindIO has named them, and answers every question of the controller at once. So what is seen
here is trainer and MindIO (the simulator, or the package in HAJOB_MINDIO) without anything of Hajob.

MindIO's controller is one per process, therefore so is a driver.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from e2e.cluster.loopback import own_address, own_port
from e2e.cluster.processes import end_marked
from e2e.trainer.container import CANN, HELPERS, IMAGE
from e2e.trainer.framework_python import torch_python
from e2e.trainer.layout import Layout

ROOT = Path(__file__).resolve().parents[2]
_GATHER_SECONDS = 0.02  # further deaths in this time are named together with the first
_LOOK_SECONDS = 0.05
_MARKER = "TOY_TRAINING"
"""Says to which training a process belongs, also one that has left its session and outlived its parent."""
_PARAMS = {
    "downgrade": json.dumps({"scale-in-strategy": "DP"}),
    "upgrade": json.dumps({"scale-out-strategy": "DP"}),
}
Ranks = dict[int, int]


class Controller(Protocol):
    """Functions of the module `mindio_ttp.controller_ttp` the driver uses."""

    def tft_register_mindx_callback(self, action: str, func: Callable[..., None]) -> int:
        """Register one of the four callbacks."""

    def tft_init_controller(
        self, rank: int, world_size: int, enable_local_copy: bool, enable_arf: bool, enable_zit: bool
    ) -> None:
        """Make this process a controller."""

    def tft_start_controller(self, bind_ip: str, port: int, enable_tls: bool) -> None:
        """Listen for the ranks."""

    def tft_notify_controller_stop_train(self, fault_ranks: Ranks, stop_type: str = ..., timeout: int = ...) -> int:
        """Stop or pause the training."""

    def tft_notify_controller_on_global_rank(self, fault_ranks: Ranks, time: int) -> int:
        """Name all faulty ranks."""

    def tft_notify_controller_change_strategy(self, strategy: str, params: str = ...) -> int:
        """Choose a strategy."""

    def tft_notify_controller_prepare_action(self, action: str, fault_ranks: Ranks) -> int:
        """Prepare a hot switch."""

    def tft_notify_controller_dump(self) -> int:
        """Save and exit."""


def package_directory() -> Path:
    """Directory of the MindIO package: `HAJOB_MINDIO`, or the simulator's."""
    return Path(os.environ.get("HAJOB_MINDIO") or ROOT / "e2e" / "mindio" / "package")


@dataclass
class Job:
    """What to run: layout, arguments of the trainer, where its logs go, and which strategies to choose.

    `strategies` are taken in order of preference from those MindIO offers; with `upgrade` among them dropped ranks are
    started again after a downgrade. With `own_sessions` each rank has a session of its own, as containers have: the
    kernel shares a busy machine out by sessions. Whoever asks for it has to end them should this process be killed.
    """

    layout: Layout
    log_dir: Path
    arguments: list[str]
    strategies: tuple[str, ...] = ("recover",)
    incarnation: int = 0
    environment: dict[str, str] = field(default_factory=dict)
    timeout: float = 120.0
    own_sessions: bool = False
    torch: bool = False
    """The GPT in real PyTorch, with torch's own store."""


class Driver:
    """One training from the first process to the last."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.results: list[tuple[int, str]] = []
        self._exits: dict[int, int] = {}
        self._controller_port, self._store_port = own_port(), own_port()
        self._lock = threading.Lock()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._started: list[subprocess.Popen[bytes]] = []
        self._given_up: set[int] = set()
        self._dead: Ranks = {}
        self._dropped: Ranks = {}
        self._stopping = False
        self._finished = threading.Event()
        self._identity = uuid.uuid4().hex
        self._controller = self._load_controller()

    def run(self) -> bool:
        """Train to the end; True when every rank ended with code 0, or a dump was made, in time.

        No process is left behind.
        """
        shutil.copytree(IMAGE / HELPERS, self.job.log_dir / HELPERS, dirs_exist_ok=True)
        self._serve_store()
        self._start_controller()
        for rank in range(self.job.layout.world):
            self._start(rank)
        in_time = self._finished.wait(self.job.timeout)
        for process in self._started:
            process.kill()
            process.wait()
        end_marked(self._identity, marker=_MARKER)  # ranks leave helpers in sessions of their own
        dumped = (0, "dump") in self.results
        return in_time and (dumped or all(code == 0 for code in self._exits.values()))

    def _serve_store(self) -> None:
        where = own_address(), self._store_port
        if not self.job.torch:
            from e2e.trainer.store import serve

            threading.Thread(target=serve, args=where, daemon=True).start()
            return
        command = [str(torch_python()), "-m", "e2e.torch_trainer.store", *map(str, where)]
        paths = {"PYTHONPATH": str(ROOT)}
        store = subprocess.Popen(command, env=os.environ | paths, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        self._started.append(store)
        assert store.stdout is not None
        store.stdout.readline()

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Do something `seconds` from now unless the training has ended."""

        def later() -> None:
            if not self._finished.wait(seconds):
                action()

        threading.Thread(target=later, daemon=True).start()

    def at_step(self, step: int, action: Callable[[], object]) -> None:
        """Do something once the last rank has printed that it finished `step`."""

        def later() -> None:
            path = self.job.log_dir / f"output-rank{self.job.layout.world - 1}.log"
            line = f"] iteration {step:8d}/"
            while not self._finished.wait(_LOOK_SECONDS):
                if path.exists() and line in path.read_text():
                    action()
                    return

        threading.Thread(target=later, daemon=True).start()

    def kill(self, rank: int) -> None:
        """End a rank's process as a crash would."""
        self._processes[rank].kill()

    def pause(self) -> None:
        """Pause the training; it goes on as soon as the pause is reported."""
        self._controller.tft_notify_controller_stop_train({}, "pause", 20)

    def dump(self) -> None:
        """Save and exit."""
        self._controller.tft_notify_controller_dump()

    def migrate(self, rank: int) -> None:
        """Hot switch: start a second process for a rank, which takes over."""
        self._controller.tft_notify_controller_prepare_action("hot switch", {rank: 0})
        self._dropped[rank] = self._processes[rank].pid
        self._start(rank)

    def _load_controller(self) -> Controller:
        sys.path.insert(0, str(package_directory()))
        from mindio_ttp import controller_ttp

        controller: Controller = controller_ttp
        return controller

    def _start_controller(self) -> None:
        for name in ("report_fault_ranks", "report_stop_complete", "report_strategies", "report_result"):
            self._controller.tft_register_mindx_callback(name, getattr(self, "_" + name))
        elastic = "--enable-elastic-training" in self.job.arguments
        self._controller.tft_init_controller(-1, self.job.layout.world, False, True, elastic)
        self._controller.tft_start_controller(own_address(), self._controller_port, False)

    def _start(self, rank: int) -> None:
        layout, job = self.job.layout, self.job
        job.log_dir.mkdir(parents=True, exist_ok=True)
        python, module = (torch_python(), "torch_trainer") if job.torch else (sys.executable, "trainer")
        command = [str(python), "-u", "-m", f"e2e.{module}.train", "--log-dir", str(job.log_dir.resolve())]
        command += layout_flags(layout)
        environment = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(layout.world),
            "MASTER_ADDR": own_address(),
            "MASTER_PORT": str(self._store_port),
            "TTP_ADDR": own_address(),
            "TTP_PORT": str(self._controller_port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": "0",
            "RANK_ID": str(rank),
            "RANK_SIZE": str(layout.world),
            "DEVICE_ID": str(rank),
            "MS_NODE_ID": str(rank),
            "MS_SCHED_HOST": own_address(),
            "MS_SCHED_PORT": str(self._store_port),
            "MS_TFT_IP": own_address(),
            "MS_TFT_PORT": str(self._controller_port),
            "MINDX_TASK_ID": "local",
            CANN: "stand-in",
            "HAJOB_INCARNATION": str(job.incarnation),
            "HAJOB_EXEC_TIME": str(time.time_ns()),
            "PYTHONPATH": f"{ROOT}{os.pathsep}{package_directory()}",
            _MARKER: self._identity,
            **job.environment,
        }
        with (
            (job.log_dir / f"output-rank{rank}.log").open("ab") as output,
            (job.log_dir / f"errors-rank{rank}.log").open("ab") as errors,
        ):
            process = subprocess.Popen(
                [*command, *job.arguments],
                env=environment,
                cwd=job.log_dir,
                stdout=output,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                start_new_session=job.own_sessions,
            )
        with self._lock:
            self._processes[rank] = process
            self._started.append(process)
        threading.Thread(target=self._watch, args=(rank, process), daemon=True).start()

    def _watch(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        with self._lock:
            is_known = process.pid in self._given_up or rank in self._dropped
            if self._finished.is_set() or self._processes[rank] is not process or is_known:
                return
            if code >= 0:
                self._exits[rank] = code
                if len(self._exits) == self.job.layout.world - len(self._dropped) or code:
                    self._finished.set()
                return
            self._dead[rank] = 1
            first, self._stopping = not self._stopping, True
        if first:
            self._controller.tft_notify_controller_stop_train({rank: 1})

    def _note(self, *words: object) -> None:
        print(f"{time.time():.3f}", *words, flush=True)

    def _report_fault_ranks(self, ranks: Ranks, codes: dict[int, str]) -> None:
        self._note("report_fault_ranks", ranks, codes)
        with self._lock:
            first, self._stopping = not self._stopping, True
        if first:
            self._controller.tft_notify_controller_stop_train(ranks)

    def _report_stop_complete(self, code: int, message: str, ranks: Ranks) -> None:
        self._note("report_stop_complete", code, message, ranks)
        if "pause" in message:
            self._controller.tft_notify_controller_change_strategy("continue")
        else:
            threading.Thread(target=self._name_the_dead, args=(dict(ranks),), daemon=True).start()

    def _name_the_dead(self, ranks: Ranks) -> None:
        time.sleep(_GATHER_SECONDS)
        with self._lock:
            ranks.update(self._dead)
            self._dead = {}
        self.job.incarnation += 1
        self._controller.tft_notify_controller_on_global_rank(ranks, 60)
        if self.job.strategies[0] == "recover":
            self._start_again([rank for rank, kind in ranks.items() if kind == 1])

    def _start_again(self, ranks: list[int]) -> None:
        """Start ranks again; one that still lives, but was given up by MindIO, is ended first."""
        for rank in ranks:
            process = self._processes[rank]
            self._given_up.add(process.pid)
            process.kill()
            process.wait()
            self._start(rank)

    def _report_strategies(self, ranks: Ranks, strategies: list[str]) -> None:
        self._note("report_strategies", ranks, strategies)
        wanted = (*self.job.strategies, "migration", "dump", "exit")
        chosen = next(strategy for strategy in wanted if strategy in strategies)
        self._controller.tft_notify_controller_change_strategy(chosen, _PARAMS.get(chosen, ""))

    def _report_result(self, code: int, message: str, ranks: Ranks, strategy: str) -> None:
        self._note("report_result", code, message, ranks, strategy)
        with self._lock:
            self._stopping = False
            self.results.append((code, strategy))
        if code == 201:
            self._dropped = dict(ranks)
            for rank in ranks:
                self._processes[rank].kill()
        elif code == 0 and strategy == "downgrade" and "upgrade" in self.job.strategies:
            self.after(1.0, self._grow)
        elif code == 0 and strategy in {"migration", "upgrade"}:
            self._dropped = {}
        elif code == 406:
            self._controller.tft_notify_controller_change_strategy("dump")
        elif strategy == "dump" or code == 499:
            self._finished.set()

    def _grow(self) -> None:
        ranks, self._dropped = list(self._dropped), {}
        self._start_again(ranks)
        self._controller.tft_notify_controller_change_strategy("upgrade", _PARAMS["upgrade"])


def layout_flags(layout: Layout) -> list[str]:
    """Flags of the trainer for a layout."""
    flags = [
        "--tensor-model-parallel-size",
        str(layout.tensor),
        "--pipeline-model-parallel-size",
        str(layout.pipeline),
    ]
    if os.environ.get("MINDIO_FOR_MINDSPORE") != "1":
        flags += ["--use-distributed-optimizer"]
        if layout.copies > 1:  # high availability refuses another layout
            flags += ["--enable-high-availability", "--enable-worker-reboot", "--enable-hbmfault-repair"]
    return [*flags, "--use-tp-pp-dp-mapping"] if layout.tensor_pipeline_data else flags
