"""`kubectl hajob doctor`: say what is wrong with an installation or the protection of a job, and what to do.

It reads with the rights of the person who types, and with the operator's own parsers: it works without an operator, and
says that there is none. What only the leader knows it asks of it through the API server, where that is allowed.
"""

import argparse
import dataclasses
import http.client
import ipaddress
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final
from urllib.parse import quote

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.crd_difference import CRD_NAMES
from hajob.app.settings import Settings
from hajob.cli.cluster import ClusterError, ForbiddenError
from hajob.cli.components import findings_of_components
from hajob.cli.diagnosis import (
    Finding,
    Gathered,
    Grade,
    Look,
    Unread,
    findings_of_cluster,
    findings_of_job,
    selector_of_pods,
)
from hajob.cli.exits import NOT_DONE, run_reported
from hajob.cli.kueue_diagnosis import CONFIGURATION, KueueObjects, findings_of_kueue
from hajob.cli.objects import JOBS, NODES, QUARANTINES, KubernetesObjects, ReadObjects, find_job, path_of_config_maps
from hajob.cli.options import (
    Commands,
    add_context_option,
    add_fault_namespaces,
    add_namespace,
    add_operator_namespace,
    add_output_option,
    add_verb,
)
from hajob.cli.output import WITHOUT_NAMES, Answer, lines_of_answer
from hajob.cli.volcano_diagnosis import Schedulers, findings_of_schedulers
from hajob.clock import SystemClock
from hajob.faults.rules import settings
from hajob.sources import lease, registry
from hajob.sources.reading import mapping, text

_NOT_PROXIED: Final = "address not allowed"
"""What an API server says of a pod with a loopback address: it would be its own machine."""
_SECONDS: Final = 5.0
_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_APPS: Final = "/apis/apps/v1/namespaces"
_OPERATOR: Final = "hajob-operator"
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces"


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_verb(commands, "doctor")
    parser.add_argument("job", metavar="JOB", nargs="?", help="a HATrainingJob (default: check the installation)")
    add_namespace(parser)
    add_context_option(parser)
    add_operator_namespace(parser)
    add_fault_namespaces(parser)
    add_output_option(parser, WITHOUT_NAMES)
    parser.set_defaults(run=run_doctor)


def run_doctor(arguments: argparse.Namespace) -> int:
    """Print the findings; 1 where one of them is a problem, or the cluster cannot be asked."""
    now_ms = SystemClock().now_milliseconds()

    def diagnose_job_or_cluster() -> int:
        objects = KubernetesObjects(context=arguments.context)
        arguments.namespace = arguments.namespace or objects.namespace
        return diagnose_and_print(arguments, objects, now_ms, print)

    return run_reported(diagnose_job_or_cluster)


def diagnose_and_print(
    arguments: argparse.Namespace, objects: ReadObjects, now_ms: int, say: Callable[[str], object]
) -> int:
    """Collect the findings, and say them.

    Returns:
        1 where something is a problem, else 0.

    Raises:
        ClusterError: the job is not there, or may not be read.
    """
    job = find_job(objects, arguments.namespace, arguments.job) if arguments.job else None
    gatherer = Gatherer(objects, now_ms)
    fault_namespaces = arguments.fault_namespaces.split(",")
    gathered = gatherer.gather_everything(arguments.operator_namespace, fault_namespaces)
    schedulers = gatherer.gather_schedulers(arguments.operator_namespace, fault_namespaces)
    kueue = gatherer.gather_kueue()
    nodes = [raw for raw in gathered.objects if raw.get("kind") == "Node"]
    if job is not None:
        pods = gatherer.pods_of_job(arguments.namespace, arguments.job)
        found = [*findings_of_job(job, pods, gathered), *findings_of_schedulers(schedulers, [job], nodes)]
        found += findings_of_kueue(kueue, schedulers.operator, [job], pods)
    else:
        workloads = gatherer.gather_workloads()
        found = [*findings_of_cluster(gathered), *findings_of_schedulers(schedulers, gathered.jobs, nodes)]
        found += findings_of_kueue(kueue, schedulers.operator, gathered.jobs)
        found += [] if workloads is None else findings_of_components(workloads, gathered.jobs)
    answer = Answer(list(findings_as_text(found)), {"findings": [dataclasses.asdict(one) for one in found]})
    for line in lines_of_answer(answer, arguments.output):
        say(line)
    return NOT_DONE if any(one.grade is Grade.PROBLEM for one in found) else 0


def lines_about_job(objects: ReadObjects, job: Json, namespaces: Sequence[str], now_ms: int) -> list[str]:
    """Return what the doctor says of a job; `namespaces`: of the operator, then those of MindCluster's ConfigMaps."""
    metadata, gatherer = mapping(job.get("metadata")), Gatherer(objects, now_ms)
    gathered = gatherer.gather_everything(namespaces[0], list(namespaces[1:]))
    pods = gatherer.pods_of_job(text(metadata.get("namespace")), text(metadata.get("name")))
    return list(findings_as_text(list(findings_of_job(job, pods, gathered))))


