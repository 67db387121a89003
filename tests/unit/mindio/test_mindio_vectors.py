"""The vectors as a body: well-formed, bound to the protocol page, and none of the simulator's behaviours left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from e2e.mindio.conformance.__main__ import BEYOND_VECTORS, behaviours
from e2e.mindio.conformance.coverage import Statement, statements
from e2e.mindio.conformance.vector import Vector, load_all
from e2e.mindio.conformance.verbs import Run

PAGE = Path(__file__).resolve().parents[3] / "docs" / "protocols" / "mindio.md"
VECTORS = load_all()
BOUND = {point for vector in VECTORS for point in vector.points}
STATEMENTS = statements()
PARAGRAPHS = set(re.findall(r"^\*\*(\d+\.\d+)\*\*", PAGE.read_text(), re.MULTILINE))


def test_there_are_enough() -> None:
    assert len(VECTORS) >= 120


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v.name)
def test_points_at_a_paragraph_and_uses_known_verbs(vector: Vector) -> None:
    assert vector.paragraph in PARAGRAPHS
    for step in vector.do:
        assert hasattr(Run, next(iter(step))), step


def test_every_behaviour_is_bound() -> None:
    assert set(behaviours()) == BOUND


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda s: f"{s.paragraph} {s.says}")
def test_every_statement_can_be_left_out_or_asked_for(statement: Statement) -> None:
    from mindio_ttp import _settings

    assert statement.paragraph in PARAGRAPHS
    assert bool(statement.switches or statement.faults) != bool(statement.unseen)
    assert set(statement.switches) <= BOUND | BEYOND_VECTORS
    assert set(statement.faults) <= set(_settings.FAULTS)


def test_every_switch_belongs_to_a_statement() -> None:
    assert {switch for statement in STATEMENTS for switch in statement.switches} == set(behaviours()) | BEYOND_VECTORS


def test_no_statement_stands_twice() -> None:
    assert len({s.says for s in STATEMENTS}) == len(STATEMENTS) >= 120


def test_vectors_do_not_know_the_package() -> None:
    for vector in VECTORS:
        environments = [vector.env, vector.controller_env, *vector.rank_env.values()]
        assert not any(name.startswith("SIM_MINDIO") for env in environments for name in env), vector.name


def test_what_the_simulator_needs_is_described() -> None:
    from mindio_ttp import _settings

    assert set(_settings.BEHAVIOURS.values()) | set(_settings.FAULTS.values()) <= PARAGRAPHS
