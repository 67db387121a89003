"""The operator's core with everything around it in memory, for measuring decisions.

    python -m e2e.bench.operator_core FILE

Core, job controllers, planner, channels and TLS are the real ones; the API server answers at once from a dictionary and
turns every pod that is made into a running one at the address that the benchmark gives its job. So what is measured is
the operator and not the API server, which is not on the way of a decision anyway.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import logging
import sys
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.app.core import OperatorCore
from hajob.capacity.caches import Caches
from hajob.clock import SystemClock
from hajob.coordinator_link.channel import Dialer
from hajob.faults.watch import FaultListener, FaultWatch
from hajob.job.cluster import Cluster
from hajob.job.ports import Ports
from hajob.kube.client import ALREADY_EXISTS, ApiError, Kube, Page, PatchKind, WatchEvent
from hajob.kube.credentials import ApiCredentials, from_kubeconfig
from hajob.kube.events import Announcer
from hajob.kube.http import HttpKube
from hajob.kube.informer import Change, ChangeType, Informer, Selection
from hajob.leader.leadership import Leadership
from hajob.pki.authority_store import AuthorityStore
from hajob.pki.certificates import issue_certificates, new_authority
from hajob.pods.settings import PodSettings
from hajob.sources import node as node_source
from hajob.sources import pod as pod_source
from hajob.sources.node import NodeView

NODE = "node-0"
FENCE = 1
LIFETIME = timedelta(days=365)


def node_of(uid: str, node_rank: int) -> str:
    """Name of the node of a rank pod."""
    return f"{uid}-node-{node_rank}"


class MemoryApi(Kube):  # its answers are made here: no request is carried
    """The part of an API server that a core needs. Secrets come from the benchmark's files, pods run at once.

    It stores nothing and checks nothing, so that what is measured is the core: the server in memory (e2e.memory_api)
    would take its share of the same processor.

    Args:
        directory: with a directory of certificates for each job UID.
        addresses: of the coordinators, by job UID.
    """

    def __init__(self, directory: Path, addresses: dict[str, str]) -> None:
        self._directory = directory
        self._addresses = addresses
        self._statuses: dict[str, Json] = {}
        self.core: OperatorCore | None = None

    async def get_object(self, resource: str, namespace: str, name: str) -> Json:
        """The certificates of the job with that name; nothing else is asked for."""
        uid = namespace  # every job has a namespace of its own, called like its UID
        if resource != "secrets" or uid not in self._addresses:
            raise ApiError(404, "NotFound", f"{resource} {name}")
        files = {file.name: base64.b64encode(file.read_bytes()).decode() for file in (self._directory / uid).iterdir()}
        return {"metadata": {"name": name, "namespace": namespace, "uid": name}, "data": files}

    async def list_pages(
        self, resource: str, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> AsyncIterator[Page]:
        """Nothing is listed."""
        del resource, namespace, label_selector, field_selector
        yield Page([], "1")

    async def watch_objects(
        self,
        resource: str,
        namespace: str = "",
        label_selector: str = "",
        resource_version: str = "",
        *,
        with_list: bool = False,
    ) -> AsyncIterator[WatchEvent]:
        """Nothing is watched."""
        del resource, namespace, label_selector, resource_version, with_list
        await asyncio.Event().wait()
        yield WatchEvent("BOOKMARK", {})

    async def create_object(self, resource: str, namespace: str, body: Json, *, dry_run: bool = False) -> Json:
        """A pod runs at once; the certificates of a job are there already."""
        if resource == "secrets" and namespace in self._addresses:
            raise ApiError(409, ALREADY_EXISTS, f"secrets of {namespace}")
        if resource == "pods" and not dry_run:
            asyncio.get_running_loop().call_soon(self._run_pod, namespace, body)
        return body

    def _run_pod(self, uid: str, body: Json) -> None:
        metadata = {**body["metadata"], "uid": body["metadata"]["name"], "namespace": uid}
        status = {"phase": "Running", "podIP": self._addresses[uid]}
        rank = metadata["labels"].get(names.LABEL_NODE_RANK)
        node = node_of(uid, int(rank)) if rank is not None else f"{NODE}-{uid}"
        # The whole spec: by the chips that it asks for the core knows which faults of its node are its own.
        pod = {"metadata": metadata, "spec": {**body["spec"], "nodeName": node}, "status": status}
        if self.core is not None:
            self.core.handle_changed_pod(pod_source.pod_view_of(pod), deleted=False)

    async def patch_object(
        self,
        resource: str,
        namespace: str,
        name: str,
        body: Json | Sequence[Json],
        *,
        kind: PatchKind = PatchKind.MERGE,
        subresource: str = "",
    ) -> Json:
        """Operations on the status of a job."""
        del resource, name, kind, subresource
        whole: Json = {"status": self._statuses.setdefault(namespace, {})}
        for operation in body:
            if isinstance(operation, dict):
                _operate(whole, operation)
        self._statuses[namespace] = whole["status"]
        return whole

    async def replace_object(self, resource: str, namespace: str, body: Json) -> Json:
        """It is taken as it is."""
        del resource, namespace
        return body

    async def delete_object(
        self, resource: str, namespace: str, name: str, *, uid: str = "", grace_seconds: int | None = None
    ) -> None:
        """It is gone."""

    async def pod_of_token(self, token: str, audience: str) -> str | None:
        """The scripted coordinators present the name of their pod."""
        del audience
        return token


def _operate(whole: Json, operation: dict[str, Any]) -> None:
    *parents, last = operation["path"].strip("/").split("/")
    if operation["op"] == "test" or parents[:1] == ["metadata"]:
        return
    node = whole
    for parent in parents:
        node = node.setdefault(parent, {})
    if operation["op"] == "remove":
        node.pop(last, None)
    else:
        node[last] = operation["value"]


def job(uid: str) -> Json:
    """A job of one node with eight chips, which may be recovered as often as the benchmark likes."""
    container: Json = {"name": "trainer", "image": "example/trainer:1", "command": ["bash", "train.sh"]}
    container["volumeMounts"] = [{"name": "shared", "mountPath": "/ckpt"}]
    volume = {"name": "shared", "hostPath": {"path": "/shared"}}
    actions = [{"name": "InPlace", "maxCount": 100_000}]
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": f"job-{uid}", "namespace": uid, "uid": uid, "generation": 1},
        "spec": {
            "accelerator": {"product": "A2"},
            "numNodes": 4,
            "parallelism": {"tensor": 8},
            "checkpoint": {"path": "/ckpt"},
            "template": {"spec": {"containers": [container], "volumes": [volume]}},
            "recovery": {"actions": actions},
        },
    }


def write_certificates(directory: Path, uid: str) -> None:
    """The job's certificates, as operator and coordinator find them."""
    place = directory / uid
    place.mkdir(parents=True)
    now = datetime.now(UTC)
    for name, content in issue_certificates(uid, [new_authority(now, LIFETIME)], now, LIFETIME).items():
        (place / name).write_bytes(content)


