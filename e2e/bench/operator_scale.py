"""The operator beside a cluster of a thousand nodes: what it makes, what it writes, what it costs.

A real control plane with nodes of KWOK (`e2e.cluster.kwok`) and operators as processes of this machine. Nobody trains:
pods run as soon as the scheduler has placed them, and no coordinator answers. So what is measured is the operator as a
controller of Kubernetes, beside which JobSet's figures on such a rig stand in docs/internals/benchmarks.md.
"""

from __future__ import annotations

import copy
import datetime
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster import audit
from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.kwok import CHIPS, KwokNodes
from e2e.cluster.rest import ApiClient
from e2e.cluster.run import Run, free_port
from e2e.harness.operator import NAME, install_crd, manifests
from hajob.api import constants as names

NODES: Final = 1120
"""Of which every tenth has no chips: 1,008 with 8 chips each."""
ONE_JOB_PODS: Final = 1000
JOBS: Final = 100
PODS_PER_JOB: Final = 10
NAMESPACE: Final = "default"
AGENT: Final = "hajob-operator"
ACCOUNT: Final = "operator-account"
"""Directory of the run with the operator's token, as a pod has it."""
QUIET_SECONDS: Final = 60.0
"""So long after everything runs nothing more should happen."""
IDLE_SECONDS: Final = 60.0

Object = dict[str, Any]
Say = Callable[[str], None]


@dataclass
class Found:
    """What was measured; seconds, shares of a core, MiB."""

    values: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        """One more value of this name."""
        self.values.setdefault(name, []).append(value)

    def of(self, name: str) -> list[float]:
        """Values of this name; none when it was not reached."""
        return self.values.get(name, [])


class PodPhases:
    """The pods of jobs as a watch tells of them: asking for a thousand again and again would be measured, too.

    Attributes:
        phases: of the pods that exist, by name.
        ranks: names of rank pods, in the order in which they came.
    """

    def __init__(self, plane: ControlPlane, selector: str = names.LABEL_JOB_UID) -> None:
        self.phases: dict[str, str] = {}
        self.ranks: dict[str, None] = {}
        self._plane, self._selector = plane, selector
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        """Until the API server is gone: under load it ends slow watches, and the next one goes on there."""
        client, path, version = self._plane.client("admin"), f"/api/v1/namespaces/{NAMESPACE}/pods", ""
        while True:
            if not version:
                version = self._list(client, path)
            watch = client.watch(path, 7200.0, labelSelector=self._selector, resourceVersion=version)
            try:
                for event in watch:
                    if event.get("type", "ERROR") == "ERROR":  # an answer that is no event is a refusal
                        version = ""
                        break
                    self._take(event["object"], gone=event["type"] == "DELETED")
                    version = event["object"]["metadata"]["resourceVersion"]
            except OSError:  # the rig has ended, this thread a moment later
                return
            time.sleep(0.05)

    def _list(self, client: ApiClient, path: str) -> str:
        listed = client.get(path, labelSelector=self._selector)
        there = {pod["metadata"]["name"] for pod in listed["items"]}
        for name in self.phases.keys() - there:
            self.phases.pop(name)
            self.ranks.pop(name, None)
        for pod in listed["items"]:
            self._take(pod, gone=False)
        return str(listed["metadata"]["resourceVersion"])

    def _take(self, pod: Object, *, gone: bool) -> None:
        name = pod["metadata"]["name"]
        if gone:
            self.phases.pop(name, None)
            self.ranks.pop(name, None)
        else:
            self.phases[name] = pod["status"].get("phase", "")
            if pod["metadata"]["labels"].get(names.LABEL_ROLE) == names.ROLE_RANK:
                self.ranks[name] = None

    def running(self) -> int:
        """How many run."""
        return sum(phase == "Running" for phase in list(self.phases.values()))


class OperatorProcess:
    """An operator on this machine."""

    def __init__(self, plane: ControlPlane, number: int, environment: Mapping[str, str] | None = None) -> None:
        run, host = plane.run, plane.run.address(0, 40 + number)
        port = free_port(host, 8080)
        self.url = f"http://{host}:{port}"
        server, _, server_port = plane.server.removeprefix("https://").rpartition(":")
        settings = {
            "HAJOB_SERVICE_ACCOUNT_DIR": str(run.directory / ACCOUNT),
            "KUBERNETES_SERVICE_HOST": server,
            "KUBERNETES_SERVICE_PORT": server_port,
            "HAJOB_NAMESPACE": NAMESPACE,
            "HAJOB_POD_IP": host,
            "HAJOB_METRICS_PORT": str(port),
            **(environment or {}),
        }
        command = [sys.executable, "-m", "hajob.app.operator"]
        self.process: subprocess.Popen[bytes] = run.spawn(f"operator-{number}", command, settings)

    def metric(self, name: str) -> float:
        """The value of a metric without labels; -1 while it does not answer."""
        try:
            with urllib.request.urlopen(f"{self.url}/metrics", timeout=5) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return -1
        return next((float(line.split()[1]) for line in lines if line.startswith(f"{name} ")), -1)

    def knows_all(self) -> bool:
        """Whether it leads and looks after every job of the benchmark."""
        return self.metric("hajob_jobs") >= JOBS

    @property
    def cpu_seconds(self) -> float:
        """Processor time until now."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def memory(self, which: str = "VmRSS") -> float:
        """MiB now, or at most (`VmHWM`)."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(which)).split()[1]) / 1024

    def end(self, number: signal.Signals) -> None:
        """End it, and wait until it has gone."""
        self.process.send_signal(number)
        self.process.wait(60)


