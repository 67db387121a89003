"""Every kind of question, answered whole: answers.txt holds the text that people get and the JSON's writes.

After a wanted change `HAJOB_UPDATE_GOLDEN=1 pytest` writes it anew; the difference is what has to be reviewed.
"""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest

from hajob.cli.simulate import answer_as_json, answer_as_text
from hajob.domain.actions import Action
from hajob.plan.simulate import SimulationRequest, simulate_loss
from tests.rigs.example_jobs import EXAMPLE_MANIFEST

GOLDEN = Path(__file__).parent / "answers.txt"


def spec(**changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = copy.deepcopy(EXAMPLE_MANIFEST["spec"])
    return {**made, **changes}


FORBIDDEN = {"actions": [{"name": name, "maxCount": 0} for name in ("InPlace", "Replace", "Shrink", "Checkpoint")]}
CASES: dict[str, tuple[dict[str, Any], SimulationRequest]] = {
    "a process": (spec(), SimulationRequest(ranks=(5,))),
    "two processes, a node is free": (spec(), SimulationRequest(ranks=(1, 6), free_nodes=1)),
    "a node": (spec(), SimulationRequest(nodes=(2,))),
    "a node, one is free": (spec(model={"parameters": 10**9}), SimulationRequest(nodes=(2,), free_nodes=1)),
    "the node of rank 0": (spec(), SimulationRequest(nodes=(0,))),
    "two nodes, one is free": (spec(), SimulationRequest(nodes=(2, 0), ranks=(1, 4, 6), free_nodes=1)),
    "both holders": (spec(), SimulationRequest(nodes=(1, 3))),
    "both holders, two are free": (spec(), SimulationRequest(nodes=(1, 3), free_nodes=2)),
    "pods of a shrink are released": (
        spec(elastic={"shrunkPodPolicy": "Release"}, parallelism={"tensor": 2, "pipeline": 2}),
        SimulationRequest(nodes=(1,)),
    ),
    "a layout that is not aligned": (
        spec(accelerator={"product": "A2"}, numNodes=6, parallelism={"tensor": 2, "pipeline": 4}, template={}),
        SimulationRequest(ranks=(40,)),
    ),
    "almost nothing is allowed": (spec(recovery=FORBIDDEN), SimulationRequest(ranks=(5,))),
    "sixteen chips": (
        spec(accelerator={"product": "A3"}, parallelism={"tensor": 8}, template={}),
        SimulationRequest(nodes=(3,)),
    ),
    **{
        f"during {action}": (spec(), SimulationRequest(ranks=(5,), nodes=(3,), free_nodes=1, during=action))
        for action in Action
    },
    **{f"one process during {action}": (spec(), SimulationRequest(ranks=(5,), during=action)) for action in Action},
}


def expected() -> dict[str, str]:
    chapters = GOLDEN.read_text(encoding="utf-8").split("## ")[1:] if GOLDEN.exists() else []
    return dict(chapter.split("\n", 1) for chapter in chapters)


@pytest.mark.parametrize("name", CASES)
def test_an_answer(name: str) -> None:
    made, question = CASES[name]
    answer = simulate_loss(made, question)
    told = answer_as_text(answer) + "\n" + json.dumps(answer_as_json(answer)) + "\n"
    if os.environ.get("HAJOB_UPDATE_GOLDEN"):
        chapters = {**expected(), name: told}
        text = "".join(f"## {key}\n{chapters[key]}" for key in CASES if key in chapters)
        GOLDEN.write_text(text, encoding="utf-8")
    assert told == expected()[name]