class Gatherer:
    """Reads what there is; what may not be read is noted, and the rest is read all the same."""

    def __init__(self, objects: ReadObjects, now_ms: int) -> None:
        self._objects, self._found = objects, Gathered(now_ms)

    def gather_everything(self, operator_namespace: str, fault_namespaces: list[str]) -> Gathered:
        """Collect everything that the diagnosis looks at."""
        found, objects, here = self._found, self._objects, f"in {operator_namespace}"
        for name in CRD_NAMES:
            self._try_to_look(Look.CRDS, "get customresourcedefinitions", partial(self._read_crd, name))
        leader = f"{_LEASES}/{operator_namespace}/leases/{Settings().lease_name}"
        self._try_to_look(
            Look.LEASE, f"get leases {here}", lambda: setattr(found, "lease", objects.find_object(leader))
        )
        self._ask_leader(operator_namespace)
        self.gather_faults(fault_namespaces, operator_namespace)
        jobs = partial(_list_of_items, objects, JOBS)
        self._try_to_look(Look.JOBS, "list hatrainingjobs in all namespaces", lambda: found.jobs.extend(jobs()))
        return found

    def gather_faults(self, fault_namespaces: list[str], operator_namespace: str) -> Gathered:
        """Collect what tells of faults of nodes and chips, and what follows from them."""
        found, objects, here = self._found, self._objects, f"in {operator_namespace}"
        own = f"{path_of_config_maps(operator_namespace)}/{settings.NAME}"
        self._try_to_look(
            Look.SETTINGS, f"get configmaps {here}", lambda: setattr(found, "settings", objects.find_object(own))
        )
        selectors = dict.fromkeys(row.selector for row in registry.SOURCES if row.kind == "ConfigMap")
        for namespace in fault_namespaces:
            for selector in selectors:
                self._read_objects(
                    f"list configmaps in {namespace}", path_of_config_maps(namespace), "ConfigMap", selector
                )
        self._read_objects("list nodes", NODES, "Node")
        self._read_objects(f"list leases in {lease.NAMESPACE}", f"{_LEASES}/{lease.NAMESPACE}/leases", "Lease")
        quarantines = partial(_list_of_items, objects, QUARANTINES)
        self._try_to_look(Look.QUARANTINES, "list nodequarantines", lambda: found.quarantines.extend(quarantines()))
        return found

    def gather_schedulers(self, operator_namespace: str, fault_namespaces: list[str]) -> Schedulers:
        """Collect what tells who schedules pods with chips, and how the device plugin serves them."""
        found, objects = Schedulers(), self._objects
        for namespace in fault_namespaces:
            listed = partial(_list_of_items, objects, f"{_APPS}/{namespace}/daemonsets")
            self._try_to_look(
                Look.SCHEDULERS,
                f"list daemonsets in {namespace}",
                lambda listed=listed: found.daemon_sets.extend(listed()),  # type: ignore[misc]
            )
        queues = f"/apis/{names.VOLCANO_API_VERSION}/{names.VOLCANO_QUEUES}"
        self._try_to_look(
            Look.SCHEDULERS,
            "list queues of Volcano",
            lambda: setattr(found, "queues", _items_where_served(objects, queues)),
        )
        path = f"{_APPS}/{operator_namespace}/deployments/{_OPERATOR}"
        self._try_to_look(
            Look.SCHEDULERS,
            f"get deployments in {operator_namespace}",
            lambda: setattr(found, "operator", objects.find_object(path)),
        )
        return found

    def gather_kueue(self) -> KueueObjects:
        """Collect Kueue's queues, flavors and configuration, where the cluster has Kueue."""
        found, objects, group = KueueObjects(), self._objects, f"/apis/{names.KUEUE_API_VERSION}"
        self._try_to_look(
            Look.SCHEDULERS,
            "list localqueues",
            lambda: setattr(found, "local_queues", _items_where_served(objects, f"{group}/localqueues")),
        )
        if found.local_queues is None:
            group_of_all = partial(objects.find_object, f"/apis/{names.KUEUE_GROUP}")
            self._try_to_look(
                Look.SCHEDULERS, "get the API groups", lambda: setattr(found, "is_old", group_of_all() is not None)
            )
            return found
        for what, path, known in (
            ("list clusterqueues", f"{group}/clusterqueues", found.cluster_queues),
            ("list resourceflavors", f"{group}/resourceflavors", found.flavors),
            ("list admissionchecks", f"{group}/admissionchecks", found.checks),
            ("list namespaces", "/api/v1/namespaces", found.namespaces),
        ):
            self._try_to_look(Look.SCHEDULERS, what, partial(self._read_list, path, known))
        self._try_to_look(
            Look.SCHEDULERS,
            "get configmaps in kueue-system",
            lambda: setattr(found, "configuration", objects.find_object(CONFIGURATION)),
        )
        return found

    def _read_list(self, path: str, known: list[Json]) -> None:
        known.extend(_list_of_items(self._objects, path))

    def gather_workloads(self) -> list[Json] | None:
        """Collect what may be a component of MindCluster; None: not all of it may be read."""
        workloads: list[Json] = []

        def read_workloads(path: str) -> None:
            workloads.extend(_list_of_items(self._objects, path))

        for kind in ("deployments", "daemonsets"):
            right = f"list {kind} in all namespaces"
            self._try_to_look(Look.WORKLOADS, right, partial(read_workloads, f"/apis/apps/v1/{kind}"))
        return None if Look.WORKLOADS in self._found.unread else workloads

    def pods_of_job(self, namespace: str, job: str) -> list[Json]:
        """Return the pods of one job."""
        pods: list[Json] = []
        listed = partial(_list_of_items, self._objects, f"/api/v1/namespaces/{namespace}/pods", selector_of_pods(job))
        self._try_to_look(Look.PODS, f"list pods in {namespace}", lambda: pods.extend(listed()))
        return pods

    def _read_crd(self, name: str) -> None:
        self._found.crds[name] = self._objects.find_object(f"{_CRDS}/{name}")

    def _read_objects(self, right: str, path: str, kind: str, selector: str = "") -> None:
        listed = ({**raw, "kind": kind} for raw in _list_of_items(self._objects, path, selector))
        self._try_to_look(Look.SOURCES, right, lambda: self._found.objects.extend(listed))

    def _ask_leader(self, namespace: str) -> None:
        """Its own view, through the API server, which needs the right to proxy to its pod."""
        found = self._found
        holder = str(((found.lease or {}).get("spec") or {}).get("holderIdentity") or "")
        if not holder:
            return
        pod, port = holder.rpartition("_")[0], Settings().metrics_port
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}"

        def read_leader_report() -> None:
            try:
                found.report = self._objects.find_object(f"{path}:{port}/proxy/faults")
            except ClusterError as refusal:
                if _NOT_PROXIED not in str(refusal):
                    raise
                found.report = _report_on_this_machine(self._objects.find_object(path), port)
            if found.report is None:
                raise ClusterError(f"there is no pod {pod}")

        self._try_to_look(Look.REPORT, f"get pods/proxy in {namespace}", read_leader_report)

    def _try_to_look(self, look: Look, right: str, read: Callable[[], object]) -> None:
        found = self._found
        if look not in found.looks:
            found.looks.append(look)
        try:
            read()
        except ForbiddenError:
            found.unread.setdefault(look, []).append(Unread(right=right))
        except (ClusterError, ValueError) as problem:  # the leader's report may be no JSON
            found.unread.setdefault(look, []).append(Unread(problem=f"could not be read: {problem}"))


