"""The language in which commands speak: English as the code has it, or Chinese from a catalogue.

The operator writes English into statuses and Events, because it does not know who reads them. So a sentence is
translated where it is shown, not where it is made. Answers for programs (`-o json`) are never translated.

For English nothing of the catalogue is loaded (`hajob.cli.catalogue`).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Final, NoReturn

from hajob.cli.widths import wrapped_by_width
from hajob.domain.text import harmless_text

if TYPE_CHECKING:
    from hajob.cli.catalogue import Catalogue

CHINESE: Final = "zh"
ENGLISH: Final = "en"
BAD_COMMAND_LINE: Final = 2
"""What argparse ends with."""
VARIABLE: Final = "HAJOB_LANG"
_LOCALES: Final = ("LC_ALL", "LC_MESSAGES", "LANG")
"""Asked in this order, as every program of the system does."""


def language_of(environment: Mapping[str, str]) -> str:
    """Return the language that an environment asks for by `HAJOB_LANG`, else by its locale; English by default."""
    asked = environment.get(VARIABLE) or next(filter(None, map(environment.get, _LOCALES)), "")
    return CHINESE if asked.lower().startswith(CHINESE) else ENGLISH


def in_language(text: str) -> str:
    """Return a text in the language of the person who asks."""
    catalogue = catalogue_of_person()
    return text if catalogue is None else catalogue.translate(text)


def say(sentence: str, *, to_errors: bool = False) -> None:
    """Print a sentence at once, in the language of the person who asks."""
    print(harmless_text(in_language(sentence)), file=sys.stderr if to_errors else sys.stdout, flush=True)


@cache
def catalogue_of_person() -> Catalogue | None:
    """Return the catalogue of the language that the process was started in; None for English."""
    if language_of(os.environ) == ENGLISH:
        return None
    from hajob.cli.catalogue import chinese_catalogue

    return chinese_catalogue()


class Help(argparse.RawDescriptionHelpFormatter):
    """Prints the help of a command in the person's language."""

    def add_text(self, text: str | None) -> None:
        """Add a paragraph; that of a command is the sentence by which the list of commands knows it."""
        told = text and in_language(text)
        if text and told == text:
            sentence = f"{text[0].lower()}{text[1:-1]}"
            told = text if in_language(sentence) == sentence else f"{in_language(sentence)}。"
        super().add_text(told)

    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[argparse._MutuallyExclusiveGroup],
        prefix: str | None = None,
    ) -> None:
        """Add the line of options."""
        super().add_usage(usage, actions, groups, in_language("usage: ") if prefix is None else prefix)

    def start_section(self, heading: str | None) -> None:
        """Begin a section."""
        super().start_section(heading and in_language(heading))

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help and in_language(action.help)

    def _split_lines(self, text: str, width: int) -> list[str]:
        lines = super()._split_lines(text, width)
        return lines if text.isascii() else list(wrapped_by_width(text, width))


class Parser(argparse.ArgumentParser):
    """A parser of command lines that tells its errors in the person's language."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong with the command line, and end."""
        self.print_usage(sys.stderr)
        self.exit(BAD_COMMAND_LINE, f"{self.prog}: {in_language('error')}: {in_language(message)}\n")
