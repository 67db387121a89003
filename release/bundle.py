"""One archive to install from without a network: `python -m release.bundle` (docs/admin/install.md)."""

from __future__ import annotations

import argparse
import gzip
import hashlib
import sys
from pathlib import Path
from typing import Final

from e2e.bootstrap.paths import CHECKOUT
from e2e.bootstrap.problems import SetupError
from hajob.version import VERSION
from release import image, oci, sbom
from release.debian import PackagesError
from release.layout import UnfitImageError
from release.platforms import PLATFORMS
from release.tree import Entry, to_tar
from release.wheels import WheelsError

SUMS: Final = "SHA256SUMS"
_AS_THEY_ARE: Final = ("crds", "deploy")


def chart() -> bytes:
    """The chart as `helm package` writes it, the same bytes every time."""
    root = CHECKOUT / "charts" / "hajob"
    files = sorted(path for path in root.rglob("*") if path.is_file())
    tree = {f"hajob/{path.relative_to(root).as_posix()}": Entry(path.read_bytes()) for path in files}
    return gzip.compress(to_tar(tree), 6, mtime=0)


def contents(images: Path) -> dict[str, Entry]:
    """Everything but the checksums.

    Args:
        images: where the archives of the images are; those that are not there are built.
    """
    found = {f"charts/hajob-{VERSION}.tgz": Entry(chart()), **pages()}
    for directory in _AS_THEY_ARE:
        for path in sorted((CHECKOUT / directory).glob("*.yaml")):
            found[f"{directory}/{path.name}"] = Entry(path.read_bytes())
    for platform in PLATFORMS.values():
        path = image.build(platform, images)
        listed = sbom.components(oci.read(path)[1], platform)
        found[f"images/{path.name}"] = Entry(path.read_bytes())
        document = sbom.document(listed, platform, image.cache() / "cyclonedx")
        found[f"sbom/{path.stem}.cdx.json"] = Entry(document.encode())
        found[f"sbom/{path.stem}.licenses.txt"] = Entry(sbom.table(listed).encode())
    return found


def pages() -> dict[str, Entry]:
    """All of docs, with its pictures: docs/admin/install.md is where to begin, its links lead to the others."""
    paths = sorted(path for path in (CHECKOUT / "docs").rglob("*") if path.suffix in {".md", ".svg"})
    return {path.relative_to(CHECKOUT).as_posix(): Entry(path.read_bytes()) for path in paths}


def archive(tree: dict[str, Entry]) -> bytes:
    """The bundle: everything below one directory, with the checksums that `sha256sum --check` reads."""
    sums = "".join(f"{hashlib.sha256(entry.content).hexdigest()}  {path}\n" for path, entry in sorted(tree.items()))
    whole = {**tree, SUMS: Entry(sums.encode())}
    return to_tar({f"hajob-{VERSION}/{path}": entry for path, entry in whole.items()})


def main() -> int:
    """Entry point; 1 where something cannot be had."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=CHECKOUT / "dist")
    output: Path = parser.parse_args().output
    try:
        content = archive(contents(output))
    except (PackagesError, WheelsError, UnfitImageError, SetupError) as error:
        print(f"the bundle cannot be made: {error}", file=sys.stderr)
        return 1
    path = output / f"hajob-{VERSION}-bundle.tar"
    path.write_bytes(content)
    print(f"{path}: {len(content) / 10**6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
