"""The simulated world: one API server, one cluster, the operators, and the training of each job."""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, Final

from e2e.memory_api.server import MemoryServer
from hajob.api import constants as names
from hajob.api.base import Json, format_time
from tests.sim.cluster import CHIPS, PodListener, SimCluster
from tests.sim.operator_process import OperatorProcess
from tests.sim.specs import draw_job
from tests.sim.training import SimTraining
from tests.sim.virtual_time import SimClock, begin_in_world, call_in_world

JOB: Final = "quickstart"
NAMESPACE: Final = "default"


class SimWorld(PodListener):
    """Everything of one history that lives.

    Attributes:
        chance: decides whatever is left to chance.
        lines: what happened, each with its second.
        problems: what did not hold, in words.
        busy_until: when the last thing happens that is planned.
        manifest: of the job.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.lines, self.problems = list[str](), list[str]()
        self.clock = SimClock()
        self._began = self.clock.monotonic()
        self.busy_until = 0.0
        self.manifest = draw_job(random.Random(f"spec {seed}"))
        self.server = MemoryServer(self.clock, controller_seconds=0.05)
        self.cluster = SimCluster(self.server, self.chance, self, nodes=self.chance.choice([4, 5, 6, 7]))
        self.operators: list[OperatorProcess] = []
        self.trainings: dict[str, SimTraining] = {}
        self._of_pod: dict[str, SimTraining] = {}
        self._last_step = self.chance.randint(10, 150) if self.chance.random() < 0.3 else 0
        self._tasks: list[asyncio.Task[None]] = []

    def note(self, text: str) -> None:
        """Write down what happened."""
        self.lines.append(f"{self.clock.monotonic() - self._began:8.2f}  {text}")

    def wall_time(self) -> str:
        """Return the time as objects have it."""
        return format_time(datetime.fromtimestamp(self.clock.now_milliseconds() // 1000, UTC))

    def spawn_task(self, coro: Coroutine[Any, Any, None], name: str) -> None:
        """Begin a task of the world; that it ends is an error of the simulation or of what it plays with."""
        task = begin_in_world(coro, name)
        self._tasks.append(task)
        task.add_done_callback(self._note_ended_task)

    def _note_ended_task(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            text = "".join(traceback.format_exception(error))
            self.note(text)
            self.problems.append(text[-1500:])

    def plan_call(self, seconds: float, call: Callable[..., object], *arguments: object) -> None:
        """Have something happen later; the history does not end before."""
        self.busy_until = max(self.busy_until, self.clock.monotonic() + seconds)
        call_in_world(seconds, call, *arguments)

    # ---------------------------------------------------------------------------------------------- its jobs and pods

    def job(self) -> Json | None:
        """Return the job as the server has it."""
        return self.server.history.find(names.PLURAL, (NAMESPACE, JOB))

    @property
    def training(self) -> SimTraining | None:
        """Return the training of the job that is there now."""
        job = self.job()
        return self.trainings.get(job["metadata"]["uid"]) if job is not None else None

    def pods_of_jobs(self, role: str = "") -> list[Json]:
        """List the pods that Hajob has made; `role`: of these."""
        found = ((pod, pod["metadata"].get("labels", {}).get(names.LABEL_ROLE)) for pod in self.cluster.pods())
        return [pod for pod, its_role in found if its_role and role in ("", its_role)]

    def begin_operator(self) -> None:
        """Start another operator process."""
        process = OperatorProcess(self.server, f"operator-{len(self.operators) + 1}", self.find_training)
        self.operators.append(process)
        process.start()

    def find_training(self, address: str) -> SimTraining | None:
        """Return the training whose coordinator serves at an address of a pod."""
        host = address.rpartition(":")[0]
        for training in self.trainings.values():
            if training.coordinator is not None and training.coordinator["status"].get("podIP") == host:
                return training
        return None

    def note_running_pod(self, pod: Json) -> None:
        """Show the training its pod."""
        role, uid = pod["metadata"]["labels"][names.LABEL_ROLE], pod["metadata"]["uid"]
        owner = pod["metadata"]["ownerReferences"][0]["uid"]
        if owner not in self.trainings:
            self.trainings[owner] = self._begin_training()
        training = self._of_pod[uid] = self.trainings[owner]
        training.look_at_clock()
        if role == names.ROLE_COORDINATOR:
            training.token = self._token_of(pod)
            training.open_coordinator(pod)
        elif role == names.ROLE_RANK:
            training.open_agent(pod)
        self.note(f"pod {pod['metadata']['name']} runs on {pod['spec']['nodeName']}")

    def _begin_training(self) -> SimTraining:
        training = SimTraining(self.chance, nodes=4, per_node=CHIPS)
        training.last_step, training.note_finished_pod = self._last_step, self.cluster.end_pod
        self.spawn_task(training.live(), "training")
        return training

    def _token_of(self, pod: Json) -> str:
        bound = {"kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        spec = {"audiences": [names.COORDINATOR_TOKEN_AUDIENCE], "boundObjectRef": bound}
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default/token"
        return str(self.cluster.ask("POST", path, {"spec": spec}, "")["status"]["token"])

    def note_ended_pod(self, uid: str) -> None:
        """Take a pod with everything in it from its training."""
        training = self._of_pod.pop(uid, None)
        if training is None:
            return
        if training.coordinator is not None and training.coordinator["metadata"]["uid"] == uid:
            training.close_coordinator()
        training.close_agent(uid)


def state_of_job(status: Json) -> str:
    """Return the word of the column STATE; empty: there is none yet."""
    return str((status.get("summary") or {}).get("state", ""))


def message_of_job(status: Json) -> str:
    """Return what the conditions say that matter in a history."""
    told = [one for one in status.get("conditions") or [] if one["type"] in ("Running", "Failed", "Scheduled")]
    return "; ".join(f"{one['type']}={one['status']} {one['reason']} {one['message']}"[:300] for one in told)
