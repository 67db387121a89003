"""Units of time that the sidecar's processes share."""

from __future__ import annotations

from typing import Final

NANOSECONDS: Final = 1_000_000_000
"""In a second. The wire counts in nanoseconds (docs/protocols/sidecar.md), the coordinator's rules in seconds."""
