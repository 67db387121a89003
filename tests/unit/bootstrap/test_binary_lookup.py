"""Each program is looked up singly, and one found elsewhere counts only in the version that is wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.bootstrap import binaries
from e2e.bootstrap.binaries import BINARIES, MissingBinaryError, find, locate
from e2e.bootstrap.paths import platform_name

SERVER = next(each for each in BINARIES if each.name == "kube-apiserver")


def script(path: Path, says: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAJOB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)


def test_nothing_there_names_what_to_type() -> None:
    with pytest.raises(MissingBinaryError, match=r"kube-apiserver 1\.36\.3 is not built yet: run `make setup`"):
        locate("kube-apiserver")


def test_the_cache_comes_first(tmp_path: Path) -> None:
    script(tmp_path / "path/kube-apiserver", "Kubernetes v1.36.3")
    assert find(SERVER) == tmp_path / "path/kube-apiserver"
    cached = script(SERVER.cached, "")
    assert find(SERVER) == cached


def test_assets_of_the_right_version_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assets = tmp_path / "assets"
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    script(assets / "kube-apiserver", "Kubernetes v1.36.3")
    script(assets / "etcd", "etcd Version: 3.5.0")
    assert find(SERVER) == assets / "kube-apiserver"
    assert [each.name for each in BINARIES if find(each) is None] == [
        "etcd",
        "kubectl",
        "kube-controller-manager",
        "kube-scheduler",
    ]


@pytest.mark.parametrize("says", ["Kubernetes v1.36.30", "Kubernetes v1.35.4", ""])
def test_another_version_does_not_count(tmp_path: Path, says: str) -> None:
    script(tmp_path / "path/kube-apiserver", says)
    assert find(SERVER) is None


def test_a_broken_program_does_not_count(tmp_path: Path) -> None:
    broken = script(tmp_path / "path/kube-apiserver", "Kubernetes v1.36.3")
    broken.write_text("#!/no/such/interpreter\n")
    assert find(SERVER) is None


def test_a_cached_name_tells_version_and_platform() -> None:
    assert SERVER.cached.name == f"kube-apiserver-{binaries.KUBERNETES_VERSION}-{platform_name()}"
