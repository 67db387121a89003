"""What is in Hajob's image, whoever builds it: Python from Debian, packages from the lock, Hajob; no shell.

`Dockerfile` packs the same files (`python -m release.image --root`) and repeats `CONFIG`, since it cannot read it;
tests/unit/release/test_dockerfile.py compares both.
"""

from __future__ import annotations

import importlib.util
import marshal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from e2e.bootstrap.paths import CHECKOUT
from hajob.version import VERSION
from release import debian, elf, wheels
from release.debian import PYTHON
from release.oci import Layer
from release.platforms import Platform
from release.tree import Entry, Tree

USER: Final = "65532:65532"
ENVIRONMENT: Final = {
    "PATH": "/usr/local/bin:/usr/bin",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
}
ENTRYPOINT: Final = ("python3", "-m", "hajob.runtime.app")
LABELS: Final = {
    "org.opencontainers.image.title": "hajob",
    "org.opencontainers.image.description": "Operator and sidecar of Hajob: training on Ascend NPUs that does not stop",
    "org.opencontainers.image.licenses": "Apache-2.0",
    "org.opencontainers.image.version": VERSION,
}
CONFIG: Final[Mapping[str, Any]] = {
    "User": USER,
    "Env": [f"{name}={value}" for name, value in ENVIRONMENT.items()],
    "Entrypoint": list(ENTRYPOINT),
    "WorkingDir": "/",
    "Labels": LABELS,
}
_ACCOUNTS: Final = {
    "etc/passwd": Entry(b"root:x:0:0:root:/:/nonexistent\nhajob:x:65532:65532:hajob:/:/nonexistent\n"),
    "etc/group": Entry(b"root:x:0:\nhajob:x:65532:\n"),
    "etc/nsswitch.conf": Entry(b"passwd: files\ngroup: files\nhosts: files dns\n"),
}
DIRECTORIES: Final = {"tmp": 0o1777, "proc": 0o755, "sys": 0o755, "dev": 0o755, "run": 0o755}


class UnfitImageError(RuntimeError):
    """A file of the image would not run on its platform."""


def layers(platform: Platform, cache: Path, checkout: Path = CHECKOUT) -> list[Layer]:
    """The layers from the bottom up; Hajob's own from the sources in `checkout`.

    Raises:
        UnfitImageError: a file is for another platform, or lacks a library.
        PackagesError, WheelsError: something cannot be had.
    """
    base, packages, own = python(platform, cache), wheel_files(platform, cache, wheels.needed()), _own(cache, checkout)
    if unfit := elf.problems(base | packages | own, platform):
        raise UnfitImageError(f"{len(unfit)} files do not fit {platform.name}: {'; '.join(unfit[:5])}")
    return [
        Layer("Python and its libraries, from Debian", with_bytecode(base), DIRECTORIES),
        Layer("Python packages of requirements.lock", with_bytecode(packages)),
        Layer(f"Hajob {VERSION}", with_bytecode(own)),
    ]


def python(platform: Platform, cache: Path) -> dict[str, Entry]:
    """Python and its libraries, from Debian."""
    base: dict[str, Entry] = {}
    for content in debian.fetch(platform, cache).values():
        base |= debian.unpack(content)
    version = ".".join(map(str, PYTHON))
    return base | _ACCOUNTS | {"usr/bin/python3": Entry(link=f"python{version}")}


def wheel_files(platform: Platform, cache: Path, names: set[str]) -> dict[str, Entry]:
    """Packages of requirements.lock."""
    found: dict[str, Entry] = {}
    for wheel in wheels.fetch(platform, cache, names).values():
        found |= wheels.unpack(wheel)
    return found


def _own(cache: Path, checkout: Path) -> dict[str, Entry]:
    found: dict[str, Entry] = {"licenses/hajob/LICENSE": Entry((checkout / "LICENSE").read_bytes())}
    for wheel in wheels.own(cache, checkout).values():
        found |= wheels.unpack(wheel)
    script = b"#!/usr/bin/python3\nimport sys\nfrom hajob.cli.main import main\n\nsys.exit(main())\n"
    return found | {"usr/local/bin/kubectl-hajob": Entry(script, executable=True)}


def with_bytecode(tree: Tree) -> dict[str, Entry]:
    """A read-only root takes no bytecode later, and compiling 2,000 modules at each start would cost seconds.

    Unchecked, since no file changes; in marshal's version without references, whose bytes depend on nothing else.
    Another Python than the image's writes other bytecode: then there is none.
    """
    if sys.version_info[:2] != PYTHON:
        return dict(tree)
    compiled = {}
    for path, entry in tree.items():
        if path.endswith(".py") and not entry.link and (code := _compile(path, entry.content)):
            directory, _, name = path.rpartition("/")
            compiled[f"{directory}/__pycache__/{name[:-3]}.cpython-{PYTHON[0]}{PYTHON[1]}.pyc"] = Entry(code)
    return {**tree, **compiled}


def _compile(path: str, source: bytes) -> bytes:
    try:
        code = compile(source, f"/{path}", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return b""  # templates and tests of broken files are not imported
    unchecked = (1).to_bytes(4, "little")
    return importlib.util.MAGIC_NUMBER + unchecked + importlib.util.source_hash(source) + marshal.dumps(code, 2)
