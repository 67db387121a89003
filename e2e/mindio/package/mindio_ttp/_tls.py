"""What the package asks of TLS material before a rank connects; a rank with anything less ends with code 2."""

from __future__ import annotations

import base64
import binascii
import re
from pathlib import Path

NEEDED = ("tlsCert", "tlsCaPath", "tlsCaFile", "tlsPk", "packagePath")
LEAST_BITS = 3072


def is_usable(info: str) -> bool:
    """Whether the text names everything, and the certificate's key is long enough."""
    parts = dict(part.split(":", 1) for part in info.split(";") if ":" in part)
    if any(not parts.get(name) for name in NEEDED):
        return False
    try:
        return _bits(Path(parts["tlsCert"]).read_text()) >= LEAST_BITS
    except OSError:
        return False


def _bits(certificate: str) -> int:
    """Length of the RSA modulus in a PEM certificate, its longest INTEGER; 0: none."""
    body = re.sub(r"-----[^-]*-----|\s", "", certificate)
    try:
        der = base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        return 0
    lengths = [int.from_bytes(match.group(1), "big") for match in re.finditer(rb"\x02\x82(..)\x00", der, re.DOTALL)]
    return max((8 * (length - 1) for length in lengths if length < len(der)), default=0)
