"""Sentences of the cluster in the language of the page: those of statuses, refusals and remedies. Pure.

The page has its own words (`static/words.json`); what the operator has written is translated as commands translate it.
"""

from __future__ import annotations

from typing import Any, Final

from hajob.api.base import Json
from hajob.cli.catalogue import chinese_catalogue
from hajob.cli.language import CHINESE

_SENTENCES: Final = frozenset(
    {
        *("message", "what", "need", "remedy", "told", "notVisible", "detail", "problem", "failure"),
        *("unknown", "notes"),
    }
)
"""Names of fields that hold a sentence or a list of them; others hold names and words, which the page knows."""
_STATES: Final = "state"
"""A pod's state is a sentence, a job's a word that the page knows: the catalogue knows the one and not the other."""


def in_language_of_page(view: Json, language: str) -> Json:
    """Return a view with its sentences in a language: `zh`, or else English as they are."""
    if language != CHINESE:
        return view
    made: Json = _translated_value(view, is_sentence=False)
    return made


def _translated_value(value: Any, *, is_sentence: bool) -> Any:  # noqa: ANN401  any JSON
    if isinstance(value, str):
        return chinese_catalogue().translate(value) if is_sentence and value else value
    if isinstance(value, list):
        return [_translated_value(one, is_sentence=is_sentence) for one in value]
    if isinstance(value, dict):
        # Of a pod, which has a name of its own, the state is a sentence.
        spoken = _SENTENCES | {_STATES} if "pod" in value else _SENTENCES
        return {key: _translated_value(one, is_sentence=key in spoken) for key, one in value.items()}
    return value
