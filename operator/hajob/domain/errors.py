"""Errors of wrong input, one type for each kind; each names the wrong value."""

from typing import Final

MALFORMED: Final = (ValueError, KeyError, TypeError, AttributeError)
"""What reading a pod template may raise: it may hold anything anywhere."""


class HajobInputError(ValueError):
    """Invalid input; the message says what is wrong, where, and what it should be."""


class LayoutError(HajobInputError):
    """Sizes that do not make a layout."""


class RankError(HajobInputError):
    """A rank or node rank outside the job."""
