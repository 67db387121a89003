"""`make matrix`: the API on control planes of other Kubernetes versions, built from their modules.

python -m e2e.bootstrap.matrix [VERSION ...] [-- PYTEST-ARGUMENT ...]

What is of that version: API server and scheduler, and the controller manager where the module proxy has its sources
whole (docs/set-up.md). Everything else is as always.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

from e2e.bootstrap.binaries import OTHER_KUBERNETES, VERSION_VARIABLE, kubernetes_parts
from e2e.bootstrap.paths import CHECKOUT
from e2e.bootstrap.problems import SetupError
from e2e.bootstrap.setup import provide

TESTS: Final = ("tests/integration/api", "tests/integration/runtime/test_lease_and_status_on_server.py")
"""CRDs with their rules and defaults, refusals, examples, and the status subresource's fence."""


def run(version: str, arguments: list[str]) -> int:
    """Pytest's exit code on one version; 1 where its control plane cannot be built."""
    print(f"== Kubernetes {version}", flush=True)
    try:
        provide(*kubernetes_parts(version))
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    command = [sys.executable, "-m", "pytest", "-q", *(arguments or TESTS)]
    return subprocess.call(command, cwd=CHECKOUT, env={**os.environ, VERSION_VARIABLE: version})


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
