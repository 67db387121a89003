"""The Python packages of the operator and its sidecars, as wheels of the platform: what the lock names, no more."""

from __future__ import annotations

import importlib.metadata
import io
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from e2e.bootstrap.environment import LOCK, pip_command, pip_environment
from e2e.bootstrap.paths import CHECKOUT
from release.debian import PYTHON
from release.platforms import Platform
from release.tree import Entry

SITE: Final = f"usr/local/lib/python{PYTHON[0]}.{PYTHON[1]}/dist-packages"
"""Where Debian's Python looks for what the administrator has installed."""
_EARLIEST: Final = "315532800"  # 1980, before which a zip archive knows no time


class WheelsError(RuntimeError):
    """Wheels cannot be had; the message has pip's words."""


def needed(name: str = "hajob") -> set[str]:
    """The packages that `name` needs when it runs, and those that they need."""
    found: set[str] = set()
    open_names = [name]
    while open_names:
        for text in importlib.metadata.requires(open_names.pop()) or ():
            requirement = Requirement(text)
            # asked of the oldest Python and of Linux, whatever builds
            here = {"extra": "", "python_version": "3.11", "python_full_version": "3.11.2", "sys_platform": "linux"}
            if requirement.marker is not None and not requirement.marker.evaluate(here):
                continue
            if (each := canonicalize_name(requirement.name)) not in found:
                found.add(each)
                open_names.append(each)
    return found


def locked(names: set[str], lock: str) -> str:
    """The part of a requirements file that names these packages. ValueError: it lacks one."""
    blocks = re.split(r"(?m)^(?=[A-Za-z0-9])", lock)
    by_name: dict[str, str] = {canonicalize_name(block.split("==")[0]): block for block in blocks if "==" in block}
    if lacking := sorted(names - by_name.keys()):
        raise ValueError(f"requirements.lock lacks {', '.join(lacking)}")
    return "".join(by_name[name] for name in sorted(names))


def fetch(platform: Platform, cache: Path, names: set[str] | None = None) -> dict[str, bytes]:
    """Wheels by file name.

    Raises:
        WheelsError: pip cannot get one for this platform.
    """
    store = cache / f"wheels-{platform.debian}"
    store.mkdir(parents=True, exist_ok=True)
    chosen = store / "requirements.txt"
    chosen.write_text(locked(needed() if names is None else names, LOCK.read_text()))
    words = [word for each in (*platform.pip, "any") for word in ("--platform", each)]
    abis = [word for each in ("cp311", "abi3", "none") for word in ("--abi", each)]
    own = ["--only-binary=:all:", "--no-deps", "--require-hashes", "--implementation", "cp", "--python-version", "3.11"]
    report = _pip("download", "--quiet", *own, *words, *abis, "--dest", str(store), "-r", str(chosen))
    names_in_lock = {
        canonicalize_name(line.split("==")[0]): line.split("==")[1].split()[0]
        for line in chosen.read_text().splitlines()
        if "==" in line
    }
    wheels = {path.name: path for path in store.glob("*.whl")}
    found = {}
    for name, version in names_in_lock.items():
        fitting = [each for each in wheels if _is(each, name, version)]
        if not fitting:
            raise WheelsError(f"pip has left no wheel of {name} {version} for {platform.name} in {store}: {report}")
        found[fitting[0]] = wheels[fitting[0]].read_bytes()
    return found


def _is(wheel: str, name: str, version: str) -> bool:
    words = wheel.split("-")
    return canonicalize_name(words[0]) == name and words[1] == version


def own(cache: Path) -> dict[str, bytes]:
    """Hajob's wheel, from the checkout."""
    target = cache / "hajob"
    target.mkdir(parents=True, exist_ok=True)
    for old in target.glob("*.whl"):
        old.unlink()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": _EARLIEST}
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WheelsError(f"{' '.join(command)} says: {done.stderr.strip()}")
    return {path.name: path.read_bytes() for path in target.glob("*.whl")}


def unpack(wheel: bytes) -> dict[str, Entry]:
    """Where the files of a wheel go: packages and what is told of them; scripts are not taken."""
    return {f"{SITE}/{path}": entry for path, entry in _files(wheel)}


def _files(wheel: bytes) -> Iterator[tuple[str, Entry]]:
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        for info in archive.infolist():
            path = re.sub(r"^[^/]+\.data/(purelib|platlib)/", "", info.filename)
            if info.is_dir() or re.match(r"[^/]+\.data/|.*\.dist-info/RECORD$", path) or ".." in path.split("/"):
                continue
            yield path, Entry(archive.read(info))


def _pip(*words: str) -> str:
    command = [*pip_command(), *words]
    done = subprocess.run(command, env=pip_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise WheelsError(f"pip says: {done.stderr.strip()[-2000:]}")
    return done.stdout.strip()
