"""Each figure of `make house`, counted in a few lines of code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house import __main__ as house
from tests.house import measures
from tests.house.measures import Source, read


def code(text: str, name: str = "module.py") -> list[Source]:
    return [read(Path(name), text)]


def test_a_comment_that_a_tool_reads_says_nothing() -> None:
    assert measures.comments(code("# why\na = 1  # noqa: E1\nb = '# no comment'\nc = 2\n")) == 250


def test_a_name_is_as_long_as_what_it_says() -> None:
    assert (
        measures.mean_name(code("def _run(): ...\nclass A:\n    def __init__(self): ...\n    def stop_it(self): ...\n"))
        == 5
    )


def test_only_a_name_that_many_share_is_one_of_too_many() -> None:
    shared = "".join(f"class A{number}:\n    def run(self): ...\n    def run_it(self): ...\n" for number in range(6))
    assert measures.homonyms(code(f"{shared}def stop(): ...\n")) == {"run": 6}


def test_what_a_program_begins_with_may_share_its_name() -> None:
    programs = [
        read(Path(f"{number}.py"), 'def main(): ...\nif __name__ == "__main__":\n    sys.exit(main())\n')
        for number in range(6)
    ]
    others = [read(Path(f"other{number}.py"), "def main(): ...\n") for number in range(6)]
    assert measures.homonyms(programs) == {}
    assert measures.homonyms([*programs, *others]) == {"main": 6}


@pytest.mark.parametrize(
    "function",
    [
        "def f(self, a, b): return self.x.g(a, b)",
        "def f(self, a): '''Say.'''; self.x.g(a)",
        "async def f(a, *, b): return await g(a, b=b)",
    ],
)
def test_what_only_calls_another_passes_on(function: str) -> None:
    assert len(measures.passing_on(code(function))) == 1


@pytest.mark.parametrize(
    "function",
    [
        "def f(self, a, b): return self.x.g(b, a)",
        "def f(self, a): return self.x.g(a, 1)",
        "def f(self, a): return self.x.a",
        "def f(self, a):\n    b = a\n    return g(b)",
        "def f(*a): return g(*a)",
    ],
)
def test_what_does_anything_else_passes_nothing_on(function: str) -> None:
    assert measures.passing_on(code(function)) == []


def test_callables_are_counted_where_they_are_handed_in() -> None:
    text = (
        "class A:\n    wake: Callable[[], None]\n    def __init__(self, at: Callable[[int], int] | None, b: int): ...\n"
    )
    assert measures.handed_callables(code(f"{text}    def f(self, c: Callable[[], int]): ...\n")) == 2


def test_a_constructor_with_six_arguments_is_wide() -> None:
    wide, narrow = (
        f"class A:\n    def __init__(self, {names}, *, z): ...\n" for names in ("a, b, c, d, e", "a, b, c, d")
    )
    assert [len(measures.wide_constructors(code(text))) for text in (wide, narrow)] == [1, 0]


def test_a_class_that_calls_itself_later_has_a_timer() -> None:
    assert len(measures.own_timers(code("class A:\n    def f(self): loop.call_later(1, g)\nclass B: ...\n"))) == 1


def test_a_protocol_is_lonely_until_two_fulfil_it() -> None:
    one = "class P(Protocol):\n    def f(self): ...\nclass A:\n    def f(self): ...\n    def g(self): ...\n"
    assert len(measures.lonely_protocols(code(one))) == 1
    assert measures.lonely_protocols(code(f"{one}class B:\n    def f(self): ...\n")) == []


def test_a_test_module_borrows_from_another() -> None:
    text = "from tests.unit.a.test_b import rig\n"
    assert len(measures.borrowing_tests(code(text, "test_c.py"))) == 1
    assert measures.borrowing_tests(code("from tests.rigs.b import rig\n", "test_c.py")) == []


def test_what_is_private_is_counted_where_it_is_anothers() -> None:
    assert (
        measures.private_reaches(code("class A:\n    def f(self): return self._a, self.b._c, d._e, g.__dict__\n")) == 2
    )


def test_a_docstring_commands_or_does_not() -> None:
    text = "def a():\n    '''Return it.'''\ndef b():\n    '''The thing.'''\ndef _c():\n    '''The.'''\n"
    assert measures.imperative(code(text), house.VERBS) == 50


def test_a_figure_may_only_get_better() -> None:
    fewer, more = house.Figure("few", 3.04, 0), house.Figure("many", 3.04, 9, more_is_better=True)
    assert house.worse([fewer, more], {"few": 3.0, "many": 3.0}) == []
    assert [sentence.partition(":")[0] for sentence in house.worse([fewer, more], {"few": 2.9, "many": 3.1})] == [
        "few",
        "many",
    ]
