"""Where there is an interpreter with torch: `HAJOB_TORCH_PYTHON`, else the system's own with Debian's python3-torch."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path
from typing import Final

VARIABLE: Final = "HAJOB_TORCH_PYTHON"
SYSTEM: Final = Path("/usr/bin/python3")
TEST: Final = "import numpy, torch.distributed as d; assert d.is_gloo_available(); d.TCPStore"
OPENS_A_SOCKET: Final = "from torch.distributed import TCPStore as S; assert 'master_listen_fd' in S.__init__.__doc__"


class NoTorchError(RuntimeError):
    """No interpreter here has torch; the message says what to install."""


@functools.cache
def torch_python() -> Path:
    """The interpreter.

    Raises:
        NoTorchError: There is none.
    """
    named = os.environ.get(VARIABLE, "")
    for candidate in (Path(named),) if named else (SYSTEM,):
        environment = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYTHONHOME"}}
        try:
            done = subprocess.run([candidate, "-c", TEST], env=environment, capture_output=True, text=True, check=False)
        except OSError as error:
            problem = str(error)
            continue
        if done.returncode == 0:
            return candidate
        problem = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}"
    raise NoTorchError(
        f"no torch in {named or SYSTEM} ({problem}). On Debian: apt-get install --no-install-recommends python3-torch "
        f"(a minute); elsewhere put torch with gloo, and NumPy, into a virtual environment and name its interpreter in "
        f"{VARIABLE}"
    )


@functools.cache
def store_takes_a_socket() -> bool:
    """Whether its TCPStore serves a socket that is given to it (2.1 and newer), so at one address only."""
    return subprocess.run([torch_python(), "-c", OPENS_A_SOCKET], capture_output=True, check=False).returncode == 0
