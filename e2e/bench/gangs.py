"""A gang of 1,000 pods, and single replacements, by who queues and who places them: what is theirs, what is ours.

On the rig of `operator_scale`: a real control plane with nodes of KWOK, an operator's process, no coordinators. Volcano
and Kueue are themselves where `HAJOB_VOLCANO` and `HAJOB_KUEUE` name them, and else their stand-ins, whose times say
nothing of the real ones. JobSet stands beside them in Kueue's queue where `HAJOB_JOBSET` and `HAJOB_KUEUE` name both.
All times are the API server's audit log's.

    python -m e2e.bench.gangs [PODS] [ROUNDS]
"""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from e2e.bench import jobsets
from e2e.bench.operator_scale import AGENT, NAMESPACE, NODES, Found, PodPhases, Say, ScaleRig, job
from e2e.bench.report import Limit, Row, row
from e2e.cluster import audit
from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.kwok import CHIPS, WITHOUT_CHIPS
from e2e.harness.operator import SERVES_KUEUE, SERVES_VOLCANO
from e2e.kueue.launch import KueueStandIn, queued_in
from e2e.kueue.real import JOBSETS, RealKueue, queue_of_choice
from e2e.nodes.chips import chip_name, device_address
from e2e.nodes.faults import device_info, go_json
from e2e.nodes.machine import DEVICES_ANNOTATION
from e2e.volcano.install import install_volcano, placed_by_volcano
from hajob.api import constants as names

PODS: Final = 1000
FEW_PODS: Final = 8
ENVIRONMENT: Final = {SERVES_VOLCANO: "true", SERVES_KUEUE: "true"}
PATIENCE_SECONDS: Final = 900.0
"""Others may use the machine, too."""
_THREADS: Final = 8
_QUIET_SECONDS: Final = 5.0
"""Between two ways: what the one before has left to be done is done by then."""
GATES: Final = "gates"
VOLCANO: Final = "Volcano"
KUEUE: Final = "Kueue"
JOBSET: Final = "JobSet in Kueue's queue"
WAYS: Final = (GATES, VOLCANO, KUEUE, JOBSET)

Object = dict[str, Any]


def describe_chips(plane: ControlPlane, nodes: Iterable[str]) -> None:
    """Tell of every node's chips as the device plugin does: Volcano's plugin places nothing where nobody has."""
    address, resource = plane.run.address(0, 3), names.DEFAULT_RESOURCE_NAME
    known = {
        chip_name(chip, resource): {"IP": device_address(address, chip), "SuperDeviceID": 0} for chip in range(CHIPS)
    }
    annotations = {"metadata": {"annotations": {DEVICES_ANNOTATION: go_json(known)}}}

    def describe(name: str) -> None:
        plane.api.merge(f"/api/v1/nodes/{name}", annotations)
        body = device_info(name, resource, range(CHIPS), [], time.time())
        plane.api.create(f"/api/v1/namespaces/{body['metadata']['namespace']}/configmaps", body)

    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(describe, nodes))


class Measuring:
    """The rig with all schedulers and queues, and what was found on it."""

    def __init__(self, rig: ScaleRig, queue: KueueStandIn, found: Found, say: Say) -> None:
        self.rig, self.queue, self.found, self.say = rig, queue, found, say

    def jobs_of_way(self) -> Mapping[str, Callable[[str, int], Object]]:
        """Return how each way's job is made, of a name and a number of pods."""
        return {
            GATES: job,
            VOLCANO: lambda name, pods: placed_by_volcano(job(name, pods)),
            KUEUE: lambda name, pods: queued_in(job(name, pods), self.queue.queue),
        }

    def measure_gang(self, way: str, body: Object, pods: int) -> None:
        """Apply one gang and take it apart: until its first pod, until its last one, until the last has a node."""
        api_version, plural = body["apiVersion"], "jobsets" if body["kind"] == "JobSet" else names.PLURAL
        selector = jobsets.LABEL if body["kind"] == "JobSet" else names.LABEL_ROLE + "=" + names.ROLE_RANK
        phases = PodPhases(self.rig.plane, selector)
        began = audit.now()
        self.rig.plane.api.create(f"/apis/{api_version}/namespaces/{NAMESPACE}/{plural}", body)
        self.rig.plane.wait(f"{pods} pods to run", lambda: phases.running() >= pods, PATIENCE_SECONDS)
        running = audit.now()
        made, bound = self._pods_since(began)
        marks = {
            "all running": running,
            "first pod": min(made.values()),
            "last pod": max(made.values()),
            "last bound": max(bound.values()),
        }
        for name, mark in marks.items():
            self.found.add(f"{way}: {name}", (mark - began).total_seconds())
        self.found.add(f"{way}: bound after made", (marks["last bound"] - marks["last pod"]).total_seconds())
        own = self.rig.plane.audit.writes(began, running, agent=AGENT)
        self.found.add(f"{way}: writes", len(own))
        self.say(
            f"{way}: " + ", ".join(f"{name} {(mark - began).total_seconds():.1f} s" for name, mark in marks.items())
        )

    def _pods_since(
        self, since: datetime.datetime
    ) -> tuple[dict[str, datetime.datetime], dict[str, datetime.datetime]]:
        """Return when each rank pod was made, and when it was bound to a node."""
        made: dict[str, datetime.datetime] = {}
        bound: dict[str, datetime.datetime] = {}
        for one in self.rig.plane.audit.requests(since, namespace=NAMESPACE):
            if one.verb == "create" and one.status in {200, 201} and "coordinator" not in one.name:
                if one.resource == "pods":
                    made[one.name or str(len(made))] = one.answered
                elif one.resource == "pods/binding":
                    bound[one.name] = one.answered
        return made, bound

    def measure_replacements(self, way: str, pods: int, rounds: int) -> None:
        """Delete one rank pod after the other; when its successor was made, and when it had a node."""
        phases = PodPhases(self.rig.plane, names.LABEL_ROLE + "=" + names.ROLE_RANK)
        self.rig.plane.wait(f"{pods} pods to run", lambda: phases.running() >= pods, PATIENCE_SECONDS)
        for number in range(rounds):
            name = sorted(phases.phases)[number % pods]
            began = audit.now()
            self.rig.plane.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}")

            def is_replaced(name: str = name) -> bool:
                return name not in phases.phases and phases.running() >= pods

            self.rig.plane.wait("the pod to be made anew and run", is_replaced, PATIENCE_SECONDS, 0.05)
            made, bound = self._pods_since(began)
            (successor,) = made
            self.found.add(f"{way}, {pods}: lost -> made", (made[successor] - began).total_seconds())
            self.found.add(f"{way}, {pods}: made -> bound", (bound[successor] - made[successor]).total_seconds())
        bounds = self.found.of(f"{way}, {pods}: made -> bound")
        self.say(f"{way}, {pods} pods: made -> bound {', '.join(f'{each:.2f}' for each in bounds)} s")

    def clear(self) -> None:
        """Delete every job, and let the cluster come to rest."""
        self.rig.delete_jobs()
        time.sleep(_QUIET_SECONDS)


