"""The walks of `make house` are played, and none passes more than it did."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.house import __main__ as house
from tests.house import measures
from tests.house.walks import CHECKOUT, PRODUCT, Step, Walk
from tests.rigs.walks import exit_to_stop_train


def test_no_walk_passes_more_than_it_did() -> None:
    found = house.walk_figures(measures.sources(CHECKOUT, *PRODUCT))
    limits = json.loads(house.LIMITS.read_text())
    assert {one.name for one in found if one.goal is not None} <= limits.keys()
    assert house.worse(found, limits) == []


def test_a_walk_leads_from_one_end_to_the_other() -> None:
    walk = exit_to_stop_train()
    assert walk.files[0] == "trainer_sidecar/agent/node.py"
    assert {"trainer_sidecar/agent", "trainer_sidecar/coordinator"} <= {str(Path(path).parent) for path in walk.files}
    assert not [path for path in walk.files_outside_pure_rooms if path.startswith("operator/hajob/domain/")]


@pytest.fixture
def rooms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Two files of a product, which call each other."""
    monkeypatch.setattr("tests.house.walks.CHECKOUT", tmp_path)
    texts = {
        "a.py": "def ask(b): return b.answer(back)\n\ndef back(): return leaf()\n\ndef leaf(): return 1\n",
        "b.py": "def answer(back): return [back() for _ in range(3)]\n\ndef passes(b): return answer(b)\n",
    }
    space: dict[str, object] = {}
    for name, text in texts.items():
        path = tmp_path / PRODUCT[0] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        module = type(pytest)(name)
        exec(compile(text, str(path), "exec"), module.__dict__)
        space[name.removesuffix(".py")] = module
    return space


def names(steps: dict[Step, None]) -> list[str]:
    return [step.name for step in steps]


def test_a_call_into_a_file_that_waits_is_a_return(rooms: dict[str, object]) -> None:
    walk = Walk()
    with walk.recorded():
        rooms["a"].ask(rooms["b"])  # type: ignore[attr-defined]
    assert names(walk.steps) == ["ask", "answer", "back", "leaf"], "each once, and what a comprehension calls"
    assert names(walk.returns) == ["back"], "not the leaf, whose file calls it"
    assert [Path(path).name for path in walk.files] == ["a.py", "b.py"]


def test_a_new_stack_returns_into_what_an_earlier_one_was_in(rooms: dict[str, object]) -> None:
    walk = Walk()
    with walk.recorded():
        rooms["a"].leaf()  # type: ignore[attr-defined]
        rooms["b"].answer(int)  # type: ignore[attr-defined]
        walk.next_stack()
        rooms["a"].back()  # type: ignore[attr-defined]
    assert names(walk.returns) == ["back"]


def test_a_walk_begins_and_ends_where_it_is_told(rooms: dict[str, object]) -> None:
    walk = Walk(rooms["a"].back)  # type: ignore[attr-defined]
    with walk.recorded():
        rooms["b"].answer(rooms["a"].back)  # type: ignore[attr-defined]
        walk.end()
        rooms["a"].ask(rooms["b"])  # type: ignore[attr-defined]
    assert names(walk.steps) == ["back", "leaf"]


def test_what_only_hands_on_is_found_among_the_steps(rooms: dict[str, object], tmp_path: Path) -> None:
    walk = Walk()
    with walk.recorded():
        rooms["b"].passes(int)  # type: ignore[attr-defined]
    assert [step.name for step in walk.handed_on(measures.sources(tmp_path, *PRODUCT[:1]))] == ["passes"]
