"""How long an admin waits on real nodes: for an image, for the operators after `helm install`, for the next leader.

Not on process nodes: they have neither images nor probes of a kubelet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from e2e.bench.report import Limit, Row, row
from e2e.harness.leadership import watched
from e2e.kubelets import images
from e2e.kubelets.cluster import CHART, NAMESPACE, Cluster
from e2e.kubelets.machines import Machines
from e2e.kubelets.nodes import RealNodes

LEVELS: Final = ("DEBUG", "INFO")
"""Of the log: a value that an upgrade changes, whereupon both operators are exchanged."""


@dataclass
class Found:
    """Seconds, of each round.

    Attributes:
        imports: The first import of the operator's image, before anything of it was on the machine's nodes.
        ready: From `helm install` to the operators' readiness, with CRDs and the namespace to be made.
        leaderless: The longest time without a leader while an upgrade exchanges both operators.
    """

    imports: list[float] = field(default_factory=list)
    ready: list[float] = field(default_factory=list)
    leaderless: list[float] = field(default_factory=list)


def measure(found: Found, cluster: Cluster[Machines], rounds: int, say: Callable[[str], None]) -> None:
    """Install and upgrade again and again; what was measured before an error is in `found`."""
    if isinstance(cluster.nodes, RealNodes):
        found.imports.append(cluster.nodes.imports[images.OWN])
    for number in range(rounds):
        cluster.uninstall()
        cluster.plane.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found")
        began = time.monotonic()
        cluster.install()
        found.ready.append(time.monotonic() - began)
        with watched(cluster.plane, NAMESPACE) as leadership:
            for level in LEVELS:
                cluster.helm("upgrade", "hajob", str(CHART), "--set", f"logLevel={level}", "--wait")
                cluster.wait_operators()
        found.leaderless.append(leadership.without_leader())
        say(f"round {number + 1}: ready after {found.ready[-1]:.1f} s, no leader for {found.leaderless[-1]:.2f} s")


def rows(found: Found) -> Sequence[Row]:
    """The numbers beside their limits."""
    return [
        row("operator's image: first import on a node", "s", found.imports, Limit("max", 10)),
        row("helm install -> operators ready, images present", "s", found.ready, Limit("max", 15)),
        row("helm upgrade: without a leader", "s", found.leaderless, Limit("max", 1)),
    ]
