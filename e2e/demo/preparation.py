"""What the demo does before there is a cluster: it says how long all will take, and why, and builds what is missing.

While Kubernetes is being built, what needs no cluster is done: the same training undisturbed, to compare with.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

from e2e.bootstrap import build
from e2e.bootstrap.binaries import KUBERNETES_VERSION, Binary
from e2e.bootstrap.paths import CHECKOUT
from e2e.bootstrap.problems import SetupError
from e2e.cluster.processes import MARKER
from e2e.cluster.run import Run

DEMO_MINUTES = 2


def announcement(missing: Sequence[Binary]) -> list[str]:
    """How long the demo will take on this machine, and why."""
    if not missing:
        return [f"this takes about {DEMO_MINUTES} minutes: every program of the cluster is there"]
    names = ", ".join(binary.name for binary in missing)
    return [
        f"this takes about {build.minutes(missing) + DEMO_MINUTES} minutes this time, and {DEMO_MINUTES} from then on:",
        f"  {names} must be built first, because nobody offers all of them as a download that can be checked",
        f"  (taken, too: those of Kubernetes {KUBERNETES_VERSION} in $KUBEBUILDER_ASSETS or on the PATH; see",
        "  docs/internals/set-up.md)",
    ]


class Building:
    """The set-up of the local cluster's programs in a process of its own; its lines go to `say`."""

    def __init__(self, run: Run, say: Callable[[str], None]) -> None:
        self._say = say
        self._last: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "e2e.bootstrap"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=CHECKOUT,
            env=os.environ | {MARKER: run.identity},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait(self) -> None:
        """Until everything is there.

        Raises:
            SetupError: It cannot be made; the message holds the set-up's last words.
        """
        self._reader.join()
        if self._process.wait() != 0:
            raise SetupError("\n".join(["the programs of the local cluster cannot be built:", *self._last]))

    def _read(self) -> None:
        for line in self._process.stderr or ():
            words = line.rstrip().removeprefix("set-up: ")
            self._last = [*self._last[-20:], words]
            if words:
                self._say(f"  {words}")
