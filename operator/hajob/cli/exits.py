"""What commands end with, and how they say why."""

import sys
from collections.abc import Callable
from typing import Final

from hajob.cli.cluster import ClusterError

DONE: Final = 0
NOT_DONE: Final = 1
BAD_INPUT: Final = 2


def reported(command: Callable[[], int | None]) -> int:
    """Run a command; what it raises for the person who asked is printed as an error.

    Returns:
        1 where the cluster refuses, 2 where the input makes no sense (`ValueError`), else what the command returns.
    """
    try:
        return command() or DONE
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return NOT_DONE
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_INPUT
