"""`python -m e2e.mindio.conformance [--package DIR] [--jobs N] [--quick] [pattern]`: run the vectors, print a table.

`--off` does the reverse: it switches every behaviour of the simulator off, one after the other, and wants to see a
vector fail.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path

from e2e.mindio.conformance.running import run_all, switch_off
from e2e.mindio.conformance.vector import load_all
from e2e.mindio.conformance.world import SIMULATOR

#: Behaviours that no vector can be bound to, because only the simulator can be brought there; a test of its own does.
BEYOND_VECTORS = {"serials_end"}


def behaviours(pattern: str = "") -> list[str]:
    """Every behaviour that the simulator can leave out."""
    sys.path.insert(0, str(SIMULATOR))
    from mindio_ttp import _settings

    names: dict[str, str] = _settings.BEHAVIOURS
    return [name for name in names if pattern in name and name not in BEYOND_VECTORS]


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m e2e.mindio.conformance", description=__doc__)
    parser.add_argument("pattern", nargs="?", default="", help="part of a vector's name, or of a behaviour's")
    parser.add_argument("--package", type=Path, default=Path(os.environ.get("HAJOB_MINDIO") or SIMULATOR))
    parser.add_argument("--jobs", type=int, default=6 * (os.cpu_count() or 2))
    parser.add_argument("--quick", action="store_true", help="only the vectors marked quick")
    parser.add_argument("--off", action="store_true", help="switch each behaviour off, want a vector to fail")
    return parser.parse_args()


def main() -> int:
    """The command."""
    chosen = options()
    began = time.monotonic()
    if chosen.off:
        names = behaviours(chosen.pattern)
        silent = asyncio.run(switch_off(load_all(), SIMULATOR, names, chosen.jobs))
        print(f"{len(names) - len(silent)} of {len(names)} behaviours are missed, {time.monotonic() - began:.0f} s")
        return 1 if silent else 0
    vectors = [v for v in load_all(chosen.pattern) if v.quick or not chosen.quick]
    package = chosen.package.resolve()
    outcomes = asyncio.run(run_all(vectors, package, chosen.jobs))
    missed = [o for o in outcomes if o.problem is not None]
    other = [o for o in missed if o.vector.doubt and package != SIMULATOR]
    failed = [o for o in missed if o not in other]
    again = sum(o.again and o.problem is None for o in outcomes)
    print(f"{len(outcomes) - len(missed)} of {len(outcomes)} vectors hold, {time.monotonic() - began:.0f} s", end="")
    print(f"; {again} of them at the second attempt" if again else "", end="")
    print(f"; {len(other)} ended otherwise, which may be right as well" if other else "")
    return 1 if failed or not outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
