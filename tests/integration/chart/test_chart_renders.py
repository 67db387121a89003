"""The chart renders what deploy/ has and what its values say; a wrong value is refused in a sentence."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.bootstrap.paths import CHECKOUT
from e2e.harness import previous
from hajob.app.settings import Settings
from tests.integration.chart.helm import CHART, CHART_TESTS, SETS_OF_VALUES, Object, helm, rendered

LIKE_DEPLOY = ("--set", "image.tag=dev,sidecar.image=hajob/sidecar:dev,faultNamespaces={kube-system,mindx-dl}")


def key(each: Object) -> tuple[str, str, str]:
    return each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]


def without_crds(objects: list[Object]) -> list[Object]:
    return sorted((each for each in objects if each["kind"] != "CustomResourceDefinition"), key=key)


def variables(objects: list[Object]) -> dict[str, str]:
    """What the operator's container is given, by name."""
    (deployment,) = [each for each in objects if key(each)[::2] == ("Deployment", "hajob-operator")]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


@pytest.mark.parametrize("name", SETS_OF_VALUES)
def test_a_set_of_values_renders_what_is_kept(name: str) -> None:
    """HAJOB_UPDATE_GOLDEN=1 writes what is kept."""
    found = without_crds(rendered("--values", str(CHART_TESTS / "values" / f"{name}.yaml")))
    kept = CHART_TESTS / "golden" / f"{name}.yaml"
    if os.environ.get("HAJOB_UPDATE_GOLDEN"):
        kept.write_text(yaml.safe_dump_all(found, sort_keys=False, width=110), encoding="utf-8")
    assert found == list(yaml.safe_load_all(kept.read_text(encoding="utf-8")))


def test_there_are_enough_sets() -> None:
    assert len(SETS_OF_VALUES) >= 8


# ----------------------------------------------------------------------------------- the same as deploy/


def deployed() -> list[Object]:
    names = ("hajob.yaml", "mindcluster.yaml", "network-policies.yaml")
    texts = [(CHECKOUT / "deploy" / name).read_text() for name in names]
    return [each for text in texts for each in yaml.safe_load_all(text) if each["kind"] != "Namespace"]


def comparable(each: Object) -> Object:
    """Without what only a chart says; rules as a set, for the chart puts them together."""
    shown = {name: value for name, value in each.items() if name != "metadata"}
    if "rules" in each:
        shown["rules"] = sorted(_rights(each["rules"]))
    return yaml.safe_load(yaml.safe_dump(shown).replace("imagePullPolicy: IfNotPresent", ""))  # type: ignore[no-any-return]


def _rights(rules: list[Object]) -> Iterator[tuple[str, ...]]:
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                names = rule.get("resourceNames") or [""]
                yield from ((group, resource, verb, name) for verb in rule["verbs"] for name in names)


def test_the_chart_installs_what_deploy_does() -> None:
    found = without_crds(
        rendered(*LIKE_DEPLOY, "--set", "networkPolicy.enabled=true,networkPolicy.jobNamespaces={jobs}")
    )
    mine, theirs = ({key(each): comparable(each) for each in objects} for objects in (found, deployed()))
    assert mine.keys() == theirs.keys()
    for name, each in mine.items():
        assert each == theirs[name], name


def test_its_crds_are_those_of_crds_and_stay() -> None:
    found = [each for each in rendered() if each["kind"] == "CustomResourceDefinition"]
    assert len(found) == len(list((CHECKOUT / "crds").glob("*.yaml")))
    for each in found:
        annotations = each["metadata"].pop("annotations")
        assert annotations["helm.sh/resource-policy"] == "keep"
        plural, _, group = each["metadata"]["name"].partition(".")
        assert each["spec"] == yaml.safe_load((CHECKOUT / "crds" / f"{group}_{plural}.yaml").read_text())["spec"]


# --------------------------------------------------------------------------------- namespaces in a list


def test_each_namespace_of_the_list_has_its_rights_once() -> None:
    found = rendered("--set", "watchNamespaces={jobs,more-jobs,jobs},watchNamespace=more-jobs")
    for kind in ("Role", "RoleBinding"):
        named = [each["metadata"] for each in found if each["kind"] == kind]
        assert [each["namespace"] for each in named if each["name"] == "hajob-jobs"] == ["jobs", "more-jobs"]
    assert variables(found)["HAJOB_WATCH_NAMESPACES"] == "jobs,more-jobs"


