"""What is in Hajob's image, whoever builds it: Python from Debian, packages from the lock, Hajob; no shell.

`Dockerfile` packs the same files (`python -m release.image --root`) and repeats `CONFIG`, since it cannot read it;
tests/unit/release/test_dockerfile.py compares both.
"""

from __future__ import annotations

import hashlib
import marshal
import subprocess
import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from e2e.bootstrap.paths import CHECKOUT
from hajob.version import VERSION
from release import debian, elf, wheels
from release.debian import PYTHON
from release.oci import Layer
from release.platforms import Platform, of_this_machine
from release.tree import Entry, Tree, without_links, write_below

USER: Final = "65532:65532"
ENVIRONMENT: Final = {
    "PATH": "/usr/local/bin:/usr/bin",
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
}
ENTRYPOINT: Final = ("python3", "-m", "hajob.app.operator")
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


def layers(platform: Platform, cache: Path, checkout: Path = CHECKOUT, extras: Collection[str] = ()) -> list[Layer]:
    """The layers from the bottom up; Hajob's own from the sources in `checkout`, with these extras of its packages.

    Raises:
        UnfitImageError: a file is for another platform, or lacks a library.
        PackagesError, WheelsError: something cannot be had.
    """
    names = wheels.needed(extras=extras)
    base, packages, own = python(platform, cache), wheel_files(platform, cache, names), _own(cache, checkout)
    if unfit := elf.problems(base | packages | own, platform):
        raise UnfitImageError(f"{len(unfit)} files do not fit {platform.name}: {'; '.join(unfit[:5])}")
    command = compiler(cache)
    return [
        Layer("Python and its libraries, from Debian", with_bytecode(base, command), DIRECTORIES),
        Layer("Python packages of requirements.lock", with_bytecode(packages, command)),
        Layer(f"Hajob {VERSION}", with_bytecode(own, command)),
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


def compiler(cache: Path) -> list[str]:
    """The command of the image's own Python, as it is packed for this machine; unpacked in the cache.

    Another one, be it another patch release, writes other bytecode.

    Raises:
        PackagesError: it cannot be had.
    """
    here = of_this_machine()
    directory = cache / f"python-{here.debian}-{hashlib.sha256(debian.LOCK.read_bytes()).hexdigest()[:12]}"
    if not directory.is_dir():
        with tempfile.TemporaryDirectory(dir=cache) as temporary:
            write_below(Path(temporary) / "root", without_links(python(here, cache)))
            with suppress(OSError):  # another one was faster
                (Path(temporary) / "root").rename(directory)
    return ["/usr/bin/env", "-i", f"PYTHONHOME={directory}/usr", *here.python(str(directory))]


def with_bytecode(tree: Tree, command: Sequence[str]) -> dict[str, Entry]:
    """A read-only root takes no bytecode later, and compiling 2,000 modules at each start would cost seconds.

    Raises:
        UnfitImageError: the Python of `command` does not run here.
    """
    sources = {path: entry.content for path, entry in tree.items() if path.endswith(".py") and not entry.link}
    words = [*command, "-S", "-B", "-W", "ignore", str(Path(__file__).with_name("compiler.py"))]
    done = subprocess.run(words, input=marshal.dumps(sources, 2), capture_output=True, check=False)
    if done.returncode or not done.stdout:
        raise UnfitImageError(f"{' '.join(words)} does not compile: {done.stderr.decode(errors='replace').strip()}")
    compiled: dict[str, bytes] = marshal.loads(done.stdout)
    return {**tree, **{_bytecode_path(path): Entry(code) for path, code in compiled.items() if code}}


def _bytecode_path(path: str) -> str:
    directory, _, name = path.rpartition("/")
    return f"{directory}/__pycache__/{name.removesuffix('.py')}.cpython-{PYTHON[0]}{PYTHON[1]}.pyc"
