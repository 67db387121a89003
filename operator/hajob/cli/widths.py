"""How wide a text is on a terminal, where a Chinese character takes two columns. Pure."""

import re
import unicodedata
from collections.abc import Iterator


def display_width(text: str) -> int:
    """Return how many columns of a terminal a text takes: a Chinese character takes two."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text)


def wrapped_by_width(text: str, width: int) -> Iterator[str]:
    """Yield the lines of a text that may be broken between any two Chinese characters."""
    line = ""
    for word in re.findall(r"[!-~]+|\s+|.", text):
        if display_width(line + word) > width and line:
            yield line.rstrip()
            line = ""
        line += word if line else word.lstrip()
    if line:
        yield line.rstrip()
