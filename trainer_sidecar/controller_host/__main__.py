"""Entry of the `controller` container: `python3 controller_host.pyz`.

The only setting is the directory shared with the coordinator; everything else comes from it with `start`.
"""

from __future__ import annotations

import os
import resource
import sys

from trainer_sidecar.controller_host.host import Host


def main() -> int:
    """Serve until told to end; return 2 when the environment is incomplete."""
    directory = os.environ.get("HAJOB_DIR", "")
    if not os.path.isdir(directory):
        sys.stderr.write(
            "hajob: HAJOB_DIR=%r is not a directory; it is the volume shared with the coordinator\n" % directory
        )
        return 2
    _raise_descriptor_limit()
    Host(directory).serve_until_end()
    return 0


def _raise_descriptor_limit() -> None:
    """Raise the soft limit: controller and store hold a connection per rank; the default suits select()."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    sys.exit(main())
