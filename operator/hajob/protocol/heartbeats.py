"""Interval of an agent's heartbeats to its coordinator.

A heartbeat and its answer cost a coordinator about 0.3 ms of a processor, so the agents of a large job send half as
often: 2,048 of them then take 0.6 of a core (docs/internals/benchmarks.md). A lease lasts for three of the longer
intervals.
"""

from __future__ import annotations

OFTEN_SECONDS = 0.5
SELDOM_SECONDS = 1.0
MANY_NODES = 512


def heartbeat_seconds(num_nodes: int) -> float:
    """Return the seconds between two heartbeats of one agent in a job of `num_nodes` nodes."""
    return SELDOM_SECONDS if num_nodes > MANY_NODES else OFTEN_SECONDS
