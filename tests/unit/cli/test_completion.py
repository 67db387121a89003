import pytest

from hajob.cli.completion import offered_lines


def names(*words: str) -> list[str]:
    *lines, directive = offered_lines(words)
    assert directive in {":4", ":0"}
    return [line.split("\t")[0] for line in lines]


def test_commands_are_offered_with_their_help() -> None:
    lines = offered_lines([""])
    assert any(line.startswith("quarantine\tlist, add and release nodes") for line in lines)
    assert lines[-1] == ":4"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["qu"], ["quarantine"]),
        (["quarantine", ""], ["list", "add", "release"]),
        (["quarantine", "add", "--re"], ["--reason"]),
        (["quarantine", "add", "--reason", ""], []),
        (["unknown", "qu"], ["quarantine"]),
        ([], ["facts", "logs", "quarantine", "breaker", "inject", "simulate"]),
    ],
)
def test_what_fits_the_words_so_far_is_offered(words: list[str], expected: list[str]) -> None:
    assert set(expected) <= set(names(*words))
    assert not expected or len(words) == 0 or names(*words) == expected


def test_files_may_follow_an_option_that_takes_a_word() -> None:
    assert offered_lines(["simulate", "-f", ""])[-1] == ":0"
