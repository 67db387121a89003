"""A training on this machine without Kubernetes: MindIO's controller, the store and all ranks under one driver.

`python3 -m e2e.trainer.local --tensor 2 --data 4 --kill 3@10 -- --train-iters 40` runs eight ranks as plain processes,
kills rank 3 at step 10 and brings it back. The driver does what a supervisor of the processes can do at best: it knows of
a death at once, stops the training, starts the dead ranks again as soon as MindIO has named them, and answers every
question of the controller at once. It proves trainer and MindIO simulator (or the real package, with HAJOB_MINDIO)
without anything of Hajob.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e.trainer import proof
from e2e.trainer.compare import differences
from e2e.trainer.layout import Layout

_ROOT = Path(__file__).resolve().parents[2]
_GATHER_SECONDS = 0.02  # how long the driver waits for further deaths before it names all of them


def package_directory() -> Path:
    """Directory of the MindIO package: `HAJOB_MINDIO`, or the simulator's."""
    return Path(os.environ.get("HAJOB_MINDIO") or _ROOT / "e2e" / "mindio" / "package")


def free_port() -> int:
    """A TCP port nobody listens on right now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@dataclass
class Job:
    """What to run: layout, arguments of the trainer, and where its logs go."""

    layout: Layout
    log_dir: Path
    arguments: list[str]
    strategy: str = "recover"
    incarnation: int = 0
    environment: dict[str, str] = field(default_factory=dict)
    timeout: float = 120.0


class Driver:
    """Controller, store and ranks of one training; used once per process, because MindIO's controller is."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.callbacks: list[tuple[str, tuple[Any, ...]]] = []
        self.exits: dict[int, int] = {}
        self._controller_port, self._store_port = free_port(), free_port()
        self._lock = threading.Lock()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._dead: dict[int, int] = {}
        self._stopping = False
        self._finished = threading.Event()
        self._controller: Any = None

    def run(self) -> bool:
        """Train to the end; True when every rank ended with code 0 in time. Leaves no process behind."""
        from e2e.trainer.store import serve

        threading.Thread(target=serve, args=("127.0.0.1", self._store_port), daemon=True).start()
        self._start_controller()
        for rank in range(self.job.layout.world):
            self._start(rank)
        in_time = self._finished.wait(self.job.timeout)
        for process in list(self._processes.values()):
            process.kill()
        return in_time and all(code == 0 for code in self.exits.values())

    def kill(self, rank: int) -> None:
        """End a rank's process as a crash would."""
        self._processes[rank].kill()

    def _start_controller(self) -> None:
        sys.path.insert(0, str(package_directory()))
        from mindio_ttp import controller_ttp as controller

        self._controller = controller
        for name in ("report_fault_ranks", "report_stop_complete", "report_strategies", "report_result"):
            controller.tft_register_mindx_callback(name, getattr(self, "_" + name))
        elastic = "--enable-elastic-training" in self.job.arguments
        controller.tft_init_controller(-1, self.job.layout.world, False, True, elastic)
        controller.tft_start_controller("127.0.0.1", self._controller_port, False)

    def _start(self, rank: int) -> None:
        layout, job = self.job.layout, self.job
        command = [sys.executable, "-m", "e2e.trainer.train", "--log-dir", str(job.log_dir), *layout_flags(layout)]
        job.log_dir.mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(layout.world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self._store_port),
            "TTP_ADDR": "127.0.0.1",
            "TTP_PORT": str(self._controller_port),
            "MINDX_TASK_ID": "local",
            "HAJOB_INCARNATION": str(job.incarnation),
            "HAJOB_EXEC_TIME": str(time.time_ns()),
            "PYTHONPATH": f"{_ROOT}{os.pathsep}{package_directory()}",
            **job.environment,
        }
        with (job.log_dir / f"output-rank{rank}.log").open("ab") as output:
            process = subprocess.Popen(
                [*command, *job.arguments], env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )
        with self._lock:
            self._processes[rank] = process
        threading.Thread(target=self._watch, args=(rank, process), daemon=True).start()

    def _watch(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        with self._lock:
            if self._finished.is_set():
                return
            if code >= 0:
                self.exits[rank] = code
                if len(self.exits) == self.job.layout.world or code:
                    self._finished.set()
                return
            self._dead[rank] = 1
            first, self._stopping = not self._stopping, True
        if first:
            self._controller.tft_notify_controller_stop_train({rank: 1})

    def _note(self, name: str, *arguments: Any) -> None:
        self.callbacks.append((name, arguments))
        print(f"{time.time():.3f} {name} {arguments}", flush=True)

    def _report_fault_ranks(self, ranks: dict[int, int], codes: dict[int, str]) -> None:
        self._note("report_fault_ranks", dict(ranks), dict(codes))
        with self._lock:
            first, self._stopping = not self._stopping, True
        if first:
            self._controller.tft_notify_controller_stop_train(ranks)

    def _report_stop_complete(self, code: int, message: str, ranks: dict[int, int]) -> None:
        self._note("report_stop_complete", code, message, dict(ranks))
        threading.Thread(target=self._name_the_dead, args=(dict(ranks),), daemon=True).start()

    def _name_the_dead(self, ranks: dict[int, int]) -> None:
        time.sleep(_GATHER_SECONDS)
        with self._lock:
            ranks.update(self._dead)
            self._dead = {}
        self.job.incarnation += 1
        self._controller.tft_notify_controller_on_global_rank(ranks, 60)
        for rank in ranks:
            if ranks[rank] == 1 and self._processes[rank].poll() is not None and self.job.strategy == "recover":
                self._start(rank)

    def _report_strategies(self, ranks: dict[int, int], strategies: list[str]) -> None:
        self._note("report_strategies", dict(ranks), list(strategies))
        wanted = "retry" if "retry" in strategies and "recover" not in ranks else self.job.strategy
        chosen = wanted if wanted in strategies else "dump" if "dump" in strategies else "exit"
        self._controller.tft_notify_controller_change_strategy(chosen)

    def _report_result(self, code: int, message: str, ranks: dict[int, int], strategy: str) -> None:
        self._note("report_result", code, message, dict(ranks), strategy)
        with self._lock:
            self._stopping = False
        if code == 0 and strategy == "dump":
            self._finished.set()
        elif code == 406:
            self._controller.tft_notify_controller_change_strategy("dump")


def layout_flags(layout: Layout) -> list[str]:
    """Flags of the trainer for a layout."""
    flags = [
        "--tensor-model-parallel-size",
        str(layout.tensor),
        "--pipeline-model-parallel-size",
        str(layout.pipeline),
        "--use-distributed-optimizer",
        "--enable-high-availability",
        "--enable-worker-reboot",
        "--enable-hbmfault-repair",
    ]
    return [*flags, "--use-tp-pp-dp-mapping"] if layout.tensor_pipeline_data else flags


def run_apart(arguments: Sequence[str]) -> None:
    """Run this module in a process of its own; raises CalledProcessError with its output when it fails."""
    subprocess.run([sys.executable, "-m", "e2e.trainer.local", *arguments], check=True, cwd=_ROOT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one training; returns 0 when it ended well and, with faults, kept the promise of the proof."""
    parser = argparse.ArgumentParser(prog="e2e.trainer.local", description="Train on this machine, with faults.")
    parser.add_argument("--tensor", type=int, default=1)
    parser.add_argument("--pipeline", type=int, default=1)
    parser.add_argument("--data", type=int, default=2)
    parser.add_argument("--tp-pp-dp", action="store_true")
    parser.add_argument("--kill", action="append", default=[], metavar="RANK@STEP", help="kill a rank at a step")
    parser.add_argument("--at", default="forward", help="moment of the step for --kill")
    parser.add_argument("--log-dir", type=Path, required=True)
    parser.add_argument("--compare", type=Path, help="log directory of an undisturbed run")
    parser.add_argument("--strategy", default="recover")
    parser.add_argument("--timeout", type=float, default=120.0)
    parser.add_argument("trainer", nargs="*", help="further arguments of the trainer")
    options = parser.parse_args(arguments)
    layout = Layout(options.tensor, options.data, options.pipeline, 2, options.tp_pp_dp)
    faults = [kill.split("@") for kill in options.kill]
    ordered = [
        word for rank, step in faults for word in ("--fault", f"rank={rank} step={step} at={options.at} do=kill")
    ]
    job = Job(layout, options.log_dir, [*options.trainer, *ordered], options.strategy, timeout=options.timeout)
    ended = Driver(job).run()
    killed = [int(rank) for rank, _ in faults]
    found = [] if ended else ["not every rank ended with code 0 in time"]
    found += _report(layout, options.log_dir, killed)
    if options.compare:
        found += differences(options.compare, options.log_dir)
    print("\n".join(found) or "as promised")
    return 1 if found else 0


def _report(layout: Layout, log_dir: Path, killed: list[int]) -> list[str]:
    events = proof.load(log_dir)
    for outage in proof.outages(events, layout.world):
        print(
            f"steps {outage.last_step} to {outage.next_step}: outage {outage.seconds:.3f} s, start-up "
            f"{outage.startup_seconds:.3f} s, control share {outage.control_seconds:.3f} s; {outage.restored}"
        )
    partners = {rank: _partner(layout, rank) for rank in killed}
    return proof.failures(events, partners) if killed else []


def _partner(layout: Layout, rank: int) -> int:
    place = layout.coordinate(rank)
    return layout.rank(place.tensor, (place.data + layout.shards) % layout.data, place.pipeline)


if __name__ == "__main__":
    sys.exit(main())