def measure(found: Found, say: Say, pods: int = PODS, rounds: int = 20, nodes: int = NODES) -> None:
    """All ways, one after the other on one cluster; what was found before an error is kept.

    Raises:
        SetupError: KWOK is not there and cannot be built.
    """
    with ScaleRig.start(nodes, say, environment=ENVIRONMENT) as rig:
        describe_chips(rig.plane, [name for number, name in enumerate(rig.nodes.names) if number % WITHOUT_CHIPS])
        install_volcano(rig.plane)
        queue, peer = queue_of_choice(rig.plane, NAMESPACE), jobsets.directory_of_choice()
        if peer is not None and isinstance(queue, RealKueue):
            jobsets.install_kinds_of_jobset(rig.plane, peer)
            queue.frameworks = (*queue.frameworks, JOBSETS)
        queue.install(nodes * CHIPS)
        rig.start_operator()
        made = Measuring(rig, queue, found, say)
        for way, builder in made.jobs_of_way().items():
            made.measure_gang(way, builder("large", pods), pods)
            if way != KUEUE:
                made.measure_replacements(way, pods, rounds)
            made.clear()
        for way in (GATES, VOLCANO):
            rig.apply(made.jobs_of_way()[way]("small", FEW_PODS))
            made.measure_replacements(way, FEW_PODS, rounds)
            made.clear()
        if peer is None or not isinstance(queue, RealKueue):
            say(f"{JOBSET}: not measured, {jobsets.DIRECTORY} and HAJOB_KUEUE do not name both")
            return
        jobsets.start_jobset(rig.plane, peer)
        made.measure_gang(JOBSET, jobsets.jobset("large", NAMESPACE, pods, queue.queue), pods)


def rows(found: Found) -> list[Row]:
    """The numbers, beside the limit where there is one."""
    made = []
    for way in WAYS:
        words = f"{PODS:,} pods, {way}"
        made += [
            row(f"{words}: applied -> all Running", "s", found.of(f"{way}: all running")),
            row(f"{words}: applied -> first pod made", "s", found.of(f"{way}: first pod")),
            row(f"{words}: applied -> last pod made", "s", found.of(f"{way}: last pod")),
            row(f"{words}: last pod made -> last bound", "s", found.of(f"{way}: bound after made")),
        ]
        if way != JOBSET:
            made.append(row(f"{words}: the operator's writes", "", found.of(f"{way}: writes")))
    for way in (GATES, VOLCANO):
        for pods in (FEW_PODS, PODS):
            limit = Limit("max", 1.5) if (way, pods) == (VOLCANO, FEW_PODS) else None
            words = f"replacement, {way}, gang of {pods:,}"
            made += [
                row(f"{words}: pod lost -> created", "s", found.of(f"{way}, {pods}: lost -> made")),
                row(f"{words}: created -> bound", "s", found.of(f"{way}, {pods}: made -> bound"), limit),
            ]
    return made


def main() -> None:
    """Measure alone, and print."""
    pods, rounds = (int(each) for each in [*sys.argv[1:], "1000", "20"][:2])
    found = Found()
    nodes = max(20, pods * 10 // 9 + 10)
    try:
        measure(found, lambda words: print(words, flush=True), pods, rounds, nodes)
    finally:
        for name, values in found.values.items():
            print(f"{name}: {', '.join(f'{each:.2f}' for each in values)}")


if __name__ == "__main__":
    main()
