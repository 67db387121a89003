"""The console script `kubectl-hajob`, which kubectl runs as `kubectl hajob`.

Each command is a module of its own with `add_parser`; here they are only put together. A command returns the exit
code: 0 done, 1 not done, 2 the input makes no sense.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import cast

from hajob.cli.exits import until_nobody_reads
from hajob.cli.language import Help, Parser
from hajob.cli.options import add_verb
from hajob.cli.verbs import VERBS


class _PrintVersion(argparse.Action):
    """Prints the version; to find it takes longer than most commands' own work."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from hajob.version import VERSION

        print(f"hajob {VERSION} (kubectl hajob)")
        parser.exit()


def build_parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Build the parser of a command line.

    Args:
        words: of the command line. Only the command that they name is declared with its options, since to declare it
            loads its module; of the others the help needs the sentence alone. None: all are declared.
    """
    told = "Inspect, simulate and control HATrainingJobs."
    top: argparse.ArgumentParser = Parser(prog="kubectl hajob", description=told, formatter_class=Help)
    top.add_argument("--version", action=_PrintVersion, nargs=0, help="show program's version number and exit")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in dict.fromkeys(verb.module for verb in VERBS.values()):
        names = [name for name, verb in VERBS.items() if verb.module == module]
        if words is None or any(name in words for name in names):
            import_module(module if "." in module else f"hajob.cli.{module}").add_parser(commands)
        else:
            for name in names:
                add_verb(commands, name)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""

    def run_chosen_command() -> int:
        words = sys.argv[1:] if arguments is None else arguments
        chosen = build_parser(words).parse_args(words)
        return cast("Callable[[argparse.Namespace], int]", chosen.run)(chosen)

    return until_nobody_reads(run_chosen_command)


if __name__ == "__main__":
    sys.exit(main())
