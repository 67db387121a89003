"""The chart's admission policy on a real API server: the status and the finalizer are the operator's, whoever asks."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from e2e.harness.operator import NAME
from hajob.api.constants import FINALIZER, PLURAL
from hajob.kube.http import HttpKube
from tests.integration.chart.chart_release import PATHS_OF_POLICIES, TAKE, Release
from tests.integration.chart.helm import CHART, helm
from tests.rigs.jobs_on_server import QUICKSTART
from tests.rigs.operator_rights import operator_credentials

on_server = pytest.mark.skipif(
    not os.environ.get("HAJOB_CHART_ON_SERVER"), reason="changes what other tests may write: make chart"
)
STATUS = {"status": {"observedGeneration": 1}}


class Guarded:
    """A job with a finalizer, where the policy holds."""

    def __init__(self, release: Release, directory: Path) -> None:
        self.release, self.credentials = release, operator_credentials(release.plane, release.namespace, directory)
        self.operator = f"system:serviceaccount:{release.namespace}:{NAME}"
        self.path = f"/apis/training.hajob.io/v1alpha1/namespaces/{release.namespace}/hatrainingjobs/guarded"
        metadata = {"name": "guarded", "finalizers": [FINALIZER]}
        release.plane.api.create(self.path.rpartition("/")[0], {**QUICKSTART, "metadata": metadata})
        release.plane.wait("the policy to hold", lambda: self.patch(STATUS, "--subresource=status", "--dry-run=server"))

    def patch(self, change: Any, *arguments: str) -> str:
        """Patch the job; what the server says against it, empty: nothing."""
        where = ("hatrainingjob", "guarded", "--namespace", self.release.namespace, "--type=merge")
        done = self.release.plane.kubectl("patch", *where, "-p", json.dumps(change), *arguments, check=False)
        return done.stderr if done.returncode else ""

    async def written_by_the_operator(self, change: Any, subresource: str = "") -> None:
        async with HttpKube(self.credentials) as kube:
            await kube.patch_object(PLURAL, self.release.namespace, "guarded", change, subresource=subresource)


@pytest.fixture
async def guarded(release: Release, tmp_path: Path) -> AsyncIterator[Guarded]:
    release.helm("install", "hajob", str(CHART), "--set", "admissionPolicy.enabled=true", *TAKE)
    made = Guarded(release, tmp_path)
    yield made
    if release.plane.api.find(made.path):
        made.patch({"metadata": {"finalizers": None}}, "--as", made.operator)


@on_server
async def test_a_strangers_status_is_refused_in_a_sentence(guarded: Guarded) -> None:
    refused = guarded.patch(STATUS, "--subresource=status")
    assert f"the status of a HATrainingJob is written by its operator ({guarded.operator}) only" in refused
    await guarded.written_by_the_operator(STATUS, "status")
    assert guarded.release.plane.api.get(guarded.path)["status"]["observedGeneration"] == 1


@on_server
async def test_a_strangers_hand_on_the_finalizer_is_refused(guarded: Guarded) -> None:
    refused = guarded.patch({"metadata": {"finalizers": None}})
    assert f"keep the finalizer {FINALIZER}" in refused
    assert "kubectl delete validatingadmissionpolicybinding hajob-operator" in refused, "the way out is told"
    assert guarded.patch({"metadata": {"labels": {"team": "a"}}}) == "", "the rest is the user's"
    assert guarded.patch({"metadata": {"finalizers": [FINALIZER, "example.org/mine"]}}) == ""
    assert guarded.patch({"metadata": {"finalizers": [FINALIZER]}}) == ""


@on_server
async def test_the_documented_removal_works_under_the_policy(guarded: Guarded) -> None:
    """Jobs first, of which the operator takes its finalizer; then the release, and with it the policy."""
    guarded.release.plane.api.delete(guarded.path)
    await guarded.written_by_the_operator({"metadata": {"finalizers": None}})
    assert guarded.release.plane.api.find(guarded.path) is None
    guarded.release.helm("uninstall", "hajob")
    assert guarded.release.plane.api.find(f"{PATHS_OF_POLICIES['admission-policy']}/hajob-operator") is None


@on_server
async def test_what_uninstalling_left_can_be_removed_by_hand(guarded: Guarded) -> None:
    guarded.release.helm("uninstall", "hajob")

    def let_go() -> bool:
        return guarded.patch({"metadata": {"finalizers": None}}) == ""

    guarded.release.plane.wait("the policy to be gone", let_go)


def test_a_server_too_old_for_it_is_refused_in_a_sentence() -> None:
    arguments = ("template", "hajob", str(CHART), "--kube-version", "1.29.6")
    done = helm(*arguments, "--set", "admissionPolicy.enabled=true", check=False)
    assert "admissionPolicy.enabled needs Kubernetes 1.30 or newer; this is v1.29.6" in done.stderr
    helm(*arguments)
