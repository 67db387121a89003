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

from e2e.bootstrap.problems import SetupError

_STAGING = re.compile(r"(k8s\.io/[\w-]+) => \./staging")


def module_text(version: str, original: str) -> str:
    """Our go.mod for a version of k8s.io/kubernetes, from its own.

    Args:
        version: Without a leading v, for example 1.29.6.
        original: The text of its go.mod.
    """
    published = "v0." + version.split(".", 1)[1]
    modules = sorted(set(_STAGING.findall(original)))
    replaced = "".join(f"\t{each} => {each} {published}\n" for each in modules)
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
