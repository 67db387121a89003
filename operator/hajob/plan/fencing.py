"""When the ranks of an earlier attempt have certainly ended on an unreachable node.

A pod deleted without grace, because nothing on its node could end it, is gone from the API at once; its ranks may
live on if the node is only partitioned. They can neither register nor rendezvous, and their agent ends them; until
then they could still finish a checkpoint that they had begun (docs/decisions/0033-old-ranks-are-gone.md).
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from hajob.domain.fencing import FENCE_AFTER_SECONDS
from hajob.plan import events
from hajob.plan.context import Context, HandlerResult
from hajob.plan.state import Deadline, JobState

FENCE_SECONDS: Final = FENCE_AFTER_SECONDS + 5
"""Time after which the ranks of an unreachable pod have ended, with a small margin."""


def fence_wait_ms(state: JobState, now_ms: int, known_dead: Collection[str] = ()) -> int:
    """Return how long a start must still wait, in milliseconds; 0 when it need not.

    Args:
        state: of the job.
        now_ms: job time.
        known_dead: names of nodes that a person has declared out of service.
    """
    since = (at for name, at in state.unreachable.items() if name not in known_dead)
    return max(0, max(since, default=0) + 1000 * FENCE_SECONDS - now_ms) if state.unreachable else 0


def note_fenced_nodes(context: Context) -> HandlerResult:
    """Record the nodes where ranks may live on, and extend the start-up deadline by the wait for them."""
    state, event, now = context.state, context.event_of(events.RanksUnreachable), context.now_ms
    fresh = {name: at for name, at in state.unreachable.items() if now - at < 1000 * FENCE_SECONDS}
    after = replace(state, unreachable={**fresh, **dict.fromkeys(event.nodes, now)})
    more, due = fence_wait_ms(after, now) - fence_wait_ms(state, now), state.deadlines.get(Deadline.STARTUP)
    if due is not None:
        after = replace(after, deadlines={**after.deadlines, Deadline.STARTUP: due + more})
    return after, ()
