"""The Chinese translations of what the plugin says, and how a text is found among them. Pure, but for reading the file.

It has templates (`node {node} is in quarantine until {until}`): a text is matched with them, and what stands for a
placeholder is translated in the same way. What matches nothing, such as the output of a training, is shown as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from hajob.cli.widths import display_width

CATALOGUE: Final = Path(__file__).parent / "locale" / "zh.po"
_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")
_FEW_WORDS: Final = r"(?:\S*[^\s:](?: \S*[^\s:])?)?"
"""What a placeholder of a short sentence holds: two words at most, of which none opens something."""
_GATHERED: Final = frozenset({"before", "told"})
"""Names of what a sentence has gathered so far, which is as much of it as can be."""
_HELD: Final = {"number": r"\d[\d,]*\+?"}
"""What a placeholder of such a name holds; any other holds any text."""
_LEADING_WORD: Final = 20
"""Characters that a word at the beginning is worth: `why`, `error:` and their like go before what the rest may be."""
_WORD: Final = re.compile(r"[A-Za-z]{2,}")
_LEFT: Final = re.compile(r"(?<![\w/.-])[a-z]{2,}(?![\w/(=-])")
"""A word of English in a translation, as names, paths and options are none."""
_GAP: Final = re.compile(r"( {2,})")
_SEPARATORS: Final = ((" -> ", " -> "), ("; ", "；"), (": ", "："), (", ", "，"))
"""What joins sentences, and what joins them in Chinese; the first one that occurs is taken."""
_KNOWN_BY: Final = re.compile(r"; | -> |^[a-z]{3,}( \{\w+\})?: \{\w+\}$")
_ARROW: Final = "-> "
"""Begins the line of a remedy."""
_BRACKETS: Final = re.compile(r"(.*\S) \((.*)\)", re.DOTALL)
_MOST_KEPT: Final = 4096
"""Texts whose translation is kept: a live view shows the same ones every second."""

OF_ARGPARSE: Final = (
    "positional arguments",
    "the following arguments are required: {names}",
    "argument {name}: {problem}",
    "invalid choice: {value} (choose from {choices})",
    "unrecognized arguments: {arguments}",
    "expected one argument",
    "expected at least one argument",
    "one of the arguments {names} is required",
    "not allowed with argument {name}",
    "invalid int value: {value}",
    "show this help message and exit",
)
"""Sentences of Python's own parser of command lines."""


@cache
def chinese_catalogue() -> Catalogue:
    """Return the catalogue of the package, read once."""
    return Catalogue(read_catalogue(CATALOGUE.read_text(encoding="utf-8")))


def read_catalogue(source: str) -> dict[str, str]:
    """Return the translations of a gettext catalogue (.po), without its header and without sentences that have none."""
    entries: dict[str, str] = {}
    kind, parts = "", {"msgid": "", "msgstr": ""}
    for line in [*source.splitlines(), 'msgid ""']:
        word, _, rest = line.partition(" ")
        if word in parts:
            if word == "msgid":
                entries[parts["msgid"]] = parts["msgstr"]
                parts = {"msgid": "", "msgstr": ""}
            kind, quoted = word, rest
        elif line.startswith('"'):
            quoted = line
        else:
            continue
        parts[kind] += _unquoted(quoted)
    return {msgid: told for msgid, told in entries.items() if msgid and told}


def _unquoted(quoted: str) -> str:
    # What is escaped in a catalogue: a quote, a backslash, the end of a line.
    return re.sub(r"\\(.)", lambda found: {"n": "\n", "t": "\t"}.get(found[1], found[1]), quoted.strip()[1:-1])


class Template(NamedTuple):
    """A sentence with placeholders, and its translation.

    Attributes:
        sentence: in English, with a placeholder for what stands before or behind it where it is a part of a longer one.
        literals: the text between the placeholders, without what is empty.
        weight: number of characters of these, more where a word leads; the heaviest template that matches is taken.
        translation: with the same placeholders.
        is_plain: whether it has words enough to be meant; else each placeholder holds two words at most.
    """

    sentence: str
    literals: tuple[str, ...]
    weight: int
    translation: str
    is_plain: bool

    @classmethod
    def from_entry(cls, msgid: str, translation: str) -> Template:
        """Return the template of an entry; one that begins or ends with a gap is a part of a longer sentence."""
        before = "{before}" if msgid[:1] in {" ", ",", ";"} else ""
        after = "{after}" if msgid[-1:] == " " else ""
        sentence = f"{before}{msgid}{after}"
        pieces = _PLACEHOLDER.split(sentence)
        literals = tuple(filter(None, pieces[::2]))
        leads = _LEADING_WORD if _WORD.search(pieces[0]) else 0
        weight = leads + sum(map(len, literals))
        # A template with few words may match what it is not meant for: then each placeholder holds two words at most.
        return cls(sentence, literals, weight, f"{before}{translation}{after}", _says_enough(msgid, literals))

    def may_match(self, text: str) -> bool:
        """Return whether every literal occurs in the text, one after the other."""
        at = 0
        for literal in self.literals:
            at = text.find(literal, at)
            if at < 0:
                return False
            at += len(literal)
        return True


