"""`python3 launcher.pyz -- COMMAND...`: run the start script of a rank pod and the ranks that it launches."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Callable, Dict, List

from trainer_sidecar.launcher import helpers, launches, program, ranks, supervisor

USAGE = "usage: python3 launcher.pyz -- COMMAND [ARGUMENT...]"
# A process may keep twice this: the current file, and the one that was full before it.
FILE_BYTES = 64 * 1024 * 1024
TERMINATION_LOG = "/dev/termination-log"
TASKD = "TaskD"


class LauncherSettingsError(Exception):
    """A variable that is missing or not a number; the text names it."""


def read_settings(environment: Dict[str, str]) -> supervisor.LauncherSettings:
    """Read the launcher's settings from its environment. LauncherSettingsError names the wrong variable."""
    directory = environment.get("HAJOB_DIR", "")
    if not directory:
        raise LauncherSettingsError("HAJOB_DIR is not set: the directory shared with the agent")
    size = program.Size(
        node_rank=_whole_number(environment, "HAJOB_NODE_RANK", None),
        ranks_per_node=_whole_number(environment, "HAJOB_RANKS_PER_NODE", None),
        world_size=_whole_number(environment, "HAJOB_WORLD_SIZE", None),
    )
    kept = ranks.OutputSettings(
        output_directory=environment.get("HAJOB_OUTPUT_DIR") or os.path.join(directory, "output"),
        file_bytes=_whole_number(environment, "HAJOB_OUTPUT_FILE_BYTES", FILE_BYTES),
        attempt_limit=_whole_number(environment, "HAJOB_OUTPUT_ATTEMPT_LIMIT", 5),
        chips=tuple(environment.get("HAJOB_CHIP_DEVICES", "").split()) or helpers.CHIPS,
    )
    return supervisor.LauncherSettings(
        directory=directory,
        size=size,
        ranks=kept,
        limits=launches.LaunchLimits(
            ranks_per_node=size.ranks_per_node,
            ordered_end_seconds=float(_whole_number(environment, "HAJOB_ORDERED_END_SECONDS", 30)),
        ),
        grace_seconds=float(_whole_number(environment, "HAJOB_GRACE_SECONDS", 5)),
        termination_log=environment.get("HAJOB_TERMINATION_LOG") or TERMINATION_LOG,
        checkpoint_directory=environment.get("HAJOB_CHECKPOINT_DIR", ""),
    )


def _whole_number(environment: Dict[str, str], name: str, default: int | None) -> int:
    text = environment.get(name, "")
    if not text and default is not None:
        return default
    if not text.isdigit():
        raise LauncherSettingsError("{} must be a number, it is {!r}".format(name, text))
    return int(text)


def _make_supervisor(
    settings: supervisor.LauncherSettings, command: List[str], environment: Dict[str, str]
) -> Callable[[], int]:
    """Return what runs the command and starts its ranks, or follows those that TaskD starts."""
    if environment.get("HAJOB_LAUNCHER") != TASKD:
        return supervisor.Supervisor(settings, command, environment).run_command
    from trainer_sidecar.launcher import follower  # 5 ms of the start of every pod that has no use for it

    return follower.Follower(settings, command, environment).run_command


def main(arguments: List[str]) -> int:
    """Run; return 64 for a wrong call, else the command's exit code (128 + signal when a signal ended it)."""
    if len(arguments) < 2 or arguments[0] != "--":
        sys.stderr.write(USAGE + "\n")
        return supervisor.REFUSED
    # fork with threads: between fork and exec only system calls are made (process.py)
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    try:
        settings = read_settings(dict(os.environ))
        run_command = _make_supervisor(settings, arguments[1:], dict(os.environ))
    except (LauncherSettingsError, OSError) as problem:
        sys.stderr.write("hajob: the launcher cannot start: {}\n".format(problem))
        return supervisor.REFUSED
    return run_command()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