@pytest.mark.parametrize("namespace", ["", "jobs"])
def test_values_that_0_1_left_behind_serve_the_same(tmp_path: Path, namespace: str) -> None:
    """`helm upgrade --reuse-values` puts all values of the version before in the place of the chart's own."""
    try:
        before = previous.sources(tmp_path / "previous")
    except previous.NoHistoryError as error:
        pytest.skip(str(error))
    chart = tmp_path / "hajob"
    shutil.copytree(CHART, chart)
    shutil.copy(before / "charts/hajob/values.yaml", chart)
    found = rendered("--set", f"watchNamespace={namespace}", chart=chart)
    assert variables(found).get("HAJOB_WATCH_NAMESPACES", "") == namespace
    assert [each["metadata"]["namespace"] for each in found if each["metadata"]["name"] == "hajob-jobs"] == (
        [namespace] * 2 if namespace else []
    )


# ----------------------------------------------------------------------------------------- wrong values


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ("replica=3", "replica"),
        ("replicas=0", "replicas"),
        ("logLevel=LOUD", "logLevel"),
        ("settings.leaseSecond=3", "leaseSecond"),
        ("settings.leaseSeconds=soon", "leaseSeconds"),
        ("settings.leaseSeconds=0", "leaseSeconds"),
        ("settings.leaseRetrySeconds=-1", "leaseRetrySeconds"),
        ("settings.certificateDays=0", "certificateDays"),
        ("settings.faultNodeSelector=x", "faultNodeSelector"),
        ("metrics.port=99999", "port"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("faultNamespaces=kube-system", "faultNamespaces"),
        ("watchNamespaces=jobs", "watchNamespaces"),
        ("watchNamespaces={team-*}", "watchNamespaces"),
    ],
)
def test_a_wrong_value_is_refused_by_name(given: str, word: str) -> None:
    done = helm("template", "hajob", str(CHART), "--set", given, check=False)
    assert done.returncode != 0
    assert word in done.stderr
    assert "values don't meet the specifications of the schema" in done.stderr


@pytest.mark.parametrize("given", ["leaseRenewSeconds=10", "leaseSeconds=3", "leaseRetrySeconds=3"])
def test_times_of_two_leaders_at_once_are_refused(given: str) -> None:
    done = helm("template", "hajob", str(CHART), "--set", f"settings.{given}", check=False)
    assert done.returncode != 0
    assert "each must be larger than the next" in done.stderr


def test_lint_has_nothing_to_say() -> None:
    helm("lint", "--strict", str(CHART))


def test_values_of_the_version_before_render_the_same() -> None:
    """`helm upgrade --reuse-values` brings none of the values that came later."""
    later = "logFormat=null,jobDefaults=null,admissionPolicy=null,metrics.podMonitor=null,watchNamespaces=null"
    later += ",metrics.rules=null,metrics.dashboards=null,webhook=null"
    assert rendered("--set", later) == rendered()


def notes(*arguments: str) -> str:
    told = helm("install", "hajob", str(CHART), "-n", "hajob-system", "--dry-run=client", *arguments).stdout
    return told.partition("\nNOTES:\n")[2]


def test_notes_tell_how_faults_of_nodes_are_heard() -> None:
    assert "Faults are read in kube-system." in notes()
    assert "--set 'faultNamespaces={kube-system,mindx-dl}'" in notes()
    assert "Faults are read in" not in notes("--set", "faultNamespaces={kube-system,mindx-dl}")
    assert "Faults are read in no namespace." in notes("--set", "faultNamespaces=null")


def test_where_faults_are_read_there_is_a_right() -> None:
    """Else the operator asks for what it is refused, for ever."""
    for name in SETS_OF_VALUES:
        objects: Any = list(yaml.safe_load_all((CHART_TESTS / "golden" / f"{name}.yaml").read_text()))
        given = variables(objects)
        read = {each for each in Settings.from_environment(given).fault_namespaces.split(",") if each}
        bound = [each["metadata"] for each in objects if each["kind"] == "RoleBinding"]
        assert read == {each["namespace"] for each in bound if each["name"] == "hajob-fault-reader"}, name


def test_what_the_chart_says_the_operator_reads() -> None:
    """Every variable that any set of values makes is read by the operator, as what it was."""
    for name in SETS_OF_VALUES:
        given = variables(list(yaml.safe_load_all((CHART_TESTS / "golden" / f"{name}.yaml").read_text())))
        known = {f"HAJOB_{field.upper()}" for field in Settings.__dataclass_fields__}
        assert given.keys() <= known
        Settings.from_environment(given)


def test_grafana_finds_both_boards() -> None:
    labels = "metrics.dashboards.labels.grafana_dashboard=1,metrics.dashboards.labels.team=ml"
    found = rendered("--set", "metrics.dashboards.enabled=true", "--set-string", labels)
    (board,) = [each for each in found if each["kind"] == "ConfigMap"]
    assert board["metadata"]["labels"].items() >= {"grafana_dashboard": "1", "team": "ml"}.items()
    files = {f"hajob-{path.name}": path.read_text() for path in (CHART / "files/dashboards").glob("*.json")}
    assert board["data"] == files
    assert len(files) == 2
