"""What the controller manager does: garbage collection, quotas, budgets, the end of namespaces.

One pass after another until nothing changes, some time after each change: whoever relies on it at once is wrong, here
as in a cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from e2e.memory_api import eviction, quota
from e2e.memory_api.history import History
from e2e.memory_api.resources import BUDGETS, BY_KIND, BY_PLURAL, NAMESPACES, PODS, QUOTAS, Resource
from hajob.api.base import Json
from hajob.clock import Clock


class Server(Protocol):
    """What the controllers use of the server in memory."""

    clock: Clock
    history: History

    def store(self, resource: Resource, old: Json, new: Json) -> Json:
        """Store a changed object."""

    def delete(self, resource: Resource, old: Json, grace: int | None = None, policy: str = "") -> Json:
        """Begin, hasten or complete a deletion."""


class Controllers:
    """Run after every change of the server's objects."""

    def __init__(self, server: Server, seconds: float) -> None:
        self._server = server
        self._seconds = seconds
        self._task: asyncio.Task[None] | None = None
        self._again = False

    def wake(self) -> None:
        """Something has changed; before a loop runs nothing is done."""
        self._again = True
        if self._task is not None and not self._task.done():
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._task = loop.create_task(self._run(), name="controllers of the server in memory")

    async def _run(self) -> None:
        while self._again:
            self._again = False
            if self._seconds:
                await self._server.clock.sleep(self._seconds)
            else:
                await asyncio.sleep(0)
            while self.reconcile():
                pass

    def reconcile(self) -> bool:
        """One pass; whether anything has changed."""
        before = self._server.history.version
        self._collect_garbage()
        self._end_namespaces()
        self._observe()
        return self._server.history.version != before

    def _collect_garbage(self) -> None:
        for plural, body in list(self._server.history.everything()):
            resource = BY_PLURAL[plural]
            if body["metadata"].get("ownerReferences"):
                self._see_to_owners(resource, body)
            finalizers = body["metadata"].get("finalizers") or []
            if body["metadata"].get("deletionTimestamp") and {"foregroundDeletion", "orphan"} & set(finalizers):
                self._see_to_dependents(resource, body, finalizers)

    def _see_to_owners(self, resource: Resource, body: Json) -> None:
        """Delete what has lost its last owner; forget owners that are gone beside others that are not."""
        references = body["metadata"]["ownerReferences"]
        alive = [each for each in references if self._owner(each, body) is not None]
        if not alive:
            if not body["metadata"].get("deletionTimestamp"):
                self._server.delete(resource, body, policy="Background")
        elif len(alive) < len(references):
            self._server.store(resource, body, _with(body, "ownerReferences", alive))

    def _owner(self, reference: Json, body: Json) -> Json | None:
        resource = BY_KIND.get((reference["apiVersion"], reference["kind"]))
        if resource is None:
            return None
        namespace = body["metadata"].get("namespace", "") if resource.namespaced else ""
        found = self._server.history.find(resource.plural, (namespace, reference["name"]))
        return found if found is not None and found["metadata"]["uid"] == reference["uid"] else None

    def _see_to_dependents(self, resource: Resource, owner: Json, finalizers: list[str]) -> None:
        uid, blocked = owner["metadata"]["uid"], False
        for plural, body in list(self._server.history.everything()):
            references = body["metadata"].get("ownerReferences") or []
            mine = next((each for each in references if each["uid"] == uid), None)
            if mine is None:
                continue
            if "orphan" in finalizers:
                rest = [each for each in references if each["uid"] != uid]
                self._server.store(BY_PLURAL[plural], body, _with(body, "ownerReferences", rest))
            else:
                blocked = blocked or bool(mine.get("blockOwnerDeletion"))
                if not body["metadata"].get("deletionTimestamp"):
                    self._server.delete(BY_PLURAL[plural], body, policy="Background")
                    blocked = blocked and self._server.history.find(plural, _key(body)) is not None
        if not blocked:
            left = [each for each in finalizers if each not in {"foregroundDeletion", "orphan"}]
            self._server.store(resource, owner, _with(owner, "finalizers", left))

    def _end_namespaces(self) -> None:
        for namespace in self._server.history.all(NAMESPACES.plural):
            if not namespace["metadata"].get("deletionTimestamp"):
                continue
            name = namespace["metadata"]["name"]
            content = [
                (plural, body)
                for plural, body in self._server.history.everything()
                if body["metadata"].get("namespace") == name
            ]
            for plural, body in content:
                if not body["metadata"].get("deletionTimestamp"):
                    self._server.delete(BY_PLURAL[plural], body, policy="Background")
            if not content:
                self._server.store(NAMESPACES, namespace, {**namespace, "spec": {}})

    def _observe(self) -> None:
        """Statuses of quotas and budgets."""
        history = self._server.history
        for each in history.all(QUOTAS.plural):
            namespace = each["metadata"]["namespace"]
            objects = [
                (BY_PLURAL[plural], body)
                for plural, body in history.everything()
                if body["metadata"].get("namespace") == namespace
            ]
            self._put(QUOTAS, each, quota.observed(each, objects))
        pods = history.all(PODS.plural)
        for each in history.all(BUDGETS.plural):
            self._put(BUDGETS, each, eviction.observed(each, pods))

    def _put(self, resource: Resource, old: Json, new: Json) -> None:
        if new != old:
            self._server.history.put(resource.plural, new)


def _with(body: Json, name: str, values: Sequence[object]) -> Json:
    """The object with another list in its metadata; without it where it is empty."""
    rest = {key: value for key, value in body["metadata"].items() if key != name}
    return {**body, "metadata": {**rest, name: list(values)} if values else rest}


def _key(body: Json) -> tuple[str, str]:
    return str(body["metadata"].get("namespace", "")), str(body["metadata"]["name"])
