"""Output of programs, shortened: what went wrong is said at the end, and half a line only puzzles its reader."""


def last_lines(text: str, limit: int) -> str:
    """The last whole lines of `text` that have room in `limit` characters; of a single longer line its end."""
    if len(text) <= limit:
        return text
    end = text[-limit - 1 :]
    return end.partition("\n")[2] or end[1:]
