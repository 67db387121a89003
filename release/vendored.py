"""The libraries of the page that come along in the source (`hajob/web/static/vendor`), as `lock.json` there names them.

    python -m release.vendored [--check]

Without a switch npm fetches each package anew, by name and version; its content must have the lock's checksum. A new
version is written into the lock by hand, with the checksum that `npm view NAME dist.integrity` tells.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

from e2e.bootstrap.paths import CHECKOUT

DIRECTORY: Final = CHECKOUT / "operator/hajob/web/static/vendor"
LOCK: Final = "lock.json"


def read_lock() -> dict[str, Any]:
    """The packages by name: version, licence, checksum, and the files that are taken of each."""
    found: dict[str, Any] = json.loads((DIRECTORY / LOCK).read_text())
    return found


def differences() -> list[str]:
    """What is not as the lock says, in sentences."""
    wanted = {name: file["sha256"] for package in read_lock().values() for name, file in package["files"].items()}
    there = {path.name: path for path in DIRECTORY.iterdir() if path.name != LOCK}
    found = [f"{name} is in no package of the lock" for name in sorted(there.keys() - wanted.keys())]
    for name, checksum in sorted(wanted.items()):
        if name not in there:
            found.append(f"{name} is missing")
        elif hashlib.sha256(there[name].read_bytes()).hexdigest() != checksum:
            found.append(f"{name} is not the file of its package")
    return found


def fetch_package(name: str, package: dict[str, Any]) -> dict[str, bytes]:
    """The files of a package, fetched by npm.

    Raises:
        ValueError: What came is not what the lock names.
    """
    with tempfile.TemporaryDirectory() as place:
        words = ["npm", "pack", f"{name}@{package['version']}", "--silent", "--pack-destination", place]
        subprocess.run(words, check=True, cwd=place, stdout=subprocess.DEVNULL)
        content = next(Path(place).glob("*.tgz")).read_bytes()
    checksum = "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()
    if checksum != package["integrity"]:
        raise ValueError(
            f"{name} {package['version']}: its checksum is {checksum}, the lock has {package['integrity']}"
        )
    found = {}
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for file, told in package["files"].items():
            member = archive.extractfile(f"package/{told['from']}")
            if member is None:
                raise ValueError(f"{name} {package['version']} has no {told['from']}")
            found[file] = member.read()
    return found


def main() -> int:
    """Entry point; 1 where something is not as the lock says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fetch nothing, compare what is there")
    if not parser.parse_args().check:
        for name, package in read_lock().items():
            for file, content in fetch_package(name, package).items():
                (DIRECTORY / file).write_bytes(content)
    for sentence in (found := differences()):
        print(sentence, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
