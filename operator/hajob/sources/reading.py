"""What every parser of a hardware source shares: a bounded, patient look into objects that others wrote.

A parser never raises for what is in an object. What it cannot use becomes a `Rejection` with a reason that is counted
and shown, and the rest of the object is used. So every access goes through the few functions here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, TypeGuard

import orjson

from hajob.api import constants as names
from hajob.domain.hardware import ClusterFact, Level
from hajob.sources.fault_codes import LEVEL_WORDS, FaultCodes

FUTURE_MILLISECONDS: Final = 24 * 3600 * 1000
"""A time so far ahead of ours is no clock that is a little fast."""
# Of what somebody else wrote: enough to recognize it in a log, too little to fill one.
MOST_SHOWN: Final = 80
_MOST_DIGITS: Final = 15
_NODE_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_DEVICE_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{0,30}-\d{1,4}")
_NO_LEVEL: Final = frozenset({"", "NormalNPU", "NormalNetwork"})
"""What a device plugin calls a chip that is listed without a fault."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class RejectionReason(StrEnum):
    """Why an object, or a part of it, is not used."""

    UNKNOWN_OBJECT = "UnknownObject"
    MISSING_KEY = "MissingKey"
    MALFORMED = "Malformed"
    CHECK_CODE = "CheckCodeMismatch"
    UNKNOWN_NODE = "UnknownNode"
    UNKNOWN_DEVICE = "UnknownDevice"
    UNKNOWN_LEVEL = "UnknownLevel"
    UNKNOWN_CODE = "UnknownCode"
    UNKNOWN_SENDER = "UnknownSender"
    FUTURE_TIME = "FutureTime"
    TOO_MANY = "TooMany"
    RATE = "RateLimited"
    LEFT_OVER = "LeftOver"


REJECTION_SENTENCE: Final = {
    RejectionReason.UNKNOWN_OBJECT: "no source reads such an object",
    RejectionReason.MISSING_KEY: "a key that the format has is not there",
    RejectionReason.MALFORMED: "it is not what the format says",
    RejectionReason.CHECK_CODE: "its CheckCode is not that of its content: it was cut off or edited",
    RejectionReason.UNKNOWN_NODE: "it names no node",
    RejectionReason.UNKNOWN_DEVICE: "it names no device",
    RejectionReason.UNKNOWN_LEVEL: "its level is none of the known ones; the code's own level is used",
    RejectionReason.UNKNOWN_CODE: "its code has no level",
    RejectionReason.UNKNOWN_SENDER: "its sender is not allowed to report faults",
    RejectionReason.FUTURE_TIME: "its time is more than a day ahead; the fault counts, its time does not",
    RejectionReason.TOO_MANY: "it has more entries than the format allows",
    RejectionReason.LEFT_OVER: "the same object offers the chip to new pods: it was left behind",
    RejectionReason.RATE: "its sender has sent too many messages; it is read when its turn comes",
}
"""What each reason says to a person."""


SENDERS: Final = frozenset({"CCAE", "fd-online", "pingmesh", "Netmind", "dpcStorage", "dtfsStorage"})
"""Who may report public faults, as MindCluster ships it."""


DRAIN_TAINTS: Final = frozenset(
    {
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
        "aws-node-termination-handler/spot-itn",
        "aws-node-termination-handler/rebalance-recommendation",
        "aws-node-termination-handler/scheduled-maintenance",
        "aws-node-termination-handler/asg-lifecycle-termination",
        "cloud.google.com/impending-node-termination",
        "remediator.kubernetes.azure.com/unschedulable",
        "remediator.aks.microsoft.com/unschedulable",
    }
)
"""Taints with which autoscalers and clouds begin to empty a node, where `kubectl drain` cordons it: cluster autoscaler,
Karpenter (the second: before 1.0), EKS and AWS's termination handler, GKE, AKS (two generations)."""


@dataclass(frozen=True, slots=True)
class SickCondition:
    """A type of node condition that is a fault: how bad, and with which of its three statuses."""

    level: Level
    status: str = "True"


