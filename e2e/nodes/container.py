"""One container of a pod: started, probed, restarted, stopped.

Its record changes in three places only: when it waits, when its process starts and when the process ends (a callback,
so that an end is recorded also while nobody waits for it). Whoever reads the record learns of each change through
``changed``.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from e2e.nodes.api import NodeApiError
from e2e.nodes.config import JsonObject
from e2e.nodes.context import NodeContext
from e2e.nodes.environment import PodFacts, ReferenceMissingError, References, object_variables, references
from e2e.nodes.grace import GracePeriod
from e2e.nodes.images import Image, ImageMissingError, read_image, writable
from e2e.nodes.logs import last_lines
from e2e.nodes.plan import ContainerPlan, Surroundings, inside, make_sub_paths, plan_container
from e2e.nodes.probes import ProbeCounter, ask
from e2e.nodes.processes import Process, StartError, Streams, catches, send_signal
from e2e.nodes.restarts import Backoff, policy_of, restarts
from e2e.nodes.states import ContainerRecord, ContainerWaiting, Kind, Running, Terminated
from e2e.nodes.tasks import start_task

CANNOT_RUN = 128
MESSAGE_FILE_BYTES = 4096
_ERROR_SHOWN_SECONDS = 0.5
RETRY_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass
class PodScope:
    """What the containers of one pod share."""

    node: NodeContext
    facts: PodFacts
    directory: Path
    logs: Path
    changed: Callable[[], None]
    volumes: Mapping[str, Path] = field(default_factory=dict)
    devices: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def pod(self) -> JsonObject:
        """The pod object as it is now."""
        return self.facts.pod

    @property
    def grace_seconds(self) -> float:
        """The pod's termination grace period."""
        seconds = self.pod["spec"].get("terminationGracePeriodSeconds")
        return 30.0 if seconds is None else float(seconds)


