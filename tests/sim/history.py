"""One history: a job, a cluster, what goes wrong by a seed, and what must hold however it goes."""

from __future__ import annotations

import asyncio
import copy
import datetime
import gc
import logging
import random
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from e2e.bootstrap.paths import CHECKOUT
from e2e.memory_api.server import MemoryServer
from hajob.api import constants as names
from hajob.api.base import Json
from hajob.kube.client import ApiError, object_path
from hajob.protocol import sidecar_pb2 as pb
from tests.sim.cluster import CHIPS, PodListener, SimCluster
from tests.sim.operator_process import OperatorProcess
from tests.sim.training import SimTraining
from tests.sim.virtual_time import SimClock, SimProcess, VirtualLoop, begin_in_world, call_in_world

QUICKSTART: Final = yaml.safe_load((CHECKOUT / "examples/quickstart.yaml").read_text())
JOB: Final = "quickstart"
NAMESPACE: Final = "default"
START_SECONDS: Final = 60.0
FAULT_SECONDS: Final = 900.0
"""In which things go wrong."""
QUIET_SECONDS: Final = 3600.0
"""In which nothing more goes wrong, and the job comes to train or says why not."""
ENDED: Final = ("Complete", "Failed")


REST_SECONDS: Final = 120.0
REST_WRITES: Final = 24
"""0.2 a second: what all jobs together may write of what moves by itself (docs/internals/benchmarks.md)."""
MOST_TASKS: Final = 120
LEASE: Final = "hajob-operator"


@dataclass
class Outcome:
    """What became of one seed.

    Attributes:
        problems: what did not hold, in words; empty: all did.
        lines: what happened, with its second.
    """

    seed: int
    problems: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    state: str = ""


class _Errors(logging.Handler):
    """Notes what a living process logs as an error."""

    def __init__(self, history: History) -> None:
        super().__init__(logging.ERROR)
        self._history = history

    def emit(self, record: logging.LogRecord) -> None:
        process = SimProcess.running()
        if process is None or process.alive:
            text = record.getMessage()
            if record.exc_info:
                text += f"\n{logging.Formatter().formatException(record.exc_info)}"
            self._history.note_error(text)


EXPECTED_ERRORS: Final = ("no operator has taken in anything", "nothing but the end is left")
"""Parts of lines at level ERROR that tell of what a history does to it."""


