"""What each kind of reported fact is to the planner: who saw it, what cures it first, whose fault it is."""

from __future__ import annotations

from typing import Final

import pytest

from hajob.domain.actions import Action
from hajob.domain.facts import Fact, FactKind, Origin, Source
from hajob.plan import events
from hajob.protocol import sidecar_pb2 as wire
from hajob.sources import report

MACHINE, PROGRAM = Origin.INFRASTRUCTURE, Origin.PROGRAM
KINDS: Final = {
    # an exit: its code tells whose fault it was
    ("PROCESS_EXITED", "SIGKILL", -9): (FactKind.PROCESS_EXITED, Source.AGENT, Action.IN_PLACE, MACHINE),
    ("PROCESS_EXITED", "exit 1", 1): (FactKind.PROCESS_EXITED, Source.AGENT, Action.IN_PLACE, PROGRAM),
    ("PROCESS_EXITED", "SIGSEGV", -11): (FactKind.PROCESS_EXITED, Source.AGENT, Action.IN_PLACE, PROGRAM),
    ("PROCESS_EXITED", "NotFinished", 0): (FactKind.PROCESS_EXITED, Source.AGENT, Action.IN_PLACE, PROGRAM),
    ("PROCESS_EXITED", "ContainerStopped", -15): (FactKind.POD_LOST, Source.AGENT, Action.REPLACE, MACHINE),
    ("PROCESS_EXITED", "ContainerKilled", -9): (FactKind.POD_FAILED, Source.AGENT, Action.REPLACE, MACHINE),
    # what MindIO has found: UCE, links and HCCL, a process that it misses
    ("MEMORY_FAULT", "", 0): (FactKind.MEMORY_FAULT, Source.MINDIO, Action.RETRY, MACHINE),
    ("COMMUNICATION_FAULT", "", 0): (FactKind.COMMUNICATION_FAULT, Source.MINDIO, Action.RETRY, MACHINE),
    ("PROCESS_FAULT", "", 0): (FactKind.PROCESS_FAULT, Source.MINDIO, Action.IN_PLACE, MACHINE),
    # what stands still, or is not heard any more
    ("HANG", "Hang", 0): (FactKind.HANG, Source.COORDINATOR, Action.IN_PLACE, MACHINE),
    ("HEARTBEAT_SILENT", "", 0): (FactKind.HEARTBEAT_SILENT, Source.AGENT, Action.IN_PLACE, MACHINE),
    ("AGENT_SILENT", "", 0): (FactKind.AGENT_SILENT, Source.COORDINATOR, Action.REPLACE, MACHINE),
    ("CONTROLLER_LOST", "", 0): (FactKind.CONTROLLER_LOST, Source.COORDINATOR, Action.RESTART, MACHINE),
    # the job's own rules, its script, its ports
    ("LOG_RULE", "nan", 0): (FactKind.LOG_RULE, Source.AGENT, Action.RESTART, PROGRAM),
    ("SCRIPT_ENDED", "exit 2", 2): (FactKind.SCRIPT_ENDED, Source.AGENT, Action.REPLACE, PROGRAM),
    ("PORT_TAKEN", "8000", 0): (FactKind.PORT_TAKEN, Source.AGENT, Action.REPLACE, MACHINE),
}
"""Kind, code and exit code as reported; kind, source, first action and origin as understood."""
NOT_TOLD: Final = {"FACT_UNSPECIFIED", "STACK"}
"""What a coordinator keeps to itself."""


def heard(kind: str, code: str, exit_code: int) -> Fact:
    raw = wire.Fact(id="f", kind=kind, node_rank=1, ranks=[2], code=code, exit_code=exit_code)
    raw.incarnation, raw.message = 1, "what was seen"
    (seen,) = report.read_report(wire.Report(facts=[raw]), 5).observed
    assert isinstance(seen.event, events.FactSeen)
    return seen.event.fact


@pytest.mark.parametrize("told", KINDS, ids=["/".join(map(str, one)) for one in KINDS])
def test_a_report_is_understood(told: tuple[str, str, int]) -> None:
    fact = heard(*told)
    assert (fact.kind, fact.source, fact.first_action, fact.origin) == KINDS[told]
    assert (fact.ranks, fact.node_rank, fact.code, fact.message) == ((2,), 1, told[1], "what was seen")


def test_every_kind_of_the_protocol_is_in_the_table() -> None:
    assert {kind for kind, _, _ in KINDS} == set(wire.FactKind.keys()) - NOT_TOLD


def test_a_kind_that_is_not_known_here_is_said() -> None:
    newer = wire.Fact(id="f", kind=99)  # type: ignore[arg-type]
    found = report.read_report(wire.Report(facts=[newer, wire.Fact(id="g", kind=wire.HANG, ranks=[2])]), 5)
    assert (found.refused, len(found.observed)) == (("fact kind 99",), 1)


def test_a_takeover_tells_how_long_it_took_and_of_the_store() -> None:
    milestone = wire.Milestone(kind=wire.TAKEN_OVER, duration_nanoseconds=5_700_000_000, store_kept=True)
    (seen,) = report.read_report(wire.Report(milestones=[milestone]), 5).observed
    assert seen.event == events.ControllerTakenOver(duration_ms=5700, store_kept=True)
