"""The part of protobuf's wire format that MindSpore's files need: fields of a message, without its schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_VARINT: Final = 0
_LENGTH: Final = 2
_FIXED: Final = {1: 8, 5: 4}
# Seven bits a byte: 64 bits need ten, so an eleventh means that this is no varint.
_LONGEST_VARINT: Final = 10


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the variable-length integer at `at`, and where it ends. ValueError: it does not end."""
    value = 0
    for place, byte in enumerate(data[at : at + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError("a number is cut off")


def fields_of_message(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Return number and value of each field of a message. ValueError: this is none."""
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = read_varint(data, at)
            yield number, value
            continue
        length, at = read_varint(data, at) if kind == _LENGTH else (_FIXED.get(kind, len(data) + 1), at)
        if at + length > len(data):
            raise ValueError("a field is cut off")
        yield number, data[at : at + length]
        at += length


def repeated_numbers(data: bytes, wanted: int) -> Iterator[int]:
    """Return the values of a repeated number, packed or not. ValueError: this is no message."""
    for number, value in fields_of_message(data):
        if number != wanted:
            continue
        if isinstance(value, int):
            yield value
            continue
        at = 0
        while at < len(value):
            one, at = read_varint(value, at)
            yield one
