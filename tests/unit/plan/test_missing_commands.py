"""A command that does not exist is given up at its first start."""

from __future__ import annotations

from typing import Any

import pytest

from hajob.domain.facts import FactKind, Source
from hajob.plan import effects as do
from hajob.plan import events as e
from hajob.plan.policy import Mode, Policy
from hajob.plan.state import JobPhase, JobState
from tests.rigs.plan_rig import Rig

MISSING: dict[str, dict[str, Any]] = {
    "script": {
        "kind": FactKind.SCRIPT_ENDED,
        "ranks": (2, 3),
        "exit_code": 127,
        "code": "exit 127",
        "message": "the start script ended without calling torchrun or msrun (exit 127)\n"
        "bash: trian.sh: No such file or directory",
    },
    "pod": {
        "kind": FactKind.POD_FAILED,
        "node": 1,
        "source": Source.POD,
        "exit_code": 127,
        "code": "Error",
        "message": "container trainer: Error: bash: trian.sh: No such file or directory",
    },
    "kubelet": {
        "kind": FactKind.POD_FAILED,
        "node": 1,
        "source": Source.POD,
        "exit_code": 128,
        "code": "StartError",
        "message": "container trainer: StartError: exec: bash: trian.sh: No such file or directory",
    },
    "not executable": {
        "kind": FactKind.SCRIPT_ENDED,
        "ranks": (2, 3),
        "exit_code": 126,
        "code": "exit 126",
        "message": "bash: ./trian.sh: Permission denied: No such file or directory",
    },
    "rank": {
        "kind": FactKind.PROCESS_EXITED,
        "ranks": (2, 3),
        "exit_code": 127,
        "code": "exit 127",
        "message": "hajob: cannot execute: No such file or directory",
    },
}


def starting(policy: Policy | None = None) -> Rig:
    """A job whose pods run for the first time."""
    rig = Rig(JobState(), policy=policy or Policy())
    rig.tell(e.Accepted())
    return rig


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_command_fails_at_its_first_start(name: str) -> None:
    rig = starting()
    (*_, failed) = rig.see(**MISSING[name], node_name="node-4")
    assert rig.at(JobPhase.FAILED)
    assert isinstance(failed, do.FailJob)
    first = failed.message.splitlines()[0]
    assert "No such file or directory (" in first
    assert "node-4, ranks 2-3; not tried again" in first
    assert rig.state.restarts_program == 0


def test_a_job_that_has_trained_is_started_again() -> None:
    """A volume that one node lacks for a moment hides the script from a training that ran for days."""
    rig = Rig(JobState(phase=JobPhase.STARTING, incarnation=1, attempt=2, base=1, coordinator=1, resumed_ms=999))
    rig.see(**MISSING["script"])
    assert rig.at(JobPhase.RESTARTING)


@pytest.mark.parametrize("mode", [Mode.HOLD, Mode.OBSERVE])
def test_nothing_is_given_up_while_the_mode_forbids_it(mode: Mode) -> None:
    rig = starting(Policy(mode=mode))
    rig.see(**MISSING["script"])
    assert not rig.at(JobPhase.FAILED)


def test_other_exit_codes_are_tried_again() -> None:
    rig = starting()
    rig.see(**{**MISSING["script"], "exit_code": 1})
    assert rig.at(JobPhase.RESTARTING)
