"""Python and the libraries below it, from Debian's packages: fetched by apt, unpacked by the standard library.

`debian.lock` names each package with version and hash, for both architectures; `make image-lock` writes it anew for
what the configured mirrors offer. apt works in directories of its own, with the sources of this machine; where there is
no apt, the files named in the lock may be put into the directory that the message tells.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from release.platforms import PLATFORMS, Platform
from release.tree import Entry, from_tar

LOCK: Final = Path(__file__).with_name("debian.lock")
PYTHON: Final = (3, 11)
PACKAGES: Final = (
    *("libc6", "libgcc-s1", "gcc-12-base", "libstdc++6"),
    *("zlib1g", "libbz2-1.0", "liblzma5", "libssl3", "libexpat1", "libffi8", "libuuid1"),
    *("libpython3.11-minimal", "python3.11-minimal", "libpython3.11-stdlib"),
)
_LEFT_OUT: Final = re.compile(
    r"usr/share/(man|locale|info|lintian|bug|applications|pixmaps|binfmts)/"
    r"|usr/share/doc/[^/]+/(?!copyright$)"
    r"|usr/lib/[^/]+/gconv/"
    r"|usr/lib/python3\.11/lib-dynload/(readline|nis|_curses|_curses_panel|_dbm|_sqlite3|_crypt|ossaudiodev)\."
)
"""Documents, and modules that need libraries which nothing of Hajob's uses."""


class PackagesError(RuntimeError):
    """Debian's packages cannot be had; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Package:
    """One line of the lock."""

    architecture: str
    name: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        """As apt calls it."""
        return f"{self.name}_{self.version.replace(':', '%3a')}_{self.architecture}.deb"


def locked(platform: Platform, lock: Path = LOCK) -> list[Package]:
    """What a lock names for a platform."""
    lines = (line.split() for line in lock.read_text().splitlines() if line and not line.startswith("#"))
    return [Package(*words) for words in lines if words[0] == platform.debian]


def fetch(platform: Platform, cache: Path, lock: Path = LOCK) -> dict[Package, bytes]:
    """The packages of a lock, from the cache or by apt.

    Raises:
        PackagesError: One cannot be had, or is another one than the lock says.
    """
    store = cache / "debian"
    store.mkdir(parents=True, exist_ok=True)
    wanted = locked(platform, lock)
    missing = [package for package in wanted if not (store / package.file).is_file()]
    if missing:
        _download([f"{package.name}={package.version}" for package in missing], platform, cache, store)
    found = {package: (store / package.file).read_bytes() for package in wanted}
    for package, content in found.items():
        if hashlib.sha256(content).hexdigest() != package.sha256:
            raise PackagesError(f"{store / package.file} is not what {lock.name} names; remove it")
    return found


def unpack(content: bytes) -> dict[str, Entry]:
    """The files of a package, without what no image needs."""
    data = next(data for name, data in _members(content) if name.startswith("data.tar"))
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {path: entry for path, entry in from_tar(archive).items() if not _LEFT_OUT.match(path)}


def _members(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Of an ar archive, which a .deb is."""
    at = len(b"!<arch>\n")
    while at + 60 <= len(content):
        header = content[at : at + 60]
        size = int(header[48:58])
        yield header[:16].decode().strip().rstrip("/"), content[at + 60 : at + 60 + size]
        at += 60 + size + size % 2


def _download(names: list[str], platform: Platform, cache: Path, store: Path) -> None:
    if shutil.which("apt-get") is None:
        listed = " ".join(names)
        raise PackagesError(f"apt-get is not there: put Debian's packages ({listed}, {platform.debian}) into {store}")
    options = _apt_options(platform, cache)
    _run(["apt-get", *options, "update"])
    _run(["apt-get", *options, "download", *names], store)


def _apt_options(platform: Platform, cache: Path) -> list[str]:
    """Directories of its own: neither root nor a foreign architecture of this system is needed."""
    state = cache / f"apt-{platform.debian}"
    for directory in ("lists/partial", "archives/partial"):
        (state / directory).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    settings = {
        "Dir::State": state,
        "Dir::State::status": state / "status",
        "Dir::Cache": state,
        "APT::Architecture": platform.debian,
        "APT::Architectures": platform.debian,
        "Acquire::Languages": "none",
        "Debug::NoLocking": "1",
        "APT::Sandbox::User": "",
    }
    return ["-qq", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))]


def _run(command: list[str], directory: Path | None = None) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PackagesError(
            f"{' '.join(command)} says: {done.stderr.strip()}; `make image-lock` takes what there is now"
        )
    return done.stdout


def write_lock(cache: Path, lock: Path = LOCK, packages: Sequence[str] = PACKAGES) -> None:
    """Lock what the mirrors offer now of some packages."""
    lines = ["# Written by `make image-lock`: architecture, package, version, SHA-256."]
    for platform in PLATFORMS.values():
        options = _apt_options(platform, cache)
        _run(["apt-get", *options, "update"])
        for name in packages:
            shown = _run(["apt-cache", *options, "show", "--no-all-versions", name])
            fields = dict(line.split(": ", 1) for line in shown.splitlines() if ": " in line and line[0] != " ")
            lines.append(f"{platform.debian} {name} {fields['Version']} {fields['SHA256']}")
    lock.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    from e2e.bootstrap.paths import cache_directory

    write_lock(cache_directory() / "images")
