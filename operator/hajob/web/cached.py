"""ReadObjects as the commands read them, out of caches that watches keep current: no request, no wait.

The readings of `hajob.cli` ask for paths; whoever answers here knows the newest state of everything that is watched.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs

from hajob.api.base import Json
from hajob.cli.cluster import ClusterError, ForbiddenError
from hajob.kube.client import ApiError
from hajob.kube.informer import Informer, Selection
from hajob.sources.reading import items, mapping

Cache = Informer[Json]

FORBIDDEN: Final = 403


@dataclass(frozen=True, slots=True)
class _Question:
    """A path taken apart: a resource, and what is selected of it; an empty name asks for a list."""

    resource: str
    namespace: str
    name: str
    selector: str


@dataclass(slots=True)
class CachedObjects:
    """What is known of a cluster.

    Attributes:
        caches: by what they select.
        still: objects that are read once and not watched, by path; None: there is none.
        unread: paths of such objects that could not be read, and why.
    """

    caches: dict[Selection, Cache] = field(default_factory=dict)
    still: dict[str, Json | None] = field(default_factory=dict)
    unread: dict[str, ApiError] = field(default_factory=dict)

    def find_object(self, path: str) -> Json | None:
        """Return an object or a list; None where there is none.

        Raises:
            ForbiddenError: it may not be read.
            ClusterError: it is not watched.
        """
        plain = path.partition("?")[0]
        # What was read once comes first: nothing watches it.
        if plain in self.still:
            return self.still[plain]
        if (problem := self.unread.get(plain)) is not None:
            raise (ForbiddenError if problem.status == FORBIDDEN else ClusterError)(f"GET {plain}: {problem}")
        question = _read_path(path)
        cache = self._cache_for(question)
        if cache is None:
            raise ClusterError(f"GET {plain}: not watched")
        if cache.refused:
            raise ForbiddenError(f"GET {plain}: forbidden")
        if question.name:
            return cache.get_cached(question.namespace, question.name)
        return {"items": list(_select_objects(cache.cached_values(), question))}

    def _cache_for(self, question: _Question) -> Cache | None:
        """Return the narrowest cache that holds everything that is asked for."""
        # A cache without a selector holds what one with a selector would, and all namespaces hold each one.
        for namespace in dict.fromkeys((question.namespace, "")):
            for selector in dict.fromkeys((question.selector, "")):
                for selection, cache in self.caches.items():
                    found = (selection.resource, selection.namespace, selection.label_selector)
                    if found == (question.resource, namespace, selector):
                        return cache
        return None


def _read_path(path: str) -> _Question:
    """Take a path of the Kubernetes API apart."""
    plain, _, query = path.partition("?")
    selector = (parse_qs(query).get("labelSelector") or [""])[0]
    parts = plain.strip("/").split("/")
    # /api/v1/… has two parts before the resource, /apis/GROUP/VERSION/… three.
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if len(parts) > 2 and parts[0] == "namespaces":
        namespace, parts = parts[1], parts[2:]
    return _Question(parts[0] if parts else "", namespace, parts[1] if len(parts) > 1 else "", selector)


def _select_objects(found: Iterable[Json], question: _Question) -> Iterable[Json]:
    wanted = [part.partition("=") for part in question.selector.split(",") if part]
    for raw in found:
        metadata = mapping(raw.get("metadata"))
        labels = mapping(metadata.get("labels"))
        if question.namespace and metadata.get("namespace") != question.namespace:
            continue
        if all((labels.get(key) == value) if sign else key in labels for key, sign, value in wanted):
            yield raw


_OF_CONTAINERS: Final = ("name", "resources", "ports", "restartPolicy")


def slim_pod(raw: Json) -> Json:
    """Return what the page needs of a pod: a pod of a training is 10 kB, and there are thousands."""
    spec = dict(mapping(raw.get("spec")))
    # Commands and variables are most of a pod, and may hold what nobody should see on a page.
    spec.pop("volumes", None)
    for part in ("containers", "initContainers"):
        found = [mapping(one) for one in items(spec.get(part))]
        spec[part] = [{name: one[name] for name in _OF_CONTAINERS if name in one} for one in found]
    return {**raw, "metadata": _metadata_without(raw, "managedFields", "annotations"), "spec": spec}


def slim_object(raw: Json) -> Json:
    """Return an object without what says who has written which field."""
    return {**raw, "metadata": _metadata_without(raw, "managedFields")}


def _metadata_without(raw: Json, *names: str) -> Json:
    """Return an object's metadata without these parts, which only servers and tools read."""
    return {key: value for key, value in mapping(raw.get("metadata")).items() if key not in names}