def install_account(plane: ControlPlane, environment: Mapping[str, str] | None = None) -> None:
    """The operator's service account as it is installed, with its rights and its share of the API server."""
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mindx-dl"}})
    plane.apply(
        *(
            each
            for each in manifests(NAMESPACE, environment=environment)
            if each["kind"] not in {"Deployment", "Namespace"}
        )
    )
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{NAME}/token"
    directory = plane.run.directory / ACCOUNT
    directory.mkdir()
    (directory / "token").write_text(plane.api.create(path, {"spec": {}})["status"]["token"])
    (directory / "ca.crt").write_bytes(plane.ca_file.read_bytes())


def job(name: str, pods: int) -> Object:
    """A job of so many rank pods, each with all chips of a node."""
    body: Object = yaml.safe_load((CHECKOUT / "examples/quickstart.yaml").read_text())
    body["metadata"] = {"name": name, "namespace": NAMESPACE}
    body["spec"] |= {"accelerator": {"product": "A2"}, "numNodes": pods, "parallelism": {"tensor": CHIPS}}
    return copy.deepcopy(body)


class ScaleRig:
    """A control plane with nodes of KWOK, and operators.

    Attributes:
        plane: the control plane.
        nodes: of KWOK.
        operators: that were started, in order.
    """

    def __init__(self, plane: ControlPlane, nodes: KwokNodes, environment: Mapping[str, str] | None = None) -> None:
        self.plane, self.nodes, self._environment = plane, nodes, environment
        self.operators: list[OperatorProcess] = []
        self.pods = PodPhases(plane)

    @classmethod
    @contextmanager
    def start(
        cls,
        nodes: int = NODES,
        say: Say = print,
        *,
        still: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> Iterator[ScaleRig]:
        """For as long as the context lasts, in a run of its own; the logs are kept when something fails.

        Args:
            nodes: How many.
            say: Takes a line of progress.
            still: Nodes send no heartbeats: these are the kubelets' and not the operator's, and share its cores here.
            environment: More settings of the operators, with the rights that they need.
        """
        with Run.start("a benchmark of the operator") as run:
            plane = ControlPlane.start(run, still_nodes=still)
            install_crd(plane)
            install_account(plane, environment)
            say(f"{nodes} nodes of KWOK are made")
            made = cls(plane, KwokNodes.start(plane, nodes, still=still), environment)
            try:
                yield made
            except Exception:
                say(f"logs are kept in {run.keep_logs()}")
                raise

    def start_operator(self) -> OperatorProcess:
        """One more; it is ready when this returns."""
        made = OperatorProcess(self.plane, len(self.operators), self._environment)
        self.operators.append(made)
        self.plane.wait("the operator to be ready", lambda: made.metric("hajob_leader") >= 0, 60)
        return made

    def apply(self, *jobs: Object) -> None:
        """Create jobs, eight at a time."""
        path = f"/apis/{names.API_VERSION}/namespaces/{NAMESPACE}/{names.PLURAL}"
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda body: self.plane.api.create(path, body), jobs))

    def delete_jobs(self) -> None:
        """Delete every job and wait until the pods are gone."""
        path = f"/apis/{names.API_VERSION}/namespaces/{NAMESPACE}/{names.PLURAL}"
        for one in self.plane.api.items(path):
            self.plane.api.delete(f"{path}/{one['metadata']['name']}")
        self.plane.wait("the jobs to be gone", lambda: not self.plane.api.items(path), 900, poll=1.0)
        self.plane.wait("the pods to be gone", lambda: not self.pods.phases, 900)

    def wait_running(self, count: int, seconds: float = 300.0) -> None:
        """Wait until so many pods run."""
        self.plane.wait(f"{count} pods to run", lambda: self.pods.running() >= count, seconds)

    def writes(self, since: datetime.datetime) -> list[audit.Request]:
        """What operators wrote since then."""
        return self.plane.audit.writes(since, agent=AGENT)


