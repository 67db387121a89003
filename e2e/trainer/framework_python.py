"""Where there are interpreters with torch and with MindSpore: named in a variable, made for it, else the system's."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from e2e.bootstrap.frameworks import MINDSPORE, TORCH, Framework
from e2e.bootstrap.problems import SetupError

TORCH_VARIABLE: Final = "HAJOB_TORCH_PYTHON"
MINDSPORE_VARIABLE: Final = "HAJOB_MINDSPORE_PYTHON"
SYSTEM: Final = "/usr/bin/python3"
NEWEST: Final = "newest"
"""Instead of an interpreter: the one that `python3 -m e2e.torch_trainer --install` has made."""
TORCH_TEST: Final = "import numpy, torch.distributed as d; assert d.is_gloo_available(); d.TCPStore"
MINDSPORE_TEST: Final = "import mindspore; from mindspore.train.callback import TrainFaultTolerance"
OPENS_A_SOCKET: Final = "from torch.distributed import TCPStore as S; assert 'master_listen_fd' in S.__init__.__doc__"
TORCH_HELP: Final = (
    "On Debian: apt-get install --no-install-recommends python3-torch (a minute); elsewhere put torch with gloo, and "
    f"NumPy, into a virtual environment and name its interpreter in {TORCH_VARIABLE}. For the newest torch, once "
    f"(2.6 GB), with a Python 3.11: python3 -m e2e.torch_trainer --install, then {TORCH_VARIABLE}=newest"
)
MINDSPORE_HELP: Final = (
    "Once (0.9 GB), with a Python 3.11: python3 -m e2e.mindspore_trainer --install; or put mindspore, 'numpy<2' and "
    f"'scipy<1.14' into a virtual environment and name its interpreter in {MINDSPORE_VARIABLE}"
)


class NoPythonError(RuntimeError):
    """No interpreter here has the framework; the message says what to install."""


def named_torch() -> str:
    """Return the interpreter that is to have torch, whether it has; `newest` stands for the one made here."""
    named = os.environ.get(TORCH_VARIABLE) or SYSTEM
    return str(TORCH.interpreter()) if named == NEWEST else named


@functools.cache
def torch_python() -> Path:
    """The interpreter with torch.

    Raises:
        NoPythonError: There is none.
    """
    return _interpreter("torch", named_torch(), TORCH_TEST, TORCH_HELP)


@functools.cache
def mindspore_python() -> Path:
    """The interpreter with MindSpore.

    Raises:
        NoPythonError: There is none.
    """
    own = MINDSPORE.interpreter()
    path = os.environ.get(MINDSPORE_VARIABLE) or (str(own) if own.exists() else SYSTEM)
    return _interpreter("MindSpore", path, MINDSPORE_TEST, MINDSPORE_HELP)


def _interpreter(framework: str, path: str, test: str, help_text: str) -> Path:
    environment = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYTHONHOME"}}
    try:
        done = subprocess.run([path, "-c", test], env=environment, capture_output=True, text=True, check=False)
    except OSError as error:
        problem = str(error)
    else:
        if done.returncode == 0:
            return Path(path)
        problem = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}"
    raise NoPythonError(f"no {framework} in {path} ({problem}). {help_text}")


def main(framework: Framework, arguments: Sequence[str], find: Callable[[], Path]) -> int:
    """Make the framework's environment where `--install` asks for it; returns 0 where there is an interpreter then.

    Else it returns 1, and says what to install.
    """
    try:
        if list(arguments) == ["--install"]:
            framework.install()
            if framework is TORCH:
                os.environ[TORCH_VARIABLE] = NEWEST  # what was made is what is looked at
        find()
    except (NoPythonError, SetupError) as error:
        sys.stderr.write(f"make e2e TRAINER={framework.name.lower()}: {error}\n")
        return 1
    return 0


@functools.cache
def store_takes_a_socket() -> bool:
    """Whether torch's TCPStore serves a socket that is given to it (2.1 and newer), so at one address only."""
    return subprocess.run([torch_python(), "-c", OPENS_A_SOCKET], capture_output=True, check=False).returncode == 0
