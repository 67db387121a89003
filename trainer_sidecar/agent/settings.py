"""The agent's settings, all from its environment: nothing about a cluster or a path is known otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hajob.domain.fencing import FENCE_AFTER_SECONDS
from trainer_sidecar.environment import is_started_by_taskd, required_number, required_text
from trainer_sidecar.mindio_tls import DIRECTORY as MINDIO_TLS_DIRECTORY

CHECKPOINT_DIRECTORY = "HAJOB_CHECKPOINT_DIR"
"""Variable with the directory of spec.checkpoint.path, as a container sees it."""
UNNAMED = -1
"""Node rank of a spare that has none yet."""
LOOPBACK = "127.0.0.1"
"""Where only the pod's own containers reach this agent; a node whose pods share a network gives each another one."""


@dataclass
class Identity:
    """Which pod of the job this is; a spare is told late, once."""

    node_rank: int
    incarnation: int

    def name_pod(self, node_rank: int, incarnation: int) -> bool:
        """Name this pod by an order for it or a process in it; return whether that is new."""
        if self.node_rank != UNNAMED:
            return False
        self.node_rank, self.incarnation = node_rank, incarnation
        return True


@dataclass(frozen=True)
class AgentSettings:
    """The agent's settings: its identity and addresses.

    Attributes:
        is_followed: TaskD starts the ranks (`launcher: TaskD`); the launcher only follows their processes.
        local_address: where the gate is then, because MindIO's controller has its port at the pod's own address.
    """

    directory: Path
    tls_directory: Path
    pod_address: str
    pod_name: str
    pod_uid: str
    job_uid: str
    identity: Identity
    ranks_per_node: int
    world_size: int
    agent_port: int
    mindio_port: int
    rendezvous_port: int
    output_directory: str
    output_attempt_limit: int
    checkpoint_directory: str
    fence_after_seconds: int
    is_followed: bool = False
    local_address: str = LOOPBACK
    mindio_tls_directory: Path | None = None
    """Of MindIO's own certificates; None: its links are not encrypted."""
    rank_table: Path | None = None
    """Where the rank table is written; None: the pod has none."""

    @property
    def node_rank(self) -> int:
        """Return the node rank of this pod."""
        return self.identity.node_rank

    @property
    def incarnation(self) -> int:
        """Return the incarnation of this pod."""
        return self.identity.incarnation

    @property
    def gate_address(self) -> str:
        """Return where the ranks of this pod dial MindIO."""
        return self.local_address if self.is_followed else self.pod_address

    @property
    def local_ranks(self) -> range:
        """Return the ranks of this pod; none of a spare that was not named."""
        if self.node_rank == UNNAMED:
            return range(0)
        first = self.node_rank * self.ranks_per_node
        return range(first, first + self.ranks_per_node)


def read_settings(environment: Mapping[str, str]) -> AgentSettings:
    """Read the settings. SettingsError names the first variable that is wrong."""
    return AgentSettings(
        directory=Path(required_text(environment, "HAJOB_DIR")),
        tls_directory=Path(required_text(environment, "HAJOB_TLS_DIR")),
        pod_address=required_text(environment, "POD_IP"),
        pod_name=required_text(environment, "POD_NAME"),
        pod_uid=required_text(environment, "POD_UID"),
        job_uid=required_text(environment, "HAJOB_JOB_UID"),
        identity=Identity(_read_node_rank(environment), required_number(environment, "HAJOB_INCARNATION")),
        ranks_per_node=required_number(environment, "HAJOB_RANKS_PER_NODE"),
        world_size=required_number(environment, "HAJOB_WORLD_SIZE"),
        agent_port=required_number(environment, "HAJOB_AGENT_PORT", 7071),
        mindio_port=required_number(environment, "HAJOB_MINDIO_PORT", 8000),
        rendezvous_port=required_number(environment, "HAJOB_RENDEZVOUS_PORT", 29500),
        output_directory=environment.get("HAJOB_OUTPUT_DIR", ""),
        checkpoint_directory=environment.get(CHECKPOINT_DIRECTORY, ""),
        output_attempt_limit=required_number(environment, "HAJOB_OUTPUT_ATTEMPT_LIMIT", 5),
        fence_after_seconds=required_number(environment, "HAJOB_FENCE_AFTER_SECONDS", FENCE_AFTER_SECONDS),
        is_followed=is_started_by_taskd(environment),
        local_address=environment.get("HAJOB_LOCAL_ADDRESS") or LOOPBACK,
        mindio_tls_directory=Path(directory) if (directory := environment.get(MINDIO_TLS_DIRECTORY)) else None,
        rank_table=Path(path) if (path := environment.get("RANK_TABLE_FILE")) else None,
    )


def _read_node_rank(environment: Mapping[str, str]) -> int:
    return UNNAMED if environment.get("HAJOB_SPARE") else required_number(environment, "HAJOB_NODE_RANK")
