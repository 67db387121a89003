"""Pages written from the tables that the code runs: the state machine, the preconditions, the takeover.

`python -m release.generate.diagram` writes them, `--check` fails when they are stale. Nothing in them is written by
hand, so that what people read is what the operator does.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

from hajob.domain.actions import FAULT_ACTIONS
from hajob.plan.context import TableRow
from hajob.plan.evaluator import DUMP_OR_EXIT, EXIT_ONLY, FAULT, LATE, PROCESS_LATE, UNREPAIRABLE, UNTRAINED
from hajob.plan.events import EVENTS
from hajob.plan.policy import DEFAULT_ACTION_LIMITS, NO_PROGRESS_LIMIT, PROGRAM_WINDOW_SECONDS
from hajob.plan.preconditions import PRECONDITIONS
from hajob.plan.protection import LIVE_PRECONDITIONS
from hajob.plan.state import JOB_PHASE_SENTENCE, JobPhase
from hajob.plan.table import TABLE
from release.generate.files import write_or_check
from trainer_sidecar.coordinator.state.controller_change import ChangePhase
from trainer_sidecar.coordinator.takeover.guards import always_applies
from trainer_sidecar.coordinator.takeover.table import EVERYWHERE, TakeoverEvent, TakeoverRow
from trainer_sidecar.coordinator.takeover.table import TABLE as TAKEOVER_TABLE

_MADE: Final = "<!-- made by `python -m release.generate.diagram`; do not edit -->"
_TRIGGERS: Final = (FAULT, PROCESS_LATE, LATE, UNREPAIRABLE, DUMP_OR_EXIT, EXIT_ONLY, UNTRAINED)


def state_machine() -> str:
    """The whole page about the state machine."""
    return "\n".join((*_head(), *_states(), *_picture(), *_actions(), *_rows(), *_events())) + "\n"


def _head() -> Iterator[str]:
    yield "# The state machine of a job"
    yield ""
    yield _MADE
    yield ""
    yield (
        "One event at a time is answered by one row of one table: in this state, on this event, under this condition, "
        "do this and go there. The rows of a cell are asked from top to bottom. An event that no row wants is a no-op "
        "that is counted. Deadlines are events like all others."
    )
    yield ""
    yield (
        "While `recovery.mode` is `Observe` or `Hold`, one answer takes the place of every row that decides about a "
        "fault (those on a trigger, and those that make a pod or processes anew): *hold*: the fault is kept open, "
        "nothing is started, go to `Held`. [What is done all the same](../admin/operations.md#hajob-only-watches)."
    )


def _states() -> Iterator[str]:
    yield from ("", "## States", "", "| state | means |", "| --- | --- |")
    yield from (f"| {phase} | {JOB_PHASE_SENTENCE[phase]} |" for phase in JobPhase)


def _picture() -> Iterator[str]:
    """A Mermaid diagram; edges out of many states at once (deletion, end, failure) are left to the table."""
    edges: dict[tuple[str, str], list[str]] = {}
    for row in TABLE:
        if row.target is None or row.target in {JobPhase.DELETED, JobPhase.FAILED, JobPhase.COMPLETE}:
            continue
        for state in row.states:
            label = row.event.__name__
            known = edges.setdefault((state.value, row.target.value), [])
            if label not in known:
                known.append(label)
    yield from ("", "## Picture", "")
    yield "Edges to `Complete`, `Failed` and `Deleted` are left out; they stand in the table."
    yield from ("", "```mermaid", "stateDiagram-v2", "    [*] --> New")
    for (source, target), labels in edges.items():
        yield f"    {source} --> {target}: {', '.join(labels)}"
    yield "```"


def _actions() -> Iterator[str]:
    yield from ("", "## Actions", "")
    yield (
        "Actions are evaluated smallest first; the first that works is taken. Each has a budget (uses in a window) "
        f"and a deadline; the same rank at the same step {NO_PROGRESS_LIMIT} times does not get the same "
        "action once more. "
        f"Failures of the program have a budget of their own, counted over {PROGRAM_WINDOW_SECONDS // 3600} hours."
    )
    yield from ("", "| action | uses | window s | deadline s |", "| --- | --- | --- | --- |")
    for action in FAULT_ACTIONS:
        limits = DEFAULT_ACTION_LIMITS[action]
        yield f"| {action} | {limits.max_count} | {limits.window_seconds} | {limits.deadline_seconds} |"
    yield from ("", "What MindIO and the state of a recovery leave of them:", "")
    yield from ("| trigger | actions left | why |", "| --- | --- | --- |")
    for trigger in _TRIGGERS:
        yield f"| {trigger.name} | {', '.join(trigger.actions)} | {trigger.why or 'nothing has been tried yet'} |"


def _rows() -> Iterator[str]:
    yield from ("", "## The table", "", "| # | states | event | condition | effect | next |")
    yield "| --- | --- | --- | --- | --- | --- |"
    for number, row in enumerate(TABLE, 1):
        target = row.target.value if row.target else "same"
        cells = (str(number), _state_names(row), row.event.__name__, row.guard.sentence, row.handler.sentence, target)
        yield f"| {' | '.join(cells)} |"


def _state_names(row: TableRow) -> str:
    if len(row.states) == len(JobPhase):
        return "every state"
    left = [phase for phase in JobPhase if phase not in row.states]
    if len(left) <= 3:
        return "all but " + ", ".join(left)
    return ", ".join(row.states)


def _events() -> Iterator[str]:
    yield from ("", "## Events", "", "| event | means |", "| --- | --- |")
    for event in EVENTS:
        sentence = (event.__doc__ or "").strip().splitlines()[0]
        yield f"| {event.__name__} | {sentence} |"


_BEFORE: Final = (
    "Evaluated before any fault, from the spec and, where the template shows them, the trainer's arguments; "
    "`status.recoverability` lists what is not met, or cannot be known, by these names. What follows from the sizes "
    "in the spec binds: such an action is never tried. What only the arguments say binds where it concerns Shrink "
    "alone, and where the framework excludes it (marked *); everywhere else it is advice, and what MindIO offers "
    "at the moment of the fault decides. Where no action through MindIO is left, the job trains without MindIO "
    "([training-images.md](training-images.md))."
)


def preconditions() -> str:
    """The whole page about preconditions."""
    lines = [
        "# What every action needs",
        "",
        _MADE,
        "",
        _BEFORE,
        "",
        "| name | actions | what is needed | should be |",
        "| --- | --- | --- | --- |",
        *(
            f"| {one.name}{' *' if one.excludes else ''} | {', '.join(one.actions)} | {one.sentence} | {one.wanted} |"
            for one in PRECONDITIONS
        ),
        "",
        "Evaluated when a decision is made:",
        "",
        "| name | what is needed |",
        "| --- | --- |",
        *(f"| {name} | {sentence} |" for name, sentence in LIVE_PRECONDITIONS.items()),
    ]
    return "\n".join(lines) + "\n"


_TAKEOVER: Final = (
    "When MindIO's controller is lost while every rank is registered, another one takes its place and the training "
    "notices nothing ([what is said meanwhile](../protocols/sidecar.md#another-controller)). "
    "One table leads through it. "
    "`look` comes with everything that is heard: after a row that stays in its phase the rows below it are asked as "
    "well, after one that leaves it those of the next phase. Of any other event the first row whose condition holds is "
    "taken; one that no row wants changes nothing."
)


def takeover() -> str:
    """The whole page about the takeover by another controller."""
    return "\n".join((*_takeover_head(), *_takeover_picture(), *_takeover_rows())) + "\n"


def _takeover_head() -> Iterator[str]:
    yield from ("# Another MindIO controller takes over", "", _MADE, "", _TAKEOVER)


def _takeover_picture() -> Iterator[str]:
    """Edges that every phase under way has (a loss, the end, the time limit) are left to the table."""
    yield from ("", "## Picture", "")
    yield "What ends the takeover or begins it again in every phase is left out; it stands in the table."
    yield from ("", "```mermaid", "stateDiagram-v2", f"    [*] --> {ChangePhase.NONE}")
    ends = {row.effect for row in EVERYWHERE}
    for row in chain.from_iterable(TAKEOVER_TABLE.values()):
        if row.phase is not row.following and row.effect not in ends:
            what = _condition(row) if row.event is TakeoverEvent.LOOK else row.event
            yield f"    {row.phase} --> {row.following}: {what}"
    yield "```"


def _takeover_rows() -> Iterator[str]:
    yield from (
        "",
        "## The table",
        "",
        "| phase | event | condition | effect | next |",
        "| --- | --- | --- | --- | --- |",
    )
    for row in chain.from_iterable(TAKEOVER_TABLE.values()):
        cells = (row.phase, row.event, _condition(row), _first_paragraph(row.effect), row.following)
        yield f"| {' | '.join(cells)} |"


def _condition(row: TakeoverRow) -> str:
    if row.guard is always_applies:
        return "always" if TAKEOVER_TABLE[row.phase, row.event][0] is row else "in every other case"
    return _first_paragraph(row.guard).removeprefix("Return whether ").rstrip(".")


def _first_paragraph(function: Callable[..., object]) -> str:
    """What a guard or an effect says of itself."""
    return inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0].replace("\n", " ")


PAGES: Final = {
    "docs/internals/state-machine.md": state_machine,
    "docs/user/preconditions.md": preconditions,
    "docs/internals/takeover.md": takeover,
}


def main(arguments: list[str] | None = None) -> int:
    """Write the pages, or with --check say which are stale."""
    return write_or_check("release.generate.diagram", {name: make() for name, make in PAGES.items()}, arguments)


if __name__ == "__main__":
    sys.exit(main())
