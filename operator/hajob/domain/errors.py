"""Errors that input can cause, one type for each kind of nonsense, each naming the value that is wrong."""


class HajobInputError(ValueError):
    """Input that makes no sense; the message says what is wrong, where, and what it should be."""


class LayoutError(HajobInputError):
    """Sizes that do not make a layout."""


class RankError(HajobInputError):
    """A rank or node rank outside the job."""
