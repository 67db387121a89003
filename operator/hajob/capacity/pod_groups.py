"""Volcano's PodGroups and Queues as the informers see them, by name."""

from __future__ import annotations

from dataclasses import dataclass, field

from hajob.sources.pod_group import PodGroupView, VolcanoQueue


@dataclass(slots=True)
class PodGroups:
    """What is known of Volcano.

    Attributes:
        groups: PodGroups by namespace and name.
        queues: Queues by name.
        queues_are_known: whether all Queues were listed: what is missing then does not exist.
    """

    groups: dict[str, PodGroupView] = field(default_factory=dict)
    queues: dict[str, VolcanoQueue] = field(default_factory=dict)
    queues_are_known: bool = False

    def store_group(self, group: PodGroupView) -> None:
        """Store a PodGroup as it is now."""
        self.groups[group.key] = group

    def remove_group(self, group: PodGroupView) -> None:
        """Remove a deleted PodGroup."""
        self.groups.pop(group.key, None)

    def store_queue(self, queue: VolcanoQueue) -> None:
        """Store a Queue as it is now."""
        self.queues[queue.name] = queue

    def remove_queue(self, name: str) -> None:
        """Remove a deleted Queue."""
        self.queues.pop(name, None)