class LiveContainer:
    """A container of a pod on this node."""

    def __init__(self, scope: PodScope, spec: JsonObject, record: ContainerRecord) -> None:
        self._scope = scope
        self.spec = spec
        self.record = record
        self.marker = f"{scope.pod['metadata']['uid']}/{spec['name']}"
        self.process: Process | None = None
        self.started = asyncio.Event()
        self._plan_now: ContainerPlan | None = None
        self._probes: list[asyncio.Task[None]] = []
        self._stopping: asyncio.Task[None] | None = None
        settings = scope.node.settings
        self._backoff = Backoff(settings.restart_backoff_seconds, settings.restart_backoff_limit_seconds)

    @property
    def alive(self) -> bool:
        """Whether its first process runs."""
        return self.process is not None and self.process.alive

    @property
    def log(self) -> Path:
        """The output of the current start."""
        return self._scope.logs / self.record.name / f"{self.record.restart_count}.log"

    @property
    def _termination_log(self) -> Path:
        return self._scope.directory / ".messages" / self.record.name

    async def supervise(self) -> None:
        """Run the container until it is not to be started again."""
        policy = policy_of(self._scope.pod["spec"], self.spec)
        while True:
            begun = time.monotonic()
            code = await self._run_once()
            if not restarts(self.record.kind, policy, code):
                return
            delay = self._backoff.delay(time.monotonic() - begun)
            if delay > 0:
                self._wait("CrashLoopBackOff", self._backoff_message(delay))
                self._tell("BackOff", f"Back-off restarting failed container {self.record.name}", warning=True)
                await asyncio.sleep(delay)
            self.record.restart_count += 1

    async def stop(self, grace: GracePeriod) -> None:
        """preStop, SIGTERM to the first process, and at the end of ``grace`` SIGKILL to everything."""
        self._stop_probes()
        process = self.process
        if process is None or not process.alive:
            return
        self._tell("Killing", f"Stopping container {self.record.name}")
        hook = (self.spec.get("lifecycle") or {}).get("preStop")
        if hook and grace.remaining > 0:
            await ask(hook, self.spec, self._scope.facts.pod_address, grace.remaining, self._execute)
        await self._scope.node.power.passed()
        if grace.remaining > 0:
            self._ask_to_end(process)
        while not await grace.wait_for(process.exited):
            await self._scope.node.power.passed()
            self.kill()
            await asyncio.shield(process.exited)

    def _ask_to_end(self, process: Process) -> None:
        number = signal.Signals[(self.spec.get("lifecycle") or {}).get("stopSignal") or "SIGTERM"]
        if not self._scope.node.settings.first_process_is_init or catches(process.pid, number):
            send_signal(process.pid, number)

    def kill(self) -> None:
        """SIGKILL to every process of the container."""
        self._scope.node.processes.signal([self.marker], signal.SIGKILL)

    def forget(self) -> None:
        """The machine it ran on was switched off: its end is unknown."""
        self._stop_probes()
        self.started.clear()
        if isinstance(self.record.state, Running):
            self._record_end(255, "Unknown", self.record.state)

    async def _run_once(self) -> int:
        image = await self._image()
        plan = self._plan_now = await self._plan(image)
        await self._scope.node.power.passed()
        if isinstance(self.record.state, Terminated):
            self.record.last = self.record.state
        began = time.time()
        try:
            self._make_places(plan)
            process = self._scope.node.processes.start(plan, self.log, self.marker)
        except (StartError, OSError) as error:
            self.record.state = Terminated(CANNOT_RUN, "ContainerCannotRun", began, began, "", str(error))
            self._tell("Failed", f"Error: {error}", warning=True)
            self._scope.changed()
            return CANNOT_RUN
        self.process = process
        self._begun(process, began)
        return await asyncio.shield(process.exited)

    def _make_places(self, plan: ContainerPlan) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        make_sub_paths(self.spec, self._scope.volumes, plan.environment)
        self._termination_log.parent.mkdir(parents=True, exist_ok=True)
        self._termination_log.write_bytes(b"")

    def _begun(self, process: Process, began: float) -> None:
        identity = f"process://{process.pid}-{int(began * 1000)}"
        running = Running(began, identity)
        self.record.state = running
        process.exited.add_done_callback(lambda future: self._ended(future.result(), running))
        startup = self.spec.get("startupProbe")
        if not startup:
            self._mark_started()
        probes = [self._probe_all()] if any(self.spec.get(f"{kind}Probe") for kind in _VERDICTS) else []
        self._probes = [start_task(probe) for probe in probes]
        self._tell("Started", f"Started container {self.record.name}")
        self._scope.changed()

    def _mark_started(self) -> None:
        self.record.started = self.record.kind is not Kind.INIT
        self.record.ready = not self.spec.get("readinessProbe") and self.record.kind is not Kind.INIT
        self.started.set()

    def _ended(self, code: int, running: Running) -> None:
        self._stop_probes()
        if self.record.state is running:
            self._record_end(code, "Completed" if code == 0 else "Error", running)

    def _record_end(self, code: int, reason: str, running: Running) -> None:
        message = last_lines(self._termination_log, limit=MESSAGE_FILE_BYTES)
        if not message and code != 0 and self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            message = last_lines(self.log)
        self.record.ready = self.record.started = False
        self.record.state = Terminated(code, reason, running.started_at, time.time(), running.container_id, message)
        self._scope.changed()

    def _wait(self, reason: str, message: str) -> None:
        if isinstance(self.record.state, Terminated):
            self.record.last = self.record.state
        self.record.state = ContainerWaiting(reason, message)
        self._scope.changed()

    async def _image(self) -> Image:
        """The image; while it cannot be had, wait for it with a growing pause, as for a registry."""
        never = self.spec.get("imagePullPolicy") == "Never"
        pause = self._scope.node.settings.restart_backoff_seconds
        while True:
            try:
                return read_image(self.spec.get("image") or "", self._scope.node.images)
            except ImageMissingError as error:
                message = str(error)
            self._wait("ErrImageNeverPull" if never else "ErrImagePull", message)
            self._tell("Failed", message, warning=True)
            await asyncio.sleep(_ERROR_SHOWN_SECONDS)
            if not never:
                self._wait("ImagePullBackOff", f"Back-off pulling image: {message}")
            await asyncio.sleep(pause)
            pause = min(2 * pause, 300.0)

    async def _plan(self, image: Image) -> ContainerPlan:
        """The plan; while a ConfigMap or Secret of the environment is missing, wait for it."""
        attempt = 0
        image = writable(image, self._scope.directory / ".layers" / self.record.name)
        while True:
            try:
                return plan_container(self.spec, image, self._surroundings(await self._references()))
            except (ReferenceMissingError, NodeApiError) as error:
                if attempt >= len(RETRY_SECONDS) - 1:
                    self._wait("CreateContainerConfigError", str(error))
                    self._tell("Failed", f"Error: {error}", warning=True)
            await asyncio.sleep(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)])
            attempt += 1

    async def _references(self) -> References:
        found = {"configmap": dict[str, dict[str, str]](), "secret": dict[str, dict[str, str]]()}
        namespace = self._scope.pod["metadata"]["namespace"]
        for kind, name in sorted(references(self.spec)):
            path = f"/api/v1/namespaces/{namespace}/{kind}s/{name}"
            try:
                found[kind][name] = object_variables(kind, await self._scope.node.client.request("GET", path))
            except NodeApiError as error:
                if error.status != 404:
                    raise
        return References(found["configmap"], found["secret"])

    def _surroundings(self, found: References) -> Surroundings:
        home = self._scope.directory / ".home" / self.record.name
        return Surroundings(
            facts=self._scope.facts,
            found=found,
            volumes=self._scope.volumes,
            home=home,
            termination_log=self._termination_log,
            services=self._scope.node.services,
            devices=self._scope.devices.get(self.record.name, {}),
            markers=self._scope.node.markers(self.marker),
        )

    async def _probe_all(self) -> None:
        if self.spec.get("startupProbe"):
            await self._probe("startup")
        others = [self._probe(kind) for kind in ("readiness", "liveness") if self.spec.get(f"{kind}Probe")]
        await asyncio.gather(*others)

    async def _probe(self, kind: str) -> None:
        """Ask again and again; the startup probe is over when it was answered well."""
        probe, power = self.spec[f"{kind}Probe"], self._scope.node.power
        counter = ProbeCounter.of(probe)
        await asyncio.sleep(probe.get("initialDelaySeconds") or 0)
        while True:
            await power.passed()
            closures = power.closures
            timeout = float(probe.get("timeoutSeconds") or 1)
            good = await ask(probe, self.spec, self._scope.facts.pod_address, timeout, self._execute)
            undisturbed = closures == power.closures
            if undisturbed and counter.count(good=good):
                _VERDICTS[kind](self, good)
                if kind == "startup":
                    return
            await asyncio.sleep(probe.get("periodSeconds") or 10)

    def apply_startup_probe(self, good: bool) -> None:
        """Start the other probes once this one is good, and restart the container where it fails."""
        if not good:
            self.apply_liveness_probe(good)
            return
        self._mark_started()
        self._scope.changed()

    def apply_readiness_probe(self, good: bool) -> None:
        """Tell whether the container is ready."""
        self.record.ready = good
        self._scope.changed()

    def apply_liveness_probe(self, good: bool) -> None:
        """Restart the container where its probe fails."""
        if good:
            return
        self._tell("Unhealthy", f"Container {self.record.name} failed its probe, will be restarted", warning=True)
        seconds = (self.spec.get("livenessProbe") or {}).get("terminationGracePeriodSeconds")
        grace = GracePeriod(self._scope.grace_seconds if seconds is None else seconds)
        self._stopping = start_task(self.stop(grace))

    def _stop_probes(self) -> None:
        current = asyncio.current_task()
        for task in self._probes:
            if task is not current:
                task.cancel()
        self._probes = []

    def execute(self, command: Sequence[str], streams: Streams) -> Process:
        """Start a further process in the running container.

        Raises:
            StartError: the container does not run, or the command cannot be started.
        """
        if self._plan_now is None or not self.alive:
            raise StartError(f"container {self.record.name} is not running")
        plan = inside(self._plan_now, self.spec, self._surroundings(References()), command)
        return self._scope.node.processes.launch(plan, streams, self.marker, first=False)

    async def _execute(self, command: list[str], timeout: float) -> bool:
        """Run a command in the container, as an exec probe does."""
        devnull = Streams(subprocess.DEVNULL, subprocess.DEVNULL, subprocess.DEVNULL)
        try:
            process = self.execute(command, devnull)
        except StartError:
            return False
        try:
            return await asyncio.wait_for(asyncio.shield(process.exited), timeout) == 0
        finally:
            if process.alive:
                send_signal(process.pid, signal.SIGKILL)

    def _backoff_message(self, delay: float) -> str:
        metadata = self._scope.pod["metadata"]
        where = f"{metadata['name']}_{metadata['namespace']}({metadata['uid']})"
        return f"back-off {delay:g}s restarting failed container={self.record.name} pod={where}"

    def _tell(self, reason: str, message: str, *, warning: bool = False) -> None:
        self._scope.node.events.post(self._scope.pod, reason, message, warning=warning)


_VERDICTS: dict[str, Callable[[LiveContainer, bool], None]] = {
    "startup": LiveContainer.apply_startup_probe,
    "readiness": LiveContainer.apply_readiness_probe,
    "liveness": LiveContainer.apply_liveness_probe,
}
