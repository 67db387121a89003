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


def _annotation_of_lease(lease: Json, name: str) -> str:
    return str((lease["metadata"].get("annotations") or {}).get(name, ""))


def why_offered(lease: Json) -> str:
    """Return why the leader offers the Lease; empty where it does not."""
    return _annotation_of_lease(lease, OFFER)


def volunteer_of_lease(lease: Json) -> str:
    """Return the identity of the standby that volunteers because it reaches the coordinators; empty for none."""
    return _annotation_of_lease(lease, VOLUNTEER)


def offer_lease(lease: Json, why: str) -> None:
    """Offer the Lease."""
    _annotate_lease(lease, OFFER, why)


def volunteer_for_lease(lease: Json, identity: str) -> None:
    """Volunteer."""
    _annotate_lease(lease, VOLUNTEER, identity)


def withdraw_offer(lease: Json) -> None:
    """Remove offer and volunteer."""
    annotations = lease["metadata"].get("annotations") or {}
    for name in (OFFER, VOLUNTEER):
        annotations.pop(name, None)


def _annotate_lease(lease: Json, name: str, value: str) -> None:
    lease["metadata"]["annotations"] = {**(lease["metadata"].get("annotations") or {}), name: value}
