"""What the chart lets the operator do, asked of a real server and held against kept tables.

The table for all namespaces is the one of deploy/, too. HAJOB_UPDATE_GOLDEN=1 writes that for one namespace.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster.control_plane import ControlPlane
from e2e.harness.fixtures import a_namespace
from e2e.harness.operator import moved, uninstall
from tests.integration.chart.helm import rendered
from tests.integration.runtime.test_rights_matrix import TABLE, table

ONE = Path(__file__).parent / "rights-of-one-namespace.txt"
KINDS = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
EVERYWHERE = "faultNamespaces={kube-system,mindx-dl}"


@contextmanager
def installed(plane: ControlPlane, namespace: str, *values: str) -> Iterator[None]:
    """The chart's rights, in a namespace of this test and under names of its own."""
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mindx-dl"}})
    objects = [moved(each, namespace) for each in rendered("--set", ",".join(values)) if each["kind"] in KINDS]
    plane.apply(*objects)
    try:
        yield
    finally:
        uninstall(plane, objects, namespace)


def test_the_charts_rights_are_those_of_the_table(control_plane: ControlPlane, namespace: str) -> None:
    places = {"where it runs": namespace, "kube-system": "kube-system", "elsewhere": "default"}
    with installed(control_plane, namespace, EVERYWHERE):
        assert table(control_plane, namespace, places) == TABLE.read_text()


def test_of_one_namespace_the_operator_has_rights_there(control_plane: ControlPlane, namespace: str) -> None:
    with (
        a_namespace(control_plane, "jobs") as jobs,
        installed(control_plane, namespace, EVERYWHERE, f"watchNamespace={jobs}"),
    ):
        places = {"where it runs": namespace, "of its jobs": jobs, "kube-system": "kube-system", "elsewhere": "default"}
        found = table(control_plane, namespace, places)
    if os.environ.get("HAJOB_UPDATE_GOLDEN"):
        ONE.write_text(found)
    assert found == ONE.read_text()
