"""A training's steps, read from the line that trainers print after each one, and gathered for the agent.

Megatron: ` iteration        5/     100 | consumed samples: ... | lm loss: 1.234E+00 |`: step 5 of 100 is finished.
MindFormers: `{ Epoch:[  2/  3], step:[    5/   10], loss: ...`: step 15 of 30, since it counts within the epoch.

A node that loses its power loses the steps it has not reported, so a step of usual length is sent at once. Quick ones
are gathered: a message for each would cost more than the step. As soon as no more of them come they are sent, since
that may be an outage, whose account begins with the last step.
"""

from __future__ import annotations

import re
from typing import List, Tuple

SECOND = 1_000_000_000
TOGETHER = SECOND // 200
"""The ranks of a pod end a step at almost the same time: one message reports all of them."""
QUICK = SECOND // 5
"""Steps of a rank that follow each other within this time are gathered …"""
GATHER = 2 * SECOND // 5
"""… for at most this time …"""
STILL = SECOND // 10
"""… and until no step has ended for this time."""

LINE = re.compile(
    rb"iteration\s+(\d{1,15})/\s*(\d{1,15})"
    rb"|Epoch:\[\s*(\d{1,9})/\s*(\d{1,9})\],\s*step:\[\s*(\d{1,9})/\s*(\d{1,9})\]"
)


def parse_step_line(line: bytes) -> Tuple[int, int] | None:
    """Return the finished step and the last one from a line of output; None for any other line."""
    found = LINE.search(line)
    if found is None:
        return None
    if found.group(1) is not None:
        return int(found.group(1)), int(found.group(2))
    epoch, epochs, step, steps = (int(number) for number in found.groups()[2:])
    return (epoch - 1) * steps + step, epochs * steps


class Untold:
    """Finished steps that were not yet sent to the agent. Times are nanoseconds of one clock."""

    def __init__(self) -> None:
        self.steps: List[List[int]] = []  # rank, step, time
        self._quick = True

    def add_step(self, rank: int, step: int, time: int, before: int) -> None:
        """Add that `rank` finished `step` at `time`, and its previous one at `before`."""
        self._quick = self._quick and time - before < QUICK
        self.steps.append([rank, step, time])

    def next_send_time(self) -> int:
        """Return when to send them; call only while there are any."""
        first, newest = self.steps[0][2], self.steps[-1][2]
        return min(first + GATHER, newest + STILL) if self._quick else newest + TOGETHER

    def take_steps(self) -> List[List[int]]:
        """Take all of them, to be sent now."""
        taken, self.steps, self._quick = self.steps, [], True
        return taken
