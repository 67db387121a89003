"""The stand-in's vectors hold for the real TaskD, where HAJOB_TASKD names it: its manager is given the signals."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.loopback import own_address
from e2e.taskd.lab.deeds import Deed
from e2e.taskd.lab.play import Lab

VECTORS: list[dict[str, Any]] = yaml.safe_load((CHECKOUT / "e2e/taskd/vectors.yaml").read_text())
pytestmark = [
    pytest.mark.skipif("HAJOB_TASKD" not in os.environ, reason="HAJOB_TASKD names no TaskD"),
    pytest.mark.timeout(180),
]


def deed_of_words(words: str) -> Deed:
    if not words.startswith("agent "):
        return ("mindio", words)
    _, node, code = words.split(" ", 2)
    return (f"agent {node}", code)


def by_doer(deeds: list[Deed]) -> dict[str, list[str]]:
    """In which order each of them was told; between two of them there is none."""
    return {who: [words for doer, words in deeds if doer == who] for who, _ in sorted(deeds)}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["trait"] or "others")
def test_the_real_manager_does_what_the_vector_says(vector: dict[str, Any], tmp_path: Path) -> None:
    repeats = vector["trait"] in {"kill_master_repeats", "token", "old_fault_ends_all"}
    with Lab(own_address(), tmp_path, vector.get("process_recover", True)) as lab:
        for step in vector["steps"]:
            since = lab.seen()
            wanted = [deed_of_words(words) for words in step["do"]]
            if "registered" in step:
                lab.register(step["registered"])
                wanted.append((f"agent {step['registered']}", "registered"))
            elif "fault" in step:
                lab.report_fault(**step["fault"])
            else:
                lab.send(step["signal"])
            if step.get("at_once"):
                continue
            lab.wait(*(set(wanted) if repeats else wanted), since=since)
            came = lab.deeds_when_settled(since)
            if repeats and not wanted:  # what was repeated until the signal was read
                came = lab.deeds_when_settled(lab.seen())
            if repeats:
                assert set(came) == set(wanted), (step, came)
            else:
                assert by_doer(came) == by_doer(wanted), (step, came)
