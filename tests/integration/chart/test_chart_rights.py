"""What the chart lets the operator do, asked of a real server and held against kept tables.

The table for all namespaces is the one of deploy/, too. HAJOB_UPDATE_GOLDEN=1 writes that for a list of them.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster.control_plane import ControlPlane
from e2e.harness.fixtures import a_namespace
from e2e.harness.operator import moved, uninstall
from tests.integration.chart.helm import rendered
from tests.rigs.operator_rights import KINDS_THAT_GIVE_RIGHTS, RIGHTS_FILE, rights_table

OF_A_LIST = Path(__file__).parent / "rights-of-a-list.txt"
EVERYWHERE = "faultNamespaces={kube-system,mindx-dl}"


@contextmanager
def installed(plane: ControlPlane, namespace: str, *values: str) -> Iterator[None]:
    """The chart's rights, in a namespace of this test and under names of its own."""
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mindx-dl"}})
    objects = [
        moved(each, namespace) for each in rendered("--set", ",".join(values)) if each["kind"] in KINDS_THAT_GIVE_RIGHTS
    ]
    plane.apply(*objects)
    try:
        yield
    finally:
        uninstall(plane, objects, namespace)


def test_the_charts_rights_are_those_of_the_table(control_plane: ControlPlane, namespace: str) -> None:
    places = {"where it runs": namespace, "kube-system": "kube-system", "elsewhere": "default"}
    with installed(control_plane, namespace, EVERYWHERE):
        assert rights_table(control_plane, namespace, places) == RIGHTS_FILE.read_text()


def test_with_a_list_the_rights_to_jobs_end_with_it(control_plane: ControlPlane, namespace: str) -> None:
    with (
        a_namespace(control_plane, f"jobs-{secrets.token_hex(3)}") as jobs,
        a_namespace(control_plane, f"more-jobs-{secrets.token_hex(3)}") as more,
        installed(control_plane, namespace, EVERYWHERE, f"watchNamespaces={{{jobs},{more}}}"),
    ):
        listed = {"in the list": jobs, "there as well": more}
        places = {"where it runs": namespace, **listed, "kube-system": "kube-system", "elsewhere": "default"}
        found = rights_table(control_plane, namespace, places)
    if os.environ.get("HAJOB_UPDATE_GOLDEN"):
        OF_A_LIST.write_text(found)
    assert found == OF_A_LIST.read_text()
