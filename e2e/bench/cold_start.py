"""A new operator in a large cluster: how soon after its start it acts on a fault that happened before it.

    python -m e2e.bench.cold_start [PODS NODES]

A real control plane with nodes and pods of KWOK, and the whole operator as a process of this machine. The coordinator
of the one job that trains is scripted (`e2e.bench.decision`) and listens at the address that KWOK has given its pod.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from e2e.bench.decision import RANKS, ScriptedCoordinator, serve
from e2e.bench.obedient_coordinator import certificates_of, coordinator_pod, token_of
from e2e.bench.operator_scale import NAMESPACE, NODES, ScaleRig, job
from e2e.cluster.kwok import CHIPS
from hajob.api import constants as names

PODS: Final = 10_000
OTHERS: Final = "others"
NAME: Final = "open"
PATIENCE_SECONDS: Final = 120.0
LOOK_SECONDS: Final = 5.0
"""So long after the order its memory is looked at: by then every list was read."""

Object = dict[str, Any]
Say = Callable[[str], None]


@dataclass(frozen=True)
class ColdStart:
    """Seconds from the start of the process to the order at the coordinator; MiB of the operator then."""

    seconds: float
    mib: float


NOT_MEASURED: Final = ColdStart(float("nan"), float("nan"))


def measure(say: Say, pods: int = PODS, nodes: int = NODES) -> ColdStart:
    """One start.

    Raises:
        SetupError: KWOK is not there and cannot be built.
    """
    with ScaleRig.start(nodes, say) as rig:
        _fill(rig, pods, say)
        return asyncio.run(_measure(rig, say))


def _fill(rig: ScaleRig, pods: int, say: Say) -> None:
    """Pods of other people, each with a chip, on all nodes but those that the job will need."""
    taken = rig.nodes.names[: -2 * RANKS // CHIPS]
    rig.plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OTHERS}})
    path = f"/api/v1/namespaces/{OTHERS}/pods"
    bodies = [_pod(number, taken[number % len(taken)]) for number in range(pods)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda body: rig.plane.api.create(path, body), bodies))
    say(f"{pods} pods of others are made")


def _pod(number: int, node: str) -> Object:
    container = {"name": "main", "image": "example/main:1", "resources": {"limits": {names.DEFAULT_RESOURCE_NAME: "1"}}}
    metadata = {"name": f"other-{number:05}", "namespace": OTHERS}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": node, "containers": [container]},
    }


async def _measure(rig: ScaleRig, say: Say) -> ColdStart:
    operator = await asyncio.to_thread(rig.start_operator)
    await asyncio.to_thread(rig.apply, job(NAME, RANKS // CHIPS))
    pod = await asyncio.to_thread(coordinator_pod, rig.plane, NAMESPACE, NAME, PATIENCE_SECONDS)
    metadata, token = pod["metadata"], await asyncio.to_thread(token_of, rig.plane, pod)
    coordinator = ScriptedCoordinator(metadata["labels"][names.LABEL_JOB_UID], metadata["uid"], token)
    files = await asyncio.to_thread(certificates_of, rig.plane, pod)
    server = await serve(coordinator, pod["status"]["podIP"], files)
    try:
        await asyncio.wait_for(coordinator.running.wait(), PATIENCE_SECONDS)
        await asyncio.sleep(LOOK_SECONDS)
        await asyncio.to_thread(operator.end, signal.SIGTERM)
        await asyncio.sleep(1.0)
        coordinator.report_exit(3)
        say("the operator has gone, a rank has died; another operator begins")
        began = time.perf_counter()
        started = asyncio.create_task(asyncio.to_thread(rig.start_operator))
        at = await coordinator.decided(PATIENCE_SECONDS)
        operator = await started
        await asyncio.sleep(LOOK_SECONDS)
        return ColdStart(at - began, operator.memory())
    finally:
        await server.stop(None)


def main() -> int:
    """Entry point."""
    print(measure(print, *(int(word) for word in sys.argv[1:])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
