"""Are the final weights of two trainings the same, bit for bit?

`python3 -m e2e.trainer.compare A B` reads `final-rank<R>.npz` of both log directories. Within a run all data-parallel
ranks of a coordinate must hold the same parameters, too, and both copies of an optimizer shard must be the same;
between runs every (tensor, pipeline) coordinate is compared, whatever the number of data-parallel ranks. It prints
what differs and ends with 0 (equal) or 1.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import numpy as np

Digests = dict[tuple[int, int], str]  # (tensor, pipeline) -> digest of the parameters


class NotComparable(ValueError):  # noqa: N818 - reads as what it says
    """A run left no final weights, or the weights of its own ranks disagree."""


def digests(directory: Path) -> Digests:
    """Digest of the parameters for every coordinate of a run.

    Raises NotComparable when there are none, or when ranks disagree about the last step or a coordinate's weights.
    """
    found: dict[tuple[int, int], dict[str, list[int]]] = {}
    steps = set()
    for path in sorted(directory.glob("final-rank*.npz")):
        with np.load(path) as archive:
            step, tensor, data, pipeline = (int(value) for value in archive["place"])
            digest = hashlib.sha256(archive["parameters"].tobytes()).hexdigest()
        steps.add(step)
        found.setdefault((tensor, pipeline), {}).setdefault(digest, []).append(data)
    if not found:
        raise NotComparable(f"{directory}: no final-rank*.npz; the training has not ended there")
    if len(steps) > 1:
        raise NotComparable(f"{directory}: ranks ended at different steps, {sorted(steps)}")
    for place, by_digest in sorted(found.items()):
        if len(by_digest) > 1:
            groups = " and ".join(str(group) for group in by_digest.values())
            raise NotComparable(
                f"{directory}: tensor {place[0]}, pipeline {place[1]}: weights of data-parallel ranks {groups} differ"
            )
    return {place: next(iter(by_digest)) for place, by_digest in found.items()}


def differences(one: Path, other: Path) -> list[str]:
    """Sentences about what differs between two runs; empty when all weights are bitwise equal."""
    try:
        mine, theirs = digests(one), digests(other)
    except NotComparable as error:
        return [str(error)]
    if mine.keys() != theirs.keys():
        return [f"{one} has coordinates {sorted(mine)}, {other} has {sorted(theirs)}"]
    return [
        f"tensor {place[0]}, pipeline {place[1]}: {mine[place][:16]} and {theirs[place][:16]}"
        for place in sorted(mine)
        if mine[place] != theirs[place]
    ]


def main() -> int:
    """Compare two log directories."""
    parser = argparse.ArgumentParser(prog="e2e.trainer.compare", description="Compare final weights bitwise.")
    parser.add_argument("one", type=Path)
    parser.add_argument("other", type=Path)
    options = parser.parse_args()
    found = differences(options.one, options.other)
    print("\n".join(found))
    print(f"weights equal: {'no' if found else 'yes'}")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
