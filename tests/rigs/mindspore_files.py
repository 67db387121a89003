"""Directories as MindFormers and MindSpore write them, file by file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path


def safetensors(step: int | None = None, kind: str = "I64") -> bytes:
    """Build a tensor of weights and, if wanted, the step beside it, as `append_dict` puts it there."""
    header: dict[str, object] = {"w": {"dtype": "F32", "shape": [5], "data_offsets": [0, 20]}}
    data = bytes(20)
    if step is not None:
        length = {"I32": 4, "I64": 8}.get(kind, 2)
        header["step_num"] = {"dtype": kind, "shape": [], "data_offsets": [20, 20 + length]}
        data += step.to_bytes(length, "little")
    text = json.dumps({"__metadata__": {"format": "ms"}, **header}).encode()
    return len(text).to_bytes(8, "little") + text + data


def field(number: int, content: bytes) -> bytes:
    """Build a field of a protobuf message with a length."""
    length, rest = [], len(content)
    while rest > 0x7F:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([number << 3 | 2, *length, rest]) + content


def ckpt(step: int | None = None) -> bytes:
    """Build a tensor of weights and, if wanted, the step, each a value with a name."""
    values = [field(1, b"w") + field(2, field(2, b"Float32") + field(3, bytes(400)))]
    if step is not None:
        values.append(field(1, b"step_num") + field(2, field(2, b"Int64") + field(3, step.to_bytes(8, "little"))))
    return b"".join(field(1, value) for value in values)


def iteration(
    root: Path,
    step: int,
    ranks: int = 4,
    *,
    prefix: str = "",
    metadata: bool = True,
    optimizer: bool = True,
    totals: tuple[int, int] | None = None,
) -> Path:
    """Write one checkpoint of MindFormers' newer form, with its tracker."""
    model, opt = totals or (ranks, ranks)
    directory = root / f"iteration_{step:08d}"
    directory.mkdir(parents=True)
    names = [f"{prefix}model-{index:07d}-{model:07d}.safetensors" for index in range(model)]
    names += [f"{prefix}opt-{index:07d}-{opt:07d}.safetensors" for index in range(opt if optimizer else 0)]
    for name in names:
        (directory / name).write_bytes(safetensors())
    common = {"epoch_num": 1, "step_num": step, "global_step": step, "loss_scale": None, "global_batch_size": 32}
    (directory / "common.json").write_text(
        json.dumps(common | {"consumed_samples": None, "ckpt_status": None}, indent=4)
    )
    if metadata:
        (directory / "metadata.json").write_text(json.dumps(metadata_of(names), indent=4))
    (root / "latest_checkpointed_iteration.txt").write_text(str(step))
    return directory


def metadata_of(names: Iterable[str]) -> dict[str, object]:
    """List what stands where, as `save_metadata` writes it."""
    storage = {
        f"('model.layers.{index}.weight', (0, 0))": [{"file_name": name, "storage_rank": index, "rank_group": [index]}]
        for index, name in enumerate(names)
    }
    properties = {"dtype": "Float32", "replica_id": 0, "allow_shape_mismatch": False, "allow_to_save": True}
    state = {"properties": properties, "global_shape": [8, 8], "axis_fragmentations": [1, 1], "layout": None}
    chunk = [{"global_offset": [0, 0], "local_shape": [8, 8]}]
    return {"state_dict_metadata": {"model.layers.0.weight": {**state, "chunk": chunk}}, "storage_data": storage}


def saved_for_mindio(root: Path, step: int, ranks: Iterable[int], *, temporary: bool = False, epoch: int = 1) -> Path:
    """Save what MindSpore's own callback does on the ranks that MindIO chose: one file for each shard."""
    directory = root / f"ttp_saved_checkpoints-step_{step}{'_tmp' if temporary else ''}"
    for rank in ranks:
        (directory / f"rank_{rank}").mkdir(parents=True)
        (directory / f"rank_{rank}" / f"ttp_rank_{rank}-{epoch}_{step}.ckpt").write_bytes(ckpt(step))
    return directory