def _report_on_this_machine(pod: Json | None, port: int) -> Json | None:
    """Return the report of a leader whose address is this machine's own, where a cluster runs as processes.

    Raises:
        ClusterError: its address is another, or nobody answers there.
    """
    address = str(((pod or {}).get("status") or {}).get("podIP") or "")
    if pod is None or not address:
        return None
    if not ipaddress.ip_address(address).is_loopback:
        raise ClusterError(f"the API server does not proxy to {address}")
    connection = http.client.HTTPConnection(address, port, timeout=_SECONDS)
    try:
        connection.request("GET", "/faults")
        found: Json = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException) as problem:
        raise ClusterError(f"{address}:{port} cannot be reached: {problem}") from None
    finally:
        connection.close()
    return found


def _items_where_served(objects: ReadObjects, path: str) -> list[Json] | None:
    """Return the objects of a list; None where the cluster does not have this kind."""
    found = objects.find_object(path)
    return None if found is None else list(found.get("items") or [])


def _list_of_items(objects: ReadObjects, path: str, selector: str = "") -> Iterator[Json]:
    found = objects.find_object(f"{path}?labelSelector={quote(selector)}" if selector else path)
    yield from (found or {}).get("items") or []


def findings_as_text(found: list[Finding]) -> Iterator[str]:
    """Format the findings for people: what is wrong, and below it what to do."""
    width = max((len(one.about) for one in found), default=0)
    for one in found:
        yield f"{one.grade:<8} {one.about:<{width}}  {one.message}"
        if one.do and one.grade is not Grade.FINE:
            yield f"{'':<8} {'':<{width}}  -> {one.do}"
