"""Builds Hajob's image without Docker: `python -m release.image [--platform linux/arm64] [--output DIRECTORY]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from e2e.bootstrap.paths import CHECKOUT, cache_directory
from hajob.version import VERSION
from release import layout, oci
from release.debian import PackagesError
from release.layout import UnfitImageError
from release.platforms import PLATFORMS, Platform
from release.tree import write_below
from release.wheels import WheelsError

NAME: Final = f"docker.io/hajob/operator:{VERSION}"
MOST_BYTES: Final = 120 * 10**6


def cache() -> Path:
    """Where downloads are kept."""
    return cache_directory() / "images"


def build(platform: Platform, output: Path) -> Path:
    """Write the archive of one platform; returns its path.

    Raises:
        UnfitImageError: it is too large, or a file in it does not fit the platform.
        PackagesError, WheelsError: something cannot be had.
    """
    image = oci.Image(NAME, platform, layout.layers(platform, cache()), layout.CONFIG)
    output.mkdir(parents=True, exist_ok=True)
    path = output / f"hajob-{VERSION}-linux-{platform.architecture}.tar"
    content = oci.archive(image)
    if len(content) > MOST_BYTES:
        raise UnfitImageError(
            f"{path.name} would have {len(content) / 10**6:.0f} MB; {MOST_BYTES / 10**6:.0f} are allowed"
        )
    path.write_bytes(content)
    return path


def main() -> int:
    """Entry point; 1 where something cannot be had."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--platform", action="append", choices=sorted(PLATFORMS), help="default: all")
    parser.add_argument("--output", type=Path, default=CHECKOUT / "dist")
    parser.add_argument("--root", type=Path, help="write the files there instead, for a builder of images")
    options = parser.parse_args()
    try:
        for name in options.platform or sorted(PLATFORMS):
            if options.root:
                for layer in layout.layers(PLATFORMS[name], cache()):
                    write_below(options.root, layer.tree, layer.directories)
                continue
            path = build(PLATFORMS[name], options.output)
            print(f"{path}: {path.stat().st_size / 10**6:.1f} MB")
    except (PackagesError, WheelsError, UnfitImageError) as error:
        print(f"the image cannot be built: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
