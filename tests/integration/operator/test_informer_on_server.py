"""The cache against a real server: complete, current, and right again after whatever broke."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hajob.clock import SystemClock
from hajob.kube.http import HttpKube
from hajob.kube.informer import Change, ChangeType, Informer, Selection

Object = dict[str, Any]


def _data(raw: Object) -> str:
    return str((raw.get("data") or {}).get("k"))


class Watched:
    """An informer of the ConfigMaps of one namespace, and what it reported."""

    def __init__(self, kube: HttpKube, namespace: str, *, large: bool = False) -> None:
        self.changes: list[tuple[ChangeType, str]] = []
        self._news = asyncio.Event()
        selection = Selection("configmaps", namespace, "app=x", large=large)
        self.informer = Informer(kube, SystemClock(), selection, _data, self._take)

    def _take(self, change: Change[str]) -> None:
        self.changes.append((change.type, change.value))
        self._news.set()

    async def until(self, *wanted: tuple[ChangeType, str]) -> None:
        """Wait for these changes, in any order."""
        async with asyncio.timeout(90):
            while sorted(self.changes) != sorted(wanted):
                self._news.clear()
                await self._news.wait()


def _map(name: str, value: str) -> Object:
    return {"metadata": {"name": name, "labels": {"app": "x"}}, "data": {"k": value}}


@pytest.mark.parametrize("large", [False, True], ids=["in pages", "in a stream"])
async def test_what_was_there_what_comes_and_what_goes(kube: HttpKube, namespace: str, large: bool) -> None:
    await kube.create_object("configmaps", namespace, _map("a", "1"))
    watched = Watched(kube, namespace, large=large)
    task = asyncio.create_task(watched.informer.list_and_watch())
    await watched.informer.synced.wait()
    assert watched.informer.get_cached(namespace, "a") == "1"
    await kube.create_object("configmaps", namespace, {"metadata": {"name": "other"}, "data": {"k": "not selected"}})
    await kube.create_object("configmaps", namespace, _map("b", "2"))
    await kube.patch_object("configmaps", namespace, "b", {"metadata": {"annotations": {"not": "projected"}}})
    await kube.patch_object("configmaps", namespace, "b", {"data": {"k": "3"}})
    await kube.delete_object("configmaps", namespace, "a")
    added, modified, deleted = ChangeType
    await watched.until((added, "1"), (added, "2"), (modified, "3"), (deleted, "1"))
    assert list(watched.informer.cached_values()) == ["3"]
    assert watched.informer.seconds_since_answer() < 20
    task.cancel()


@pytest.mark.parametrize("large", [False, True], ids=["in pages", "in a stream"])
@pytest.mark.parametrize("version", ["1", ""], ids=["an old version", "a new list"])
async def test_what_happened_while_it_was_away_is_told(
    kube: HttpKube, namespace: str, version: str, large: bool
) -> None:
    for name, value in (("stays", "1"), ("goes", "2"), ("anew", "3")):
        await kube.create_object("configmaps", namespace, _map(name, value))
    watched = Watched(kube, namespace, large=large)
    task = asyncio.create_task(watched.informer.list_and_watch())
    await watched.informer.synced.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    watched.changes.clear()
    for name in ("goes", "anew"):
        await kube.delete_object("configmaps", namespace, name)
    await kube.create_object("configmaps", namespace, _map("anew", "4"))
    watched.informer._version = version
    task = asyncio.create_task(watched.informer.list_and_watch())
    await watched.until((ChangeType.DELETED, "2"), (ChangeType.DELETED, "3"), (ChangeType.ADDED, "4"))
    assert sorted(watched.informer.cached_values()) == ["1", "4"]
    task.cancel()
