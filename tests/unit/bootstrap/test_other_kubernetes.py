"""Control planes of other Kubernetes versions: which programs they are, and the module they are built in."""

from __future__ import annotations

import subprocess
import sys

import pytest
import yaml

from e2e.bootstrap.binaries import KUBERNETES_VERSION, OTHER_KUBERNETES, VERSION_VARIABLE, kubernetes_parts
from e2e.bootstrap.other_kubernetes import module_text
from e2e.bootstrap.paths import CHECKOUT

ORIGINAL = """
replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/cri-api => ./staging/src/k8s.io/cri-api
)
"""


def test_staging_modules_are_the_published_ones() -> None:
    text = module_text("1.29.6", ORIGINAL)
    assert "require k8s.io/kubernetes v1.29.6\n" in text
    assert "\tk8s.io/api => k8s.io/api v0.29.6\n\tk8s.io/cri-api => k8s.io/cri-api v0.29.6\n" in text


def test_a_module_that_lacks_is_of_an_earlier_patch() -> None:
    original = "replace (\n\tk8s.io/api => ./staging/x\n\tk8s.io/endpointslice => ./staging/y\n)\n"
    text = module_text("1.32.13", original)
    assert "\tk8s.io/api => k8s.io/api v0.32.13\n" in text
    assert "\tk8s.io/endpointslice => k8s.io/endpointslice v0.32.5\n" in text


def test_the_oldest_version_of_the_chart_is_among_them() -> None:
    chart = yaml.safe_load((CHECKOUT / "charts/hajob/Chart.yaml").read_text())
    oldest = min(OTHER_KUBERNETES, key=lambda version: int(version.split(".")[1]))
    assert chart["kubeVersion"] == f">={'.'.join(oldest.split('.')[:2])}.0-0"


def test_each_is_built_in_a_module_of_its_version() -> None:
    for version in OTHER_KUBERNETES:
        for each in kubernetes_parts(version):
            assert (each.version, each.module, each.generated) == (version, f"kubernetes-{version}", True)


@pytest.mark.parametrize(
    ("chosen", "found"), [("", KUBERNETES_VERSION), ("1.29.6", "1.29.6"), ("1.2", KUBERNETES_VERSION)]
)
def test_a_variable_chooses_the_version(chosen: str, found: str) -> None:
    said = "from e2e.bootstrap.binaries import BINARIES; print({b.name: b.version for b in BINARIES}['kube-apiserver'])"
    done = subprocess.run(
        [sys.executable, "-c", said],
        cwd=CHECKOUT,
        env={VERSION_VARIABLE: chosen},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == found
