"""torchrun with TaskD's patch: the agent of one pod, `python3 -m e2e.taskd.torchrun OPTIONS SCRIPT ARGUMENTS`.

On node rank 0 it serves the rendezvous store, as torch's agent does. Workers start when the manager says so, a single
one can be started again, and nobody is told that one has ended before six seconds have passed.
"""

from __future__ import annotations

import argparse
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Final

from e2e.taskd import net
from e2e.taskd.plugins import EXIT_AGENT, RESTART_AGENT, RESTART_WORKERS, START_AGENT, STOP_WORKERS
from e2e.taskd.traits import has_trait
from e2e.trainer.store import serve_at

MANAGER_SECONDS: Final = 180.0
LOOK_SECONDS: Final = 0.1
HOOK_SECONDS: Final = 5.0
"""The patch sleeps before it closes a dead worker's context; meanwhile the agent hears nothing."""
RESTARTS: Final = 32767


class Agent:
    """The agent of one pod and its workers."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._first = options.node_rank * options.nproc_per_node
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._told: set[int] = set()
        self._orders: queue.Queue[net.Message] = queue.Queue()
        self._manager: socket.socket | None = None

    def run(self) -> int:
        """Run until all workers have ended in order, or the manager ends this agent."""
        if self._options.node_rank == 0:
            listener = socket.create_server((self._options.master_addr, self._options.master_port), backlog=1024)
            threading.Thread(target=serve_at, args=(listener,), daemon=True).start()
        self._register()
        if self._await_start() != START_AGENT:
            raise ValueError("the manager has not started this agent")
        for rank in range(self._first, self._first + self._options.nproc_per_node):
            self._start_worker(rank, "pod")
        while True:
            code = self._take_order()
            if code is not None:
                return code
            self._look_at_workers()
            if all(worker.poll() == 0 for worker in self._workers.values()):
                return 0

    def _register(self) -> None:
        end = time.monotonic() + MANAGER_SECONDS
        while self._manager is None:
            try:
                self._manager = socket.create_connection((self._options.master_addr, net.PORT))
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(LOOK_SECONDS)
        net.send(self._manager, {"kind": "register", "node": self._options.node_rank})
        net.send(self._manager, {"kind": "restarts", "code": 201, "left": RESTARTS})
        threading.Thread(target=self._hear_manager, args=(self._manager,), daemon=True).start()

    def _hear_manager(self, connection: socket.socket) -> None:
        """Once a connection is lost nobody hears this agent again: it registers once in its life."""
        for message in net.messages_of(connection):
            self._orders.put(message)

    def _await_start(self) -> int:
        try:
            return int(self._orders.get(timeout=MANAGER_SECONDS)["code"])
        except queue.Empty:
            raise ValueError("no manager") from None

    def _take_order(self) -> int | None:
        """Carry out what the manager says; return the code with which the agent ends, None: it goes on."""
        try:
            order = self._orders.get(timeout=LOOK_SECONDS)
        except queue.Empty:
            return None
        code, ranks = int(order["code"]), [int(rank) for rank in order["message"] if str(rank).isdecimal()]
        if code == EXIT_AGENT:
            self._kill_workers(self._workers)
            if self._manager is not None:
                net.send(self._manager, {"kind": "fault", "code": 202})
            return 1
        if code == RESTART_WORKERS:
            if not ranks:
                raise ValueError("JSONDecodeError: Expecting value: line 1 column 1 (char 0)")
            mine = [rank for rank in ranks if rank in self._workers]
            self._kill_workers(mine)
            for rank in mine:
                self._start_worker(rank, "worker")
        if code == STOP_WORKERS:
            self._kill_workers([rank for rank in ranks if rank in self._workers])
        if code == RESTART_AGENT:
            self._kill_workers(self._workers)
            return 1
        return None

    def _look_at_workers(self) -> None:
        for rank, worker in self._workers.items():
            code = worker.poll()
            if code and worker.pid not in self._told:
                self._told.add(worker.pid)
                if has_trait("late_exits"):
                    time.sleep(HOOK_SECONDS)
                if self._manager is not None:
                    net.send(self._manager, {"kind": "fault", "code": 202, "rank": rank, "at": time.time()})

    def _kill_workers(self, ranks: Sequence[int] | dict[int, subprocess.Popen[bytes]]) -> None:
        for rank in ranks:
            if self._workers[rank].poll() is None:
                os.killpg(self._workers[rank].pid, signal.SIGKILL)
                self._workers[rank].wait()

    def _start_worker(self, rank: int, restart_type: str) -> None:
        size = self._options.nproc_per_node
        own = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank - self._first),
            "WORLD_SIZE": str(size * self._options.nnodes),
            "LOCAL_WORLD_SIZE": str(size),
            "GROUP_RANK": str(self._options.node_rank),
            "MASTER_ADDR": self._options.master_addr,
            "MASTER_PORT": str(self._options.master_port),
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "OMP_NUM_THREADS": "1",
            "RESTART_FAULT_PROCESS_TYPE": restart_type,
            "HAJOB_EXEC_TIME": str(time.time_ns()),
        }
        command = [sys.executable, "-u", *self._options.command]
        self._workers[rank] = subprocess.Popen(command, env={**os.environ, **own}, start_new_session=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the agent of this pod."""
    parser = argparse.ArgumentParser(prog="torchrun")
    for name in ("nproc_per_node", "nnodes", "node_rank", "master_port"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--master_addr", required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    if options.node_rank != int(os.environ.get("RANK", options.node_rank)):
        raise ValueError("TaskD names the agent by RANK, which is not the node rank")
    return Agent(options).run()


if __name__ == "__main__":
    sys.exit(main())
