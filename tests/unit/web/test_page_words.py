"""Every sentence of the page is there in both languages, with the same places for values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from hajob.cli.watch import SIGNS
from hajob.domain.actions import FAULT_ACTIONS, Action
from hajob.domain.goodput import Bucket
from hajob.domain.incidents import IncidentOutcome
from hajob.domain.timeline import PHASE_ENDING_AT
from hajob.job.status.summary import STATE_WORD
from hajob.plan.state import JobPhase
from hajob.web.responses import read_static_files

FILES = read_static_files()
WORDS: dict[str, dict[str, str]] = json.loads(FILES["words.json"])
SOURCES = {
    name: content.decode()
    for name, content in FILES.items()
    if name.endswith(".mjs") and not name.startswith("vendor/")
}
FAMILIES = {
    "state": {STATE_WORD.get(phase, phase.value) for phase in JobPhase} | {"New", "Refused", "OnHold"},
    "bucket": {bucket.value for bucket in Bucket},
    "action": {action.value for action in Action} | {"fails"},
    "cost": {action.value for action in FAULT_ACTIONS},
    "outcome": {outcome.value for outcome in IncidentOutcome},
    "phase": set(PHASE_ENDING_AT.values()),
    "does": set(SIGNS),
    "protected": {"Full", "Partial", "None", "unknown"},
    "node": {"not ready", "quarantined", "sick", "cordoned", "unknown", "used", "free"},
    "role": {"rank", "coordinator", "spare", "hook"},
    "unit": {"milliseconds", "seconds", "minutes", "hours", "days"},
}
"""Words of Hajob's own that the page looks up by what the server tells."""


def said_keys() -> Iterator[str]:
    """Keys that the sources name."""
    for source in SOURCES.values():
        yield from re.findall(r"""["'`]([a-z]+(?:\.[A-Za-z]+)+|loading|close|pace)["'`]""", source)


def places_of(sentence: str) -> set[str]:
    """Places for values in a sentence."""
    return set(re.findall(r"\{(\w+)\}", sentence))


@pytest.mark.parametrize("key", sorted(WORDS))
def test_both_languages_say_the_same(key: str) -> None:
    told = WORDS[key]
    assert set(told) == {"en", "zh"}
    assert all(told.values())
    assert places_of(told["en"]) == places_of(told["zh"])


def test_every_sentence_that_is_said_is_there_and_no_other() -> None:
    families = {f"{family}.{word}" for family, words in FAMILIES.items() for word in words}
    kept = {"hajob.language", "hajob.theme"}
    named = {key for key in said_keys() if key.partition(".")[0] in {one.partition(".")[0] for one in WORDS}} - kept
    assert families - WORDS.keys() == set(), "words of Hajob without a translation"
    assert named - WORDS.keys() == set(), "sentences without a translation"
    assert WORDS.keys() - named - families == set(), "sentences that nobody says"


def test_every_value_is_given_where_it_is_said() -> None:
    for name, source in SOURCES.items():
        for key, values in re.findall(r"""say\("([\w.]+)"(?:, \{ ?([^}]*))?""", source):
            given = set(re.findall(r"(\w+)(?=:|,|\s*$)", re.sub(r":[^,]*", ":", values)))
            assert places_of(WORDS[key]["en"]) <= given or "told.dataParallel" in source, f"{name}: {key}"
