"""The operator's own client on the real control plane."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from e2e.cluster.control_plane import ControlPlane
from hajob.kube.credentials import ApiCredentials, from_kubeconfig
from hajob.kube.http import HttpKube


@pytest.fixture
async def credentials(control_plane: ControlPlane) -> ApiCredentials:
    return await from_kubeconfig(str(control_plane.kubeconfig))


@pytest.fixture
async def kube(credentials: ApiCredentials) -> AsyncIterator[HttpKube]:
    async with HttpKube(credentials) as made:
        yield made
