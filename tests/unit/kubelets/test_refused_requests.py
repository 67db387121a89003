"""An operator is refused nothing; what one was refused that another scenario had removed is not counted."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from e2e.cluster.audit import AuditLog
from e2e.kubelets.cluster import NAMESPACE, Cluster

NOON = datetime.datetime(2026, 11, 23, 12, tzinfo=datetime.UTC)
OPERATOR = f"system:serviceaccount:{NAMESPACE}:hajob-operator"


def line(minutes: int, verb: str, resource: str, status: int, user: str = OPERATOR) -> str:
    at = (NOON + datetime.timedelta(minutes=minutes)).isoformat(timespec="microseconds").replace("+00:00", "Z")
    entry = {
        "stage": "ResponseComplete",
        "requestReceivedTimestamp": at,
        "stageTimestamp": at,
        "user": {"username": user},
        "userAgent": "hajob",
        "verb": verb,
        "requestURI": f"/api/v1/{resource}",
        "objectRef": {"resource": resource},
        "responseStatus": {"code": status},
    }
    return json.dumps(entry) + "\n"


def test_only_refusals_of_this_installation_count(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    lines = [
        line(-1, "update", "leases", 403),  # uninstalled
        line(1, "update", "leases", 200),
        line(2, "patch", "nodes", 403),
        line(3, "patch", "nodes", 403),
        line(4, "create", "pods", 403, "system:anonymous"),
    ]
    path.write_text("".join(lines))
    plane = SimpleNamespace(audit=AuditLog(path))
    cluster = Cluster(cast("Any", plane), cast("Any", None))
    assert cluster.refused_requests(NOON) == ["patch nodes"]
