"""Patterns of log rules: one engine and one verdict for the operator, the terminal and the agent.

The engine is RE2, whose time grows linearly with the line: an engine that backtracks takes minutes for `a*a*a*a*b` on
200 characters, and an agent that searches cannot renew its lease.
"""

from __future__ import annotations

from typing import Any, Final

try:
    import re2
except ImportError:  # no wheel is made for this platform, or the plugin was installed without its dependencies
    re2 = None

MEMORY_BYTES: Final = 128 << 10
"""What the automaton of one pattern may take. RE2 refuses longer programs: within it the worst pattern that was found
takes 20 ms for a line of 500 characters, and usual ones 0.02 ms; at 256 KiB the worst takes 170 ms."""
NO_ENGINE: Final = "google-re2 is not installed here, and it makes wheels for Linux on x86_64 and aarch64 only"


class PatternError(ValueError):
    """A pattern is not accepted; the text completes "the pattern"."""


class EngineMissingError(PatternError):
    """Nothing is known about the pattern: this installation has no engine."""


class LinePattern:
    """A pattern that is searched for in lines.

    Raises:
        EngineMissingError: this installation has no engine.
        PatternError: RE2 does not accept the pattern, or every line would match.
    """

    __slots__ = ("_regexp",)

    def __init__(self, pattern: str) -> None:
        self._regexp = _compile_pattern(pattern)
        if self.matches_line(""):
            raise PatternError(f"{pattern!r} matches the empty string, so every line would meet it")

    def matches_line(self, line: str) -> bool:
        """Return whether the pattern is found somewhere in the line."""
        return self._regexp.search(line.encode("utf-8", "replace")) is not None


def _compile_pattern(pattern: str) -> Any:  # noqa: ANN401  the package has no types
    if re2 is None:
        raise EngineMissingError(f"{pattern!r} cannot be evaluated: {NO_ENGINE}")
    options = re2.Options()
    options.max_mem, options.log_errors, options.never_capture = MEMORY_BYTES, False, True
    try:
        return re2.compile(pattern.encode(), options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        words = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        if "too large" in words:
            words = f"it takes more than the {MEMORY_BYTES >> 10} KiB of an automaton: shorten its {{n,m}} and classes"
        raise PatternError(f"{pattern!r} is no regular expression of RE2: {words}") from None
    except UnicodeEncodeError:
        raise PatternError(f"{pattern!r} is not text") from None
