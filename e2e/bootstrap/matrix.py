"""`make matrix`: API, chart and demo on control planes of other Kubernetes versions, built from their modules.

python -m e2e.bootstrap.matrix [VERSION ...] [-- PYTEST-ARGUMENT ...]

What is of that version: API server and scheduler, and the controller manager where the module proxy has its sources
whole (docs/internals/set-up.md). Everything else is as always.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

from e2e.bootstrap.binaries import HELM, OTHER_KUBERNETES, VERSION_VARIABLE, kubernetes_parts
from e2e.bootstrap.paths import CHECKOUT
from e2e.bootstrap.problems import SetupError
from e2e.bootstrap.setup import provide

PYTEST: Final = ("-m", "pytest", "-q")
PLAYED: Final = (
    # CRDs with their rules and defaults, refusals, examples, and the fence of the status
    (*PYTEST, "tests/integration/api", "tests/integration/operator/test_lease_and_status_on_server.py"),
    # install, upgrade, rollback, uninstall, and a dry run of all that is rendered; apart, since it changes the CRDs
    (*PYTEST, "tests/integration/chart/test_chart_on_server.py"),
    ("-m", "e2e.demo", "--faults", "2"),
)


def run(version: str, arguments: list[str]) -> int:
    """How many of the parts fail on one version; 1 where its control plane cannot be built."""
    print(f"== Kubernetes {version}", flush=True)
    try:
        provide(*kubernetes_parts(version), HELM)
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    environment = {**os.environ, VERSION_VARIABLE: version, "HAJOB_CHART_ON_SERVER": "1"}
    parts = ((*PYTEST, *arguments),) if arguments else PLAYED
    return sum(subprocess.call([sys.executable, *part], cwd=CHECKOUT, env=environment) != 0 for part in parts)


def main(words: list[str]) -> int:
    """All versions that are named, or all; the number of those that failed."""
    at = words.index("--") if "--" in words else len(words)
    versions, arguments = words[:at], words[at + 1 :]
    if unknown := set(versions) - OTHER_KUBERNETES.keys():
        print(f"{', '.join(sorted(unknown))}: there are {', '.join(OTHER_KUBERNETES)}", file=sys.stderr)
        return 1
    return sum(run(each, arguments) != 0 for each in versions or OTHER_KUBERNETES)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
