"""What the shell offers behind `kubectl hajob`: kubectl runs `kubectl_complete-hajob` with the words so far.

The last word is the one being typed. An answer is a line for each word that fits, with its help behind a tab, and
a last line `:N`: 4 where file names fit nowhere, 0 where they may (directives of spf13/cobra, which kubectl reads).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from hajob.cli.cluster import ClusterError
from hajob.cli.exits import DONE, until_nobody_reads
from hajob.cli.main import build_parser
from hajob.cli.objects import JOBS, NODES, KubernetesObjects, Objects, listed, path_of_job
from hajob.sources.reading import mapping, name_of_object, parse_whole_number

NO_FILES: Final = 4
FILES: Final = 0
KINDS: Final = frozenset({"JOB", "NODE", "NAMESPACE", "R"})
"""Names of arguments whose values the cluster knows; R is a rank."""
_SECONDS: Final = 2.0
"""Longer nobody waits for a word."""

Find = Callable[[str, Sequence[str]], Iterable[str]]


def offered_lines(words: Sequence[str], find: Find | None = None) -> list[str]:
    """Return the lines that are offered for these words.

    Args:
        words: the last one is being typed.
        find: names of a kind in the cluster that the words choose; None: the one of the kubeconfig.
    """
    *done, typed = words or [""]
    at, awaited, placed = build_parser(words), None, 0
    for word in done:
        if awaited is not None:
            awaited = None  # this word is the option's value
            continue
        awaited = _awaits_value(at, word)
        below = _subcommands_of(at).get(word)
        at, placed = (below, 0) if below is not None else (at, placed + (not word.startswith("-")))
    if awaited is None and typed.startswith("-"):
        return _lines_of_names(_options_with_help(at), typed)
    if awaited is None and _subcommands_of(at):
        return _lines_of_names(_names_with_help(at), typed)
    action = awaited if awaited is not None else _positional(at, placed)
    if action is None:
        return [f":{NO_FILES}"]
    if action.choices:
        return _lines_of_names(((str(choice), "") for choice in action.choices), typed)
    kind = str(action.metavar)
    if kind not in KINDS:
        return [f":{FILES if awaited is not None or kind == 'FILE' else NO_FILES}"]
    return _lines_of_names(((name, "") for name in (find or find_names)(kind, done)), typed)


def _lines_of_names(fitting: Iterable[tuple[str, str]], typed: str) -> list[str]:
    lines = (f"{name}\t{said}" if said else name for name, said in fitting if name.startswith(typed))
    return [*lines, f":{NO_FILES}"]


def _positional(at: argparse.ArgumentParser, place: int) -> argparse.Action | None:
    found = [
        each for each in at._actions if not each.option_strings and not isinstance(each, argparse._SubParsersAction)
    ]
    return found[place] if place < len(found) else None


def find_names(kind: str, words: Sequence[str]) -> list[str]:
    """Return the names of a kind in the cluster that the words choose; none where it cannot be asked."""
    try:
        objects = KubernetesObjects(context=value_of_option(words, "--context"), seconds=_SECONDS)
        namespace = value_of_option(words, "-n", "--namespace") or objects.namespace
        return names_in_cluster(objects, kind, namespace, words)
    except ClusterError:
        return []  # an error would stand in the middle of the line that is typed


def names_in_cluster(objects: Objects, kind: str, namespace: str, words: Sequence[str]) -> list[str]:
    """Return the names of a kind; of ranks those of the job among the words.

    Raises:
        ClusterError: they may not be read.
    """
    if kind == "R":
        jobs = [
            job
            for word in words
            if not word.startswith("-") and (job := objects.find_object(path_of_job(namespace, word)))
        ]
        status = mapping(jobs[0].get("status")) if jobs else {}
        return [str(rank) for rank in range(parse_whole_number(mapping(status.get("effective")).get("worldSize")) or 0)]
    group, _, plural = JOBS.rpartition("/")
    paths = {"JOB": f"{group}/namespaces/{namespace}/{plural}", "NODE": NODES, "NAMESPACE": "/api/v1/namespaces"}
    return [name_of_object(one) for one in listed(objects, paths[kind])]


def value_of_option(words: Sequence[str], *options: str) -> str | None:
    """Return the value of an option: behind it, behind an equals sign, or behind its letter."""
    for word, value in pairwise((*words, "")):
        if word in options:
            return value
        name, sign, joined = word.partition("=")
        if sign and name in options:
            return joined
        if word[:2] in options and not word.startswith("--"):
            return word[2:]
    return None


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