def measure(found: Found, say: Say) -> None:
    """All numbers, one after the other on one cluster; what was found before an error is kept.

    Raises:
        SetupError: KWOK is not there and cannot be built.
    """
    with ScaleRig.start(say=say) as rig:
        operator = rig.start_operator()
        _one_large_job(rig, operator, found, say)
        _many_jobs(rig, found, say)
        _idle(rig, found, say)
        _pod_lost(rig, found, say)
        _leader_ended(rig, found, say)
        _restarted(rig, found, say)


def _one_large_job(rig: ScaleRig, operator: OperatorProcess, found: Found, say: Say) -> None:
    began, clock, cpu = audit.now(), time.monotonic(), operator.cpu_seconds
    rig.apply(job("large", ONE_JOB_PODS))
    rig.wait_running(ONE_JOB_PODS + 1)
    found.add("large: all running", time.monotonic() - clock)
    made = [one for one in rig.writes(began) if (one.verb, one.resource) == ("create", "pods")]
    found.add("large: objects", (max(one.answered for one in made) - began).total_seconds())
    time.sleep(5.0)
    found.add("large: writes", len(rig.writes(began)))
    found.add("large: cpu", operator.cpu_seconds - cpu)
    found.add("large: memory", operator.memory("VmHWM"))
    say(f"{ONE_JOB_PODS} pods of one job: {found.values}")
    began = audit.now()
    rig.delete_jobs()
    deletes = [one for one in rig.writes(began) if (one.verb, one.resource) == ("delete", "pods")]
    found.add("large: deletes of one pod", max(len([d for d in deletes if d.name == one.name]) for one in deletes))


def _many_jobs(rig: ScaleRig, found: Found, say: Say) -> None:
    rig.apply(*(job(f"job-{number:03}", PODS_PER_JOB) for number in range(JOBS)))
    applied = audit.now()
    rig.plane.wait("the pods", lambda: len(rig.pods.phases) >= JOBS * (PODS_PER_JOB + 1), 300)
    made = [one for one in rig.writes(applied) if (one.verb, one.resource) == ("create", "pods")]
    last = max((one.answered for one in made), default=applied)
    found.add("many: objects", (last - applied).total_seconds())
    rig.wait_running(JOBS * (PODS_PER_JOB + 1))
    say(f"{JOBS} jobs of {PODS_PER_JOB}: {found.of('many: objects')} s after the last apply")


def _idle(rig: ScaleRig, found: Found, say: Say, name: str = "idle") -> None:
    operator = rig.operators[-1]
    time.sleep(QUIET_SECONDS)
    began, cpu = audit.now(), operator.cpu_seconds
    time.sleep(IDLE_SECONDS)
    found.add(f"{name}: cpu", 100 * (operator.cpu_seconds - cpu) / IDLE_SECONDS)
    found.add(f"{name}: writes", len(rig.writes(began)) / IDLE_SECONDS)
    found.add(f"{name}: memory", operator.memory())
    say(f"{name}: " + ", ".join(f"{key} {value}" for key, value in found.values.items() if key.startswith(name)))


def _pod_lost(rig: ScaleRig, found: Found, say: Say, rounds: int = 5) -> None:
    ranks, count = list(rig.pods.ranks), len(rig.pods.phases)
    for name in ranks[:: len(ranks) // rounds][:rounds]:
        began, clock = audit.now(), time.monotonic()
        rig.plane.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}")

        def replaced(name: str = name) -> bool:
            return name not in rig.pods.phases and rig.pods.running() >= count

        rig.plane.wait("the pod to be made anew and run", replaced, 120)
        found.add("lost pod: all running", time.monotonic() - clock)
        time.sleep(5.0)
        found.add("lost pod: writes", len(rig.writes(began)))
    say(f"a pod lost before training: {found.of('lost pod: all running')} s, {found.of('lost pod: writes')} writes")


def _leader_ended(rig: ScaleRig, found: Found, say: Say) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        standby, leader = rig.start_operator(), rig.operators[-2]
        time.sleep(5.0)
        clock = time.monotonic()
        leader.end(number)
        rig.plane.wait("the standby to know all jobs", standby.knows_all, 120, 0.05)
        found.add(f"leader ended, {number.name}", time.monotonic() - clock)
    say(f"leader ended: {found.of('leader ended, SIGTERM')} s, killed: {found.of('leader ended, SIGKILL')} s")


def _restarted(rig: ScaleRig, found: Found, say: Say) -> None:
    """A new process repeats neither a dry run nor an unchanged status."""
    rig.operators[-1].end(signal.SIGTERM)
    began = audit.now()
    operator = rig.start_operator()
    rig.plane.wait("the operator to know all jobs", operator.knows_all, 120, 0.05)
    time.sleep(20.0)
    found.add("restart: writes", len(rig.writes(began)))
    asked = rig.plane.audit.requests(began, agent=AGENT)
    found.add("restart: dry runs", sum(one.kind == "dry-run" for one in asked))
    _idle(rig, found, say, "restarted")
