"""`kubectl hajob` as an archive for each platform, with a Python of its own, and krew's manifest of it.

    python -m release.plugin [--platform linux/arm64] [--output DIRECTORY]

The files are the image's, and the packages of the extra `cli`; a shell script starts their Python by their own
loader: of the machine it needs /bin/sh.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.bootstrap.paths import CHECKOUT
from hajob.version import VERSION
from release import image, layout
from release.debian import PackagesError
from release.layout import UnfitImageError
from release.platforms import PLATFORMS, Platform
from release.tree import Entry, Tree, to_tar, without_links
from release.wheels import SITE, WheelsError

COMMANDS: Final = {"kubectl-hajob": "hajob.cli.main", "kubectl_complete-hajob": "hajob.cli.completion"}
EXTRAS: Final = ("cli",)
"""What people look at, in colours, and what `lint` asks; the image needs neither."""
COMPLETION: Final = (
    'ln -sf "$(dirname "$(readlink -f "$(command -v kubectl-hajob)")")"/kubectl_complete-hajob ~/.krew/bin/'
)
"""What puts the second command on the PATH, since krew links only one of a plugin."""
ADDRESS: Final = "https://registry.example.org/hajob"
"""Where the archives are put; whoever publishes them says it by `--address`."""


def archive(tree: Tree, platform: Platform) -> bytes:
    """The archive of one platform: the commands, the licence, everything else below `root`; krew takes no links."""
    commands = {name: Entry(script(module, platform).encode(), executable=True) for name, module in COMMANDS.items()}
    needed = without_links({path: entry for path, entry in tree.items() if not path.startswith("etc/")})
    below = {f"root/{path}": entry for path, entry in needed.items()}
    return gzip.compress(to_tar({**commands, **below, "LICENSE": tree["licenses/hajob/LICENSE"]}), 6, mtime=0)


def script(module: str, platform: Platform) -> str:
    """Starts a module with the archive's Python."""
    python = " ".join(f'"{word}"' for word in platform.python("$root"))
    return f"""#!/bin/sh
root=$(readlink -f "$0")
root=${{root%/*}}/root
PYTHONHOME=$root/usr PYTHONPATH=$root/{SITE} PYTHONNOUSERSITE=1 \\
    exec {python} -m {module} "$@"
"""


def manifest(archives: Mapping[str, bytes], address: str) -> dict[str, Any]:
    """Krew's manifest (krew.googlecontainertools.github.com/v1alpha2) for archives by platform."""
    platforms = []
    for name, content in sorted(archives.items()):
        labels = {"os": "linux", "arch": PLATFORMS[name].architecture}
        uri = f"{address}/{file_name(PLATFORMS[name])}"
        digest = hashlib.sha256(content).hexdigest()
        platforms.append({"selector": {"matchLabels": labels}, "uri": uri, "sha256": digest, "bin": "kubectl-hajob"})
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "hajob"},
        "spec": {
            "version": f"v{VERSION}",
            "homepage": address,
            "shortDescription": "Look at, try out and steer trainings on Ascend NPUs",
            "caveats": f"krew links kubectl-hajob only. For completion, now and after an upgrade:\n\n  {COMPLETION}\n",
            "platforms": platforms,
        },
    }


def file_name(platform: Platform) -> str:
    """Of the archive of a platform."""
    return f"kubectl-hajob-{VERSION}-linux-{platform.architecture}.tar.gz"


def main() -> int:
    """Entry point; 1 where something cannot be had."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", action="append", choices=sorted(PLATFORMS), help="default: all")
    parser.add_argument("--output", type=Path, default=CHECKOUT / "dist")
    parser.add_argument("--address", default=ADDRESS, help="where the archives will be found")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    archives: dict[str, bytes] = {}
    try:
        for name in options.platform or sorted(PLATFORMS):
            tree: dict[str, Entry] = {}
            for layer in layout.layers(PLATFORMS[name], image.cache(), extras=EXTRAS):
                tree |= layer.tree
            archives[name] = archive(tree, PLATFORMS[name])
    except (PackagesError, WheelsError, UnfitImageError) as error:
        print(f"the plugin cannot be packed: {error}", file=sys.stderr)
        return 1
    for name, content in archives.items():
        path = options.output / file_name(PLATFORMS[name])
        path.write_bytes(content)
        print(f"{path}: {len(content) / 10**6:.1f} MB")
    told = yaml.safe_dump(manifest(archives, options.address), sort_keys=False)
    (options.output / "hajob.yaml").write_text(told)
    return 0


if __name__ == "__main__":
    sys.exit(main())
