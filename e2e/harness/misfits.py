"""Training images that Hajob cannot work with, made from the good one and from whatever MindIO package is in use.

A scenario must not know which package that is. So a version that is too old is the package itself with a name taken
away, and one-sided TLS is switched on with material that is in order and that nobody on the other side asks for.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.pki import Authority
from e2e.harness.images import mindio_directory

OLDER = '''\
"""The package that comes next on the path, without one function."""

import importlib
import os
import sys

sys.path.remove(os.path.dirname(os.path.dirname(__file__)))
del sys.modules[__name__]  # the next one takes the name; what is imported in the end is what stands there
delattr(importlib.import_module(__name__ + ".{module}"), "{name}")
'''


def image_like(image: Path, directory: Path, environment: Mapping[str, str]) -> Path:
    """An image in `directory` that differs from `image` in these variables; returns its directory."""
    shutil.copytree(image, directory)
    file = directory / "image.json"
    content = json.loads(file.read_text())
    content["env"] |= environment
    file.write_text(json.dumps(content, indent=1))
    return directory


def older_mindio(directory: Path, module: str, name: str) -> dict[str, str]:
    """Variables with which the module `module` of `mindio_ttp` lacks `name`; files go to `directory`."""
    package = directory / "mindio_ttp"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(OLDER.format(module=module, name=name))
    return {"PYTHONPATH": os.pathsep.join(map(str, (directory, mindio_directory(), CHECKOUT)))}


def no_mindio() -> dict[str, str]:
    """Variables with which there is no `mindio_ttp`."""
    return {"PYTHONPATH": str(CHECKOUT)}


def trainer_with_tls(directory: Path) -> dict[str, str]:
    """Variables with which the trainer switches MindIO's TLS on; certificates go to `directory`."""
    directory.mkdir(parents=True)
    authority = Authority.create("trainers")
    authority.credential().write(directory, "ca")
    trainer = authority.client("trainer")
    certificate, _ = trainer.write(directory, "trainer")
    files = f"tlsCert:{certificate};tlsCaPath:{directory};tlsCaFile:ca.crt"
    return {"TOY_MINDIO_TLS": f"{files};tlsPk:{trainer.key.decode()}"}
