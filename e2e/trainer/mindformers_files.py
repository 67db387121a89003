"""MindFormers' checkpoints in its default form: a safetensors file for each rank, and what stands around them.

`<output>/checkpoint/rank_N/toy_rank_N-<epoch>_<step>.safetensors`; with a sink of one step every step is an epoch, so
the step is the epoch and 1 follows. A file gets its name by a rename. `meta.json` names the last one;
`<output>/strategy/` holds a file for each rank that says how tensors are cut (MindFormers `core/callback/callback.py`,
`tools/resume_ckpt.py`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from e2e.trainer.checkpoint import CheckpointError

Array = NDArray[Any]
PREFIX: Final = "toy"
SUFFIX: Final = ".safetensors"
MOST_FILES: Final = 5
"""`keep_checkpoint_max`; the oldest file goes when another one comes."""
STEP: Final = "step_num"
MINDIO_WORDS: Final = ("TTP:1", "UCE:1", "ARF:1", "HCCE:1")
"""By them in MS_ENABLE_TFT MindFormers knows that MindIO is on."""
KINDS: Final[dict[str, np.dtype[Any]]] = {"F32": np.dtype("<f4"), "I64": np.dtype("<i8")}
NAMES: Final = {kind: name for name, kind in KINDS.items()}
_LENGTH: Final = 8


@dataclass(frozen=True)
class RankFiles:
    """The directory of one rank, and the beginning of the names that this process gives."""

    directory: Path
    prefix: str

    @classmethod
    def begin(cls, output: Path, rank: int) -> RankFiles:
        """Make the directory; files of this name that are there are somebody else's."""
        directory = output / "checkpoint" / f"rank_{rank}"
        directory.mkdir(parents=True, exist_ok=True)
        own = f"{PREFIX}_rank_{rank}"
        names, number = [path.name for path in directory.iterdir()], 0
        while any(name.startswith(f"{own}{f'_{number}' if number else ''}-") for name in names):
            number += 1
        return cls(directory, f"{own}_{number}" if number else own)

    def newest(self) -> Path | None:
        """What was written last."""
        found = [path for path in self.directory.iterdir() if path.suffix == SUFFIX]
        return max(found, key=lambda path: path.stat().st_mtime_ns, default=None)

    def write(self, step: int, arrays: Mapping[str, Array]) -> Path:
        """Write a step under another name and rename it."""
        own = sorted(self.directory.glob(f"{self.prefix}-*{SUFFIX}"), key=lambda path: path.stat().st_mtime_ns)
        for path in own[: max(0, len(own) - MOST_FILES + 1)]:
            path.unlink()
        path = self.directory / f"{self.prefix}-{step}_1{SUFFIX}"
        fresh = path.with_suffix(".tmp")
        fresh.write_bytes(packed({**arrays, STEP: np.array(step, dtype="<i8")}))
        fresh.replace(path)
        return path

    def record(self, step: int, name: str) -> None:
        """Name the last file in `meta.json`, in one piece."""
        fresh = self.directory / f"meta.json.{os.getpid()}"
        fresh.write_text(json.dumps({"last_epoch": step, "last_step": 1, "last_ckpt_file": name}))
        fresh.replace(self.directory / "meta.json")


def write_strategy(output: Path, rank: int) -> None:
    """Write how the tensors of a rank are cut, as MindSpore does when it has compiled the graph: before a step."""
    strategy = output / "strategy"
    strategy.mkdir(parents=True, exist_ok=True)
    (strategy / f"ckpt_strategy_rank_{rank}.ckpt").write_bytes(b"how tensors are cut")


def packed(arrays: Mapping[str, Array]) -> bytes:
    """A safetensors file: the length of a JSON header, the header, the bytes of all tensors."""
    header: dict[str, object] = {"__metadata__": {"format": "ms"}}
    parts: list[bytes] = []
    for name, array in arrays.items():
        begin, data = sum(map(len, parts)), np.ascontiguousarray(array).tobytes()
        offsets = [begin, begin + len(data)]
        header[name] = {"dtype": NAMES[array.dtype], "shape": list(array.shape), "data_offsets": offsets}
        parts.append(data)
    text = json.dumps(header).encode()
    return len(text).to_bytes(_LENGTH, "little") + text + b"".join(parts)


def load(path: Path) -> tuple[int, dict[str, Array]]:
    """Step and arrays; CheckpointError for a file that is cut off or holds something else."""
    content = path.read_bytes()
    try:
        length = int.from_bytes(content[:_LENGTH], "little")
        header = json.loads(content[_LENGTH : _LENGTH + length])
        header.pop("__metadata__", None)
        arrays = {name: _array(content[_LENGTH + length :], entry) for name, entry in header.items()}
        return int(arrays.pop(STEP)), arrays
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def _array(data: bytes, entry: Mapping[str, Any]) -> Array:
    begin, end = entry["data_offsets"]
    if end > len(data):
        raise ValueError("it is cut off")
    found: Array = np.frombuffer(data[begin:end], KINDS[entry["dtype"]]).reshape(entry["shape"]).copy()
    return found
