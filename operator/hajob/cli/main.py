"""The console script `kubectl-hajob`, which kubectl runs as `kubectl hajob`.

Each command is a module of its own with `add_parser`; here they are only put together. A command returns the exit
code: 0 done, 1 not done, 2 the input makes no sense.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Final, cast

from hajob.cli import (
    breaker,
    control,
    doctor,
    facts,
    inject,
    jobs,
    lint,
    logs,
    migrate,
    nodes,
    quarantine,
    simulate,
    status,
    timeline,
    why,
)
from hajob.cli.exits import until_nobody_reads
from hajob.version import VERSION

COMMANDS: Final = (
    *(jobs, status, why, timeline, nodes, logs, doctor),
    *(control, migrate, quarantine, breaker),
    *(lint, simulate, facts, inject),
)
"""In the order of their help: what one looks at, what one steers by, what needs no cluster."""


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the whole command line."""
    top = argparse.ArgumentParser(prog="kubectl hajob", description="Inspect, simulate and control HATrainingJobs.")
    top.add_argument("--version", action="version", version=f"hajob {VERSION} (kubectl hajob)")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""

    def run_chosen_command() -> int:
        chosen = build_parser().parse_args(arguments)
        return cast("Callable[[argparse.Namespace], int]", chosen.run)(chosen)

    return until_nobody_reads(run_chosen_command)


if __name__ == "__main__":
    sys.exit(main())
