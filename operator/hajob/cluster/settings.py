"""An admin's settings for faults: the ConfigMap `hajob-faults` in the operator's namespace.

Read whole each time it changes; what cannot be used is refused by name and the rest counts, so that a slip of the pen
costs one line and not the protection of a cluster. Keys and bounds: docs/faults.md, "Settings".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from hajob.cluster.breaker import BreakerSettings
from hajob.cluster.frequency import FrequencySettings
from hajob.cluster.quarantine import QuarantineSettings
from hajob.domain.hardware import Level
from hajob.sources.fault_codes import LEVEL_WORDS, FaultCodes
from hajob.sources.reading import SENDERS, Reading, RejectionReason, Terms, is_integer, mapping

NAME: Final = "hajob-faults"
LABEL: Final = "training.hajob.io/settings"
SELECTOR: Final = f"{LABEL}=faults"
BELIEVE: Final = "training.hajob.io/believe-faults"
"""Annotation: whenever its value changes, what the breaker holds back is believed."""
_LONGEST: Final = 65_536
_HOUR_MS: Final = 3_600_000
_SECOND_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class FaultSettings:
    """An admin's settings.

    Attributes:
        codes: levels of codes.
        conditions: types of node conditions that are faults while they are True.
        senders: who may report public faults.
        breaker, frequency, quarantine: of the parts of that name.
        believe: the admin's newest word that what is held back is true.
    """

    codes: Mapping[str, Level] = field(default_factory=dict)
    conditions: Mapping[str, Level] = field(default_factory=dict)
    senders: frozenset[str] = SENDERS
    breaker: BreakerSettings = field(default_factory=BreakerSettings)
    frequency: FrequencySettings = field(default_factory=FrequencySettings)
    quarantine: QuarantineSettings = field(default_factory=QuarantineSettings)
    believe: str = ""

    def terms(self, now_ms: int, serials: Mapping[str, str]) -> Terms:
        """What parsers go by; `serials`: serial number of a machine to the name of its node."""
        return Terms(now_ms, FaultCodes(self.codes), self.conditions, self.senders, serials)

    def reads_alike(self, other: FaultSettings) -> bool:
        """Whether parsers find the same under both."""
        return (self.codes, self.conditions, self.senders) == (other.codes, other.conditions, other.senders)


Bounds = tuple[int, int]

_BREAKER: Final[Mapping[str, Bounds]] = {
    "sharePercent": (1, 100),
    "minimumNodes": (0, 100_000),
    "windowSeconds": (1, 3600),
}
_FREQUENCY: Final[Mapping[str, Bounds]] = {"count": (0, 50), "windowHours": (1, 720)}
_QUARANTINE: Final[Mapping[str, Bounds]] = {
    "firstSeconds": (0, 604_800),
    "longestSeconds": (0, 2_592_000),
    "frequentHours": (1, 240),
    "forgetHours": (1, 8760),
    "sharePercent": (0, 100),
    "minimumNodes": (0, 100_000),
}


def read(raw: Mapping[str, Any], now_ms: int) -> tuple[FaultSettings, Reading]:
    """Return the settings in a ConfigMap, and its unusable parts (as rejections)."""
    reading, data = Reading(Terms(now_ms)), mapping(raw.get("data"))
    for key in data:
        if key not in _KEYS:
            reading.reject(RejectionReason.UNKNOWN_OBJECT, f"data.{key}", "; ".join(_KEYS))
    parts = {key: _part(data.get(key), key, reading) for key in _KEYS if key != "senders"}
    breaker = _numbers(mapping(parts["breaker"]), _BREAKER, reading, "breaker")
    frequency = _numbers(mapping(parts["frequency"]), _FREQUENCY, reading, "frequency")
    quarantine = _numbers(mapping(parts["quarantine"]), _QUARANTINE, reading, "quarantine")
    annotations = mapping(mapping(raw.get("metadata")).get("annotations"))
    found = FaultSettings(
        codes=_levels(mapping(parts["codes"]), reading, "codes"),
        conditions=_levels(mapping(parts["conditions"]), reading, "conditions"),
        senders=_senders(data.get("senders"), reading),
        breaker=_made(
            BreakerSettings, breaker, {"sharePercent": "share", "minimumNodes": "minimum"}, window_ms="windowSeconds"
        ),
        frequency=_made(FrequencySettings, frequency, {"count": "count"}, window_ms="windowHours"),
        quarantine=_made(
            QuarantineSettings,
            quarantine,
            {
                "firstSeconds": "first_seconds",
                "longestSeconds": "longest_seconds",
                "sharePercent": "share",
                "minimumNodes": "minimum",
            },
            frequent_seconds="frequentHours",
            forget_seconds="forgetHours",
        ),
        believe=str(annotations.get(BELIEVE) or ""),
    )
    return found, reading


_KEYS: Final = ("codes", "conditions", "senders", "breaker", "frequency", "quarantine")


def _part(source: object, key: str, reading: Reading) -> object:
    """Parse the YAML under a key."""
    if source is None:
        return {}
    if not isinstance(source, str) or len(source) > _LONGEST:
        reading.reject(RejectionReason.MALFORMED, f"data.{key}", source)
        return {}
    try:
        found = yaml.safe_load(source)
    except (yaml.YAMLError, RecursionError, ValueError):
        reading.reject(RejectionReason.MALFORMED, f"data.{key}", source)
        return {}
    if found is not None and not isinstance(found, Mapping):
        reading.reject(RejectionReason.MALFORMED, f"data.{key}", source)
    return found


def _levels(told: Mapping[str, Any], reading: Reading, where: str) -> dict[str, Level]:
    """Name to level; a code that YAML reads as a number is the text that stands there only when it is quoted."""
    found = {}
    for name, word in told.items():
        level = LEVEL_WORDS.get(word) if isinstance(word, str) else None
        if not isinstance(name, str) or not name:
            reading.reject(RejectionReason.MALFORMED, f"data.{where}", f"{name!r} must be quoted")
        elif level is None:
            reading.reject(RejectionReason.UNKNOWN_LEVEL, f"data.{where}[{name}]", word)
        else:
            found[name] = level
    return found


def _senders(told: object, reading: Reading) -> frozenset[str]:
    if told is None:
        return SENDERS
    if not isinstance(told, str):
        reading.reject(RejectionReason.MALFORMED, "data.senders", told)
        return SENDERS
    return frozenset(name for part in told.replace("\n", ",").split(",") if (name := part.strip()))


def _numbers(told: Mapping[str, Any], bounds: Mapping[str, Bounds], reading: Reading, where: str) -> dict[str, int]:
    """Return the known numbers within their bounds."""
    found = {}
    for name, value in told.items():
        least, most = bounds.get(name, (1, 0))
        if name not in bounds:
            reading.reject(RejectionReason.UNKNOWN_OBJECT, f"data.{where}.{name}", ", ".join(bounds))
        elif not is_integer(value) or not least <= value <= most:
            reading.reject(RejectionReason.MALFORMED, f"data.{where}.{name}", f"{value!r}, not {least} to {most}")
        else:
            found[name] = value
    return found


_FACTOR: Final = {
    ("window_ms", "windowSeconds"): _SECOND_MS,
    ("window_ms", "windowHours"): _HOUR_MS,
    ("frequent_seconds", "frequentHours"): 3600,
    ("forget_seconds", "forgetHours"): 3600,
}


def _made(make: Callable[..., Any], told: Mapping[str, int], plain: Mapping[str, str], **scaled: str) -> Any:  # noqa: ANN401
    """Build a part's settings; a number that is not set keeps its default."""
    fields = {plain[name]: value for name, value in told.items() if name in plain}
    fields |= {name: told[key] * _FACTOR[name, key] for name, key in scaled.items() if key in told}
    return make(**fields)
