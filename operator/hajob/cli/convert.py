"""`kubectl hajob convert`: make a HATrainingJob of a job of another kind.

The new manifest goes to standard output, with what was left out and what a person must decide as comments above it.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

import yaml

from hajob.cli.exits import run_reported
from hajob.cli.language import in_language
from hajob.cli.manifests import read_objects
from hajob.cli.options import Commands, add_verb
from hajob.cli.widths import wrapped_by_width
from hajob.convert.convert import Converted, convert_objects
from hajob.domain.text import harmless_text

_WIDTH: Final = 116


class _Dumper(yaml.SafeDumper):
    """Writes scripts of several lines as people do, behind a bar."""


def _represent_text(dumper: yaml.SafeDumper, told: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", told, style="|" if "\n" in told else None)


_Dumper.add_representer(str, _represent_text)


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_verb(commands, "convert")
    parser.add_argument(
        "-f",
        "--filename",
        required=True,
        metavar="FILE",
        help="manifest of AscendJobs, Volcano Jobs, PyTorchJobs, TrainJobs, JobSets or MPIJobs; - reads stdin",
    )
    parser.add_argument(
        "-o", "--output", choices=("yaml", "json"), default="yaml", help="format of the answer (default: %(default)s)"
    )
    parser.set_defaults(run=run_convert)


def run_convert(arguments: argparse.Namespace) -> int:
    """Print the new jobs; 2 where the file holds none that can be converted."""
    return run_reported(lambda: _print_converted(arguments))


def _print_converted(arguments: argparse.Namespace) -> None:
    jobs, others = convert_objects(read_objects(arguments.filename))
    if arguments.output == "json":
        told = [
            {"from": one.source, "manifest": one.manifest, "questions": one.questions, "leftOut": one.left_out}
            for one in jobs
        ]
        print(json.dumps({"jobs": told, "others": others}, indent=2))
        return
    for number, one in enumerate(jobs):
        print("\n".join(([] if number == 0 else ["---"]) + list(_lines_of_job(one))))
    # Below the manifests: they are about the file, and no part of any job.
    for other in others:
        print("\n".join(_lines_of_comment(other)))


def _lines_of_job(one: Converted) -> Iterator[str]:
    yield from _lines_of_comment(f"Made from {one.source} by kubectl hajob convert.")
    yield from _lines_of_list("For you to decide (kubectl hajob lint says more):", one.questions)
    yield from _lines_of_list("Left out:", one.left_out)
    yield yaml.dump(one.manifest, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH).rstrip()


def _lines_of_list(title: str, told: Sequence[str]) -> Iterator[str]:
    if told:
        yield from _lines_of_comment(title)
    for sentence in told:
        yield from _lines_of_comment(sentence, first="- ", rest="  ")


def _lines_of_comment(sentence: str, *, first: str = "", rest: str = "") -> list[str]:
    told = harmless_text(in_language(sentence))
    if not told.isascii():
        lines = list(wrapped_by_width(told, _WIDTH - 2 - len(first)))
        return [f"# {rest if place else first}{line}" for place, line in enumerate(lines)]
    lines = textwrap.wrap(told, _WIDTH - 2, initial_indent=first, subsequent_indent=rest)
    return [f"# {line}" for line in lines]
