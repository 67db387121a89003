"""What must hold in every history (docs/internals/simulation.md)."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Final

from e2e.memory_api.history import Change
from hajob.api import constants as names
from hajob.api.base import Json
from hajob.protocol import sidecar_pb2 as pb
from tests.sim.training import SimTraining
from tests.sim.virtual_time import SimProcess
from tests.sim.world import SimWorld, message_of_job, state_of_job

ENDED: Final = ("Complete", "Failed")
STEP_SECONDS: Final = 30.0
"""A training whose newest step is older stands: one takes five."""
REST_SECONDS: Final = 120.0
REST_WRITES: Final = 24
"""0.2 a second: what all jobs together may write of what moves by itself (docs/internals/benchmarks.md)."""
MOST_TASKS: Final = 120
"""Of an operator with one job: its informers, loops and the requests of a moment are some 80."""
LEASE: Final = "hajob-operator"
LEASE_NAMESPACE: Final = "hajob-system"
UNFENCED: Final = ("/events", "/tokenreviews", f"/leases/{LEASE}")
"""Writes that need no Lease."""
EXPECTED_ERRORS: Final = ("no operator has taken in anything", "nothing but the end is left")
"""Parts of lines at level ERROR that tell of what a history does to it."""


class LoggedErrors(logging.Handler):
    """Notes what the world or a living process logs as an error."""

    def __init__(self, world: SimWorld) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        """Note a record; a process that was killed says nothing."""
        process = SimProcess.running()
        text = record.getMessage()
        if (process is not None and not process.alive) or any(part in text for part in EXPECTED_ERRORS):
            return
        if record.exc_info:
            text += f"\n{logging.Formatter().formatException(record.exc_info)}"
        self._world.note(f"ERROR {text}")
        self._world.problems.append(f"logged: {text}")


class Checks:
    """Watches over a world."""

    def __init__(self, world: SimWorld) -> None:
        self._world = world
        self._highest: dict[str, dict[str, int]] = {}
        world.server.history.observers.append(self._look_at_change)

    # ------------------------------------------------------------------------------------------- at every write

    def _look_at_change(self, change: Change) -> None:
        self._look_at_writer()
        if change.plural == "pods":
            self._look_at_pod(change)
        elif change.plural == names.PLURAL and change.new is not None:
            self._look_at_status(change.new["metadata"]["uid"], change.new.get("status") or {}, change.old)

    def _look_at_writer(self) -> None:
        """Check that who writes leads: no operator that was asleep writes over its successor.

        What it had begun to send when it was stopped arrives when it goes on: docs/decisions/0012 says why that harms
        nobody. Its Events tell of what has been, whoever leads by then.
        """
        log, lease = self._world.server.log, self._world.server.history.find("leases", (LEASE_NAMESPACE, LEASE))
        # What the world changes by itself is no request: the newest one may be somebody's who has only read since.
        if not log or log[-1].method == "GET" or not log[-1].client.startswith("operator-"):
            return
        if log[-1].path.endswith(UNFENCED):
            return
        holder = ((lease or {}).get("spec") or {}).get("holderIdentity")
        writer = next(one for one in self._world.operators if one.identity == log[-1].client)
        if holder != writer.identity and self._world.clock.monotonic() != writer.woken_at:
            told = f"{log[-1].client} writes {log[-1].method} {log[-1].path}, though {holder} leads"
            self._world.problems.append(told)

    def _look_at_status(self, uid: str, status: Json, old: Json | None) -> None:
        """Check that what must grow does; note a new state."""
        known = json.loads(status.get("journal") or "{}").get("state", {})
        told = {**known, **{name: status.get(name, 0) for name in ("fence", "incarnation")}}
        before = self._highest.get(uid, {})
        found = {name: int(told.get(name, 0)) for name in ("fence", "incarnation", "attempt")}
        for name, now in found.items():
            if now < before.get(name, 0):
                self._world.problems.append(f"{name} went from {before[name]} to {now}")
        self._highest[uid] = found
        if state_of_job(status) != state_of_job((old or {}).get("status") or {}):
            self._world.note(f"state {state_of_job(status)}: {message_of_job(status)}")

    def _look_at_pod(self, change: Change) -> None:
        """Check that nothing is made of a job that has ended, and that no pod is deleted of one that trains."""
        log, job, pod = self._world.server.log, self._world.job(), change.new or change.old
        if not log or not log[-1].client.startswith("operator-") or job is None or pod is None:
            return
        owner = pod["metadata"]["ownerReferences"][0]["uid"]
        if job["metadata"].get("deletionTimestamp") or owner != job["metadata"]["uid"]:
            return
        name, state = pod["metadata"]["name"], state_of_job(job.get("status") or {})
        if change.old is None and state in ENDED:
            self._world.problems.append(f"pod {name} is made, though the job is {state}")
        if _begins_to_end(change) and state == "Running" and self._is_only_pod_of_ranks(pod):
            self._world.problems.append(f"the operator deletes {name} of a job that trains")

    def _is_only_pod_of_ranks(self, pod: Json) -> bool:
        """Whether these ranks run in this pod alone: not in a move, and not where one was given up."""
        labels = pod["metadata"]["labels"]
        if labels.get(names.LABEL_ROLE) != names.ROLE_RANK or (pod.get("status") or {}).get("phase") != "Running":
            return False
        beside = (one["metadata"]["labels"] for one in self._world.pods_of_jobs(names.ROLE_RANK))
        return all(
            one[names.LABEL_NODE_RANK] != labels[names.LABEL_NODE_RANK]
            or one[names.LABEL_INCARNATION] == labels[names.LABEL_INCARNATION]
            for one in beside
        )

    # ----------------------------------------------------------------------------------------------- all the time

    async def watch_ranks(self) -> None:
        """Check every half second that nobody is admitted twice as one rank."""
        while True:
            await asyncio.sleep(0.5)
            for training in self._world.trainings.values():
                training.look_at_clock()
                self._look_for_twins(training)

    def _look_for_twins(self, training: SimTraining) -> None:
        order = training.core.job.order
        if order is not None and order.action == pb.MIGRATE:
            return  # a move has both until MindIO has switched
        linked: dict[int, list[str]] = {}
        for agent in training.agents.values():
            if agent.answers and training.now <= agent.lease_until:
                for rank, process in agent.processes.items():
                    if process.phase == pb.LINKED:
                        linked.setdefault(rank, []).append(agent.uid)
        self._world.problems.extend(f"rank {rank} is linked in {uids}" for rank, uids in linked.items() if uids[1:])

    # ---------------------------------------------------------------------------------------------------- in the end

    def is_well(self) -> bool:
        """Whether nothing more is planned, and the job trains, or has ended."""
        job, training = self._world.job(), self._world.training
        if job is None or self._world.clock.monotonic() < self._world.busy_until:
            return False
        state = state_of_job(job.get("status") or {})
        if state in ENDED:
            return True
        all_on = all(machine.on for machine in self._world.cluster.machines.values())
        trains = training is not None and training.now - training.step_at < STEP_SECONDS
        return all_on and state == "Running" and trains

    def check_end(self) -> None:
        """Check that it is well, and that a job that failed says why."""
        status = (self._world.job() or {}).get("status") or {}
        state, training = state_of_job(status), self._world.training
        if not self.is_well():
            told = training.describe() if training is not None else "it has no training"
            self._world.problems.append(f"in the end the job is {state}: {message_of_job(status)}; {told}")
        elif state == "Failed":
            failed: Json = next((one for one in status["conditions"] if one["type"] == "Failed"), {})
            if failed.get("status") != "True" or not failed.get("message"):
                self._world.problems.append(f"the job failed, and does not say why: {failed}")

    async def check_rest(self) -> None:
        """Check that a world in which nothing happens makes the operator write nothing but what moves by itself."""
        begin = len(self._world.server.log)
        await asyncio.sleep(REST_SECONDS)
        writes = [
            f"{request.method} {request.path}"
            for request in self._world.server.log[begin:]
            if request.client.startswith("operator-")
            and request.method != "GET"
            and not request.dry_run
            and not request.path.endswith(("/tokenreviews", f"/leases/{LEASE}"))
        ]
        if len(writes) > REST_WRITES:
            self._world.problems.append(f"{len(writes)} writes in {REST_SECONDS:.0f} s of rest: {writes}")
        tasks = max((len(process.tasks) for process in self._world.operators if process.alive), default=0)
        if tasks > MOST_TASKS:
            self._world.problems.append(f"{tasks} tasks of an operator at rest")


def _begins_to_end(change: Change) -> bool:
    """Whether a deletion begins, or is done at once."""
    if change.old is None or change.old["metadata"].get("deletionTimestamp"):
        return False
    return change.new is None or bool(change.new["metadata"].get("deletionTimestamp"))
