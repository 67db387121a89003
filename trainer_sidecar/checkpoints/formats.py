"""Read what a checkpoint's file says of itself, without its framework and without its tensors.

Every format puts its lengths first (or its index last), so a few reads detect a file that is cut off. They do not
detect a flipped byte in a tensor: that would take reading all of it.

torch: a zip with a pickle of everything but the tensors. It is unpickled with every class replaced by an inert one, so
that nothing in it can run. MindSpore: a protobuf message, one field per tensor, so that a file that ends between two of
them looks whole. safetensors: a JSON header with offsets.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any, BinaryIO, Final

from trainer_sidecar.checkpoints.protobuf import fields_of_message, read_varint
from trainer_sidecar.checkpoints.verdict import Look

ZIP_MARK: Final = b"PK\x03\x04"
PICKLE_MARK: Final = b"\x80"
# A header is read whole: a longer one is none, or not worth the memory of an agent that serves a training.
LONGEST_HEADER: Final = 64 << 20
_CHECKSUM_MARK: Final = b"crc_num"
_CHECKSUM_LENGTH: Final = 17
_VALUE_FIELD: Final = 0x0A  # field 1, with a length: one tensor
_HEAD: Final = 16
_LENGTH_BYTES: Final = 8
_STEP: Final = "step_num"
"""Name under which MindFormers saves the step beside the tensors, as a tensor of one number."""
_SMALL: Final = 128
_TAG, _TENSOR, _CONTENT = 1, 2, 3
"""Fields of MindSpore's messages: a value's name and tensor, a tensor's bytes."""
_NUMBERS: Final = {"I32": 4, "I64": 8}
_LARGEST_NUMBER: Final = max(_NUMBERS.values())
CUT_OFF: Final = Look(whole=False)


def look_into_file(path: Path) -> Look:
    """Look into a file, by its suffix; an unknown format says nothing. OSError as it comes."""
    reader = {".pt": _look_into_torch, ".ckpt": _look_into_mindspore, ".safetensors": _look_into_safetensors}.get(
        path.suffix
    )
    if reader is None:
        return Look()
    with path.open("rb") as file:
        return reader(file, os.fstat(file.fileno()).st_size)


def _look_into_torch(file: BinaryIO, _size: int) -> Look:
    mark = file.read(len(ZIP_MARK))
    if mark[:1] == PICKLE_MARK:
        return Look()  # the oldest format has no index; nothing can be told
    if mark != ZIP_MARK:
        return CUT_OFF
    try:
        with zipfile.ZipFile(file) as archive:
            name = next((one for one in archive.namelist() if one.rpartition("/")[2] == "data.pkl"), None)
            if name is None or archive.getinfo(name).file_size > LONGEST_HEADER:
                return Look()
            content = archive.read(name)  # the whole of it: its checksum is looked at, at its end
    except (zipfile.BadZipFile, EOFError):
        return CUT_OFF
    return Look(step=step_in_pickle(content))


class _Inert(dict[Any, Any]):
    """Stand-in for every object in a pickle: accepts everything, does nothing."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()

    def __setstate__(self, _: object) -> None:
        """Ignore it."""

    def __call__(self, *_: object, **__: object) -> _Inert:
        return self

    def append(self, _: object) -> None:
        """Ignore it."""

    def extend(self, _: object) -> None:
        """Ignore it."""

    def add(self, _: object) -> None:
        """Ignore it."""

    __hash__ = object.__hash__  # type: ignore[assignment]


class _InertUnpickler(pickle.Unpickler):
    def find_class(self, _module: str, _name: str) -> type[_Inert]:
        """Return the inert class for every name in the pickle."""
        return _Inert

    def persistent_load(self, _: object) -> None:
        """Leave tensors where they are."""


def step_in_pickle(pickled: bytes) -> int | None:
    """Return `iteration` of the pickled dictionary; None: there is none, or it cannot be read."""
    try:
        content = _InertUnpickler(io.BytesIO(pickled)).load()
    except Exception:  # a pickle may raise anything
        return None
    step = content.get("iteration") if isinstance(content, dict) else None
    return step if isinstance(step, int) and not isinstance(step, bool) else None


def _look_into_mindspore(file: BinaryIO, size: int) -> Look:
    """Walk over the lengths of the tensors; the last one ends with the file, or before a checksum."""
    at = 0
    step: int | None = None
    while at < size:
        file.seek(at)
        head = file.read(_HEAD)
        if head.startswith(_CHECKSUM_MARK):
            return Look(whole=size - at == _CHECKSUM_LENGTH, step=step)
        if head[0] != _VALUE_FIELD:
            return CUT_OFF
        try:
            length, used = read_varint(head, 1)
        except ValueError:
            return CUT_OFF
        if length <= _SMALL:
            file.seek(at + used)
            step = _step_in_value(file.read(length), step)
        at += used + length
    return Look(whole=at == size and size > 0, step=step)


def _step_in_value(value: bytes, otherwise: int | None) -> int | None:
    """Return the number in a value named `step_num`."""
    try:
        named = dict(fields_of_message(value))
        tensor = named.get(_TENSOR)
        if named.get(_TAG) != _STEP.encode() or not isinstance(tensor, bytes):
            return otherwise
        content = dict(fields_of_message(tensor)).get(_CONTENT)
    except ValueError:
        return otherwise
    return _number_in_tensor(content) if isinstance(content, bytes) else otherwise


def _number_in_tensor(content: bytes) -> int | None:
    return int.from_bytes(content, "little", signed=True) if len(content) in _NUMBERS.values() else None


def _look_into_safetensors(file: BinaryIO, size: int) -> Look:
    """Read from the header where the last tensor ends, and whether MindSpore left out what another rank's file has."""
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    if not 0 < length <= min(LONGEST_HEADER, size - _LENGTH_BYTES):
        return CUT_OFF
    try:
        header = json.loads(file.read(length))
        partial = header.pop("__metadata__", {}).get("remove_redundancy") == "True"
        ends = [entry["data_offsets"][1] for entry in header.values()]
        step = _step_in_safetensors(file, header.get(_STEP), _LENGTH_BYTES + length)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return CUT_OFF
    return Look(whole=_LENGTH_BYTES + length + max(ends, default=0) == size, step=step, partial=partial)


def _step_in_safetensors(file: BinaryIO, entry: Any, data_at: int) -> int | None:  # noqa: ANN401  a stranger's JSON
    """Return the number in a tensor named `step_num`; raise whatever odd JSON raises."""
    if entry is None or entry["dtype"] not in _NUMBERS:
        return None
    begin, end = entry["data_offsets"]
    file.seek(data_at + begin)
    return _number_in_tensor(file.read(min(end - begin, _LARGEST_NUMBER + 1)))
