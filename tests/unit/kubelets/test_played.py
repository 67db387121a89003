"""Each scenario of `make e2e` is played on real nodes or left out by its name, with its reason: none is forgotten."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from e2e.kubelets import played


def test_each_scenario_is_in_exactly_one_table() -> None:
    tables = [played.PLAYED, *played.LEFT_OUT.values()]
    listed = Counter(pair for table in tables for pair in played.of(table))
    assert {pair for pair, count in listed.items() if count > 1} == set()
    assert set(listed) == set(played.existing())


def test_what_is_left_out_has_its_reason() -> None:
    assert "no torch" in played.why_left_out("test_real_torch", "test_the_node_of_rank_zero_is_replaced")
    assert played.why_left_out("test_several_faults", "test_two_nodes_at_once") == ""


def test_a_new_scenario_is_seen(tmp_path: Path) -> None:
    (tmp_path / "test_new.py").write_text("def helper(): ...\n\n\ndef test_it(rig): ...\n")
    assert list(played.existing(tmp_path)) == [("test_new", "test_it")]
