"""Many nodes of a large job lost at once: how soon all of their pods are made anew, and with how many writes.

A real control plane with nodes of KWOK and an operator's process, as in `operator_scale`, but without the heartbeats of
the nodes: 460 Leases a second are the kubelets' part, and would take the cores that are measured. The coordinator is
scripted: it reports the silence of all lost nodes in one report, as a real one does after a rack has lost its power,
and says what real ones say of the recovery as soon as the new pods have their places. Times are the audit log's.

    python -m e2e.bench.mass_loss 1024:32 16:4 4096:4     # jobs of so many pods that lose so many nodes
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import grpc.aio

from e2e.bench.decision import serve
from e2e.bench.obedient_coordinator import ObedientCoordinator, certificates_of, coordinator_pod, token_of
from e2e.bench.operator_scale import NAMESPACE, Found, Say, ScaleRig, job
from e2e.cluster import audit
from e2e.cluster.kwok import CHIPS, WITHOUT_CHIPS
from hajob.api import constants as names

LOSSES: Final = ((1024, 32), (16, 4), (4096, 4))
"""Pods of a job, nodes that it loses at once."""
ROUNDS: Final = 3
SPARE_NODES: Final = 64
SETTLE_SECONDS: Final = 5.0
PATIENCE_SECONDS: Final = 300.0
"""With a fifth of a second for each pod where all of them have to come: others may use the machine, too."""
JOBS: Final = f"/apis/{names.API_VERSION}/namespaces/{NAMESPACE}/{names.PLURAL}"

Object = dict[str, Any]


@dataclass(frozen=True)
class Loss:
    """What one loss took; seconds from the report.

    Attributes:
        first: to the answer about the first pod that was made.
        last: to that about the last one.
        writes: of the operator, until the training had gone on for some seconds.
        made: pods that were made.
    """

    first: float
    last: float
    writes: int
    made: int


class Training:
    """A job on the rig, with its coordinator, whose loop is a thread of its own."""

    def __init__(self, rig: ScaleRig, name: str, pods: int) -> None:
        self.rig, self.name, self.pods = rig, name, pods
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.coordinator: ObedientCoordinator | None = None
        self._server: grpc.aio.Server | None = None

    @classmethod
    @contextmanager
    def start(cls, rig: ScaleRig, pods: int) -> Iterator[Training]:
        """A job of so many pods that trains; deleted in the end."""
        made = cls(rig, f"of-{pods}", pods)
        body = job(made.name, pods)
        body["spec"]["recovery"] = {"actions": [{"name": "Replace", "maxCount": 1000}]}
        rig.apply(body)
        patience = PATIENCE_SECONDS + pods / 5
        pod = coordinator_pod(rig.plane, NAMESPACE, made.name, patience)
        made.serve(pod)
        rig.wait_running(pods + 1, patience)
        made.wait_state("Running")
        time.sleep(SETTLE_SECONDS)
        yield made
        rig.delete_jobs()
        made.stop()

    def serve(self, pod: Object) -> None:
        """Serve the job's coordinator at the address of its pod."""
        self._run(self._serve(pod))

    def stop(self) -> None:
        """End the coordinator's loop."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _serve(self, pod: Object) -> None:
        metadata = pod["metadata"]
        made = ObedientCoordinator(metadata["labels"][names.LABEL_JOB_UID], metadata["uid"], num_nodes=self.pods)
        made.token = await asyncio.to_thread(token_of, self.rig.plane, pod)
        files = await asyncio.to_thread(certificates_of, self.rig.plane, pod)
        self._server = await serve(made, pod["status"]["podIP"], files)  # one that nobody holds ends
        self.coordinator = made

    def _run(self, what: Any) -> Any:  # noqa: ANN401 - whatever it returns
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(PATIENCE_SECONDS)

    def status(self) -> Object:
        """As the server has it."""
        found: Object = self.rig.plane.api.get(f"{JOBS}/{self.name}").get("status") or {}
        return found

    def wait_state(self, state: str) -> None:
        """Wait until the job calls itself so."""
        told = lambda: (self.status().get("summary") or {}).get("state") == state  # noqa: E731
        self.rig.plane.wait(f"{self.name} to be {state}", told, PATIENCE_SECONDS, poll=0.5)

    def lose(self, node_ranks: Sequence[int]) -> Loss:
        """All of these at once, and wait until they are replaced."""
        incarnation = int(self.status()["incarnation"]) + 1
        began = self._run(self._report(node_ranks))
        self.rig.plane.wait("the recovery", lambda: self._recovered(incarnation), PATIENCE_SECONDS, poll=0.5)
        time.sleep(SETTLE_SECONDS)
        writes = self.rig.writes(began)
        made = [one for one in writes if (one.verb, one.resource, one.status) == ("create", "pods", 201)]
        if len(made) != len(node_ranks):
            raise RuntimeError(f"{len(made)} pods were made for {len(node_ranks)} lost ones")
        times = sorted((one.answered - began).total_seconds() for one in made)
        return Loss(times[0], times[-1], len(writes), len(made))

    def _recovered(self, incarnation: int) -> bool:
        incidents = self.status().get("incidents") or []
        found = (one for one in incidents if one["incarnation"] == incarnation)
        return any((one.get("outcome"), one["action"]) == ("Recovered", "Replace") for one in found)

    async def _report(self, node_ranks: Sequence[int]) -> Any:  # noqa: ANN401 - a time of the audit log
        assert self.coordinator is not None
        began = audit.now()
        self.coordinator.report_silence(node_ranks, CHIPS)
        return began


def measure(found: Found, say: Say, losses: Sequence[tuple[int, int]] = LOSSES, rounds: int = ROUNDS) -> None:
    """Every job one after the other on one cluster that is large enough for the largest.

    Raises:
        SetupError: KWOK is not there and cannot be built.
    """
    with_chips = max(pods for pods, _ in losses) + SPARE_NODES
    nodes = with_chips * WITHOUT_CHIPS // (WITHOUT_CHIPS - 1) + WITHOUT_CHIPS
    with ScaleRig.start(nodes=nodes, say=say, still=True) as rig:
        rig.start_operator()
        for pods, lost in losses:
            with Training.start(rig, pods) as training:
                say(f"{pods} pods train")
                for number in range(rounds):
                    loss = training.lose(range(1 + number * lost, 1 + (number + 1) * lost))
                    say(f"{pods} pods, {lost} nodes lost: {loss}")
                    found.add(f"{pods}:{lost} last", loss.last)
                    found.add(f"{pods}:{lost} writes", loss.writes - 2 * lost)


def main(arguments: Sequence[str]) -> int:
    """Measure these alone."""
    losses = [(int(pods), int(lost)) for pods, _, lost in (one.partition(":") for one in arguments)]
    found = Found()
    measure(found, print, losses or LOSSES)
    print(json.dumps(found.values, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
