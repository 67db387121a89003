"""All objects, every change of them by version, and who is told.

Objects are never changed in place: a change is a new value. So an older state is the present one with later changes
undone, which is what pages of one list are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from e2e.memory_api.errors import expired
from hajob.api.base import Json

Key = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class Change:
    """What one write did to one object; without `old` it came, without `new` it went."""

    version: int
    plural: str
    key: Key
    old: Json | None
    new: Json | None


class History:
    """The store.

    Args:
        first: the version before anything is written.
        kept: so many changes are remembered; who asks for an older version is told that it is too old.
    """

    def __init__(self, first: int = 100, kept: int = 20_000) -> None:
        self.version = first
        self.observers: list[Callable[[Change], None]] = []
        self._kept = kept
        self._objects: dict[str, dict[Key, Json]] = {}
        self._changes: list[Change] = []
        self._oldest = first

    def find(self, plural: str, key: Key) -> Json | None:
        """An object as it is now; not to be changed."""
        return self._objects.get(plural, {}).get(key)

    def all(self, plural: str) -> list[Json]:
        """All objects of a resource, in the order of a list."""
        found = self._objects.get(plural, {})
        return [found[key] for key in sorted(found)]

    def everything(self) -> Iterator[tuple[str, Json]]:
        """Every object with its plural."""
        for plural in sorted(self._objects):
            for body in self.all(plural):
                yield plural, body

    def put(self, plural: str, body: Json) -> Json:
        """Store a new value; it gets the next version."""
        self.version += 1
        new = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        key = key_of(new)
        old = self.find(plural, key)
        self._objects.setdefault(plural, {})[key] = new
        self._tell(Change(self.version, plural, key, old, new))
        return new

    def remove(self, plural: str, body: Json) -> None:
        """Take an object away; `body` is how it last was."""
        self.version += 1
        self._objects[plural].pop(key_of(body))
        self._tell(Change(self.version, plural, key_of(body), body, None))

    def state(self, plural: str, version: int) -> list[Json]:
        """All objects of a resource as they were at a version, in the order of a list.

        Raises:
            ApiError: 410, that is too long ago.
        """
        found = dict(self._objects.get(plural, {}))
        for change in reversed(self.since(version)):
            if change.plural == plural:
                if change.old is None:
                    found.pop(change.key)
                else:
                    found[change.key] = change.old
        return [found[key] for key in sorted(found)]

    def since(self, version: int) -> list[Change]:
        """Every change after a version.

        Raises:
            ApiError: 410, that is too long ago.
        """
        if version < self._oldest:
            raise expired(f"too old resource version: {version} ({self._oldest})")
        later: list[Change] = []
        for change in reversed(self._changes):
            if change.version <= version:
                break
            later.append(change)
        return later[::-1]

    def go_back(self, version: int) -> None:
        """Be as at an older version again, as a server that was restored from a snapshot: later changes never were.

        Raises:
            ApiError: 410, that is too long ago.
        """
        undone = self.since(version)
        for plural in {change.plural for change in undone}:
            self._objects[plural] = {key_of(body): body for body in self.state(plural, version)}
        self._changes = [change for change in self._changes if change.version <= version]
        self.version = version

    def forget(self) -> None:
        """Remember no change from before now, as a server after a compaction."""
        self._changes.clear()
        self._oldest = self.version

    def _tell(self, change: Change) -> None:
        self._changes.append(change)
        if len(self._changes) > 2 * self._kept:
            del self._changes[: -self._kept]
            self._oldest = self._changes[0].version - 1
        for observer in list(self.observers):
            observer(change)


def key_of(body: Json) -> Key:
    """Namespace and name of an object."""
    metadata = body["metadata"]
    return str(metadata.get("namespace", "")), str(metadata["name"])
