"""A test's name says situation and outcome, in at most 60 characters, and no test hides another one of its name."""

from __future__ import annotations

from collections import Counter

from e2e.bootstrap.paths import CHECKOUT
from tests.rigs.names_of_tests import names_of_tests

LONGEST = 60
FILES = sorted(path for root in ("tests", "e2e/scenarios") for path in (CHECKOUT / root).rglob("test_*.py"))


def test_names_are_short() -> None:
    long = {name for path in FILES for name in names_of_tests(path) if len(name.rpartition(".")[2]) > LONGEST}
    assert long == set()


def test_names_are_given_once_in_a_file() -> None:
    twice = [(path.name, name) for path in FILES for name, count in Counter(names_of_tests(path)).items() if count > 1]
    assert twice == []


def test_no_two_test_modules_share_a_name() -> None:
    names = Counter(path.name for root in ("tests", "e2e") for path in (CHECKOUT / root).rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
