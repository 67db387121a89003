"""How long MindIO waits for a decision, and who decides until when.

One wait, from MindIO's question (a stopped training, an offer of strategies, a failed repair) to the moment at which
its controller leaves. All of it is derived here, so that no two clocks run out in the wrong order:

| seconds after MindIO's question | who |
| --- | --- |
| up to `LONGEST_WAIT_SECONDS` | the operator decides, by the deadline of the action that it has ordered |
| `standing_seconds`, while the operator is away | the coordinator saves what waits for a replacement |
| `MINDIO_WAIT_SECONDS - ANSWER_MARGIN_SECONDS - SAVE_BEFORE_SECONDS` | the coordinator saves, whoever is there |
| `MINDIO_WAIT_SECONDS - ANSWER_MARGIN_SECONDS` | the coordinator counts the controller as gone |
| `MINDIO_WAIT_SECONDS` | MindIO's controller leaves without a word |
"""

from typing import Final

MINDIO_WAIT_SECONDS: Final = 3600
"""`MINDIO_WAIT_MINDX_TIME`, the most that MindIO takes. It is the same for every job: a shorter one would have to
outlast a whole chain of actions (a process that does not start, then a node that does not come), and pods that run keep
the value with which they were made while `replacementTimeoutSeconds` is edited. Nobody waits longer for it, because
Hajob ends ranks itself."""

ANSWER_MARGIN_SECONDS: Final = 2.0
"""The coordinator counts MindIO's wait by its own clock, and an answer is on its way for a moment."""

SAVE_BEFORE_SECONDS: Final = 30.0
"""The coordinator's last resort begins this long before it counts the controller as gone: MindIO must still be told the
names and the strategy."""

LONGEST_WAIT_SECONDS: Final = 3480
"""The operator's last decision comes two minutes before MindIO leaves. 32 s of them are the coordinator's last resort;
the rest is for a change of leader at that moment, and for a status that is written late."""

STANDING_SECONDS: Final = 30
"""How much longer than the operator the coordinator waits for a replacement while the operator is away: one that comes
back as its own deadline ends should find that deadline, not a save."""

DECISION_SECONDS: Final = 10
"""How long a fault may stay undecided while the operator is away, before the coordinator decides: two changes of
leader."""


def standing_seconds(replacement_seconds: int) -> int:
    """Return how long after MindIO's question a coordinator without operator saves what waits for a replacement."""
    return replacement_seconds + STANDING_SECONDS
