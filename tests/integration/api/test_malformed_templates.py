"""Nonsense in a template against the real server: refused when it is applied, or by the operator in words."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from typing import Any

import pytest

from e2e.cluster.control_plane import ControlPlane
from hajob.api import constants as names
from hajob.api.base import Json
from hajob.kube.credentials import from_kubeconfig
from hajob.kube.http import HttpKube
from tests.rigs.malformed_templates import MALFORMED, UNKNOWN_WORDS, check_refused_in_words, shown


class Named(HttpKube):
    """A client whose jobs get names of their own, and are gone after the test."""

    made: list[str]

    async def create_object(self, resource: str, namespace: str, body: Json, *, dry_run: bool = False) -> Json:
        """Create an object."""
        if resource == names.PLURAL:
            body["metadata"]["name"] = f"job-{secrets.token_hex(4)}"
            self.made.append(body["metadata"]["name"])
        return await super().create_object(resource, namespace, body, dry_run=dry_run)


@pytest.fixture
async def kube(control_plane: ControlPlane, crd: Json) -> AsyncIterator[Named]:
    async with Named(await from_kubeconfig(str(control_plane.kubeconfig))) as made:
        made.made = []
        yield made
        for name in made.made:
            control_plane.api.delete(f"/apis/{names.API_VERSION}/namespaces/default/{names.PLURAL}/{name}")


@pytest.mark.parametrize("case", [*MALFORMED, *UNKNOWN_WORDS], ids=shown)
async def test_nonsense_in_a_template_is_refused_in_words(kube: Named, case: Any) -> None:
    await check_refused_in_words(kube, case)
