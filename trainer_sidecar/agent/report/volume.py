"""Whether the volume of the checkpoints is full: a save that fails for it often ends with an error that hides it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hajob.protocol import sidecar_pb2 as pb

CHECKPOINT_VOLUME_FULL: Final = "CheckpointVolumeFull"
FULL_BYTES: Final = 256 << 20
"""A save that met the end of the volume leaves less than it writes at once; none of a model needs less than this."""
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")

VolumeSizes = Callable[[Path], os.statvfs_result]


def full_volume_problems(directory: Path, sizes_of: VolumeSizes = os.statvfs) -> list[pb.Problem]:
    """Return the one problem of a full volume, or none; also none where the volume cannot be asked.

    Args:
        directory: of the checkpoints; what it is called is told to the person.
        sizes_of: asks the volume, as `os.statvfs` does. It may block as long as the volume does not answer.
    """
    try:
        sizes = sizes_of(directory)
    except OSError:
        return []  # what cannot be read there is told by the look at the checkpoints
    free, whole = sizes.f_bavail * sizes.f_frsize, sizes.f_blocks * sizes.f_frsize
    if whole and free < FULL_BYTES:
        what = f"{size_in_words(free)} of {size_in_words(whole)} are free"
    elif sizes.f_files and not sizes.f_favail:  # volumes without a number of files tell none at all
        what = f"none of its {sizes.f_files} files is free"
    else:
        return []
    text = f"the volume of checkpoint.path ({directory}) is full: {what}"
    return [pb.Problem(code=CHECKPOINT_VOLUME_FULL, message=text)]


def size_in_words(size: int) -> str:
    """Return a number of bytes as `df -h` prints it, with its unit."""
    value, unit = float(size), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if value >= 10 or not unit else f"{value:.1f} {_UNITS[unit]}"
