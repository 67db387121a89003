"""Kueue itself in the place of its stand-in, where `HAJOB_KUEUE` names a directory with its manager.

The directory has the program `kueue`, the CRDs as `crds/*.yaml`, and the webhooks as `webhooks.yaml`, as Kueue's source
has them in `config/components`. Only the version that Hajob speaks is served: its conversion is Kueue's own concern.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.kinds import read_objects
from e2e.cluster.pki import kubeconfig
from e2e.cluster.run import free_port
from e2e.kueue.crds import VERSION
from e2e.kueue.launch import KueueStandIn
from hajob.api.constants import GROUP

Object = dict[str, Any]
REAL_ONE: Final = "HAJOB_KUEUE"
_HOOKS: Final = frozenset({"mworkload.kb.io", "vworkload.kb.io", "mpod.kb.io", "vpod.kb.io"})
"""Of its webhooks those that a job of Hajob meets; the others are for kinds that are not installed."""
_RIGHTS: Final = "rbac.authorization.k8s.io"
_GROUPS: Final = (
    *("", "apps", "batch", "autoscaling", "node.k8s.io", "resource.k8s.io", "coordination.k8s.io", "events.k8s.io"),
    *("scheduling.k8s.io", "flowcontrol.apiserver.k8s.io", "admissionregistration.k8s.io", "apiextensions.k8s.io"),
    *("kueue.x-k8s.io", "jobset.x-k8s.io", "autoscaling.x-k8s.io", "authentication.k8s.io", "authorization.k8s.io"),
)
"""The API groups that its manager works with."""
JOBSETS: Final = "jobset.x-k8s.io/jobset"
_HOOKS_OF_JOBSETS: Final = frozenset({"mjobset.kb.io", "vjobset.kb.io"})


def directory_of_choice() -> Path | None:
    """Return the directory that is named; None: none is."""
    named = os.environ.get(REAL_ONE, "")
    return Path(named) if named else None


class RealKueue(KueueStandIn):
    """Kueue's own manager, webhooks and kinds."""

    def kinds(self) -> list[Object]:
        """Build its CRDs, with the version that Hajob speaks."""
        found = read_objects(self._directory / "crds")
        for crd in found:
            crd["spec"].pop("conversion", None)
            versions = [one for one in crd["spec"]["versions"] if one["name"] == VERSION]
            crd["spec"]["versions"] = [{**one, "storage": True} for one in versions] or crd["spec"]["versions"]
        return found

    @property
    def _directory(self) -> Path:
        named = directory_of_choice()
        assert named is not None
        return named

    def command(self) -> list[str]:
        """Return the command line of its manager, and write its configuration."""
        directory = self.directory
        self.plane.authority.server("kueue", [self.address]).write(directory, "tls")
        configuration = {
            **self.manager_configuration(),
            "health": {"healthProbeBindAddress": f"{self.address}:{free_port(self.address, self.port + 1)}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": self.address, "port": self.port, "certDir": str(directory)},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
        }
        path, gates = directory / "configuration.yaml", "--feature-gates=VisibilityOnDemand=false"
        path.write_text(yaml.safe_dump(configuration), encoding="utf-8")
        program = str(self._directory / "kueue")
        return [program, f"--config={path}", f"--kubeconfig={self._kubeconfig_with_rights()}", gates]

    def _kubeconfig_with_rights(self) -> Path:
        """Write the kubeconfig of a user of the manager's own, with its rights; those to jobs may be left out."""
        user = f"kueue-{self.namespace}"
        path = self.directory / "kubeconfig"
        authority = self.plane.authority
        path.write_text(kubeconfig(self.plane.server, authority.credential().certificate, authority.client(user)))
        rules: list[Object] = [{"apiGroups": list(_GROUPS), "resources": ["*"], "verbs": ["*"]}]
        if self.configuration.may_read_jobs:
            rules.append({"apiGroups": [GROUP], "resources": ["hatrainingjobs"], "verbs": ["get", "list", "watch"]})
        self.plane.apply(
            {"apiVersion": f"{_RIGHTS}/v1", "kind": "ClusterRole", "metadata": {"name": user}, "rules": rules},
            {
                "apiVersion": f"{_RIGHTS}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": user},
                "roleRef": {"apiGroup": _RIGHTS, "kind": "ClusterRole", "name": user},
                "subjects": [{"apiGroup": _RIGHTS, "kind": "User", "name": user}],
            },
        )
        return path

    def uninstall(self) -> None:
        """End the manager, and take its webhooks and rights away."""
        super().uninstall()
        for kind in ("clusterrolebindings", "clusterroles"):
            self.plane.api.delete(f"/apis/{_RIGHTS}/v1/{kind}/kueue-{self.namespace}")

    def webhooks(self) -> Iterator[Object]:
        """Yield its webhook configurations, for this namespace only."""
        authority = base64.b64encode(self.plane.authority.credential().certificate).decode()
        for whole in read_objects(self._directory, "webhooks.yaml"):
            kept = []
            for hook in whole["webhooks"]:
                if hook["name"] in _HOOKS or (JOBSETS in self.frameworks and hook["name"] in _HOOKS_OF_JOBSETS):
                    url = f"https://{self.address}:{self.port}{hook['clientConfig']['service']['path']}"
                    here = {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}}
                    told = {"url": url, "caBundle": authority}
                    kept.append({**hook, "clientConfig": told, "namespaceSelector": here})
            yield {**whole, "metadata": {"name": f"kueue-{self.namespace}"}, "webhooks": kept}


def queue_of_choice(plane: ControlPlane, namespace: str) -> KueueStandIn:
    """Return Kueue's stand-in for a namespace, or Kueue itself where that is named."""
    return KueueStandIn(plane, namespace) if directory_of_choice() is None else RealKueue(plane, namespace)
