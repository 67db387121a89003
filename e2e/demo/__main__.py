"""`make demo`: plays the demo, leaves a table, says in its last line and its exit code how it went.

Whatever ends it, nothing stays behind: the run's reaper sees to that (docs/internals/local-cluster.md). The last line
is printed when everything is gone, so that it is the last one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from e2e import providers
from e2e.bootstrap.problems import SetupError
from e2e.cluster.control_plane import ControlPlaneError
from e2e.cluster.rest import ApiError
from e2e.cluster.run import Run, RunError
from e2e.demo.acts import ACTIONS, FEWEST_STEPS, STAY_STEPS, STEPS, Demo, Outcome, Switches
from e2e.demo.observer import DemoError
from e2e.demo.recording import COLUMNS, Recording
from e2e.demo.screen import Screen
from e2e.demo.table import last_line, report
from e2e.nodes.control import ControlError

PROBLEMS = (DemoError, RunError, SetupError, ControlPlaneError, ControlError, ApiError, OSError, RuntimeError)


AGAIN_SECONDS = 5.0
"""An end that was asked for and has not come by then is asked for again: what begins it takes no second."""


class Ending:
    """A closed terminal or a SIGTERM ends the demo as Ctrl-C does.

    Attributes:
        signal: The one that came first; 0: none. Kept, because a library in which an exception strikes may make
            another one of it, as pydantic does. Where it strikes in a destructor, Python prints it and goes on.
    """

    def __init__(self) -> None:
        self.signal = 0
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._end)
        signal.signal(signal.SIGALRM, self._end)

    def _end(self, number: int, _frame: FrameType | None) -> None:
        self.signal = self.signal or number
        signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
        raise KeyboardInterrupt

    @staticmethod
    def note_begun() -> None:
        """Note that the end has begun, so that it is not asked for again."""
        signal.setitimer(signal.ITIMER_REAL, 0)


def main() -> int:
    """Play it; 0 only if all faults were recovered as promised and the weights are equal."""
    options, chosen = _switches()
    away = providers.elsewhere(options, "e2e.demo", sys.argv[1:], chosen.environment())
    if away is not None:
        return away
    ending = Ending()
    recording = Recording() if options.record else None
    screen = Screen(recording=recording)
    try:
        outcome = _play(screen, chosen, ending)
    except (KeyboardInterrupt, Exception) as error:
        ending.note_begun()
        if ending.signal:
            with contextlib.suppress(OSError):  # a closed terminal
                sys.stderr.write("\nInterrupted; everything that ran has been ended.\n")
            return 128 + ending.signal
        if not isinstance(error, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody listens any more
        return 1
    if outcome is None:
        return 1
    said = last_line(outcome.faults, outcome.recovered, outcome.weights_equal)
    if recording is not None and outcome.recoveries:
        recording.write(options.record, f"{report(outcome.recoveries, width=COLUMNS)}\n\n{said}")
    screen.text(said)
    return 0 if outcome.is_success else 1


def _switches() -> tuple[argparse.Namespace, Switches]:
    """What the command line chooses."""
    parser = argparse.ArgumentParser(prog="e2e.demo", description="A training survives six faults, before your eyes.")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"length of the training (default: {STEPS})")
    parser.add_argument("--stay", action="store_true", help="make no fault, train until Ctrl-C: for make inject")
    parser.add_argument("--ui", action="store_true", help="show it in a browser, too")
    parser.add_argument("--faults", type=int, default=len(ACTIONS), help="only the first so many of the six")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write what was seen as an SVG that moves")
    providers.add_option(parser)
    options = parser.parse_args()
    if options.stay:
        return options, Switches(STAY_STEPS, stays=True, has_page=options.ui)
    if not 1 <= options.faults <= len(ACTIONS):
        parser.error(f"--faults {options.faults}: there are {len(ACTIONS)}")
    if options.steps < FEWEST_STEPS * options.faults:
        needed = FEWEST_STEPS * options.faults
        parser.error(f"--steps {options.steps}: {options.faults} faults need at least {needed} steps")
    flipped = os.environ.get("TOY_FLIP_RESTORED_BYTE") == "1"
    return options, Switches(options.steps, flip_restored_byte=flipped, faults=options.faults, has_page=options.ui)


def _play(screen: Screen, chosen: Switches, ending: Ending) -> Outcome | None:
    """Play the demo and show its table; None when it could not even begin."""
    try:
        run = Run.start("demo")
    except RunError as error:
        sys.stderr.write(f"{error}\n")
        return None
    with run:
        demo = Demo(run, screen, chosen)
        try:
            with screen.open():
                try:
                    demo.play()
                finally:
                    ending.note_begun()
        except BrokenPipeError:
            raise
        except PROBLEMS as error:
            screen.text(f"\nIt went wrong: {error}")
            screen.text(f"logs: {demo.rig.explain() if demo.rig else run.keep_logs()}")
        else:
            if not demo.outcome.is_success:
                screen.text(f"logs: {demo.rig.explain() if demo.rig else run.keep_logs()}")
        if demo.outcome.recoveries:
            screen.text(f"\n{report(demo.outcome.recoveries)}\n")
    screen.text(f"It took {screen.elapsed:.0f} s; nothing of it is left running.")
    return demo.outcome


if __name__ == "__main__":
    sys.exit(main())
