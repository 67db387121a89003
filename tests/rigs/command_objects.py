"""The API server as the commands see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hajob.cli.objects import NODES


class FakeCommandObjects:
    """Objects by path; a merge patch is merged two levels deep."""

    def __init__(self, **found: dict[str, Any]) -> None:
        self.found: dict[str, Any] = {f"{NODES}/n1": {"metadata": {"name": "n1", "uid": "u"}}, **found}

    def find_object(self, path: str) -> dict[str, Any] | None:
        """Return an object, or the list of those below a path; None: there is none."""
        below = [one for key, one in self.found.items() if key.rpartition("/")[0] == path]
        return {"items": below} if below else self.found.get(path)

    def create_object(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Store an object below a path."""
        self.found[f"{path}/{body['metadata']['name']}"] = dict(body)
        return dict(body)

    def replace_object(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Store an object at its path."""
        self.found[path] = dict(body)
        return dict(body)

    def patch_object(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Merge into an object, two levels deep."""
        for key, value in body.items():
            self.found[path].setdefault(key, {}).update(value)
        return dict(self.found[path])

    def delete_object(self, path: str) -> None:
        """Forget an object, where there is one."""
        self.found.pop(path, None)
