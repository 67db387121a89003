"""The rights in deploy/ are those that the code uses: no call without a right, and no right without a call.

The calls are read off the source, each with its method and resource, so none is missed because no test happened to make
it. tests/integration/operator/test_rights_on_server.py asks the real server what these rights come to.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest
import yaml

from e2e.bootstrap.paths import CHECKOUT
from hajob.api import constants as names
from hajob.kube.client import API_PATHS
from tests.rigs.operator_rights import Right, rights_bound_to_the_operator

SOURCE = CHECKOUT / "operator/hajob"
VERBS = {
    "get_object": "get",
    "find_object": "get",
    "list_pages": "list",
    "watch_objects": "watch",
    "create_object": "create",
    "replace_object": "update",
    "patch_object": "patch",
    "delete_object": "delete",
}
NOT_FROM_PODS = {"cli", "web"}
"""Rooms whose code runs with a person's rights."""
CHANGES = {
    "Create": ("create",),
    "Patch": ("patch",),
    "Put": ("get", "create", "patch"),
    "Delete": ("delete",),
}
"""Changes that policies want (hajob.job.wants), and the calls that each of them comes to (hajob.job.apply)."""
FORWARDING = {"informer.py", "leader_kube.py", "kube.py", "apply.py", "wants.py"}
"""They pass on what others name."""
BY_OTHERS = {
    (names.PLURAL, "list"): "kopf",
    (names.PLURAL, "watch"): "kopf",
    (names.PLURAL, "patch"): "kopf, for the finalizer",
    (f"{names.PLURAL}/finalizers", "update"): "the API server, for blockOwnerDeletion in ownerReferences",
}


def calls() -> set[Right]:
    """Resource and verb of every call in the operator's code."""
    found: set[Right] = set()
    for path in sorted(SOURCE.rglob("*.py")):
        if path.relative_to(SOURCE).parts[0] in NOT_FROM_PODS or path.name in FORWARDING:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        constants = dict(_constants(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                found.update(_rights(path, node, constants))
    return found


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=str() as text)):
                yield name, text


def _rights(path: Path, call: ast.Call, constants: dict[str, str]) -> Iterator[Right]:
    name = ast.unparse(call.func)
    if name == "Selection":
        resource = _resource(path, call.args[0], constants)
        yield from ((resource, "list"), (resource, "watch"))
    elif name.endswith("kube.pod_of_token"):
        yield "tokenreviews", "create"
    elif _is_kube(call.func):
        yield _resource(path, call.args[0], constants) + _subresource(call), VERBS[call.func.attr]
    elif name == "patch_of_pod":
        yield f"pods{_subresource(call)}", "patch"
    elif name == "deletion_of_pod":
        yield "pods", "delete"
    elif name in CHANGES:
        given = next(each.value for each in call.keywords if each.arg == "resource")
        for verb in CHANGES[name]:
            yield _resource(path, given, constants) + _subresource(call), verb


def _subresource(call: ast.Call) -> str:
    """Return the subresource that is named in a call, with its slash; empty for none."""
    part = next((ast.literal_eval(each.value) for each in call.keywords if each.arg == "subresource"), "")
    return f"/{part}" if part else ""


def _is_kube(called: ast.expr) -> TypeGuard[ast.Attribute]:
    if not isinstance(called, ast.Attribute):
        return False
    return called.attr in VERBS and ast.unparse(called.value).endswith("kube")


def _resource(path: Path, given: ast.expr, constants: dict[str, str]) -> str:
    text = ast.unparse(given)
    if isinstance(given, ast.Constant):
        return str(given.value)
    if text.startswith("names."):
        return str(getattr(names, text.removeprefix("names.")))
    assert text in constants, f"{path.name}: of {text} this test cannot tell which resource it is: name it"
    return constants[text]


def granted(*files: str) -> dict[Right, str]:
    """Resource and verb of every rule in these files of deploy that is bound to the operator, with its API group."""
    texts = ((CHECKOUT / "deploy" / name).read_text() for name in files or ("hajob.yaml", "kueue.yaml", "volcano.yaml"))
    return rights_bound_to_the_operator([each for text in texts for each in yaml.safe_load_all(text)])


def test_the_calls_are_found() -> None:
    assert ("pods", "create") in calls()
    assert (f"{names.PLURAL}/status", "patch") in calls()
    assert ("configmaps", "watch") in calls()


def test_every_call_has_its_right_and_every_right_its_call() -> None:
    used = calls() | BY_OTHERS.keys()
    assert granted().keys() - used == set(), "rights that nothing uses"
    assert used - granted().keys() == set(), "calls that would be refused"


@pytest.mark.parametrize("right", sorted(granted()))
def test_a_rule_names_the_group_that_is_asked(right: Right) -> None:
    resource, _ = right
    path = API_PATHS[resource.split("/")[0]]
    group = path.removeprefix("/apis/").split("/")[0] if path.startswith("/apis/") else ""
    assert granted()[right] == group


def in_the_chart() -> set[Right]:
    """Resource and verb of every rule in the chart's templates, read without Helm."""
    templates = CHECKOUT / "charts/hajob/templates"
    text = "\n".join((templates / name).read_text() for name in ("_helpers.tpl", "rights.yaml"))
    rules = re.findall(r"^- \{apiGroups: .*\}$|^- apiGroups: .*\n(?:  .*\n)+", text, re.MULTILINE)
    parsed = [rule for each in rules for rule in yaml.safe_load(each)]
    return {(resource, verb) for rule in parsed for resource in rule["resources"] for verb in rule["verbs"]}


def test_the_charts_rights_are_those_of_deploy() -> None:
    """The chart's own tests compare everything, but need Helm."""
    assert in_the_chart() == granted().keys()


OF_A_LIST = CHECKOUT / "tests/integration/chart/golden/two-namespaces.yaml"
BEYOND_A_LIST = {
    *(("pods", "list"), ("pods", "watch"), ("configmaps", "list"), ("configmaps", "watch")),
    (names.PLURAL, "patch"),
}
"""Pods of everybody, for the chips that they take; what the chart binds in the namespaces of faults only; and the
finalizer of jobs whose namespace is deleted, which may take the operator's rights there first.
"""
CLUSTER_SCOPED = {"nodes", names.QUARANTINES, "customresourcedefinitions", "tokenreviews"}


def test_with_a_list_the_rights_to_jobs_are_in_its_namespaces() -> None:
    objects = list(yaml.safe_load_all(OF_A_LIST.read_text()))
    one, two, cluster = (
        rights_bound_to_the_operator(
            [each for each in objects if each["metadata"].get("namespace") == where or "roleRef" in each]
        )
        for where in ("jobs", "more-jobs", None)
    )
    assert rights_bound_to_the_operator(objects).keys() == granted("hajob.yaml").keys()
    assert one == two != {}
    assert {(resource, verb) for resource, verb in cluster if resource not in CLUSTER_SCOPED} == BEYOND_A_LIST
