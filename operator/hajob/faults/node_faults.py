"""The faults of nodes and chips, as jobs ask for them."""

from __future__ import annotations

from collections.abc import Collection

from hajob.domain.hardware import ClusterFact


class NodeFaults:
    """Knows of no fault: nobody watches. hajob.faults.watch knows what the sources tell."""

    def faults_on(self, node: str) -> list[tuple[ClusterFact, int]]:
        """Return the believed faults that concern a job on the node, each with milliseconds since it was first seen."""
        del node
        return []

    def standing_faults(self, node: str) -> Collection[ClusterFact] | None:
        """Return the standing faults of a node that concern a job there; None while they are unknown."""
        del node
        return None

    def why_held(self) -> str:
        """Return why no fault is believed now; empty: faults are believed."""
        return ""
