"""Causes in words: what went wrong first, then where, then how often."""

from __future__ import annotations

import pytest

from hajob.domain.cause_words import (
    duration_in_words,
    headline_of_output,
    ordinal_number,
    report_of_cause,
    sentence_of_cause,
)
from hajob.domain.facts import Fact, FactKind
from hajob.domain.incidents import Cause
from hajob.domain.text import harmless_text

TRACEBACK = """iteration 5
Traceback (most recent call last):
  File "train.py", line 7, in step
FileNotFoundError: corpus
[W] destroy_process_group() was not called"""


def test_the_exception_is_the_headline() -> None:
    assert headline_of_output(TRACEBACK) == "FileNotFoundError: corpus"


def test_without_an_exception_the_last_line_is_it() -> None:
    assert headline_of_output("iteration 5\nrank 0: loss: nan\n\n") == "rank 0: loss: nan"


def test_a_failure_begins_with_its_cause() -> None:
    message = "container trainer: Error: bash: trian.sh: No such file or directory"
    cause = Cause(FactKind.POD_FAILED, code="Error", node_name="node-4", first_rank=2, num_ranks=2, message=message)
    assert sentence_of_cause(cause, "4th failure of the program in 80 s, 3 allowed") == (
        "bash: trian.sh: No such file or directory "
        "(container trainer, node-4, ranks 2-3; 4th failure of the program in 80 s, 3 allowed)"
    )


def test_a_signal_is_named_before_its_words() -> None:
    cause = Cause(code="SIGKILL", first_rank=3, num_ranks=1, message="killed by a signal nobody of Hajob sent")
    assert sentence_of_cause(cause).startswith("SIGKILL: killed by")
    assert sentence_of_cause(Cause(code="SIGKILL", first_rank=3, num_ranks=1)) == "SIGKILL (rank 3)"


def test_the_output_follows_its_headline() -> None:
    assert report_of_cause(Cause(message=f"found by MindIO: {TRACEBACK}"), "again").splitlines()[:2] == [
        "FileNotFoundError: corpus (found by MindIO; again)",
        "found by MindIO: iteration 5",
    ]
    assert report_of_cause(Cause(message="one line")) == "one line"


@pytest.mark.parametrize(
    ("number", "text"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (22, "22nd")]
)
def test_ordinals(number: int, text: str) -> None:
    assert ordinal_number(number) == text


@pytest.mark.parametrize(("seconds", "text"), [(80, "80 s"), (1500, "25 min"), (10_800, "3 h")])
def test_durations(seconds: int, text: str) -> None:
    assert duration_in_words(seconds) == text


def test_output_cannot_play_with_a_terminal() -> None:
    assert harmless_text("\x1b[31mValueError\x1b[0m: \x07\x9b2J\ttab\r50 %\r\nend\u202e") == (
        "ValueError: \\x07\\x9b2J\ttab\n50 %\nend\\u202e"
    )


def test_a_cause_keeps_harmless_words() -> None:
    fact = Fact("1", FactKind.PROCESS_EXITED, message="\x1b]0;title\x07\x1b[1mKeyError\x1b[0m: 'x'")
    assert Cause.from_fact(fact, (1,), 5).message == "KeyError: 'x'"


def test_of_a_hang_the_sentence_comes_before_the_stacks() -> None:
    told = "every process lives, but no step has ended for 120 s; step 9 was the last, ranks [1] are behind"
    stack = 'rank 1 stands here:\nFile "train.py", line 153 in at\nFile "transport.py", line 211 in _read'
    cause = Cause(FactKind.HANG, code="Hang", node_name="node-1", first_rank=1, num_ranks=1, message=f"{told}\n{stack}")
    assert sentence_of_cause(cause) == f"{told} (node-1, rank 1)"


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("(exit 0)\nhi there", "the start script ended without calling torchrun or msrun (exit 0)"),
        ("(exit 0)\nKeyError: 'RANK'\ndone", "KeyError: 'RANK'"),
        ("(exit 127)\nbash: no-such.sh: No such file", "bash: no-such.sh: No such file"),
    ],
)
def test_what_a_script_printed_that_ended_well_is_no_reason(output: str, said: str) -> None:
    message = f"the start script ended without calling torchrun or msrun {output}"
    assert sentence_of_cause(Cause(FactKind.SCRIPT_ENDED, message=message)) == said


def test_so_it_is_in_the_words_of_the_container() -> None:
    words = "the start script ended with 0, without calling torchrun or msrun"
    message = f"container trainer: Error: {words}\nhi there"
    assert sentence_of_cause(Cause(FactKind.POD_FAILED, message=message)) == f"{words} (container trainer)"