class RealFaults(FaultListener):
    """What a real API server tells of nodes and chips, for a core whose pods are in memory."""

    def __init__(self, credentials: ApiCredentials, caches: Caches) -> None:
        self.core: OperatorCore | None = None
        self._kube = HttpKube(credentials)
        clock = SystemClock()
        self.watch = FaultWatch(self._kube, clock, caches, ("kube-system",))
        self.watch.listeners.append(self)
        self._nodes = Informer(self._kube, clock, Selection("nodes"), node_source.node_view_of, self._node_changed)

    def _node_changed(self, change: Change[NodeView]) -> None:
        assert self.core is not None
        self.core.handle_changed_node(change.value, deleted=change.type is ChangeType.DELETED)

    def handle_changed_faults(self, nodes: frozenset[str]) -> None:
        """Hand them to the jobs."""
        assert self.core is not None
        self.core.handle_changed_faults(nodes)

    def handle_breaker_change(self, held: str) -> None:
        """A breaker that opens would spoil the measurement."""
        print(f"breaker: {held or 'closed'}", flush=True)

    async def run(self) -> None:
        """Watch for ever."""
        async with self._kube:
            await asyncio.gather(*(informer.list_and_watch() for informer in (self._nodes, *self.watch.informers)))


async def serve(directory: Path, addresses: dict[str, str], kubeconfig: str = "") -> None:
    """Look after one job for every address, for ever; with a kubeconfig, or a URL, faults come from that API server."""
    clock = SystemClock()
    api = MemoryApi(directory, addresses)
    caches = Caches()

    announcer = Announcer(api, clock, "bench")
    plain = kubeconfig.startswith("http:")
    credentials = ApiCredentials(kubeconfig) if plain or not kubeconfig else await from_kubeconfig(kubeconfig)
    faults = RealFaults(credentials, caches) if kubeconfig else None
    ports = Ports(
        authorities=AuthorityStore(api, clock, "hajob-system", LIFETIME),
        kube=api,
        clock=clock,
        dialer=Dialer(Leadership(FENCE), clock),
        announcer=announcer,
        pod_settings=PodSettings(sidecar_image="hajob/sidecar:dev"),
        leadership=Leadership(FENCE),
        cluster=Cluster(clock, caches.capacity, faults.watch if faults is not None else None),
    )
    core = api.core = OperatorCore(ports, caches)
    core.note_complete_pods()
    for uid in addresses:
        core.handle_job(job(uid))
    gc.freeze()  # as the operator does it
    if faults is not None:
        faults.core = core
        await faults.run()
    await announcer.post_queued()


def main() -> int:
    """Entry point; the argument is the benchmark's JSON file with directory and addresses."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")  # as the operator
    given = json.loads(Path(sys.argv[1]).read_text())
    sys.setswitchinterval(0.0005)
    asyncio.run(serve(Path(given["directory"]), given["addresses"], given.get("kubeconfig", "")))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
