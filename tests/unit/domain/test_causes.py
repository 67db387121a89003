"""What an incident says of the fact that opened it."""

from __future__ import annotations

import pytest

from hajob.domain.facts import Fact, FactKind, Origin, Source, origin_of_exit
from hajob.domain.incidents import Cause


def test_a_cause_is_the_fact_in_short() -> None:
    fact = Fact("id", FactKind.CHIP_FAULT, Source.DEVICE, code="0x8", message="lost", time_ms=7, node_name="node-1")
    assert Cause.from_fact(fact, (4, 5), 10) == Cause(
        FactKind.CHIP_FAULT,
        Source.DEVICE,
        "0x8",
        "node-1",
        first_rank=4,
        num_ranks=2,
        message="lost",
        time_ms=7,
        step=10,
    )


def test_a_fact_without_ranks_and_words_has_a_cause() -> None:
    cause = Cause.from_fact(Fact("id", FactKind.CONTROLLER_LOST, Source.COORDINATOR), (), 10)
    assert (cause.code, cause.first_rank, cause.num_ranks, cause.message) == ("ControllerLost", -1, 0, "")


def test_a_long_message_keeps_its_end() -> None:
    fact = Fact("id", FactKind.PROCESS_EXITED, message="Traceback\nValueError: no")
    assert Cause.from_fact(fact, (5,), 10, message_limit=14).message == "ValueError: no"
    assert len(Cause.from_fact(Fact("id", FactKind.LOG_RULE, message="x" * 2000), (5,), 10).message) == 1024


@pytest.mark.parametrize("exit_code", [-1, 129])
def test_a_hang_up_is_the_machines_affair(exit_code: int) -> None:
    assert origin_of_exit(exit_code) is Origin.INFRASTRUCTURE
