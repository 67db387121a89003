"""What the operator's service account may do on a real server, asked of the server and held against a kept table.

HAJOB_UPDATE_GOLDEN=1 writes the table; read the difference as what an attacker with the operator's token gains.
"""

from __future__ import annotations

import os

import pytest

from e2e.cluster.control_plane import ControlPlane
from e2e.harness.operator import install_rights
from tests.rigs.operator_rights import RIGHTS_FILE, rights_table


@pytest.fixture
def installed(control_plane: ControlPlane, namespace: str) -> str:
    """The rights as an admin installs them, in a namespace of this test."""
    install_rights(control_plane, namespace)
    return namespace


def test_the_rights_are_those_of_the_table(control_plane: ControlPlane, installed: str) -> None:
    places = {"where it runs": installed, "kube-system": "kube-system", "elsewhere": "default"}
    found = rights_table(control_plane, installed, places)
    if os.environ.get("HAJOB_UPDATE_GOLDEN"):
        RIGHTS_FILE.write_text(found)
    assert found == RIGHTS_FILE.read_text()