class Translation(NamedTuple):
    """A text in Chinese, and how surely it is a sentence of Hajob's: 0 it is none, 1 it may be one, 2 it is."""

    text: str
    sureness: int


class Catalogue:
    """Translates texts by the entries of a catalogue."""

    def __init__(self, entries: Mapping[str, str]) -> None:
        self._whole = dict(entries)
        made = (Template.from_entry(*entry) for entry in entries.items() if _needs_template(entry[0]))
        self._templates = sorted(made, key=lambda one: -one.weight)
        self._translation_of = lru_cache(_MOST_KEPT)(self._find_translation)

    def translate(self, text: str) -> str:
        """Return a text in Chinese, as far as the catalogue knows it."""
        return self._translation_of(text).text

    def _find_translation(self, text: str) -> Translation:
        if text in self._whole:
            return Translation(self._whole[text], 2)
        if "\n" in text:
            return Translation("\n".join(map(self.translate, text.split("\n"))), 2)
        if not _WORD.search(text):
            return Translation(text, 0)
        if text.startswith(_ARROW):
            return Translation(_ARROW + self.translate(text.removeprefix(_ARROW)), 2)
        found = self._by_template(text) or self._by_gaps(text) or self._by_parts(text)
        return found or Translation(text, 0)

    def _by_template(self, text: str) -> Translation | None:
        found = [one for template in self._templates if (one := self._filled(template, text)) is not None]
        # Of several templates that match, the right one leaves the fewest words of English between its own.
        return min(found, key=lambda one: one[0])[1] if found else None

    def _filled(self, template: Template, text: str) -> tuple[int, Translation] | None:
        """Return what a template makes of a text, behind the number of English words that it leaves; None: no match."""
        found = _pattern_of(template.sentence, template.is_plain).fullmatch(text) if template.may_match(text) else None
        if found is None or text in found.groupdict().values():
            return None
        held = {name: self.translate(value) for name, value in found.groupdict().items()}
        told = _PLACEHOLDER.sub(lambda place: held[place[1]], template.translation)
        left = sum(len(_LEFT.findall(value)) for value in held.values())
        return left, Translation(told, 2 if template.is_plain else 1)

    def _by_gaps(self, text: str) -> Translation | None:
        """Translate what stands in columns, each for itself, so that columns stay below one another."""
        parts = _GAP.split(text)
        return Translation("".join(self._columns(parts)), 2) if len(parts) > 1 else None

    def _columns(self, parts: Sequence[str]) -> Iterator[str]:
        wider = 0
        for place, part in enumerate(parts):
            if place % 2:  # a gap, which gives way to what is wider before it
                yield " " * max(1, len(part) - wider)
            else:
                told = self.translate(part)
                wider = display_width(told) - display_width(part)
                yield told

    def _by_parts(self, text: str) -> Translation | None:
        """Translate a sentence that is put together, where its first part is known, two are, or one is for sure."""
        for separator, theirs in _SEPARATORS:
            first, *others = text.split(separator)
            if not others:
                continue
            told = [self._translation_of(part) for part in (first, *others)]
            known = sum(one.sureness > 0 for one in told)
            if sureness := max(told[0].sureness, int(known > 1), *(one.sureness - 1 for one in told[1:])):
                return Translation(theirs.join(one.text for one in told), sureness)
        if found := _BRACKETS.fullmatch(text):
            outside, inside = map(self._translation_of, found.groups())
            if sureness := max(outside.sureness, inside.sureness - 1):
                return Translation(f"{outside.text}（{inside.text}）", sureness)
        return None


@cache
def _pattern_of(sentence: str, is_plain: bool) -> re.Pattern[str]:
    """Return what a text must match as a whole; made when it is first needed, since few of all sentences are."""
    pieces = _PLACEHOLDER.split(sentence)
    others = r".*?" if is_plain else _FEW_WORDS
    # What begins a sentence is not what stands in the columns before it.
    first = r"(?:(?!  ).)*?" if is_plain and not pieces[0] else others
    if pieces[1] in _GATHERED:
        first = first.replace("*?", "*")
    return re.compile(
        "".join(
            re.escape(piece) if place % 2 == 0 else f"(?P<{piece}>{_HELD.get(piece, first if place == 1 else others)})"
            for place, piece in enumerate(pieces)
        )
    )


def _says_enough(msgid: str, literals: Sequence[str]) -> bool:
    """Return whether a sentence is known by its words, or by a word before a colon, whatever stands between them."""
    return len(_WORD.findall(" ".join(literals))) >= 2 or msgid in OF_ARGPARSE or bool(_KNOWN_BY.search(msgid))


def _needs_template(msgid: str) -> bool:
    return bool(_PLACEHOLDER.search(msgid)) or msgid[:1] in {" ", ",", ";"} or msgid[-1:] == " "
