"""What a rank asks of its container before it trains: libraries, a compiler, directories that can be written.

Each refusal has the text and the exit code of the real one (docs/internals/toy-trainer.md, "Manners").
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from e2e.trainer import manners, printing

if TYPE_CHECKING:
    from collections.abc import Mapping

CANN: Final = "ASCEND_TOOLKIT_HOME"
"""What CANN's set_env.sh sets, or the image's ENV; a login shell that is none does not read /root/.bashrc."""
IMPORT_SECONDS: Final = "TOY_IMPORT_SECONDS"
HELPERS: Final = Path("dataset_helpers")
"""Megatron's package directory, relative to the working directory."""
IMAGE: Final = Path(__file__).parent / "image"


def import_torch(environment: Mapping[str, str]) -> None:
    """Take the time of an import; end with 1 where CANN's environment is missing."""
    if not environment.get(CANN):
        sys.stderr.write(
            "Traceback (most recent call last):\n"
            "ImportError: libhccl.so: cannot open shared object file: No such file or directory. "
            "Please check that the cann package is installed. Please run 'source set_env.sh' in the CANN installation "
            "path.\n"
            "RuntimeError: Failed to load the backend extension: torch_npu. You can disable extension auto-loading "
            "with TORCH_DEVICE_BACKEND_AUTOLOAD=0.\n"
        )
        leave(1)
    time.sleep(float(environment.get(IMPORT_SECONDS) or 0.0))


def compile_helpers(printer: printing.Printer, environment: Mapping[str, str]) -> None:
    """Build the dataset helpers on the first rank of each node; end with 1 where that fails."""
    if environment.get("LOCAL_RANK", "0") != "0":
        return
    printer.first("> compiling dataset index builder ...")
    began = time.monotonic()
    try:
        done = subprocess.run(["make", "-s", "-C", HELPERS], capture_output=True, text=True, check=False)
        problem = done.stderr.strip() if done.returncode else ""
    except OSError as error:
        problem = str(error)
    if problem:
        sys.stderr.write(f"{problem}\nMaking C++ dataset helpers module failed, exiting.\n")
        leave(1)
    printer.first(f">>> done with dataset index builder. Compilation time: {time.monotonic() - began:.3f} seconds")


def start_child(rank: int) -> None:
    """A helper as data loaders and profilers leave them: its own session, and it outlives its rank."""
    subprocess.Popen(
        ["sleep", "3600"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=os.environ | {"TOY_CHILD_OF": str(rank)},
    )


def leave(code: int) -> NoReturn:
    """End the process at once: threads of MindIO and of the transport have nothing left to do."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def prepare(names: frozenset[str], environment: Mapping[str, str] = os.environ) -> None:
    """What happens before the first call into MindIO."""
    if manners.IMPORTS in names:
        import_torch(environment)
