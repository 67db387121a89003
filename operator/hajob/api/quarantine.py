"""The NodeQuarantine: a node on which Hajob places nothing new, who said so, why, and until when.

Cluster-scoped, one for each node, with the node's name. The operator makes one when a chip or the whole node is
isolated; an admin can make one by hand, and lets a node back in with `releaseTime` (docs/admin/faults.md,
"Quarantine").
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Self

from pydantic import ConfigDict, Field, WithJsonSchema

from hajob.api.base import ApiModel, Timestamp, validation_rule, validation_rules
from hajob.api.constants import API_VERSION, QUARANTINE_KIND

BY_HAND: Final = "Admin"
"""Source of a quarantine that a person has made."""
MAX_FAULTS: Final = 16
MESSAGE_LIMIT: Final = 1024
_WORD: Final = r"^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$"


class QuarantineState(StrEnum):
    """Whether the node is kept out."""

    ACTIVE = "Active"
    RELEASED = "Released"
    OVER = "Over"


class NodeMetadata(ApiModel):
    """The part of the metadata that Hajob reads."""

    name: str
    """Name of the node."""
    uid: str = ""
    """Identity of the object."""
    resource_version: str = ""
    """Version of the object."""


_IMMUTABLE: Final = validation_rules(
    validation_rule(
        "self.nodeName == oldSelf.nodeName",
        "spec.nodeName cannot be changed: delete this NodeQuarantine and make another one",
        field=".nodeName",
    )
)
_NAMED_AFTER_ITS_NODE: Final = validation_rules(
    validation_rule(
        "self.metadata.name == self.spec.nodeName",
        "metadata.name must be spec.nodeName, because a node has one quarantine: give both the name of the node",
    )
)


class NodeQuarantineSpec(ApiModel):
    """Which node is kept out, who said so, why, and until when."""

    node_name: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the Kubernetes node; the object has the same name."""
    source: Annotated[str, Field(min_length=1, max_length=63, pattern=_WORD)] = BY_HAND
    """Who said so: the source of the fault (Device, Switch, NodeD, Public, Node), or Admin."""
    reason: Annotated[str, Field(min_length=1, max_length=63, pattern=_WORD)] = "ByHand"
    """Why, in one word: the level of the worst fault, FrequentFault, or an admin's own word."""
    message: Annotated[str, Field(max_length=MESSAGE_LIMIT)] = ""
    """Why, in a sentence."""
    faults: Annotated[tuple[Annotated[str, Field(max_length=253)], ...], Field(max_length=MAX_FAULTS)] = ()
    """The isolating faults as chip/code, or code alone for the whole node; those that come later are added. After a
    release: the pardoned faults that still stand (`*`: all), which harm no job."""
    start_time: Timestamp | None = None
    """Since when the node is kept out."""
    expire_time: Timestamp | None = None
    """Until when; none: until its faults are over, and then for the time that the operator writes here."""
    release_time: Timestamp | None = None
    """An admin lets the node back in from then on. All faults that stand then are pardoned until they are over, and
    offences count from 0; another fault that isolates, or the same one anew, keeps the node out again."""

    model_config = ConfigDict(json_schema_extra=_IMMUTABLE)


class NodeQuarantineStatus(ApiModel):
    """What follows from it; written by the operator."""

    state: QuarantineState = QuarantineState.ACTIVE
    """Active: nothing new is placed there. Released: an admin has let it in. Over: kept as a memory of offences."""
    offences: Annotated[int, Field(ge=0, le=1000)] = 0
    """How often the node was isolated; each doubles the time after the fault, a quiet day takes one away."""
    last_offence_time: Timestamp | None = None
    """When its faults came, or were last seen to stand."""


class NodeQuarantine(ApiModel):
    """A node on which Hajob places no new pod."""

    api_version: str = API_VERSION
    """Version of this API."""
    kind: str = QUARANTINE_KIND
    """NodeQuarantine."""
    metadata: Annotated[NodeMetadata, WithJsonSchema({"type": "object"})]
    """Standard metadata; the name is that of the node."""
    spec: NodeQuarantineSpec
    """Which node, who, why, until when."""
    status: NodeQuarantineStatus = NodeQuarantineStatus()
    """What follows from it."""

    model_config = ConfigDict(json_schema_extra=_NAMED_AFTER_ITS_NODE)

    @classmethod
    def from_object(cls, raw: dict[str, Any]) -> Self:
        """Read the quarantine from an object of the API server; raises `pydantic.ValidationError`."""
        return cls.model_validate({**raw, "status": raw.get("status") or {}})

    def keeps_out(self, now: datetime) -> bool:
        """Return whether nothing new is placed on the node at this time."""
        spec = self.spec
        released = spec.release_time is not None and spec.release_time <= now
        over = spec.expire_time is not None and spec.expire_time <= now
        return not released and not over and self.status.state is QuarantineState.ACTIVE
