"""The ports of a job controller: the Kubernetes API, the coordinators, the clock.

Tests put a simulated world behind the same ports. A job controller has no other access (docs/decisions/0003 and
0004).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from hajob.clock import Clock
from hajob.coordinator_link.channel import ChannelListener, CoordinatorCredentials
from hajob.job.cluster import Cluster
from hajob.job.dry_run_cache import DryRunCache
from hajob.job.status_publisher import WritePace
from hajob.kube.client import Kube
from hajob.kube.events import Announcer
from hajob.leader.leadership import Leadership
from hajob.pki.authority_store import AuthorityStore
from hajob.pods.settings import PodSettings
from hajob.protocol import sidecar_pb2 as wire


class Link(Protocol):
    """A connection to one coordinator (hajob.coordinator_link.channel.Channel)."""

    address: str

    def start(self) -> None:
        """Start dialling."""

    async def close(self) -> None:
        """Close the link for good."""

    def hurry(self) -> None:
        """Dial at once again, if the coordinator has not answered."""

    def assign(self, assignment: wire.Assignment) -> None:
        """Send the job's description and the addresses of its pods."""

    def order(self, order: wire.Order) -> None:
        """Send the action that is wanted now."""

    def acknowledge(self, sequence: int) -> None:
        """Acknowledge that the effects of a report are in the status."""


class Dial(Protocol):
    """A factory of links to coordinators."""

    def __call__(
        self, address: str, job_uid: str, credentials: CoordinatorCredentials, listener: ChannelListener
    ) -> Link:
        """Make a link that is not started yet."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports, and the state that all job controllers share.

    Attributes:
        cluster: nodes, and what all jobs share of them.
        leadership: of this process: its right to write, and its number.
        cut_off: returns why this operator is taken to be cut off from the coordinators; empty while it is not.
        crd_is_older: returns what the installed CRD lacks, in a sentence; empty: nothing.
        dry_runs: answers to the question whether the server accepts a job's pods.
        pace: of pods and non-urgent statuses.
    """

    kube: Kube
    clock: Clock
    dial: Dial
    announcer: Announcer
    pod_settings: PodSettings
    authorities: AuthorityStore
    cluster: Cluster
    leadership: Leadership
    cut_off: Callable[[], str] = str
    crd_is_older: Callable[[], str] = str
    dry_runs: DryRunCache = field(default_factory=DryRunCache)
    pace: WritePace = field(default_factory=WritePace)
