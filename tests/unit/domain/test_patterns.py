"""One verdict on a pattern, by RE2: what compiles, what is too large, what every line would meet."""

from __future__ import annotations

import pytest

from hajob.domain import patterns
from hajob.domain.patterns import EngineMissingError, LinePattern, PatternError


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("loss: nan", "step 5 loss: nan"),
        ("(?i)error.*HCCL", "ERROR in hccl"),
        (r"a(?i)B", "ab"),
        (r"\pL\z", "x"),
        (r"\Qa.b\E", "a.b"),
        ("(?U)a+b", "aab"),
        ("(?P<x>a)|(?<y>b)", "b"),
        ("[[:digit:]]x", "5x"),
        (".*.*.*.*.*=.*", "a=b"),
        ("(a+)+b", "aab"),
        ("a*a*a*a*b", "a" * 400 + "b"),
        ("错误|失败", "初始化失败"),
    ],
)
def test_what_re2_knows_is_accepted_and_found(pattern: str, line: str) -> None:
    assert LinePattern(pattern).matches_line(line)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("loss: (nan", r"'loss: \(nan' is no regular expression of RE2: missing \)"),
        ("[z-a]", "invalid character class range"),
        ("loss: (?!0)", "invalid perl operator"),
        (r"(a)\1", "invalid escape"),
        ("a{1001}", "repetition"),
        ("(.{1,30}){30}z", "128 KiB of an automaton"),
        ("nan|", "matches the empty string, so every line would meet it"),
        (".*", "matches the empty string"),
        ("^", "matches the empty string"),
        ("\ud800", "is not text"),
    ],
)
def test_others_are_refused_in_a_sentence(pattern: str, reason: str) -> None:
    with pytest.raises(PatternError, match=reason):
        LinePattern(pattern)


def test_a_line_that_is_no_unicode_is_searched_all_the_same() -> None:
    assert LinePattern("nan").matches_line("\ud800 nan")


def test_without_the_engine_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "re2", None)
    with pytest.raises(EngineMissingError, match="'nan' cannot be evaluated: google-re2 is not installed"):
        LinePattern("nan")
