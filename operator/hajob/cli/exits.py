"""What commands end with, and how they say why."""

import os
import sys
from collections.abc import Callable
from typing import Final

from hajob.cli.cluster import ClusterError
from hajob.cli.language import say

# Scripts tell them apart: what the cluster refuses may be tried again, what makes no sense may not.
DONE: Final = 0
NOT_DONE: Final = 1
BAD_INPUT: Final = 2
ENDED_BY_PERSON: Final = 130
"""As a shell says it of a command that Ctrl-C has ended."""
NOBODY_READS: Final = 141
"""As a shell says it of a command that SIGPIPE has ended."""


def until_nobody_reads(command: Callable[[], int]) -> int:
    """Run a command whose output may be cut short, as by `| head`: then that is its end, and no error to be told.

    Returns:
        `NOBODY_READS` where the reader has left, else what the command returns.
    """
    try:
        try:
            return command()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at its end, and would complain there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOBODY_READS


def run_reported(command: Callable[[], int | None]) -> int:
    """Run a command; what it raises for the person who asked is printed as an error.

    Returns:
        1 where the cluster refuses, 2 where the input makes no sense (`ValueError`), 130 after Ctrl-C, else what the
        command returns.
    """
    try:
        return command() or DONE
    except KeyboardInterrupt:
        return ENDED_BY_PERSON
    except ClusterError as error:
        say(f"error: {error}", to_errors=True)
        return NOT_DONE
    except ValueError as error:
        say(f"error: {error}", to_errors=True)
        return BAD_INPUT
