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
from e2e.cluster.run import free_port
from e2e.kueue.crds import VERSION
from e2e.kueue.launch import KueueStandIn

Object = dict[str, Any]
REAL_ONE: Final = "HAJOB_KUEUE"
_HOOKS: Final = frozenset({"mworkload.kb.io", "vworkload.kb.io", "mpod.kb.io", "vpod.kb.io"})
"""Of its webhooks those that a job of Hajob meets; the others are for kinds that are not installed."""
JOBSETS: Final = "jobset.x-k8s.io/jobset"
_HOOKS_OF_JOBSETS: Final = frozenset({"mjobset.kb.io", "vjobset.kb.io"})


def directory_of_choice() -> Path | None:
    """Return the directory that is named; None: none is."""
    named = os.environ.get(REAL_ONE, "")
    return Path(named) if named else None


class RealKueue(KueueStandIn):
    """Kueue's own manager, webhooks and kinds.

    Attributes:
        frameworks: kinds whose jobs it knows; those must be served before it starts.
    """

    frameworks: tuple[str, ...] = ("batch/job", "pod")

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
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "health": {"healthProbeBindAddress": f"{self.address}:{free_port(self.address, self.port + 1)}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": self.address, "port": self.port, "certDir": str(directory)},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "integrations": {"frameworks": list(self.frameworks)},
            "resources": {"excludeResourcePrefixes": list(self.configuration.excluded_prefixes)},
        }
        path = directory / "configuration.yaml"
        path.write_text(yaml.safe_dump(configuration), encoding="utf-8")
        program = str(self._directory / "kueue")
        gates = "--feature-gates=VisibilityOnDemand=false"
        return [program, f"--config={path}", f"--kubeconfig={self.plane.kubeconfig}", gates]

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
