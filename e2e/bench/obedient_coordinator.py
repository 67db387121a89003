"""A coordinator with nothing behind it that carries out what it is ordered: recoveries of the operator alone.

It says what real ones say, over real TLS and gRPC; an operator cannot tell the difference. Its pod is one of the API
server's, whose certificates and token it uses.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from e2e.bench.decision import Requests, ScriptedCoordinator
from e2e.cluster.control_plane import ControlPlane
from hajob.api import constants as names
from hajob.protocol import sidecar_pb2 as wire

Object = dict[str, Any]


@dataclass
class ObedientCoordinator(ScriptedCoordinator):
    """Carries out every order as soon as it can be, and remembers all of them.

    Attributes:
        stalls: it takes orders and carries out none.
    """

    stalls: bool = False
    given: list[wire.Order] = field(default_factory=list)
    assignment: wire.Assignment = field(default_factory=wire.Assignment)
    _done: set[tuple[int, int]] = field(default_factory=set)

    async def _read(self, requests: Requests) -> None:
        async for message in requests:
            match message.WhichOneof("body"):
                case "assignment":
                    self.assignment = message.assignment
                case "order":
                    self.newest = message.order
                case "acknowledge":
                    self._acknowledged(message.acknowledge)
            if self.assignment.attempt and self.newest.incarnation:
                self.take_order(self.newest, 0.0)
                self._carry_out()

    def take_order(self, order: wire.Order, at: float) -> None:
        """Remember an order; one to start is carried out at once."""
        if (order.incarnation, order.revision) == (self.incarnation, self.revision):
            return
        if self.stalls:
            self.incarnation, self.revision = order.incarnation, order.revision
            self.given.append(order)
            return
        super().take_order(order, at)
        if order.action == wire.START:
            self.train()  # a rank that stands where it stood has made no progress, and is helped otherwise
        else:
            self.given.append(order)

    def _carry_out(self) -> None:
        """The newest order, once its new pods are there."""
        order = self.given[-1] if self.given else wire.Order()
        key = (order.incarnation, order.revision)
        if self.stalls or order.action not in _OUTCOME or key in self._done or not self._are_there(order):
            return
        self._done.add(key)
        strategy, milestones = _OUTCOME[order.action]
        self.tell(*milestones)
        report = self.next_report()
        report.milestones.add(kind=wire.RESULT, incarnation=self.incarnation, step=self.step, strategy=strategy)
        self.step += 1
        self._due.put_nowait(report)
        self.train()

    def _are_there(self, order: wire.Order) -> bool:
        """Whether every pod that comes anew has come."""
        there = {pod.node_rank: pod for pod in self.assignment.pods if pod.address}
        return all(node in there and there[node].incarnation >= order.incident for node in order.replaced_nodes)

    def next_report(self) -> wire.Report:
        """Return a report with the attempt that the operator has assigned."""
        report = super().next_report()
        report.state.attempt = self.assignment.attempt
        return report

    def report_fact(self, kind: wire.FactKind, **fields: Any) -> None:  # noqa: ANN401 - fields of a fact
        """Report something that agents or MindIO have seen at node rank 1."""
        report = self.next_report()
        told = {"id": f"fact/{self.step}", "node_rank": 1, "ranks": [3], "incarnation": self.incarnation, **fields}
        report.facts.add(kind=kind, step=self.step, **told)
        self._due.put_nowait(report)

    def report_silence(self, node_ranks: Iterable[int], chips: int) -> None:
        """Report that nothing is heard of these nodes any more, in one report."""
        report, pods = self.next_report(), {pod.node_rank: pod.incarnation for pod in self.assignment.pods}
        for node in node_ranks:
            told = {"id": f"silence/{self.step}/{node}", "node_rank": node, "incarnation": pods[node]}
            ranks = range(node * chips, (node + 1) * chips)
            report.facts.add(kind=wire.AGENT_SILENT, step=self.step, ranks=ranks, **told)
        self._due.put_nowait(report)


_REPLACED = (wire.STOPPED, wire.REPLACEMENTS_STARTED, wire.REPLACEMENTS_READY, wire.NAMED, wire.RESUMED)
_OUTCOME = {
    wire.RETRY: ("retry", (wire.STOPPED, wire.NAMED, wire.RESUMED)),
    wire.IN_PLACE: ("recover", _REPLACED),
    wire.REPLACE: ("recover", _REPLACED),
    wire.MIGRATE: ("migration", (wire.REPLACEMENTS_READY, wire.RESUMED)),
    wire.CHECKPOINT: ("dump", (wire.STOPPED,)),
}
"""MindIO's strategy and what a coordinator tells on the way."""


def coordinator_pod(plane: ControlPlane, namespace: str, job: str, seconds: float) -> Object:
    """A job's coordinator pod, waited for until it has an address."""
    selector = f"{names.LABEL_JOB_NAME}={job},{names.LABEL_ROLE}={names.ROLE_COORDINATOR}"

    def there() -> Object | None:
        pods = plane.api.items(f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector)
        return next((pod for pod in pods if pod["status"].get("podIP")), None)

    return plane.wait("the coordinator's pod", there, seconds)


def token_of(plane: ControlPlane, pod: Object) -> str:
    """One that the API server knows to be this pod's."""
    metadata = pod["metadata"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": metadata["name"], "uid": metadata["uid"]}
    asked = {"spec": {"audiences": [names.COORDINATOR_TOKEN_AUDIENCE], "boundObjectRef": bound}}
    account = pod["spec"]["serviceAccountName"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{account}/token"
    return str(plane.api.create(path, asked)["status"]["token"])


def certificates_of(plane: ControlPlane, pod: Object) -> dict[str, bytes]:
    """What is mounted into this coordinator's pod, by the names of the files."""
    secrets = [volume["secret"]["secretName"] for volume in pod["spec"]["volumes"] if "secret" in volume]
    secret = next(name for name in secrets if "-hajob-tls-" in name)
    data = plane.api.get(f"/api/v1/namespaces/{pod['metadata']['namespace']}/secrets/{secret}")["data"]
    return {name: base64.b64decode(content) for name, content in data.items()}
