"""What goes wrong in a history: of machines, processes, people, and the API server."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any, Final

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.faults.node_quarantine import node_quarantine
from hajob.kube.client import ApiError, object_path
from tests.sim.operator_process import OperatorProcess
from tests.sim.specs import draw_settings
from tests.sim.world import JOB, NAMESPACE, SimWorld


class Troubles:
    """Causes trouble in a world."""

    def __init__(self, world: SimWorld) -> None:
        self._world, self._chance = world, world.chance

    def lose_operator(self) -> None:
        """Kill the operator; another one is started after a while."""
        process = self._chance.choice([one for one in self._world.operators if one.alive] or self._world.operators)
        self._world.note(f"{process.identity} is killed")
        process.kill()
        self._world.plan_call(self._chance.uniform(0.1, 60), self._world.begin_operator)

    def stop_operator(self) -> None:
        """Have an operator stand still for a while, as on a machine that swaps, or a virtual one that is moved."""
        process = self._chance.choice([one for one in self._world.operators if one.alive] or self._world.operators)
        if process.stopped:
            return
        seconds = self._chance.choice([1.0, 8.0, 60.0, 300.0])
        self._world.note(f"{process.identity} is stopped for {seconds:.0f} s")
        process.stop()
        self._world.plan_call(seconds, self._wake_operator, process)

    def _wake_operator(self, process: OperatorProcess) -> None:
        self._world.note(f"{process.identity} goes on")
        process.go_on()

    def limit_pods(self) -> None:
        """Have a quota of the namespace that leaves no room for the job's pods, for a while."""
        path, hard = object_path("resourcequotas", NAMESPACE), str(self._chance.randint(0, 5))
        body = {"metadata": {"generateName": "quota-"}, "spec": {"hard": {"pods": hard}}}
        self._world.note(f"a quota of {hard} pods")
        made = self._world.cluster.ask("POST", path, body, "")
        seconds = self._chance.uniform(10, 600)
        self._world.plan_call(seconds, self._take_quota_back, made["metadata"]["name"])

    def _take_quota_back(self, name: str) -> None:
        self._world.note("the quota is taken back")
        self._world.cluster.ask("DELETE", object_path("resourcequotas", NAMESPACE, name), {}, "")

    def quarantine(self) -> None:
        """Put a node into quarantine by hand, for a while."""
        name, path = self._chance.choice(sorted(self._world.cluster.machines)), object_path(names.QUARANTINES, "")
        spec = {"nodeName": name, "reason": "Maintenance", "startTime": self._world.wall_time()}
        try:
            self._world.cluster.ask("POST", path, node_quarantine(spec, ""), "")
        except ApiError as error:
            if error.status != 409:
                raise
            return  # the operator's own: one for each node
        self._world.note(f"{name} is put into quarantine")
        self._world.plan_call(self._chance.uniform(10, 600), self._release_node, name)

    def _release_node(self, name: str) -> None:
        self._world.note(f"{name} is released")
        released = {"spec": {"releaseTime": self._world.wall_time()}}
        self._world.cluster.ask("PATCH", object_path(names.QUARANTINES, "", name), released)

    def kill_rank(self) -> None:
        """End a process."""
        if self._world.training is not None and (ranks := self._world.training.live_ranks()):
            rank, code = self._chance.choice(ranks), self._chance.choice([-9, -9, -11, 1])
            self._world.note(f"rank {rank} ends with {code}")
            self._world.training.end_rank(rank, code)

    def power_off(self) -> None:
        """Take a node away."""
        name = self._chance.choice(sorted(self._world.cluster.machines))
        self._world.note(f"{name} goes off")
        self._world.cluster.power_off(name)

    def delete_pod(self) -> None:
        """Delete a pod of the job, as a person does."""
        if pods := self._world.pods_of_jobs():
            pod = self._chance.choice(pods)
            self._world.note(f"somebody deletes pod {pod['metadata']['name']}")
            self._world.cluster.delete_pod(pod)

    def fail_pod(self) -> None:
        """Have a pod's containers end."""
        if pods := [pod for pod in self._world.pods_of_jobs() if pod["status"].get("phase") == "Running"]:
            pod, code = self._chance.choice(pods), self._chance.choice([1, 137])
            self._world.note(f"pod {pod['metadata']['name']} ends with {code}")
            self._world.cluster.fail_pod(pod, code)

    def evict_pod(self) -> None:
        """Evict a pod of the job."""
        if pods := self._world.pods_of_jobs():
            pod = self._chance.choice(pods)
            refused = self._world.cluster.evict_pod(pod)
            self._world.note(f"somebody evicts pod {pod['metadata']['name']}: {refused or 'it goes'}")

    def cut_off_agent(self) -> None:
        """Cut a rank pod off from its coordinator for a while."""
        if self._world.training is not None and self._world.training.agents:
            seconds = self._chance.choice([1.0, 4.0, 30.0, 200.0])
            self._world.note(
                f"the agent of {self._world.training.cut_off_agent(seconds)} is cut off for {seconds:.0f} s"
            )

    def step_clock(self) -> None:
        """Set the wall clock of an operator's machine."""
        process, seconds = (
            self._chance.choice(self._world.operators),
            self._chance.choice([-7200.0, -30.0, 30.0, 7200.0]),
        )
        self._world.note(f"the wall clock of {process.identity} jumps by {seconds:.0f} s")
        process.clock.wall_ahead += seconds

    def lose_coordinator(self) -> None:
        """Delete the coordinator's pod."""
        for pod in self._world.pods_of_jobs(names.ROLE_COORDINATOR):
            self._world.note(f"somebody deletes {pod['metadata']['name']}")
            self._world.cluster.delete_pod(pod)

    def lose_controller(self) -> None:
        """End MindIO's process."""
        training = self._world.training
        if training is not None and training.coordinator is not None and training.controller["controller"] == "serving":
            self._world.note("MindIO's controller dies")
            training.look_at_clock()
            training.lose_controller()
            training.disturb()

    def cordon(self) -> None:
        """Cordon a node for some minutes."""
        name = self._chance.choice(sorted(self._world.cluster.machines))
        self._world.note(f"{name} is cordoned")
        self._world.cluster.set_cordon(name, cordoned=True)
        self._world.plan_call(self._chance.uniform(10, 600), self._uncordon, name)

    def _uncordon(self, name: str) -> None:
        self._world.note(f"{name} is uncordoned")
        self._world.cluster.set_cordon(name, cordoned=False)

    def edit_spec(self, spec: Json, why: str) -> None:
        """Change the job's spec."""
        if self._world.job() is not None:
            self._world.note(why)
            try:
                self._world.cluster.ask("PATCH", object_path(names.PLURAL, NAMESPACE, JOB), {"spec": spec})
            except ApiError as error:
                self._world.note(f"refused: {error.message}")

    def suspend(self) -> None:
        """Suspend the job for a while."""
        self.edit_spec({"suspend": True}, "somebody suspends the job")
        resume = {"suspend": False}
        self._world.plan_call(self._chance.uniform(1, 200), self.edit_spec, resume, "somebody resumes the job")

    def restart(self) -> None:
        """Ask for a restart."""
        self.edit_spec({"restartRequestTime": self._world.wall_time()}, "somebody asks for a restart")

    def hold(self) -> None:
        """Let nothing be done about faults for a while."""
        mode = self._chance.choice(["Hold", "Observe"])
        self.edit_spec({"recovery": {"mode": mode}}, f"somebody sets the mode {mode}")
        enforce = {"recovery": {"mode": "Enforce"}}
        self._world.plan_call(self._chance.uniform(1, 300), self.edit_spec, enforce, "somebody sets the mode Enforce")

    def edit(self) -> None:
        """Set some fields of the spec."""
        settings = draw_settings(self._chance)
        self.edit_spec(settings, f"somebody sets {json.dumps(settings)}")

    def delete_job(self) -> None:
        """Delete the job, and apply it again."""
        if self._world.job() is not None:
            self._world.note("somebody deletes the job")
            self._world.cluster.ask("DELETE", object_path(names.PLURAL, NAMESPACE, JOB), {}, "")
            self._world.plan_call(self._chance.uniform(0, 30), self.apply_job)

    def apply_job(self) -> None:
        """Apply the job; while the one before is still being deleted, again in a moment."""
        try:
            self._world.cluster.ask(
                "POST", object_path(names.PLURAL, NAMESPACE), copy.deepcopy(self._world.manifest), ""
            )
            self._world.note("the job is applied")
        except ApiError as error:
            if error.status != 409:
                raise
            job = self._world.job()
            if job is not None and not job["metadata"].get("deletionTimestamp"):
                return  # somebody else has applied it
            self._world.plan_call(1.0, self.apply_job)

    def trouble_api(self) -> None:
        """Have the API server misbehave for a while."""
        faults, seconds = self._world.server.faults, self._chance.choice([1.0, 10.0, 60.0])
        kind = self._chance.choice(["refuse", "lose", "delay", "close", "away"])
        self._world.note(f"the API server: {kind} for {seconds:.0f} s")
        away = ApiError(503, "ServiceUnavailable", "the server is currently unable to handle the request")

        def any_of_ours(request: Any) -> bool:
            return str(request.client).startswith("operator")

        fault: Any
        if kind == "refuse":
            fault = faults.refuse(
                away, matching=lambda request: any_of_ours(request) and self._chance.random() < 0.5, times=None
            )
        elif kind == "lose":
            fault = faults.lose_answer(
                matching=lambda request: any_of_ours(request) and not request.is_watch and self._chance.random() < 0.3,
                times=None,
            )
        elif kind == "delay":
            fault = faults.delay(self._chance.uniform(0, 3), self._chance.uniform(0, 3), matching=any_of_ours)
        elif kind == "close":
            fault = faults.close_watches(matching=any_of_ours)
        else:
            fault = faults.unreachable(matching=any_of_ours)
        self._world.plan_call(seconds, fault.end)


KINDS: Final[tuple[Callable[[Troubles], None], ...]] = (
    Troubles.kill_rank,
    Troubles.power_off,
    Troubles.delete_pod,
    Troubles.fail_pod,
    Troubles.lose_coordinator,
    Troubles.lose_controller,
    Troubles.cordon,
    Troubles.suspend,
    Troubles.restart,
    Troubles.delete_job,
    Troubles.trouble_api,
    Troubles.lose_operator,
    Troubles.evict_pod,
    Troubles.cut_off_agent,
    Troubles.step_clock,
    Troubles.hold,
    Troubles.edit,
    Troubles.stop_operator,
    Troubles.limit_pods,
    Troubles.quarantine,
)
"""Those of which a history has some."""
