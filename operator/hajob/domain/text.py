"""Shortening of texts: programs print what went wrong last, so the end is kept, in whole lines."""

from collections.abc import Sequence


def last_lines(text: str, limit: int) -> str:
    """Return the last whole lines of `text` that fit in `limit` characters; of a single longer line its end."""
    if len(text) <= limit:
        return text
    end = text[-limit - 1 :]
    return end.partition("\n")[2] or end[1:]


def counted(number: int, noun: str) -> str:
    """Return `1 node`, `2 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def some(listed: Sequence[object], most: int = 5) -> str:
    """Name the first of some things, and how many more there are."""
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(map(str, listed[:most])) + more
