"""Public faults: what other systems report about nodes and chips through a ConfigMap (label `mc-consumer-publicfault`).

Limits and senders are MindCluster's own, so that what ClusterD takes is taken here, and nothing else. Formats:
docs/admin/faults.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from hajob.domain.facts import Source
from hajob.domain.hardware import ClusterFact, Level, harms_job, kind_of_level
from hajob.sources.fault_codes import CodeTable
from hajob.sources.reading import (
    Reading,
    RejectionReason,
    Terms,
    data_of_config_map,
    is_integer,
    is_node_name,
    items,
    mapping,
    text,
)

KEY: Final = "PublicFault"
LABEL: Final = "mc-consumer-publicfault"
VERSION: Final = "1.0"
CHIP: Final = "Ascend910"
"""What a chip is called before its number."""
EARLIEST_MS: Final = 1_735_689_600_000
"""2025-01-01T00:00:00Z: a time before it is taken for a broken clock."""
LATE_ONCE_MS: Final = 600_000
"""What happened once so long ago is over: the message is read again after a start or an outage of the API."""
_MOST_TOLD: Final = 50_000
_MOST_FAULTS: Final = 100
_MOST_PLACES: Final = 1000
_MOST_DEVICES: Final = 32
_MOST_LOCATIONS: Final = 10
_LONGEST_KEY: Final = 16
_LONGEST_VALUE: Final = 128
_TYPES: Final = frozenset({"NPU", "Node", "Network", "Storage"})
_OCCUR, _RECOVER, _ONCE = "occur", "recover", "once"
_ID: Final = re.compile(r"[a-zA-Z0-9_.\-]{8,128}")
_CODE_LENGTH: Final = 9
_DESCRIPTION: Final = re.compile(r"[^\t\n\f\r]{0,512}")
"""Of white space only what Go calls so, which is ASCII: the wide space of a Chinese text is a letter like others."""


def read_public_faults(raw: Mapping[str, Any], terms: Terms) -> Reading:
    """Read what a public fault ConfigMap reports."""
    reading = Reading(terms)
    told = data_of_config_map(raw, KEY)
    if told is None:
        reading.note_rejection(RejectionReason.MISSING_KEY, KEY)
        return reading
    message = mapping(reading.parse_json(told, KEY))
    if not message or not _is_valid_message(message, reading):
        return reading
    stands: dict[str, list[ClusterFact]] = {}
    places = 0
    for place, entry in enumerate(items(message.get("faults"))):
        # The other limits together allow three million chips in one message; so many facts would fill the memory.
        if places > _MOST_TOLD:
            reading.note_rejection(
                RejectionReason.TOO_MANY, f"faults[{place}]", f"more than {_MOST_TOLD} chips in one message"
            )
            break
        places += _read_public_fault(mapping(entry), reading, f"faults[{place}]", stands)
    reading.facts = [fact for facts in stands.values() for fact in facts]
    reading.over = [begins for begins, facts in stands.items() if not facts]
    return reading


def _is_valid_message(message: Mapping[str, Any], reading: Reading) -> bool:
    """Whether the envelope is in order; the whole message is refused otherwise."""
    if text(message.get("resource")) not in reading.terms.senders:
        reading.note_rejection(RejectionReason.UNKNOWN_SENDER, "resource", message.get("resource"))
        return False
    reading.sender = text(message.get("resource"))
    for name, fits in (
        ("id", _ID.fullmatch(text(message.get("id"))) is not None),
        ("version", message.get("version") == VERSION),
        ("timestamp", _is_plausible_time(message.get("timestamp"))),
    ):
        if not fits:
            reading.note_rejection(RejectionReason.MALFORMED, name, message.get(name))
            return False
    reading.updated_ms = reading.parse_time(message.get("timestamp"), "timestamp")
    return _is_bounded_list(message.get("faults"), _MOST_FAULTS, reading, "faults")


def _is_bounded_list(listed: object, most: int, reading: Reading, where: str) -> bool:
    """Whether it is a list of at least one and at most so many entries."""
    if not isinstance(listed, list) or not listed:
        reading.note_rejection(RejectionReason.MALFORMED, where, listed)
        return False
    if len(listed) > most:
        reading.note_rejection(RejectionReason.TOO_MANY, where, len(listed))
        return False
    return True


def _is_plausible_time(value: object) -> bool:
    """Thirteen digits of milliseconds, not before 2025."""
    return is_integer(value) and EARLIEST_MS <= value < 10**13


def _read_public_fault(
    fault: Mapping[str, Any], reading: Reading, where: str, stands: dict[str, list[ClusterFact]]
) -> int:
    """Add what one fault of a message says; how many places it has.

    Args:
        fault: as it was sent.
        reading: for what is refused.
        where: in the message.
        stands: what the message says so far, by the beginning of the ids; nothing: that is over.
    """
    wrong = _wrong_field_of(fault)
    if wrong:
        reading.note_rejection(RejectionReason.MALFORMED, f"{where}.{wrong}", fault.get(wrong))
        return 0
    code = text(fault.get("faultCode"))
    level = reading.terms.codes.level_of_code(CodeTable.PUBLIC, code)
    if level is None:
        reading.note_rejection(RejectionReason.UNKNOWN_CODE, f"{where}.faultCode", code)
        return 0
    if not _is_bounded_list(fault.get("influence"), _MOST_PLACES, reading, f"{where}.influence"):
        return 0
    since = reading.parse_time(fault.get("faultTime"), f"{where}.faultTime")
    is_late = since is not None and reading.terms.now_ms - since > LATE_ONCE_MS
    is_over = fault.get("assertion") == _RECOVER or (fault.get("assertion") == _ONCE and is_late)
    places = list(_places_of_fault(items(fault.get("influence")), reading, where))
    for node, device in places:
        fact = _fact_of_place(fault, reading.sender, f"{node}/{device}", level, since)
        begins = beginning_of_id(fact.id)
        if is_over:
            stands[begins] = []
        else:
            stands.setdefault(begins, []).append(fact)
    return len(places)


def beginning_of_id(fact_id: str) -> str:
    """Return sender, fault and node from the id of a public fault: a recovery ends it on every chip of the node."""
    return fact_id.rpartition("/")[0]


def sender_of_fault(fact_id: str) -> str:
    """Return the sender of the public fault of this id, or beginning of an id."""
    return fact_id.removeprefix("public/").partition("/")[0]


def _wrong_field_of(fault: Mapping[str, Any]) -> str:
    """Name of the first field that is not what the format says; empty when all are."""
    location = fault.get("faultLocation")
    checks = {
        "faultId": _ID.fullmatch(text(fault.get("faultId"))) is not None,
        "faultType": text(fault.get("faultType")) in _TYPES,
        "faultCode": len(text(fault.get("faultCode"))) == _CODE_LENGTH,
        "faultTime": _is_plausible_time(fault.get("faultTime")),
        "assertion": text(fault.get("assertion")) in {_OCCUR, _RECOVER, _ONCE},
        "faultLocation": location is None or _is_valid_location(location),
        "description": _DESCRIPTION.fullmatch(text(fault.get("description"))) is not None,
    }
    return next((name for name, fits in checks.items() if not fits), "")


def _is_valid_location(location: object) -> bool:
    return (
        isinstance(location, Mapping)
        and len(location) <= _MOST_LOCATIONS
        and all(
            len(key) <= _LONGEST_KEY and isinstance(value, str) and len(value) <= _LONGEST_VALUE
            for key, value in location.items()
        )
    )


def _places_of_fault(influence: Iterable[Any], reading: Reading, where: str) -> Iterator[tuple[str, str]]:
    """Node and chip of every place that the fault reaches."""
    for place, entry in enumerate(influence):
        at, spot = f"{where}.influence[{place}]", mapping(entry)
        serial, numbers = text(spot.get("nodeSN")), spot.get("deviceIds")
        node = text(spot.get("nodeName")) or reading.terms.serials.get(serial, "")
        if not is_node_name(node):
            reading.note_rejection(RejectionReason.UNKNOWN_NODE, at, node or serial)
        elif not _are_valid_devices(numbers):
            reading.note_rejection(RejectionReason.UNKNOWN_DEVICE, f"{at}.deviceIds", numbers)
        else:
            for number in items(numbers):
                yield node, f"{CHIP}-{number}"


def _are_valid_devices(numbers: object) -> bool:
    """One to 32 different numbers from 0 to 31."""
    return (
        isinstance(numbers, list)
        and 1 <= len(numbers) <= _MOST_DEVICES
        and all(is_integer(number) and 0 <= number < _MOST_DEVICES for number in numbers)
        and len(set(numbers)) == len(numbers)
    )


def _fact_of_place(
    fault: Mapping[str, Any], sender: str, place: str, level: Level, since_ms: int | None
) -> ClusterFact:
    """A fault at a place, "node/chip"; senders number their faults for themselves."""
    told, code = text(fault.get("description")), text(fault.get("faultCode"))
    node, _, device = place.partition("/")
    return ClusterFact(
        id=f"public/{sender}/{fault['faultId']}/{place}",
        source=Source.PUBLIC,
        kind=kind_of_level(level),
        node=node,
        device=device,
        code=code,
        level=level,
        since_ms=since_ms,
        harms=harms_job(level),
        message=f"{fault['faultType']} fault {code}" + (f": {told}" if told else ""),
        happens_once=fault.get("assertion") == _ONCE,
    )
