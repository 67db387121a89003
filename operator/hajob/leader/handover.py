"""Two annotations of the Lease by which a leader that is cut off hands it over to a standby that is not.

The leader offers the Lease (`OFFER`: why), a standby that reaches the coordinators volunteers (`VOLUNTEER`: its
identity), and only then the leader gives the Lease back; for one lease duration only the volunteer may take it. So no
other standby leads in between, and without a capable one the leader stays
(docs/decisions/0021-an-operator-cut-off.md).
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
    """Return why the leader offers the Lease; empty where it does not."""
    return _annotation(lease, OFFER)


def volunteer(lease: Json) -> str:
    """Return the identity of the standby that volunteers because it reaches the coordinators; empty for none."""
    return _annotation(lease, VOLUNTEER)


def offer(lease: Json, why: str) -> None:
    """Offer the Lease."""
    _annotate(lease, OFFER, why)


def take_up(lease: Json, identity: str) -> None:
    """Volunteer."""
    _annotate(lease, VOLUNTEER, identity)


def withdraw(lease: Json) -> None:
    """Remove offer and volunteer."""
    annotations = lease["metadata"].get("annotations") or {}
    for name in (OFFER, VOLUNTEER):
        annotations.pop(name, None)


def _annotate(lease: Json, name: str, value: str) -> None:
    lease["metadata"]["annotations"] = {**(lease["metadata"].get("annotations") or {}), name: value}
