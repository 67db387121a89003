"""A failure in words: what went wrong first, then where, then how often; a person reads one line in most places."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from hajob.domain.facts import FactKind
from hajob.domain.incidents import Cause

_EXCEPTION: Final = re.compile(r"[\w.]*(?:Error|Exception|Interrupt|Warning)(?:: |$)")
_CONTAINER: Final = re.compile(r"(container \S+): (?:Error|\w+): (?=\S)")
_ENDED_WELL: Final = re.compile(r"the start script ended (?:with 0, |.*\(exit 0\)$)")
"""Of a script that ended with 0 and should not have: in the words of the agent, or of the container that it ended."""
_MINDIO: Final = "found by MindIO"
_HEADLINE_LIMIT: Final = 300
"""Characters of the first line: a status column and an Event show little more."""


def headline_of_output(text: str) -> str:
    """Return the line of a program's output that says what went wrong: the newest exception, else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = next((line for line in reversed(lines) if _EXCEPTION.match(line)), lines[-1] if lines else "")
    return found if len(found) <= _HEADLINE_LIMIT else f"{found[: _HEADLINE_LIMIT - 3]}..."


def sentence_of_cause(cause: Cause, *more: str) -> str:
    """Return one line: what went wrong, then in brackets where, and what else the caller has to say about it."""
    text, where = _split_message(cause.message)
    said = _headline_of_cause(cause.kind, text)
    if not said:
        said = cause.code or "of unknown cause"
    elif cause.code and cause.code.startswith("SIG") and cause.code not in said:
        said = f"{cause.code}: {said}"
    brackets = "; ".join(filter(None, (", ".join([*where, *_place_of_cause(cause)]), *more)))
    return f"{said} ({brackets})" if brackets else said


def _headline_of_cause(kind: FactKind | None, text: str) -> str:
    """Return the line of a cause's text that says what went wrong."""
    first, found = text.partition("\n")[0], headline_of_output(text)
    # Of a hang the coordinator speaks first, and the stacks that it adds have no last word. Nor has what a script that
    # ended well has printed.
    ended_well = _ENDED_WELL.match(first) and not _EXCEPTION.match(found)
    return first if kind is FactKind.HANG or ended_well else found


def report_of_cause(cause: Cause, *more: str) -> str:
    """Return the `sentence_of_cause`, and below it the output that it was taken from, where that has more lines."""
    first = sentence_of_cause(cause, *more)
    lines = cause.message.strip().splitlines()
    return "\n".join([first, *lines]) if len(lines) > 1 else first


def _split_message(message: str) -> tuple[str, list[str]]:
    """Return a message without the words of whoever handed it on, and these words."""
    where: list[str] = []
    if (found := _CONTAINER.match(message)) is not None:
        where.append(found.group(1))
        message = message[found.end() :]
    if message.startswith(_MINDIO):
        where.append(_MINDIO)
        message = message.removeprefix(_MINDIO).removeprefix(": ")
    return message, where


def _place_of_cause(cause: Cause) -> Iterable[str]:
    if cause.node_name:
        yield cause.node_name
    if cause.num_ranks == 1:
        yield f"rank {cause.first_rank}"
    elif cause.num_ranks > 1:
        yield f"ranks {cause.first_rank}-{cause.first_rank + cause.num_ranks - 1}"


def ordinal_number(number: int) -> str:
    """Return `1st`, `2nd`, `11th`."""
    teens = number % 100 in range(11, 14)
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def duration_in_words(seconds: int) -> str:
    """Return a time as people say it: `80 s`, `25 min`, `3 h`."""
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"
