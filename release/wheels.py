"""The Python packages of the operator and its sidecars, as wheels of the platform: what the lock names, no more."""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Collection, Iterator
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


def needed(name: str = "hajob", extras: Collection[str] = ()) -> set[str]:
    """The packages that `name` with these extras needs when it runs, and those that they need."""
    found: set[str] = set()
    open_names = [(name, ("", *extras))]
    while open_names:
        one, its_extras = open_names.pop()
        for text in importlib.metadata.requires(one) or ():
            requirement = Requirement(text)
            applies = any(_applies(requirement, extra) for extra in its_extras)
            if applies and (each := canonicalize_name(requirement.name)) not in found:
                found.add(each)
                open_names.append((each, ("",)))
    return found


def _applies(requirement: Requirement, extra: str = "") -> bool:
    """Whether the image's Python needs it, whatever builds."""
    there = {"extra": extra, "python_version": "3.11", "python_full_version": "3.11.2", "sys_platform": "linux"}
    return requirement.marker is None or requirement.marker.evaluate(there)


def locked(names: set[str], lock: str) -> str:
    """The part of a requirements file that names these packages. ValueError: it lacks one."""
    blocks = [block for block in re.split(r"(?m)^(?=[A-Za-z0-9])", lock) if "==" in block]
    heads = {block: Requirement(block.splitlines()[0].removesuffix("\\")) for block in blocks}
    by_name: dict[str, str] = {canonicalize_name(head.name): block for block, head in heads.items() if _applies(head)}
    if lacking := sorted(names - by_name.keys()):
        raise ValueError(f"requirements.lock lacks {', '.join(lacking)}")
    return "".join(by_name[name] for name in sorted(names))


def fetch(platform: Platform, cache: Path, names: set[str]) -> dict[str, bytes]:
    """Wheels of some packages, by file name; those that were fetched before are taken from the cache.

    Raises:
        WheelsError: pip cannot get one for this platform.
    """
    store = cache / f"wheels-{platform.debian}"
    store.mkdir(parents=True, exist_ok=True)
    lock = LOCK.read_text()
    if missing := {name for name in names if _kept(store, locked({name}, lock)) is None}:
        _download(platform, store, locked(missing, lock))
    found = {name: _kept(store, locked({name}, lock)) for name in sorted(names)}
    if lacking := [name for name, path in found.items() if path is None]:
        raise WheelsError(f"pip has left no wheel of {', '.join(lacking)} for {platform.name} in {store}")
    return {path.name: path.read_bytes() for path in found.values() if path is not None}


def _kept(store: Path, block: str) -> Path | None:
    """The wheel that a lock's block names, by version and hash."""
    name, version = block.splitlines()[0].split()[0].split("==")
    for path in store.glob("*.whl"):
        words = path.name.split("-")
        if canonicalize_name(words[0]) == canonicalize_name(name) and words[1] == version:
            return path if hashlib.sha256(path.read_bytes()).hexdigest() in block else None
    return None


def _download(platform: Platform, store: Path, requirements: str) -> None:
    with tempfile.TemporaryDirectory(dir=store) as temporary:
        chosen = Path(temporary) / "requirements.txt"
        chosen.write_text(requirements)
        platforms = [word for each in (*platform.pip, "any") for word in ("--platform", each)]
        abis = [word for each in ("cp311", "abi3", "none") for word in ("--abi", each)]
        python = ["--implementation", "cp", "--python-version", "3.11", *platforms, *abis]
        how = ["--quiet", "--only-binary=:all:", "--no-deps", "--require-hashes", *python]
        command = [*pip_command(), "download", *how, "--dest", str(store), "-r", str(chosen)]
        # directories of its own: a set-up beside it empties the common ones
        environment = {**pip_environment(), "TMPDIR": temporary, "PIP_CACHE_DIR": f"{temporary}/cache"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise WheelsError(f"pip says: {done.stderr.strip()[-2000:]}")


def own(cache: Path, checkout: Path = CHECKOUT) -> dict[str, bytes]:
    """Hajob's wheel, from the sources in `checkout`."""
    target = cache / "hajob"
    target.mkdir(parents=True, exist_ok=True)
    for old in target.glob("*.whl"):
        old.unlink()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": _EARLIEST}
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
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
