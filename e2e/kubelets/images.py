"""The images of the real nodes: Hajob's as released, a training image, and the one that holds a pod's namespaces."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from e2e.bootstrap.paths import CHECKOUT
from e2e.harness.images import TRAINER_IMAGE, mindio_directory
from release import debian, image, layout, oci
from release.oci import Layer
from release.platforms import Platform
from release.tree import Entry

LOCK: Final = Path(__file__).with_name("debian.lock")
PACKAGES: Final = (
    *("runc", "libseccomp2"),
    *("bash", "coreutils", "libtinfo6", "libacl1", "libattr1", "libgmp10", "libselinux1", "libpcre2-8-0"),
)
"""runc for the nodes; what a start script needs for the training image."""
PAUSE: Final = "docker.io/hajob-lab/pause:1"
OWN: Final = "0.tar"
"""Hajob's own among the archives, imported first."""
PAUSE_ARCHIVE: Final = "1.tar"
"""Where nodes have an image of their own for it, it is not needed."""
_PAUSE_PROGRAM: Final = "import signal, sys; signal.signal(15, lambda *_: sys.exit()); signal.pause()"
_HOME: Final = "opt/trainer"
_SOURCES: Final = "opt/e2e"
_TRAINER_PATH: Final = "/opt/trainer/bin:/usr/local/bin:/usr/bin:/bin"


def build(platform: Platform, directory: Path, trainer_environment: Mapping[str, str]) -> list[Path]:
    """Write the archives of all three; returns their paths.

    Args:
        platform: Of the nodes.
        directory: Where they are written.
        trainer_environment: More variables of the training image.

    Raises:
        PackagesError, WheelsError, UnfitImageError: something cannot be had, or does not fit.
    """
    cache = image.cache()
    compiled = layout.with_bytecode(layout.python(platform, cache), layout.compiler(cache))
    base = Layer("Python", compiled, layout.DIRECTORIES)
    pause = {"Entrypoint": ["/usr/bin/python3", "-S", "-c", _PAUSE_PROGRAM], "User": "65535:65535"}
    built = [
        oci.Image(image.NAME, platform, layout.layers(platform, cache), layout.CONFIG),
        oci.Image(PAUSE, platform, [base], pause),
        oci.Image(
            f"docker.io/{TRAINER_IMAGE}",
            platform,
            [base, *_trainer(platform, cache)],
            _trainer_config(trainer_environment),
        ),
    ]
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, each in enumerate(built):
        path = directory / f"{number}.tar"
        path.write_bytes(oci.archive(each))
        paths.append(path)
    return paths


def of_sources(platform: Platform, sources: Path, version: str, path: Path) -> Path:
    """Write the archive of Hajob's image of another version, its own layer from `sources`; returns `path`.

    Raises:
        PackagesError, WheelsError, UnfitImageError: something cannot be had, or does not fit.
    """
    cache = image.cache()
    name = f"{image.NAME.rpartition(':')[0]}:{version}"
    path.write_bytes(oci.archive(oci.Image(name, platform, layout.layers(platform, cache, sources), layout.CONFIG)))
    return path


def runc(platform: Platform, cache: Path) -> dict[str, Entry]:
    """The files of runc and its library."""
    found: dict[str, Entry] = {}
    for package, content in debian.fetch(platform, cache, LOCK).items():
        if package.name in {"runc", "libseccomp2"}:
            found |= debian.unpack(content)
    return found


def _trainer(platform: Platform, cache: Path) -> list[Layer]:
    system: dict[str, Entry] = {}
    for package, content in debian.fetch(platform, cache, LOCK).items():
        if package.name not in {"runc", "libseccomp2"}:
            system |= debian.unpack(content)
    system["bin/sh"] = Entry(link="bash")  # what Debian's maintainer scripts make
    numpy = layout.with_bytecode(layout.wheel_files(platform, cache, {"numpy"}), layout.compiler(cache))
    own = {
        **_files(CHECKOUT / "e2e" / "trainer" / "image", _HOME),
        **_files(CHECKOUT / "e2e" / "trainer", f"{_SOURCES}/e2e/trainer"),
        **_files(mindio_directory(), "opt/mindio"),
        f"{_SOURCES}/e2e/__init__.py": Entry(),
    }
    return [Layer("bash and its tools", system), Layer("NumPy", numpy), Layer("the toy trainer", own)]


def _files(source: Path, target: str) -> dict[str, Entry]:
    paths = (path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {
        f"{target}/{path.relative_to(source).as_posix()}": Entry(path.read_bytes(), bool(path.stat().st_mode & 0o100))
        for path in paths
    }


def _trainer_config(more: Mapping[str, str]) -> dict[str, object]:
    told = json.loads((CHECKOUT / "e2e/trainer/image/image.json").read_text())
    environment = {
        **told["env"],
        "PATH": _TRAINER_PATH,
        "PYTHONPATH": f"/opt/mindio:/{_SOURCES}:/{_SOURCES}/e2e/trainer/packages",
        "TOY_MANNERS": "-compiles",  # no compiler in this image
        "LANG": "C.UTF-8",
        **more,
    }
    return {
        "User": "0:0",
        "Env": [f"{name}={value}" for name, value in environment.items()],
        "Cmd": told["cmd"],
        "WorkingDir": f"/{_HOME}",
    }


if __name__ == "__main__":
    debian.write_lock(image.cache(), LOCK, PACKAGES)