class History(PodListener):
    """The world of one seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.outcome = Outcome(seed)
        self.clock = SimClock()
        self.server = MemoryServer(self.clock, controller_seconds=0.05)
        self.trainings: dict[str, SimTraining] = {}
        self._of_pod: dict[str, str] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.cluster = SimCluster(self.server, self.chance, self, nodes=self.chance.choice([4, 5, 6, 7]))
        self.operators: list[OperatorProcess] = []
        self._count, self._busy_until = 0, 0.0
        self._last_step = self.chance.randint(10, 150) if self.chance.random() < 0.3 else 0
        self._replicas = self.chance.choice([1, 1, 2])
        self._began = self.clock.monotonic()
        self._highest: dict[str, tuple[int, int, int]] = {}
        self.server.history.observers.append(self._watch_over)

    # -------------------------------------------------------------------------------------------------- the world

    def note(self, text: str) -> None:
        """Write down what happened."""
        self.outcome.lines.append(f"{self.clock.monotonic() - self._began:8.2f}  {text}")

    def note_error(self, text: str) -> None:
        """Handle that a process has logged an error."""
        if not any(part in text for part in EXPECTED_ERRORS):
            self.note(f"ERROR {text}")
            self.outcome.problems.append(f"logged: {text}")

    def _spawn(self, coro: Coroutine[Any, Any, None], name: str) -> None:
        """Begin a task of the world; that it ends is an error of the simulation or of what it plays with."""
        task = begin_in_world(coro, name)
        self._tasks.append(task)
        task.add_done_callback(self._note_ended_task)

    def _later(self, seconds: float, call: Callable[..., object], *arguments: object) -> None:
        """Have something happen later; the history does not end before."""
        self._busy_until = max(self._busy_until, self.clock.monotonic() + seconds)
        call_in_world(seconds, call, *arguments)

    def _note_ended_task(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            text = "".join(traceback.format_exception(error))
            self.note(text)
            self.outcome.problems.append(text[-1500:])

    def find_training(self, address: str) -> SimTraining | None:
        """Return the training whose coordinator serves at an address of a pod."""
        host = address.rpartition(":")[0]
        for training in self.trainings.values():
            if training.coordinator is not None and training.coordinator["status"].get("podIP") == host:
                return training
        return None

    def note_running_pod(self, pod: Json) -> None:
        labels, uid = pod["metadata"]["labels"], pod["metadata"]["uid"]
        owner = pod["metadata"]["ownerReferences"][0]["uid"]
        training = self.trainings.get(owner)
        if training is None:
            training = self.trainings[owner] = SimTraining(self.chance, nodes=4, per_node=CHIPS)
            training.last_step = self._last_step
            training.note_finished_pod = self.cluster.end_pod
            self._spawn(training.live(), "training")
        training.look_at_clock()
        self._of_pod[uid] = owner
        if labels[names.LABEL_ROLE] == names.ROLE_COORDINATOR:
            training.token = self._token_of(pod)
            training.open_coordinator(pod)
        elif labels[names.LABEL_ROLE] == names.ROLE_RANK:
            training.open_agent(pod)
        self.note(f"pod {pod['metadata']['name']} runs on {pod['spec']['nodeName']}")

    def _token_of(self, pod: Json) -> str:
        bound = {"kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        spec = {"audiences": [names.COORDINATOR_TOKEN_AUDIENCE], "boundObjectRef": bound}
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default/token"
        return str(self.cluster.ask("POST", path, {"spec": spec}, "")["status"]["token"])

    def note_ended_pod(self, uid: str) -> None:
        training = self.trainings.get(self._of_pod.get(uid, ""))
        if training is None:
            return
        if training.coordinator is not None and training.coordinator["metadata"]["uid"] == uid:
            training.close_coordinator()
        training.close_agent(uid)

    def job(self) -> Json | None:
        """Return the job as the server has it."""
        return self.server.history.find(names.PLURAL, (NAMESPACE, JOB))

    @property
    def training(self) -> SimTraining | None:
        """Return the training of the job that is there now."""
        job = self.job()
        return self.trainings.get(job["metadata"]["uid"]) if job is not None else None

    # ---------------------------------------------------------------------------------------------- what goes wrong

    def begin_operator(self) -> None:
        """Start another operator process."""
        self._count += 1
        process = OperatorProcess(self.server, f"operator-{self._count}", self.find_training)
        self.operators.append(process)
        process.start()

    def lose_operator(self) -> None:
        """Kill the operator; another one is started after a while."""
        process = self.chance.choice([one for one in self.operators if one.alive] or self.operators)
        self.note(f"{process.identity} is killed")
        process.kill()
        self._later(self.chance.uniform(0.1, 60), self.begin_operator)

    def kill_rank(self) -> None:
        """End a process."""
        if self.training is not None and (ranks := self.training.live_ranks()):
            rank, code = self.chance.choice(ranks), self.chance.choice([-9, -9, -11, 1])
            self.note(f"rank {rank} ends with {code}")
            self.training.end_rank(rank, code)

    def power_off(self) -> None:
        """Take a node away."""
        name = self.chance.choice(sorted(self.cluster.machines))
        self.note(f"{name} goes off")
        self.cluster.power_off(name)

    def _pods(self, role: str = "") -> list[Json]:
        return [
            pod
            for pod in self.cluster.pods()
            if pod["metadata"].get("labels", {}).get(names.LABEL_ROLE)
            and role in ("", pod["metadata"]["labels"][names.LABEL_ROLE])
        ]

    def delete_pod(self) -> None:
        """Delete a pod of the job, as a person does."""
        if pods := self._pods():
            pod = self.chance.choice(pods)
            self.note(f"somebody deletes pod {pod['metadata']['name']}")
            self.cluster.delete_pod(pod)

    def fail_pod(self) -> None:
        """Have a pod's containers end."""
        if pods := [pod for pod in self._pods() if pod["status"].get("phase") == "Running"]:
            pod, code = self.chance.choice(pods), self.chance.choice([1, 137])
            self.note(f"pod {pod['metadata']['name']} ends with {code}")
            self.cluster.fail_pod(pod, code)

    def evict_pod(self) -> None:
        """Evict a pod of the job."""
        if pods := self._pods():
            pod = self.chance.choice(pods)
            refused = self.cluster.evict_pod(pod)
            self.note(f"somebody evicts pod {pod['metadata']['name']}: {refused or 'it goes'}")

    def cut_off_agent(self) -> None:
        """Cut a rank pod off from its coordinator for a while."""
        if self.training is not None and self.training.agents:
            seconds = self.chance.choice([1.0, 4.0, 30.0, 200.0])
            self.note(f"the agent of {self.training.cut_off_agent(seconds)} is cut off for {seconds:.0f} s")

    def step_clock(self) -> None:
        """Set the wall clock of an operator's machine."""
        process, seconds = self.chance.choice(self.operators), self.chance.choice([-7200.0, -30.0, 30.0, 7200.0])
        self.note(f"the wall clock of {process.identity} jumps by {seconds:.0f} s")
        process.clock.wall_ahead += seconds

    def lose_coordinator(self) -> None:
        """Delete the coordinator's pod."""
        for pod in self._pods(names.ROLE_COORDINATOR):
            self.note(f"somebody deletes {pod['metadata']['name']}")
            self.cluster.delete_pod(pod)

    def lose_controller(self) -> None:
        """End MindIO's process."""
        training = self.training
        if training is not None and training.coordinator is not None and training.controller["controller"] == "serving":
            self.note("MindIO's controller dies")
            training.look_at_clock()
            training.lose_controller()
            training.disturb()

    def cordon(self) -> None:
        """Cordon a node for some minutes."""
        name = self.chance.choice(sorted(self.cluster.machines))
        self.note(f"{name} is cordoned")
        self.cluster.set_cordon(name, cordoned=True)
        self._later(self.chance.uniform(10, 600), self._uncordon, name)

    def _uncordon(self, name: str) -> None:
        self.note(f"{name} is uncordoned")
        self.cluster.set_cordon(name, cordoned=False)

    def edit_spec(self, spec: Json, why: str) -> None:
        """Change the job's spec."""
        if self.job() is not None:
            self.note(why)
            try:
                self.cluster.ask("PATCH", object_path(names.PLURAL, NAMESPACE, JOB), {"spec": spec})
            except ApiError as error:
                self.note(f"refused: {error.message}")

    def suspend(self) -> None:
        """Suspend the job for a while."""
        self.edit_spec({"suspend": True}, "somebody suspends the job")
        resume = {"suspend": False}
        self._later(self.chance.uniform(1, 200), self.edit_spec, resume, "somebody resumes the job")

    def restart(self) -> None:
        """Ask for a restart."""
        at = self.clock.now_milliseconds() // 1000
        self.edit_spec({"restartRequestTime": _rfc3339(at)}, "somebody asks for a restart")

    def delete_job(self) -> None:
        """Delete the job, and apply it again."""
        if self.job() is not None:
            self.note("somebody deletes the job")
            self.cluster.ask("DELETE", object_path(names.PLURAL, NAMESPACE, JOB), {}, "")
            self._later(self.chance.uniform(0, 30), self.apply_job)

    def apply_job(self) -> None:
        """Apply the job; while the one before is still being deleted, again in a moment."""
        try:
            self.cluster.ask("POST", object_path(names.PLURAL, NAMESPACE), copy.deepcopy(QUICKSTART), "")
            self.note("the job is applied")
        except ApiError as error:
            if error.status != 409:
                raise
            job = self.job()
            if job is not None and not job["metadata"].get("deletionTimestamp"):
                return  # somebody else has applied it
            self._later(1.0, self.apply_job)

    def trouble_api(self) -> None:
        """Have the API server misbehave for a while."""
        faults, seconds = self.server.faults, self.chance.choice([1.0, 10.0, 60.0])
        kind = self.chance.choice(["refuse", "lose", "delay", "close", "away"])
        self.note(f"the API server: {kind} for {seconds:.0f} s")
        away = ApiError(503, "ServiceUnavailable", "the server is currently unable to handle the request")

        def any_of_ours(request: Any) -> bool:
            return str(request.client).startswith("operator")

        fault: Any
        if kind == "refuse":
            fault = faults.refuse(
                away, matching=lambda request: any_of_ours(request) and self.chance.random() < 0.5, times=None
            )
        elif kind == "lose":
            fault = faults.lose_answer(
                matching=lambda request: any_of_ours(request) and not request.is_watch and self.chance.random() < 0.3,
                times=None,
            )
        elif kind == "delay":
            fault = faults.delay(self.chance.uniform(0, 3), self.chance.uniform(0, 3), matching=any_of_ours)
        elif kind == "close":
            fault = faults.close_watches(matching=any_of_ours)
        else:
            fault = faults.unreachable(matching=any_of_ours)
        self._later(seconds, fault.end)

    # -------------------------------------------------------------------------------------------------- invariants

    def _watch_over(self, change: Any) -> None:
        """Look at what was written."""
        if change.plural == "pods":
            self._watch_over_pod(change)
        if change.plural != names.PLURAL or change.new is None:
            return
        status, uid = change.new.get("status") or {}, change.new["metadata"]["uid"]
        found = (int(status.get("fence", 0)), int(status.get("incarnation", 0)), int(status.get("attempt", 0)))
        before = self._highest.get(uid, (0, 0, 0))
        for name, now, then in zip(("fence", "incarnation", "attempt"), found, before, strict=True):
            if now < then:
                self.outcome.problems.append(f"{name} went from {then} to {now}")
        self._highest[uid] = found
        if _state_of(status) != _state_of((change.old or {}).get("status") or {}):
            self.note(f"state {_state_of(status)}: {_message(status)}")

    def _watch_over_pod(self, change: Any) -> None:
        """Check that nothing is made of a job that has ended, and that no pod is deleted of one that trains."""
        client = self.server.log[-1].client if self.server.log else ""
        if not client.startswith("operator-"):
            return
        job = self.job()
        if job is None or job["metadata"].get("deletionTimestamp"):
            return
        pod = change.new or change.old
        state, role = _state_of(job.get("status") or {}), pod["metadata"]["labels"].get(names.LABEL_ROLE)
        of_it = pod["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
        if change.old is None and of_it and state in ENDED:
            self.outcome.problems.append(f"pod {pod['metadata']['name']} is made, though the job is {state}")
        ends = change.new is None or bool(change.new["metadata"].get("deletionTimestamp"))
        began_to_end = change.old is not None and ends and not change.old["metadata"].get("deletionTimestamp")
        trains = state == "Running" and (pod.get("status") or {}).get("phase") == "Running"
        if began_to_end and of_it and trains and role == names.ROLE_RANK and not self._has_another(pod):
            self.outcome.problems.append(f"the operator deletes {pod['metadata']['name']} of a job that trains")

    def _has_another(self, pod: Json) -> bool:
        """Whether another pod is there for the same ranks: after a move, or one that was given up."""
        labels = pod["metadata"]["labels"]
        beside = (one["metadata"]["labels"] for one in self._pods(names.ROLE_RANK))
        return any(
            one[names.LABEL_NODE_RANK] == labels[names.LABEL_NODE_RANK]
            and one[names.LABEL_INCARNATION] != labels[names.LABEL_INCARNATION]
            for one in beside
        )

    def check_ranks(self) -> None:
        """Check that nobody is admitted twice as one rank."""
        for training in self.trainings.values():
            training.look_at_clock()
            linked: dict[int, list[str]] = {}
            for agent in training.agents.values():
                for rank, process in agent.processes.items():
                    if process.phase == 3 and agent.answers and training.now <= agent.lease_until:
                        linked.setdefault(rank, []).append(agent.uid)
            order = training.core.job.order
            if order is not None and order.action == pb.MIGRATE:
                continue  # a move has both until MindIO has switched
            for rank, uids in linked.items():
                if len(uids) > 1:
                    self.outcome.problems.append(f"rank {rank} is linked in {uids}")

    async def watch_ranks(self) -> None:
        """Look at the ranks every half second."""
        while True:
            await asyncio.sleep(0.5)
            self.check_ranks()

    # ------------------------------------------------------------------------------------------------------- life

    async def live(self) -> None:
        """Play the history."""
        loop = asyncio.get_running_loop()
        self._spawn(self.watch_ranks(), "ranks")
        for _ in range(self._replicas):
            self.begin_operator()
        self.apply_job()
        await asyncio.sleep(self.chance.uniform(0, START_SECONDS))
        kinds = self.chance.sample(KINDS, self.chance.randint(1, 4))
        end = loop.time() + FAULT_SECONDS * self.chance.random()
        for _ in range(self.chance.randint(1, 8)):
            getattr(self, self.chance.choice(kinds))()
            await asyncio.sleep(self.chance.choice([0.0, 0.05, 0.5, 3.0, 20.0, 120.0]) * self.chance.random() * 2)
            if loop.time() > end:
                break
        self.server.faults.clear()
        await self._wait_until_well()
        self._decide_outcome()
        if not self.outcome.problems:
            await self._check_rest()
        for process in self.operators:
            process.kill()

    async def _check_rest(self) -> None:
        """Check that a world in which nothing happens makes the operator write nothing but what moves by itself."""
        begin = len(self.server.log)
        await asyncio.sleep(REST_SECONDS)
        writes = [
            f"{request.method} {request.path}"
            for request in self.server.log[begin:]
            if request.client.startswith("operator-")
            and request.method != "GET"
            and not request.dry_run
            and not request.path.endswith(("/tokenreviews", f"/leases/{LEASE}"))
        ]
        if len(writes) > REST_WRITES:
            self.outcome.problems.append(f"{len(writes)} writes in {REST_SECONDS:.0f} s of rest: {writes}")
        tasks = max((len(process.tasks) for process in self.operators if process.alive), default=0)
        if tasks > MOST_TASKS:
            self.outcome.problems.append(f"{tasks} tasks of an operator at rest")

    async def _wait_until_well(self) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + QUIET_SECONDS
        well_since = 0.0
        while loop.time() < end:
            await asyncio.sleep(5.0)
            if self._is_well():
                well_since = well_since or loop.time()
                if loop.time() - well_since > 60:
                    return
            else:
                well_since = 0.0

    def _is_well(self) -> bool:
        job, training = self.job(), self.training
        if job is None or self.clock.monotonic() < self._busy_until:
            return False
        state = _state_of(job.get("status") or {})
        if state in ENDED:
            return True
        if any(not machine.on for machine in self.cluster.machines.values()):
            return False
        return state == "Running" and training is not None and training.now - training.step_at < 30

    def _decide_outcome(self) -> None:
        job = self.job()
        status = (job or {}).get("status") or {}
        self.outcome.state = _state_of(status)
        if not self._is_well():
            told = self.training.describe() if self.training is not None else "it has no training"
            self.outcome.problems.append(f"in the end the job is {_state_of(status)}: {_message(status)}; {told}")


KINDS: Final[list[str]] = [
    "kill_rank",
    "power_off",
    "delete_pod",
    "fail_pod",
    "lose_coordinator",
    "lose_controller",
    "cordon",
    "suspend",
    "restart",
    "delete_job",
    "trouble_api",
    "lose_operator",
    "evict_pod",
    "cut_off_agent",
    "step_clock",
]


def _state_of(status: Json) -> str:
    return str((status.get("summary") or {}).get("state", ""))


def _message(status: Json) -> str:
    told = [
        each
        for each in status.get("conditions") or []
        if each["type"] in ("Running", "Recovering", "Failed", "Scheduled")
    ]
    return "; ".join(f"{each['type']}={each['status']} {each['reason']} {each['message']}"[:300] for each in told)


def _rfc3339(seconds: int) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def play(seed: int) -> Outcome:
    """Play the history of a seed."""
    random.seed(seed)
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    outcome: list[Outcome] = []

    async def whole() -> None:
        history = History(seed)
        outcome.append(history.outcome)
        handler = _Errors(history)
        logging.getLogger().addHandler(handler)
        try:
            with OperatorProcess.dialled_by(history.find_training):
                await history.live()
        except AssertionError as error:
            history.outcome.problems.append(f"{type(error).__name__}: {error}")
        finally:
            logging.getLogger().removeHandler(handler)

    try:
        loop.run_until_complete(whole())
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    finally:
        asyncio.set_event_loop(None)
        loop.close()
        gc.unfreeze()
    return outcome[0]
