"""Find the Python of the training image that has a package: the one that runs the host, or another.

Images have their Python on the PATH, in a virtual environment or in an environment of conda that only the user's shell
activates. `spec.coordinator.pythonPath` names it where it is not found: it then runs the host itself.
"""

from __future__ import annotations

import glob
import importlib.util
import json
import os
import subprocess
import sys
from typing import Dict, List, Mapping, Optional, Tuple

import trainer_sidecar

PROBE = "import importlib.util as u, sys; print(*(name for name in sys.argv[1:] if u.find_spec(name)))"
# A Python on a share may take seconds for its first start; one that hangs must not hang the attempt.
PROBE_SECONDS = 20.0
PROGRAM = (
    "import sys; sys.path[0] = sys.argv[1]; from trainer_sidecar.controller_host import entry; "
    "entry.run_part_from_words(sys.argv[2:])"
)
HOMES = ("/opt/*", "/root/*", "/home/*/*", "/usr/local/*", "/*venv*")
PLACES = ("bin/python3", "envs/*/bin/python3")
NAMES = ("python3", "python")


def is_package_here(package: str) -> bool:
    """Return whether this Python has the package, without an import."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def candidate_pythons(environment: Mapping[str, str]) -> List[str]:
    """Return other Pythons of the image, likeliest first: activated environments, the PATH, usual directories."""
    found = []
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if environment.get(variable):
            found.append(os.path.join(environment[variable], "bin", "python"))
    for directory in environment.get("PATH", "").split(os.pathsep):
        found += [os.path.join(directory, name) for name in NAMES]
    for home in HOMES:
        for place in PLACES:
            found += sorted(glob.glob(os.path.join(home, place)))
    unique = dict.fromkeys(path for path in found if path != sys.executable and os.access(path, os.X_OK))
    return list(unique)


def find_python_with(package: str, beside: str, environment: Dict[str, str]) -> Optional[str]:
    """Return the path of a Python that has the package, the current one if it does; None: none has.

    A Python that has `beside` as well comes first: an image may have several, and the trainer's is the one with MindIO.
    """
    if is_package_here(package) and is_package_here(beside):
        return sys.executable
    second = sys.executable if is_package_here(package) else None
    for python in candidate_pythons(environment):
        packages = _packages_of_python(python, (package, beside), environment)
        if package in packages and beside in packages:
            return python
        if package in packages and second is None:
            second = python
    return second


def _packages_of_python(python: str, packages: Tuple[str, ...], environment: Dict[str, str]) -> List[str]:
    """Return those of `packages` that this Python has; none when it cannot be run."""
    try:
        done = subprocess.run(
            [python, "-c", PROBE, *packages],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=PROBE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.decode("utf-8", "replace").split()


def replace_process(python: str, part: str, request: Mapping[str, object], read_end: int, write_end: int) -> None:
    """Run `part` (see entry.py) in another Python, with the same pipes. OSError: that cannot be run."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(trainer_sidecar.__file__)))
    for descriptor in (read_end, write_end):
        os.set_inheritable(descriptor, True)
    words = [part, str(read_end), str(write_end), json.dumps(request)]
    os.execv(python, [python, "-u", "-c", PROGRAM, root, *words])
