"""How a leader that is cut off gives its Lease to a standby that is not, by two annotations of the Lease.

The leader offers (`OFFER`: why), a standby that reaches the coordinators volunteers (`VOLUNTEER`: its identity), and
only then the leader gives the Lease back; for one duration it is the volunteer's to take. So nobody leads in vain in
between, and without a capable standby the leader stays (docs/decisions/0021-an-operator-cut-off.md).
"""

from __future__ import annotations

from typing import Final

from hajob.api import constants as names
from hajob.api.base import Json

OFFER: Final = f"{names.GROUP}/cut-off"
VOLUNTEER: Final = f"{names.GROUP}/volunteer"


def _annotation(lease: Json, name: str) -> str:
    return str((lease["metadata"].get("annotations") or {}).get(name, ""))


def offered(lease: Json) -> str:
    """Why its leader offers it; empty where it does not."""
    return _annotation(lease, OFFER)


def volunteer(lease: Json) -> str:
    """Identity of the standby that wants it, and can do what its leader cannot; empty for none."""
    return _annotation(lease, VOLUNTEER)


def offer(lease: Json, why: str) -> None:
    """Offer it."""
    _annotate(lease, OFFER, why)


def take_up(lease: Json, identity: str) -> None:
    """Volunteer."""
    _annotate(lease, VOLUNTEER, identity)


def withdraw(lease: Json) -> None:
    """Neither is it offered, nor does anybody wait for it."""
    annotations = lease["metadata"].get("annotations") or {}
    for name in (OFFER, VOLUNTEER):
        annotations.pop(name, None)


def _annotate(lease: Json, name: str, value: str) -> None:
    lease["metadata"]["annotations"] = {**(lease["metadata"].get("annotations") or {}), name: value}
