"""The images of a run: directories that stand for what an image registry would hold.

All of them use the interpreter and the packages that run this, so that what is tested is what is checked out.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from e2e.bootstrap.paths import CHECKOUT
from e2e.trainer import store_wire
from e2e.trainer.framework_python import (
    MINDSPORE_VARIABLE,
    TORCH_VARIABLE,
    mindspore_python,
    store_takes_a_socket,
    torch_python,
)

OPERATOR_IMAGE = "hajob/operator:dev"
SIDECAR_IMAGE = "hajob/sidecar:dev"
TRAINER_IMAGE = "example/toy-trainer:1"
TRAINER = "HAJOB_TRAINER"
TORCH, MINDSPORE = "torch", "mindspore"
POD_NETWORK = CHECKOUT / "e2e/harness/pod_network"
SIMULATOR = CHECKOUT / "e2e/mindio/package"
TASKD_STAND_IN = CHECKOUT / "e2e/taskd/package"


def mindio_directory() -> Path:
    """Where `mindio_ttp` comes from: HAJOB_MINDIO (the real package, say), else the simulator.

    Raises:
        FileNotFoundError: there is none.
    """
    return _directory_with("mindio_ttp", "HAJOB_MINDIO", SIMULATOR)


def taskd_directory() -> Path:
    """Where `taskd` comes from: HAJOB_TASKD (the real wheel, unpacked), else the stand-in.

    Raises:
        FileNotFoundError: there is none.
    """
    return _directory_with("taskd", "HAJOB_TASKD", TASKD_STAND_IN)


def _directory_with(package: str, variable: str, stand_in: Path) -> Path:
    directory = Path(os.environ.get(variable) or stand_in).absolute()
    if not (directory / package).is_dir():
        raise FileNotFoundError(f"{variable}: there is no package {package} in {directory}")
    return directory


def taskd_environment() -> dict[str, str]:
    """Variables of an image with TaskD: the stand-in's torchrun, or beside the wheel the real one, patched.

    Raises:
        NoPythonError: the wheel is named, and there is no interpreter with torch.
        FileNotFoundError: there is no wheel where one is named.
    """
    paths = {"PYTHONPATH": os.pathsep.join([str(taskd_directory()), str(mindio_directory()), str(CHECKOUT)])}
    if not is_real_taskd():
        return {"TORCHRUN": "python3 -m e2e.taskd.torchrun", **paths}
    store = store_wire.NEW if store_takes_a_socket() else store_wire.OLD
    # Ranks compute with the NumPy of the undisturbed run, which torchrun's own interpreter may not have.
    ranks = {"PYTHON_EXEC": sys.executable, store_wire.VARIABLE: store.name}
    return {"TORCHRUN": f"{torch_python()} -m e2e.taskd.real_torchrun", **paths, **ranks}


def is_real_taskd() -> bool:
    """Whether jobs with TaskD run the real one: HAJOB_TASKD."""
    return bool(os.environ.get("HAJOB_TASKD"))


def is_torch() -> bool:
    """Whether jobs train the GPT in real PyTorch: TRAINER=torch."""
    return os.environ.get(TRAINER, "") == TORCH


def is_mindspore() -> bool:
    """Whether jobs train a network in real MindSpore: TRAINER=mindspore."""
    return os.environ.get(TRAINER, "") == MINDSPORE


def framework_settings() -> dict[str, str]:
    """Variables that a process of a run needs to find the same interpreters with torch and MindSpore."""
    return {name: os.environ[name] for name in (TORCH_VARIABLE, MINDSPORE_VARIABLE) if name in os.environ}


def write_images(directory: Path, trainer_environment: Mapping[str, str] | None = None) -> dict[str, Path]:
    """Write the images below `directory`; returns image name → directory for the process nodes.

    Args:
        directory: Where.
        trainer_environment: More variables of the trainer's image.
    """
    base = _base()
    trainer = directory / "toy-trainer"
    shutil.copytree(CHECKOUT / "e2e/trainer/image", trainer, dirs_exist_ok=True)
    own = json.loads((trainer / "image.json").read_text())
    trainer_paths = os.pathsep.join([str(mindio_directory()), str(CHECKOUT), str(CHECKOUT / "e2e/trainer/packages")])
    tools = {"PATH": f"{trainer / 'bin'}{os.pathsep}{base['PATH']}", "PYTHONPATH": trainer_paths}
    own["env"] = base | own.get("env", {}) | tools | dict(trainer_environment or {})
    if is_torch():
        own["env"] |= {
            "PATH": f"{torch_python().parent}{os.pathsep}{os.defpath}",
            "TOY_TRAINER": "e2e.torch_trainer.train",
            "HAJOB_STORE": "" if store_takes_a_socket() else "e2e.torch_trainer.store:serve",
        }
    if is_mindspore():
        # Without the packages of the toy, one of which is called mindspore.
        own["env"] |= {
            "PATH": f"{mindspore_python().parent}{os.pathsep}{os.defpath}",
            "PYTHONPATH": os.pathsep.join([str(mindio_directory()), str(CHECKOUT)]),
            "HAJOB_STORE": "",
        }
    return {
        OPERATOR_IMAGE: write_operator(directory / "operator", CHECKOUT),
        SIDECAR_IMAGE: write_operator(directory / "sidecar", CHECKOUT),
        TRAINER_IMAGE: _write(trainer, own),
    }


def write_operator(directory: Path, sources: Path) -> Path:
    """Write Hajob's image as released, operator and sidecar in one, from sources in a directory; returns its own."""
    paths = os.pathsep.join([str(POD_NETWORK), str(sources), str(sources / "operator")])
    return _write(
        directory, {"env": _base() | {"PYTHONPATH": paths}, "entrypoint": ["python3", "-m", "hajob.app.operator"]}
    )


def _base() -> dict[str, str]:
    """Variables of every image."""
    return {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}",
        "LANG": "C.UTF-8",
        "OPENBLAS_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "2",
        "PYTHONNOUSERSITE": "1",
        "PYTHONUNBUFFERED": "1",
    }


def _write(directory: Path, image: dict[str, object]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "image.json").write_text(json.dumps(image, indent=1))
    return directory
