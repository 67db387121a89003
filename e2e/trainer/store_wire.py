"""How torch's TCPStore and its clients speak, by version: each operation's number, and what a client says first.

Written from torch's sources and held against its store where there is one (test_toy_store_and_torch.py); what Hajob
knows of it is not used here, so that a mistake of the one is not the other's.

Lengths and numbers have 8 bytes, little-endian; a string is its length and its bytes, a list its length and strings.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LENGTH: Final = struct.Struct("<Q")
NUMBER: Final = struct.Struct("<q")
NONCE: Final = struct.Struct("<I")
READY: Final = b"\0"  # the answer to a check; any other byte: one key at least is missing
NOT_READY: Final = b"\1"
ARRIVED: Final = b"\0"  # the answer to a wait
CANCELED: Final = b"\1"

VARIABLE: Final = "TOY_TORCH"
_MAGIC: Final = 0x3C85F7CE


@dataclass(frozen=True)
class Version:
    """How the client of a version speaks.

    Attributes:
        name: In TOY_TORCH.
        greeting: What it says first, which nobody answers; its store ends a connection that begins otherwise.
        numbers: Of each operation.
    """

    name: str
    greeting: bytes
    numbers: Mapping[str, int]

    @property
    def cancels(self) -> bool:
        """Whether a wait can be given up; before that, an answer came that nobody expected any more."""
        return "cancel_wait" in self.numbers


def _numbered(names: str, first: int) -> dict[str, int]:
    return {name: number for number, name in enumerate(names.split(), first)}


_LATER: Final = "set compare_set get add check wait num_keys delete append multi_get multi_set cancel_wait ping"
OLD: Final = Version("1.13", b"", _numbered("set compare_set get add check wait num_keys watch delete", 0))
NEW: Final = Version("2.1", struct.pack("<BI", 0, _MAGIC), _numbered(_LATER, 1))
UNHEARD_OF: Final = Version("unheard-of", struct.pack("<BI", 0, _MAGIC + 1), _numbered(_LATER, 1))
"""Of a torch to come, for tests of what happens where a client cannot be understood on its way."""

VERSIONS: Final = {each.name: each for each in (OLD, NEW, UNHEARD_OF)}
GREETINGS: Final = {each.greeting: each for each in (NEW, UNHEARD_OF)}


def version_from(environment: Mapping[str, str]) -> Version:
    """The one that is asked for, else that of most images; raises ValueError for a name that is not known."""
    name = environment.get(VARIABLE) or NEW.name
    if name not in VERSIONS:
        raise ValueError(f"{VARIABLE}={name}: known are {', '.join(VERSIONS)}")
    return VERSIONS[name]


def string(text: bytes) -> bytes:
    """A string as it is sent."""
    return LENGTH.pack(len(text)) + text


def strings(texts: Iterable[bytes]) -> bytes:
    """A list as it is sent."""
    found = [string(text) for text in texts]
    return LENGTH.pack(len(found)) + b"".join(found)
