"""When the ranks of an earlier attempt have surely ended, where nobody can tell.

A pod that is deleted without grace, because nobody on its node could end it, is gone from the API at once; its ranks
may live on where the node is only cut off. They can neither register nor meet the others, and are ended by their agent;
what they could still do is finish a checkpoint that they had begun (docs/decisions/0033-old-ranks-are-gone.md).
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from hajob.domain.fencing import FENCE_AFTER_SECONDS
from hajob.plan import events
from hajob.plan.context import Context, HandlerResult
from hajob.plan.state import Deadline, JobState

FENCE_SECONDS: Final = FENCE_AFTER_SECONDS + 5
"""Then the ranks of a pod that nobody reaches are over; and a little more."""


def left_ms(state: JobState, now_ms: int, known_dead: Collection[str] = ()) -> int:
    """How long a start must still wait, in milliseconds; 0 when it need not.

    Args:
        state: of the job.
        now_ms: job time.
        known_dead: names of nodes of which a person has said that they are out of service.
    """
    since = (at for name, at in state.unreachable.items() if name not in known_dead)
    return max(0, max(since, default=0) + 1000 * FENCE_SECONDS - now_ms) if state.unreachable else 0


def note(context: Context) -> HandlerResult:
    """Remember where ranks may live on; a start that waits for them gets that much more time."""
    state, event, now = context.state, context.event_of(events.RanksUnreachable), context.now_ms
    fresh = {name: at for name, at in state.unreachable.items() if now - at < 1000 * FENCE_SECONDS}
    after = replace(state, unreachable={**fresh, **dict.fromkeys(event.nodes, now)})
    more, due = left_ms(after, now) - left_ms(state, now), state.deadlines.get(Deadline.STARTUP)
    if due is not None:
        after = replace(after, deadlines={**after.deadlines, Deadline.STARTUP: due + more})
    return after, ()
