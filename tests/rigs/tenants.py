"""The pods and quotas of other tenants as the operator follows them, written down."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from hajob.api import constants as names
from hajob.app.core import OperatorCore
from hajob.app.tenants import Tenants
from hajob.sources.pod import ForeignPod
from hajob.sources.quota import Quota
from tests.rigs.fake_clock import FakeClock
from tests.rigs.fake_kube import FakeKube

EIGHT_CHIPS = {names.DEFAULT_RESOURCE_NAME: "8"}


class RecordedTenants:
    """What the tenants did, in order."""

    def __init__(self, *namespaces: str) -> None:
        self.clock = FakeClock()
        self.kube = FakeKube(self.clock)
        self.pods: list[tuple[str, str]] = []
        self.quotas: list[tuple[str, str, int | None]] = []
        self.tenants = Tenants(self.kube, self.clock, namespaces or ("",), cast("OperatorCore", self))
        self.tasks = [asyncio.create_task(informer.list_and_watch()) for informer in self.tenants.informers]

    def handle_changed_foreign_pod(self, now: ForeignPod | None, before: ForeignPod | None) -> None:
        self.pods.append((before.node_name if before else "", now.node_name if now else ""))

    def handle_changed_quota(self, namespace: str, name: str, quota: Quota | None) -> None:
        self.quotas.append((namespace, name, dict(quota.used).get("pods") if quota is not None else None))

    def put(self, phase: str = "Running", labels: dict[str, str] | None = None, **spec: Any) -> None:
        """Set a pod of another tenant, with eight chips, on the server."""
        body = {"containers": [{"name": "main", "resources": {"limits": EIGHT_CHIPS}}], **spec}
        metadata = {"name": "theirs", "labels": labels or {}}
        self.kube.put("pods", "b", {"metadata": metadata, "spec": body, "status": {"phase": phase}})
