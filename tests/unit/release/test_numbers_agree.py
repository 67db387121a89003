"""What is said of one thing is said in the singular: `1 pods` makes a reader doubt the rest of the sentence.

A number that stands before a word in the plural, or before a verb, is written by `counted_noun`, or behind the word.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from release.generate.files import ROOT
from release.generate.sentences import template_of

_PLURAL = re.compile(
    r" (?:(?:more|other|free|spare|such|newest|device) )?(?:(?!lacks)[a-z]+[^\Wus]s|are|have|lack|were|do|stand)\b"
)
_COUNTS = re.compile(
    r"len\(|sum\(|num_nodes|world_size|chips_per_node|num_spare|number\b|total|count|times\b|waiting|needed|free|chips\b"
)
_CLAIM_OF_MANY = (
    "PersistentVolumeClaim {name} of spec.checkpoint.path is {modes}: pods on {num_nodes} nodes cannot all mount and "
    "write it, unless its driver does not mind; ReadWriteMany is what is needed"
)
_NEVER_ONE = frozenset(
    {
        "{silent} of {total} coordinators cannot be reached",
        "{who} has failed {count} times {where} without progress",
        "restarted {total} times ({shares}), the newest cause: {value}",
        "{filename} holds {jobs} objects of kind HATrainingJob; it must be one",
        "spec.template.spec.containers holds {trainers} containers named trainer; it must be one",
        "{troubled} of {pods} do not run; these are the first {most_pods}",
        "{same} of the {incidents} newest incidents have the cause {code}",
        "more rights are needed for {looks} of {looks2} checks: {looks3}; what is missing is to {rights}",
        "{active} nodes in all",
        "{count} lack {resource}",
        "{number} are",
        "of {nodes} nodes {ruled_out}",
        " x {chips} chips",
        "rank {ranks} and {value} more stand",
        ", {value} chip hours did not",
        _CLAIM_OF_MANY,
    }
)
"""Sentences that are said of two or more only, or of a whole that has more."""


def numbers_before_plurals(source: str) -> Iterator[tuple[int, str]]:
    """The sentences of a module that would be wrong of one, with their lines."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.JoinedStr) or template_of(node) in _NEVER_ONE:
            continue
        for value, behind in zip(node.values, node.values[1:], strict=False):
            if not isinstance(value, ast.FormattedValue) or not isinstance(behind, ast.Constant):
                continue
            said = ast.unparse(value.value)
            is_number = _COUNTS.search(said) and "counted_noun" not in said
            if is_number and _PLURAL.match(str(behind.value)):
                yield node.lineno, template_of(node)


def test_no_sentence_is_wrong_of_one() -> None:
    modules = [*(ROOT / "operator/hajob").rglob("*.py"), *(ROOT / "trainer_sidecar").rglob("*.py")]
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {sentence}"
        for path in modules
        for line, sentence in numbers_before_plurals(path.read_text(encoding="utf-8"))
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("f'{len(pods)} pods wait'", 1),
        ("f'{waiting} have no node'", 1),
        ("f'{num_nodes} free nodes'", 1),
        ("f'{counted_noun(len(pods), noun)} without a node'", 0),
        ("f'{name} needs it'", 0),
    ],
)
def test_a_number_before_a_plural_is_found(source: str, wrong: int) -> None:
    assert len(list(numbers_before_plurals(source))) == wrong
