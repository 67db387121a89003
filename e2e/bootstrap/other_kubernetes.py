"""The Go module that another version of Kubernetes is built in, written when needed; Go's own database has the sums.

k8s.io/kubernetes replaces its staging modules by directories that only its own repository has; here they are replaced
by the same modules as published, as in e2e/cluster/go/kubernetes.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from e2e.bootstrap.problems import SetupError

_STAGING = re.compile(r"(k8s\.io/[\w-]+) => \./staging")
OTHER_PATCHES: Final[Mapping[str, Mapping[str, str]]] = {
    "1.32.13": {
        "k8s.io/csi-translation-lib": "v0.32.10",
        "k8s.io/endpointslice": "v0.32.5",
        "k8s.io/kube-controller-manager": "v0.32.6",
        "k8s.io/kube-scheduler": "v0.32.10",
    },
}
"""Staging modules that the module proxy does not have of a version; an earlier patch of the same minor version fits."""


def module_text(version: str, original: str) -> str:
    """Our go.mod for a version of k8s.io/kubernetes, from its own.

    Args:
        version: Without a leading v, for example 1.29.6.
        original: The text of its go.mod.
    """
    published = "v0." + version.split(".", 1)[1]
    modules = sorted(set(_STAGING.findall(original)))
    patches = OTHER_PATCHES.get(version, {})
    replaced = "".join(f"\t{each} => {each} {patches.get(each, published)}\n" for each in modules)
    required = f"require k8s.io/kubernetes v{version}\n\nreplace (\n{replaced})\n"
    return f"module hajob.io/e2e/kubernetes\n\ngo 1.22.0\n\n{required}"


def write_module(go: Path, version: str, directory: Path, environment: Mapping[str, str]) -> None:
    """Write go.mod into `directory`, unless it is there.

    Raises:
        SetupError: Its sources cannot be had.
    """
    if (directory / "go.mod").exists():
        return
    command = [str(go), "mod", "download", "-json", f"k8s.io/kubernetes@v{version}"]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(environment), check=False)
    if done.returncode:
        raise SetupError(f"{' '.join(command)}: {done.stderr.strip()[-500:] or done.stdout.strip()[-500:]}")
    original = Path(json.loads(done.stdout)["GoMod"]).read_text()
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "go.mod").write_text(module_text(version, original))
