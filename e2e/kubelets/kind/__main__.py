"""`make e2e PROVIDER=kind`: the scenarios on real nodes that nodes of kind's can play, the others skipped by name.

python -m e2e.kubelets.kind [PYTEST-ARGUMENT ...]
python -m e2e.kubelets.kind --check      # 0 where this machine can, else 1 and why not
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from e2e.bootstrap.binaries import HELM, named
from e2e.bootstrap.paths import CHECKOUT
from e2e.bootstrap.problems import SetupError
from e2e.bootstrap.setup import provide
from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.run import Run
from e2e.kubelets import images
from e2e.kubelets.__main__ import own_directory, this_platform
from e2e.kubelets.configuration import DIRECTORY
from e2e.kubelets.kind import nodes
from e2e.kubelets.kind.nodes import KindNodes
from release.debian import PackagesError
from release.layout import UnfitImageError
from release.wheels import WheelsError

CHOSEN: Final = "HAJOB_KIND"
"""Set where the nodes are kind's; their images are in DIRECTORY."""
_NOT_TO_BE_HAD: Final = (SetupError, PackagesError, WheelsError, UnfitImageError, OSError)


def is_chosen() -> bool:
    """Whether the nodes are kind's."""
    return CHOSEN in os.environ


def prepare(trainer_environment: Mapping[str, str]) -> int | None:
    """Make Helm and the images, so that `start` can begin; None, or 1 where this machine cannot, which is told."""
    problem = nodes.refusal()
    if not problem:
        try:
            provide(named("kubectl"), HELM)
            directory = own_directory()
            images.build(this_platform(), directory / "images", trainer_environment)
        except _NOT_TO_BE_HAD as error:
            problem = str(error)
    if problem:
        print(f"nodes of kind's are left out: {problem}", file=sys.stderr)
        return 1
    os.environ |= {DIRECTORY: str(directory), CHOSEN: "1"}
    return None


def start(run: Run, chips: Sequence[int]) -> tuple[ControlPlane, KindNodes]:
    """A cluster with a worker for each number of chips, ready, with the images that were prepared.

    Raises:
        KindError, ControlPlaneError: it cannot be made; what there was of it is removed.
    """
    plane, made = nodes.start(run, chips)
    prepared = Path(os.environ[DIRECTORY]) / "images"
    try:
        made.start([path for path in sorted(prepared.glob("*.tar")) if path.name != images.PAUSE_ARCHIVE])
    except BaseException:
        made.stop()
        raise
    return plane, made


def main(arguments: list[str]) -> int:
    """Run pytest with these nodes; 1 where this machine cannot have them."""
    if arguments == ["--check"]:
        if problem := nodes.refusal():
            print(problem, file=sys.stderr)
        return 1 if problem else 0
    if (refused := prepare({})) is not None:
        return refused
    return subprocess.call([sys.executable, "-m", "pytest", str(CHECKOUT / "e2e/kubelets"), *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
