"""The rules of one node with a clock that tests set, the settings of its pod, and a launcher that notes orders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.agent.clock import SECOND
from trainer_sidecar.agent.node import Node
from trainer_sidecar.agent.settings import AgentSettings, Identity

JOB = "0b1d2c3e-job"


class FakeClock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.time = 1000 * SECOND

    def now(self) -> int:
        return self.time

    def pass_seconds(self, seconds: float) -> None:
        """Let so many seconds pass."""
        self.time += int(seconds * SECOND)


def pod_settings(*, node_rank: int = 1, fence_after: int = 60) -> AgentSettings:
    """Build the settings of a pod of a job of two nodes with two chips each; node rank 1 has ranks 2 and 3."""
    return AgentSettings(
        directory=Path("/nowhere"),
        tls_directory=Path("/nowhere/tls"),
        pod_address="127.0.0.1",
        pod_name="job-1-abc",
        pod_uid="uid-1",
        job_uid=JOB,
        identity=Identity(node_rank, 1),
        ranks_per_node=2,
        world_size=4,
        agent_port=7071,
        mindio_port=8000,
        rendezvous_port=29500,
        output_directory="",
        output_attempt_limit=5,
        checkpoint_directory="",
        fence_after_seconds=fence_after,
    )


class NodeRig:
    """A node with a launcher that only notes what it was told."""

    def __init__(self, fence_after: int = 60, node_rank: int = 1) -> None:
        self.clock = FakeClock()
        self.node = Node(pod_settings(node_rank=node_rank, fence_after=fence_after), self.clock)
        self.commands: list[dict[str, Any]] = []
        self.node.ports.send_launcher = self.commands.append
        self.node.begin_conversation(higher_fence=True)
        self.revision = 0

    def script(self, **changes: Any) -> None:
        """Have the launcher say how the start script stands."""
        script = {
            "kind": "script", "ready": True, "finished": False, "ended": False, "exit_code": 0, "last_lines": [],
            "tool": "torchrun", "stopped": False, "launch": 1, "training": True, "problem": "",
            "entry": "train.py", "arguments": [], "lost_log": "", "without_mindio": False,
        }  # fmt: skip
        self.node.apply_launcher_message({**script, **changes})

    def process(self, rank: int, incarnation: int = 1, **changes: Any) -> None:
        """Have the launcher say how a rank's process stands."""
        record = {
            "kind": "rank", "rank": rank, "incarnation": incarnation, "start": 0, "pid": 100 + rank, "running": True,
            "exit_code": 0, "ordered": False, "changed": self.clock.now(), "step": -1, "step_time": 0, "last_lines": [],
            "last_step": 0, "notices": {},
        }  # fmt: skip
        self.node.apply_launcher_message({**record, **changes})

    def order(self, *ranks: pb.RankOrder, **fields: Any) -> None:
        """Order these ranks, as the coordinator does."""
        self.revision += 1
        order = pb.NodeOrder(revision=self.revision, controller_address="10.0.0.1:8000", ranks=ranks)
        for name, value in fields.items():
            setattr(order, name, value)
        self.node.apply_coordinator_message(pb.CoordinatorToAgent(node_order=order))

    def report(self) -> pb.AgentReport:
        """Take the report that is due; fails where none is."""
        report = self.node.next_report()
        assert report is not None
        return report

    def grant(self) -> None:
        """Let a heartbeat be answered with a lease of three seconds."""
        number = self.node.lease.number_heartbeat(self.clock.now())
        self.node.apply_coordinator_message(
            pb.CoordinatorToAgent(lease_grant=pb.LeaseGrant(heartbeat=number, lease_milliseconds=3000))
        )

    def kinds(self) -> list[str]:
        """List the kinds of what the launcher was told, in order."""
        return [command["kind"] for command in self.commands]


def order_to_run(rank: int, incarnation: int = 1, *, admitted: bool = True) -> pb.RankOrder:
    """Build the order that has a rank run."""
    environment = {"WORLD_SIZE": "4", "HAJOB_ATTEMPT": "3", "RANK": "99"}
    return pb.RankOrder(rank=rank, incarnation=incarnation, run=True, admitted=admitted, environment=environment)