CONDITIONS: Final = {
    **dict.fromkeys(
        (
            "KernelDeadlock",
            "ReadonlyFilesystem",
            "CorruptDockerOverlay2",
            "FrequentKubeletRestart",
            "FrequentDockerRestart",
            "FrequentContainerdRestart",
            "FrequentUnregisterNetDevice",
            "KubeletUnhealthy",
            "KubeletProblem",
            "ContainerRuntimeUnhealthy",
            "ContainerRuntimeProblem",
            "FilesystemCorruptionProblem",
        ),
        SickCondition(Level.PRE_SEPARATE),
    ),
    **dict.fromkeys(
        ("AcceleratedHardwareReady", "KernelReady", "NetworkingReady", "StorageReady", "ContainerRuntimeReady"),
        SickCondition(Level.PRE_SEPARATE, "False"),
    ),
}
"""Conditions of node-problem-detector (the last of the first group as AKS ships it), and those of EKS's node monitoring
agent, by which Karpenter repairs nodes. No new pod is placed there; whether a training goes on, its agents tell."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What parsers need beside the object.

    Attributes:
        now_ms: milliseconds since 1970; times far ahead of it are not believed.
        codes: levels of codes, the admin's overrides included.
        conditions: types of node conditions that mean a fault.
        drain_taints: keys of taints that say that a node is to be emptied.
        senders: who may report public faults.
        serials: serial number of a machine to the name of its node.
    """

    now_ms: int
    codes: FaultCodes = field(default_factory=FaultCodes)
    conditions: Mapping[str, SickCondition] = field(default_factory=lambda: CONDITIONS)
    senders: Collection[str] = SENDERS
    drain_taints: Collection[str] = DRAIN_TAINTS
    serials: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rejection:
    """A part of an object that is not used: why, where in the object, and what was found."""

    reason: RejectionReason
    where: str
    found: str = ""

    @property
    def rejection_message(self) -> str:
        """A sentence."""
        sentence = f"{self.where}: {REJECTION_SENTENCE[self.reason]}"
        return f"{sentence} ({self.found})" if self.found else sentence


@dataclass(slots=True)
class Reading:
    """What a parser found in one object; parsers add to it.

    Attributes:
        terms: by which it is read.
        facts: what stands, in the order of the object.
        over: ids of facts that the object says are over; of messages their beginnings, up to the device.
        rejected: what could not be used.
        updated_ms: when the writer wrote it, as far as it says.
        sender: of a message; empty: it is none, or nobody's who may send one.
    """

    terms: Terms = field(compare=False)  # the time of reading is none of what was read
    facts: list[ClusterFact] = field(default_factory=list)
    over: list[str] = field(default_factory=list)
    rejected: list[Rejection] = field(default_factory=list)
    updated_ms: int | None = None
    sender: str = ""

    def note_rejection(self, reason: RejectionReason, where: str, found: object = "") -> None:
        """Note what is not used; what was found is shortened and made printable."""
        self.rejected.append(Rejection(reason, where, printable(found)))

    def parse_json(self, source: str, where: str) -> Any:  # noqa: ANN401  # any JSON value
        """Parse a JSON text; None and a rejection where it is none."""
        try:
            return orjson.loads(source)
        except (ValueError, RecursionError):
            self.note_rejection(RejectionReason.MALFORMED, where, source)
            return None

    def parse_level(self, word: object, where: str) -> Level | None:
        """Return the level of a writer's word; None where it gives none, or an unknown one, which is rejected."""
        if word is None or (isinstance(word, str) and word in _NO_LEVEL):
            return None
        found = LEVEL_WORDS.get(word) if isinstance(word, str) else None
        if found is None:
            self.note_rejection(RejectionReason.UNKNOWN_LEVEL, where, word)
        return found

    def parse_time(self, value: object, where: str) -> int | None:
        """Return a time in milliseconds; None and a rejection where it is none, or lies in the future."""
        if value is None:
            return None
        if not is_integer(value) or not 0 <= value < 1 << 53:
            self.note_rejection(RejectionReason.MALFORMED, where, value)
            return None
        if value > self.terms.now_ms + FUTURE_MILLISECONDS:
            self.note_rejection(RejectionReason.FUTURE_TIME, where, value)
            return None
        return value

    def parse_timestamp(self, told: object, where: str) -> int | None:
        """Parse a time that Kubernetes has written, into milliseconds; None where it is none, or lies in the future."""
        if not told:
            return None
        milliseconds = milliseconds_of(told)
        if milliseconds is None:
            self.note_rejection(RejectionReason.MALFORMED, where, told)
            return None
        return self.parse_time(milliseconds, where)


