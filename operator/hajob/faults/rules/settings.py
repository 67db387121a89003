"""An admin's settings for faults: the ConfigMap `hajob-faults` in the operator's namespace.

Read whole each time it changes; what cannot be used is refused by name and the rest counts, so that a slip of the pen
costs one line and not the protection of a cluster. Keys and bounds: docs/admin/faults.md, "Settings".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from hajob.domain.hardware import Level
from hajob.faults.rules.filters import FrequencySettings
from hajob.faults.rules.holds import BreakerSettings
from hajob.faults.rules.quarantine import QuarantineSettings
from hajob.sources.fault_codes import LEVEL_WORDS, FaultCodes
from hajob.sources.reading import (
    CONDITIONS,
    DRAIN_TAINTS,
    SENDERS,
    Reading,
    RejectionReason,
    SickCondition,
    Terms,
    is_integer,
    mapping,
)

NAME: Final = "hajob-faults"
LABEL: Final = "training.hajob.io/settings"
SELECTOR: Final = f"{LABEL}=faults"
BELIEVE: Final = "training.hajob.io/believe-faults"
"""Annotation: whenever its value changes, what the breaker holds back is believed."""
_LONGEST: Final = 65_536
_HOUR_MS: Final = 3_600_000
_SECOND_MS: Final = 1000
_STATUSES: Final = frozenset({"True", "False", "Unknown"})


@dataclass(frozen=True, slots=True)
class FaultSettings:
    """An admin's settings.

    Attributes:
        codes: levels of codes.
        conditions: types of node conditions that are faults; the built-in ones are among them.
        senders: who may report public faults.
        drain_taints: keys of taints that say that a node is to be emptied.
        breaker, frequency, quarantine: of the parts of that name.
        believe: the admin's newest word that what is held back is true.
    """

    codes: Mapping[str, Level] = field(default_factory=dict)
    conditions: Mapping[str, SickCondition] = field(default_factory=lambda: CONDITIONS)
    senders: frozenset[str] = SENDERS
    drain_taints: frozenset[str] = DRAIN_TAINTS
    breaker: BreakerSettings = field(default_factory=BreakerSettings)
    frequency: FrequencySettings = field(default_factory=FrequencySettings)
    quarantine: QuarantineSettings = field(default_factory=QuarantineSettings)
    believe: str = ""

    def parsing_terms(self, now_ms: int, serials: Mapping[str, str]) -> Terms:
        """Return what parsers go by; `serials`: serial number of a machine to the name of its node."""
        return Terms(now_ms, FaultCodes(self.codes), self.conditions, self.senders, self.drain_taints, serials)

    def reads_alike(self, other: FaultSettings) -> bool:
        """Return whether parsers find the same under both."""
        mine = (self.codes, self.conditions, self.senders, self.drain_taints)
        return mine == (other.codes, other.conditions, other.senders, other.drain_taints)


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


def parse_settings(raw: Mapping[str, Any], now_ms: int) -> tuple[FaultSettings, Reading]:
    """Return the settings in a ConfigMap, and its unusable parts (as rejections)."""
    reading, data = Reading(Terms(now_ms)), mapping(raw.get("data"))
    for key in data:
        if key not in _KEYS:
            reading.note_rejection(RejectionReason.UNKNOWN_OBJECT, f"data.{key}", "; ".join(_KEYS))
    parts = {key: _parse_part(data.get(key), key, reading) for key in _KEYS if key not in _LISTS}
    breaker = _parse_numbers(mapping(parts["breaker"]), _BREAKER, reading, "breaker")
    frequency = _parse_numbers(mapping(parts["frequency"]), _FREQUENCY, reading, "frequency")
    told = dict(mapping(parts["quarantine"]))
    idle_chips = _parse_flag(told.pop("idleChips", False), reading, "quarantine.idleChips")
    quarantine = _parse_numbers(told, _QUARANTINE, reading, "quarantine")
    annotations = mapping(mapping(raw.get("metadata")).get("annotations"))
    found = FaultSettings(
        codes=_parse_levels(mapping(parts["codes"]), reading, "codes"),
        conditions={**CONDITIONS, **_parse_conditions(mapping(parts["conditions"]), reading)},
        senders=_parse_names(data.get("senders"), SENDERS, reading, "senders"),
        drain_taints=_parse_taints(data.get("drainTaints"), reading),
        breaker=_build_settings(
            BreakerSettings, breaker, {"sharePercent": "share", "minimumNodes": "minimum"}, window_ms="windowSeconds"
        ),
        frequency=_build_settings(FrequencySettings, frequency, {"count": "count"}, window_ms="windowHours"),
        quarantine=_build_settings(
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
            idle_chips=idle_chips,
        ),
        believe=str(annotations.get(BELIEVE) or ""),
    )
    return found, reading


_KEYS: Final = ("codes", "conditions", "senders", "drainTaints", "breaker", "frequency", "quarantine")
_LISTS: Final = frozenset({"senders", "drainTaints"})
"""Keys under which names stand, separated by commas; YAML under the others."""
_TAINT: Final = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_TRUE_IS_WELL: Final = re.compile(r"(?:(?<![Uu]n)[Hh]ealthy|(?<![Nn]ot)(?<![Uu]n)Ready|OK|Ok)$")
"""Ends of the names of conditions that are True on a node that is well: `NPUHealthy`, `KernelReady`."""


def _parse_part(source: object, key: str, reading: Reading) -> object:
    """Parse the YAML under a key."""
    if source is None:
        return {}
    if not isinstance(source, str) or len(source) > _LONGEST:
        reading.note_rejection(RejectionReason.MALFORMED, f"data.{key}", source)
        return {}
    try:
        found = yaml.safe_load(source)
    except (yaml.YAMLError, RecursionError, ValueError):
        reading.note_rejection(RejectionReason.MALFORMED, f"data.{key}", source)
        return {}
    if found is not None and not isinstance(found, Mapping):
        reading.note_rejection(RejectionReason.MALFORMED, f"data.{key}", source)
    return found


def _parse_levels(told: Mapping[str, Any], reading: Reading, where: str) -> dict[str, Level]:
    """Name to level; a code that YAML reads as a number is the text that stands there only when it is quoted."""
    found = {}
    for name, word in told.items():
        level = LEVEL_WORDS.get(word) if isinstance(word, str) else None
        if not isinstance(name, str) or not name:
            reading.note_rejection(RejectionReason.MALFORMED, f"data.{where}", f"{name!r} must be quoted")
        elif level is None:
            reading.note_rejection(RejectionReason.UNKNOWN_LEVEL, f"data.{where}[{name}]", word)
        else:
            found[name] = level
    return found


def _parse_conditions(told: Mapping[str, Any], reading: Reading) -> dict[str, SickCondition]:
    """Types of conditions, each with a level, or with level and status.

    A level alone means the status True, or of a built-in one the status that it has.
    """
    found = {}
    for name, form in told.items():
        where = f"data.conditions[{name}]"
        level = _parse_levels(
            {name: form.get("level")} if isinstance(form, Mapping) else {name: form}, reading, "conditions"
        )
        if name not in level:
            continue
        given = form.get("status") if isinstance(form, Mapping) else None
        built_in = CONDITIONS.get(name)
        usual = built_in.status if built_in is not None else "True"
        status = usual if given is None else str(given)  # YAML reads True as a truth
        if isinstance(form, Mapping) and (form.keys() - {"level", "status"} or status not in _STATUSES):
            reading.note_rejection(RejectionReason.MALFORMED, where, "give {level: …, status: True, False or Unknown}")
        elif given is None and status == "True" and _TRUE_IS_WELL.search(name):
            reading.note_rejection(
                RejectionReason.MALFORMED, where, f"{name} sounds well while True: give level and status"
            )
        else:
            found[name] = SickCondition(level[name], status)
    return found


def _parse_flag(told: object, reading: Reading, where: str) -> bool:
    if not isinstance(told, bool):
        reading.note_rejection(RejectionReason.MALFORMED, f"data.{where}", f"{told!r}, not true or false")
        return False
    return told


def _parse_taints(told: object, reading: Reading) -> frozenset[str]:
    """Keys of taints; one that no taint could have is refused, and the others count."""
    found = _parse_names(told, DRAIN_TAINTS, reading, "drainTaints")
    wrong = sorted(name for name in found if not _TAINT.fullmatch(name))
    for name in wrong:
        reading.note_rejection(RejectionReason.MALFORMED, "data.drainTaints", f"{name!r} is no key of a taint")
    return found.difference(wrong)


def _parse_names(told: object, otherwise: frozenset[str], reading: Reading, where: str) -> frozenset[str]:
    """Names separated by commas or lines."""
    if told is None:
        return otherwise
    if not isinstance(told, str) or len(told) > _LONGEST:
        reading.note_rejection(RejectionReason.MALFORMED, f"data.{where}", told)
        return otherwise
    return frozenset(name for part in told.replace("\n", ",").split(",") if (name := part.strip()))


def _parse_numbers(
    told: Mapping[str, Any], bounds: Mapping[str, Bounds], reading: Reading, where: str
) -> dict[str, int]:
    """Return the known numbers within their bounds."""
    found = {}
    for name, value in told.items():
        least, most = bounds.get(name, (1, 0))
        if name not in bounds:
            reading.note_rejection(RejectionReason.UNKNOWN_OBJECT, f"data.{where}.{name}", ", ".join(bounds))
        elif not is_integer(value) or not least <= value <= most:
            reading.note_rejection(
                RejectionReason.MALFORMED, f"data.{where}.{name}", f"{value!r}, not {least} to {most}"
            )
        else:
            found[name] = value
    return found


_FACTOR: Final = {
    ("window_ms", "windowSeconds"): _SECOND_MS,
    ("window_ms", "windowHours"): _HOUR_MS,
    ("frequent_seconds", "frequentHours"): 3600,
    ("forget_seconds", "forgetHours"): 3600,
}


def _build_settings(
    make: Callable[..., Any],
    told: Mapping[str, int],
    plain: Mapping[str, str],
    *,
    idle_chips: bool | None = None,
    **scaled: str,
) -> Any:  # noqa: ANN401  # what `make` makes
    """Build a part's settings; a number that is not set keeps its default."""
    fields: dict[str, int] = {} if idle_chips is None else {"idle_chips": idle_chips}
    fields |= {plain[name]: value for name, value in told.items() if name in plain}
    fields |= {name: told[key] * _FACTOR[name, key] for name, key in scaled.items() if key in told}
    return make(**fields)
