"""The process: reads the cluster once a second, plays a session, and does what came of it.

    python -m e2e.volcano SERVER CA CERTIFICATE KEY

With it runs the part of Volcano's controller that gives a pod without a group one of the controller's own making.
A scheduler that panics is started again by its kubelet, and panics again.
"""

from __future__ import annotations

import copy
import logging
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from e2e.cluster.rest import ApiClient, ApiError
from e2e.volcano.session import play_session
from e2e.volcano.world import (
    CHIP,
    GROUP_NAME,
    SCHEDULER,
    Act,
    Annotate,
    Bind,
    CountQueue,
    DeletePod,
    Explain,
    Object,
    World,
    WriteStatus,
    chips_of,
    controller_of,
    group_of,
)

log = logging.getLogger("volcano")

API_VERSION: Final = "scheduling.volcano.sh/v1beta1"
API: Final = f"/apis/{API_VERSION}"
PERIOD_SECONDS: Final = 1.0
PODS: Final = "/api/v1/namespaces/{namespace}/pods/{name}"
GROUPS: Final = API + "/namespaces/{namespace}/podgroups/{name}"


class Scheduler:
    """The scheduler and its controller, of one API server."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._previous: dict[tuple[str, str], str] = {}
        self._seen: set[str] = set()

    def run_for_ever(self) -> None:
        """Play a session each second; a panic ends it.

        Raises:
            SchedulerPanicError: see there.
        """
        while True:
            began = time.monotonic()
            try:
                self.play_once()
            except (ApiError, OSError) as error:
                log.warning("%s", error)
            time.sleep(max(0.0, PERIOD_SECONDS - (time.monotonic() - began)))

    def play_once(self) -> None:
        """Play one session."""
        world = World(
            pods=self._api.items("/api/v1/pods"),
            nodes=self._api.items("/api/v1/nodes"),
            groups=self._api.items(f"{API}/podgroups"),
            queues=self._api.items(f"{API}/queues"),
            now=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            previous=self._previous,
        )
        self._give_groups(world)
        for act in play_session(copy.deepcopy(world)):
            try:
                self._carry_out(act)
            except ApiError as error:  # a gated pod, a pod that is gone, a group that was written meanwhile
                log.info("%s: %s", type(act).__name__, error)

    def _give_groups(self, world: World) -> None:
        """Give each pod that is seen for the first time, and has no group, that of its controller."""
        for pod in world.pods:
            uid, metadata = pod["metadata"]["uid"], pod["metadata"]
            is_new = uid not in self._seen
            self._seen.add(uid)
            if not is_new or group_of(pod) or pod["spec"].get("schedulerName") != SCHEDULER:
                continue
            name = f"podgroup-{controller_of(pod) or uid}"
            group = {
                "apiVersion": API_VERSION,
                "kind": "PodGroup",
                "metadata": {"name": name, "namespace": metadata["namespace"]},
                "spec": {"minMember": 1, "minResources": {CHIP: str(chips_of(pod))}, "queue": "default"},
            }
            try:
                self._api.create(f"{API}/namespaces/{metadata['namespace']}/podgroups", group)
            except ApiError as error:
                log.info("%s", error)
            self._api.merge(_path_of(PODS, pod), {"metadata": {"annotations": {GROUP_NAME: name}}})

    def _carry_out(self, act: Act) -> None:
        match act:
            case Bind(pod, node, annotations):
                self._api.merge(_path_of(PODS, pod), {"metadata": {"annotations": annotations}})
                target = {"apiVersion": "v1", "kind": "Node", "name": node}
                body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod["metadata"]["name"]}}
                self._api.create(f"{_path_of(PODS, pod)}/binding", {**body, "target": target})
            case Explain(pod, reason, message):
                told = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
                known = (pod.get("status") or {}).get("conditions") or []
                if not any(all(one.get(key) == value for key, value in told.items()) for one in known):
                    patch = {"status": {"conditions": [told]}}
                    self._api.request(
                        "PATCH",
                        f"{_path_of(PODS, pod)}/status",
                        patch,
                        content_type="application/strategic-merge-patch+json",
                    )
            case WriteStatus(group, status):
                self._api.request("PUT", _path_of(GROUPS, group), {**group, "status": status})
            case CountQueue(queue, allocated):
                path = f"{API}/queues/{queue['metadata']['name']}"
                self._api.merge(path, {"status": {"state": "Open", "allocated": allocated}})
            case DeletePod(pod, force):
                self._api.delete(_path_of(PODS, pod), **({"gracePeriodSeconds": 0} if force else {}))
            case Annotate(pod, annotations):
                self._api.merge(_path_of(PODS, pod), {"metadata": {"annotations": annotations}})


def _path_of(template: str, one: Object) -> str:
    return template.format(**{key: one["metadata"][key] for key in ("namespace", "name")})


def main(arguments: list[str]) -> int:
    """Run until it is ended."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    server, *files = arguments
    authority, certificate, key = map(Path, files)
    Scheduler(ApiClient(server, authority, certificate, key, "vc-scheduler")).run_for_ever()
    return 0