def milliseconds_of(told: object) -> int | None:
    """Read a time that Kubernetes has written, in milliseconds since 1970; None where it is none."""
    try:
        return max(int(datetime.fromisoformat(str(told)).timestamp() * 1000), 0)
    except (ValueError, OverflowError):
        return None


def is_integer(value: object) -> TypeGuard[int]:
    """Return whether a value is a number without a fraction; booleans are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def parse_whole_number(value: object) -> int | None:
    """Parse a whole number as labels and quantities write it, of at most 15 digits; None: it is none."""
    written = str(value)
    return int(written) if len(written) <= _MOST_DIGITS and written.isascii() and written.isdigit() else None


def printable(value: object) -> str:
    """Return a short text of anything, without control characters."""
    text = value if isinstance(value, str) else repr(value)[: 4 * MOST_SHOWN]
    shown = _CONTROL.sub("?", text[: MOST_SHOWN + 1])
    return shown if len(shown) <= MOST_SHOWN else f"{shown[:MOST_SHOWN]}…"


def name_of_object(raw: Mapping[str, Any]) -> str:
    """Return `metadata.name` of an object; empty where it is none."""
    found = mapping(raw.get("metadata")).get("name")
    return found if isinstance(found, str) else ""


def mapping(value: object) -> Mapping[str, Any]:
    """Return the value if it is an object, else an empty one."""
    if type(value) is dict:  # nearly always; an abstract class is asked five times as slowly
        return value
    return value if isinstance(value, Mapping) else {}


def uid_of_controlling_job(metadata: Mapping[str, Any]) -> str:
    """Return the UID of the job that is an object's controller; empty for none: whoever makes one can copy labels."""
    for owner in map(mapping, items(metadata.get("ownerReferences"))):
        if owner.get("controller") and owner.get("kind") == names.KIND and owner.get("apiVersion") == names.API_VERSION:
            return text(owner.get("uid"))
    return ""


def extended_amounts(amounts: object) -> tuple[tuple[str, int], ...]:
    """Return name and amount of each resource like chips, by name: those have a domain in it, and are whole."""
    return tuple(
        sorted(
            (name, number)
            for name, amount in mapping(amounts).items()
            if "/" in name and (number := parse_whole_number(amount)) is not None
        )
    )


def last_time_of_event(event: Mapping[str, Any]) -> str:
    """Return when a Kubernetes Event happened last, by whichever field its API and recorder set; "": none."""
    series = text(mapping(event.get("series")).get("lastObservedTime"))
    later = series or text(event.get("lastTimestamp")) or text(event.get("eventTime"))
    return later or text(event.get("firstTimestamp"))


def items(value: object) -> Iterable[Any]:
    """Return the elements of a list; none where it is none."""
    return value if isinstance(value, list) else ()


def text(value: object) -> str:
    """Return the value if it is a text, else an empty one."""
    return value if isinstance(value, str) else ""


def data_of_config_map(raw: Mapping[str, Any], key: str) -> str | None:
    """Return the text under a key of a ConfigMap; None where there is none."""
    found = mapping(raw.get("data")).get(key)
    return found if isinstance(found, str) else None


def is_node_name(name: str) -> bool:
    """Return whether Kubernetes could have a node of this name."""
    return _NODE_NAME.fullmatch(name) is not None


def is_device_name(name: str) -> bool:
    """Return whether the name looks like "Ascend910-3"."""
    return _DEVICE_NAME.fullmatch(name) is not None
