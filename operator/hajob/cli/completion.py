"""What the shell offers behind `kubectl hajob`: kubectl runs `kubectl_complete-hajob` with the words so far.

The last word is the one being typed. An answer is a line for each word that fits, with its help behind a tab, and
a last line `:N`: 4 where file names fit nowhere, 0 where they may (directives of spf13/cobra, which kubectl reads).
"""

import argparse
import sys
from collections.abc import Iterator, Sequence

from hajob.cli.exits import DONE, until_nobody_reads
from hajob.cli.main import build_parser

NO_FILES = 4
FILES = 0


def offered_lines(words: Sequence[str]) -> list[str]:
    """Return the lines that are offered for these words."""
    *done, typed = words or [""]
    at, awaited = build_parser(words), None
    for word in done:
        awaited = _awaits_value(at, word)
        at = _subcommands_of(at).get(word, at)
    if awaited is not None:
        choices = [str(choice) for choice in awaited.choices or ()]
        return [*(each for each in choices if each.startswith(typed)), f":{NO_FILES if choices else FILES}"]
    fitting = _options_with_help(at) if typed.startswith("-") else _names_with_help(at)
    return [*(f"{name}\t{said}" for name, said in fitting if name.startswith(typed)), f":{NO_FILES}"]


def _subcommands_of(at: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    found: dict[str, argparse.ArgumentParser] = {}
    for action in at._actions:
        if isinstance(action, argparse._SubParsersAction):
            found |= action.choices
    return found


def _names_with_help(at: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in at._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from ((each.dest, each.help or "") for each in action._choices_actions)


def _options_with_help(at: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in at._actions:
        yield from ((name, action.help or "") for name in action.option_strings if name.startswith("--"))


def _awaits_value(at: argparse.ArgumentParser, word: str) -> argparse.Action | None:
    """The option that this word is, if a value follows it."""
    return next((each for each in at._actions if word in each.option_strings and each.nargs != 0), None)


def main() -> int:
    """Print what can follow the words of the command line."""

    def offer() -> int:
        print("\n".join(offered_lines(sys.argv[1:])))
        return DONE

    return until_nobody_reads(offer)


if __name__ == "__main__":
    sys.exit(main())
