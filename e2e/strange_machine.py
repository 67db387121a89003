"""`make strange-machine`: the project's targets on a machine that chose everything unlike ours.

Checkout, cache and temporary directory have long names with blanks and letters beyond ASCII. The user has no name, no
home and no privileges; files are for their owner alone (umask 077), the locale is C, and there is neither IPv6 nor a
network once the set-up is done. Another user and a network of one's own need root; without it they are left out.

    python3 -m e2e.strange_machine [TARGET ...]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from e2e.bootstrap.clean import TOOLS
from e2e.bootstrap.paths import CHECKOUT, binaries_directory, cache_directory

TARGETS: Final = ("help", "demo", "unit", "plugin")
USER: Final = "54321"
"""A user id that no machine has a name for."""
NAME: Final = "Zoë's place that has a really long name as homes of automounters and build servers do - " * 2
"""Longer than an address of a Unix socket may be (107 bytes), shorter than the name of a file may be (255).

No comma stands in it: kubectl takes what follows one in `-f` for another file.
"""
KEPT: Final = (
    *("PIP_CERT", "PIP_INDEX_URL", "PIP_DEFAULT_TIMEOUT", "GOPROXY", "GOSUMDB", "GONOSUMDB"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "http_proxy", "https_proxy"),
)
"""How this machine reaches its package indexes."""
WITHOUT_NETWORK: Final = 'ip link set lo up; echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; exec "$@"'
APART: Final = ("unshare", "--net", "sh", "-c", WITHOUT_NETWORK, "-")
UNPRIVILEGED: Final = (
    *("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"),
    *("--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"),
)


class StrangeMachine:
    """A copy of the checkout in a strange place, and a way to run `make` there."""

    def __init__(self, directory: Path) -> None:
        place = directory / NAME.strip()
        self.checkout, self._cache, self._temporary = (place / name for name in ("checkout", "cache", "tmp"))
        self._is_root = os.geteuid() == 0
        ignored = shutil.ignore_patterns("__pycache__", "dist", ".git", ".cache", *TOOLS)
        shutil.copytree(CHECKOUT, self.checkout, ignore=ignored)
        self._temporary.mkdir()
        for kept in (binaries_directory(), cache_directory() / "images"):  # neither is built or downloaded again
            if kept.is_dir():
                shutil.copytree(kept, self._cache / kept.name)
        self._cache.mkdir(exist_ok=True)
        if self._is_root:
            directory.chmod(0o755)
            subprocess.run(["chown", "-R", f"{USER}:{USER}", str(place)], check=True)

    def make(self, *words: str, network: bool = False) -> int:
        """Run `make` with these words; return its exit code."""
        settings = {
            "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": "/nonexistent",
            "LC_ALL": "C",
            "TERM": "dumb",
            "TMPDIR": str(self._temporary),
            "HAJOB_CACHE": str(self._cache),
        }
        settings |= {name: os.environ[name] for name in KEPT if name in os.environ}
        apart = APART if self._is_root and not network else ()
        user = UNPRIVILEGED if self._is_root else ()
        command = [*apart, *user, "make", "--no-print-directory", *words]
        return subprocess.run(command, cwd=self.checkout, env=settings, umask=0o077, check=False).returncode


def play(machine: StrangeMachine, targets: Sequence[str]) -> int:
    """Set up, run the targets one after the other, print what each did; return 1 where one failed."""
    rows: list[tuple[str, int, float]] = []
    for target in ("setup", *targets):
        began = time.monotonic()
        rows.append((target, machine.make(*target.split(), network=target == "setup"), time.monotonic() - began))
    print(f"\non a strange machine, in {machine.checkout}")
    for target, code, seconds in rows:
        print(f"  {target:<20}{'passed' if code == 0 else f'FAILED ({code})':<14}{seconds:6.0f} s")
    if os.geteuid() != 0:
        print("  left out, since they need root: a user without a name, a machine without network and IPv6")
    return int(any(code for _, code, _ in rows))


def main() -> int:
    """Run as the entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("targets", nargs="*", default=TARGETS, metavar="TARGET")
    targets = parser.parse_args().targets
    with tempfile.TemporaryDirectory(prefix="hajob-", dir="/var/tmp", ignore_cleanup_errors=True) as directory:
        return play(StrangeMachine(Path(directory)), targets)


if __name__ == "__main__":
    sys.exit(main())
