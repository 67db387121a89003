"""A namespace with a queue of the stand-in for Kueue, and a clock: what its rules write is stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from e2e.kueue.rules import next_writes
from e2e.kueue.world import Configuration, World, find_condition, timestamp

NOW: Final = datetime(2026, 11, 28, 10, 0, 0, tzinfo=UTC)
CHIPS: Final = "huawei.com/Ascend910"
Object = dict[str, Any]


class Cluster:
    """A namespace with a queue of eight chips, and a clock."""

    def __init__(self, chips: int = 8, **configuration: Any) -> None:
        self.now, self.configuration = NOW, Configuration(**configuration)
        quota = {"name": "a2", "resources": [{"name": CHIPS, "nominalQuota": chips}]}
        spec = {
            "resourceGroups": [{"coveredResources": [CHIPS], "flavors": [quota]}],
            "preemption": {"withinClusterQueue": "LowerPriority"},
        }
        self.world = World(
            local_queues={("t", "q"): {"spec": {"clusterQueue": "cq"}}},
            cluster_queues={"cq": {"metadata": {"name": "cq"}, "spec": spec}},
            flavors={"a2": {"spec": {"nodeLabels": {"pool": "a2"}}}},
        )

    def add(self, name: str, count: int = 4, chips: int = 2, priority: int = 0, **more: Any) -> Object:
        """Create a Workload, a second after the one before."""
        self.wait(1)
        spec = {"containers": [{"resources": {"limits": {CHIPS: chips}}}], **more.pop("pod", {})}
        raw: Object = {
            "metadata": {
                "namespace": "t",
                "name": name,
                "uid": f"uid-of-{name}",
                "creationTimestamp": self.now.isoformat(),
                "labels": {"kueue.x-k8s.io/job-uid": f"job-{name}"},
                "ownerReferences": [{"uid": f"job-{name}"}],
            },
            "spec": {
                "queueName": "q",
                "priority": priority,
                "podSets": [{"name": "rank", "count": count, "template": {"spec": spec}, **more.pop("pod_set", {})}],
                **more.pop("spec", {}),
            },
            "status": {},
        }
        raw["metadata"] |= more
        self.world.workloads["t", name] = raw
        self.settle()
        return raw

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)

    def settle(self) -> None:
        """Write until there is nothing more to write."""
        for _ in range(20):
            writes = list(next_writes(self.world, self.configuration, self.now))
            for write in writes:
                key = write.workload["metadata"]["namespace"], write.workload["metadata"]["name"]
                if write.deletes:
                    del self.world.workloads[key]
                    continue
                stored = self.world.workloads[key]
                if write.deactivates:
                    stored["spec"]["active"] = False
                    continue
                stored["status"] = {k: v for k, v in write.status_after(self.now).items() if v is not None}
            if not writes:
                return
        raise AssertionError("it writes for ever")

    def put(self, raw: Object, kind: str, status: str, reason: str = "x", since: str = "") -> None:
        """Write a condition as the owner does."""
        known = [one for one in raw["status"].get("conditions", []) if one["type"] != kind]
        made = {"type": kind, "status": status, "reason": reason, "message": ""}
        raw["status"]["conditions"] = [
            *known,
            {**made, "lastTransitionTime": since or timestamp(self.now)},
        ]

    def give_back(self, raw: Object, *, without: str = "", **other: tuple[str, str]) -> None:
        """Give quota back; `without`: a condition that is forgotten, `other`: ones that are written otherwise."""
        told = {
            "QuotaReserved": ("False", "Pending"),
            "Admitted": ("False", "NoReservation"),
            "Requeued": ("True", "Preempted"),
            **other,
        }
        for kind, (status, reason) in told.items():
            if kind != without:
                self.put(raw, kind, status, reason)
        raw["status"].pop("admission", None)
        self.settle()


def reason_of(raw: Object, kind: str) -> tuple[str, str, str]:
    """Return status, reason and message of a condition."""
    found = find_condition(raw, kind)
    return (found["status"], found["reason"], found["message"]) if found else ("", "", "")
