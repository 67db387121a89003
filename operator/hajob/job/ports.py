"""The ports of a job controller: the Kubernetes API, the coordinators, the clock.

Tests put a simulated world behind the same ports. A job controller has no other access (docs/decisions/0003 and
0004).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hajob.clock import Clock
from hajob.coordinator_link.channel import Dialer
from hajob.job.cluster import Cluster
from hajob.job.dry_run_cache import DryRunCache
from hajob.job.incident_feed import IncidentFeed
from hajob.job.status_publisher import WritePace
from hajob.kube.client import Kube
from hajob.kube.events import Announcer
from hajob.leader.leadership import Leadership
from hajob.pki.authority_store import AuthorityStore
from hajob.pods.settings import PodSettings


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports, and the state that all job controllers share.

    Attributes:
        cluster: nodes, and what else all jobs share.
        leadership: of this process: its right to write, and its number.
        dry_runs: answers to the question whether the server accepts a job's pods.
        pace: of pods and non-urgent statuses.
        feed: takes news of incidents.
    """

    kube: Kube
    clock: Clock
    dialer: Dialer
    announcer: Announcer
    pod_settings: PodSettings
    authorities: AuthorityStore
    cluster: Cluster
    leadership: Leadership
    dry_runs: DryRunCache = field(default_factory=DryRunCache)
    pace: WritePace = field(default_factory=WritePace)
    feed: IncidentFeed = field(default_factory=IncidentFeed)
