"""The CheckCode by which MindCluster's writers seal their objects: a SHA-256 over Go's JSON of the inner object.

The readers there decode the object into a Go struct, encode it again and compare, so what counts is Go's encoding:
compact, fields in the order of the struct, map keys sorted, `<`, `>`, `&`, U+2028 and U+2029 escaped
(docs/admin/faults.md).
"""

from __future__ import annotations

import hashlib
import json
from typing import Final

_ESCAPED: Final = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)
_OLD_ESCAPES: Final = {"\\b": "\\u0008", "\\f": "\\u000c"}
"""Before Go 1.22 these two had no short form."""


def check_codes(value: object) -> tuple[str, ...]:
    """Return every CheckCode that a Go program could give this value; dictionaries in the order of their fields."""
    encoded = json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(_ESCAPED)
    older = encoded
    for new, old in _OLD_ESCAPES.items():
        older = older.replace(new, old)
    return tuple(dict.fromkeys(_sha256_digest(one) for one in (encoded, older)))


def _sha256_digest(encoded: str) -> str:
    return hashlib.sha256(encoded.encode("utf-8", "replace")).hexdigest()
