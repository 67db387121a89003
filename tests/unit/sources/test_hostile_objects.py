"""What is broken in an object costs what is broken, and nothing else; reading takes time in proportion, and no more."""

from __future__ import annotations

import time

import pytest

from hajob.sources import registry
from hajob.sources.reading import Terms
from tests.rigs import hardware_objects as objects
from tests.rigs.hostile_objects import CASES, Case


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_an_object_is_read_as_far_as_it_makes_sense(case: Case) -> None:
    begin = time.process_time()
    found = registry.read_object(case.raw, Terms(objects.NOW_MS))
    assert tuple(fact.code for fact in found.facts) == case.codes
    assert tuple(one.reason for one in found.rejected) == case.rejected
    assert all(len(one.rejection_message) < 400 for one in found.rejected)
    assert time.process_time() - begin < 2.0  # most take less than a millisecond, a megabyte some ten


def test_ten_times_the_faults_take_ten_times_the_time() -> None:
    def seconds(count: int) -> float:
        many = objects.device_info(*(objects.fault(code=f"{number:08X}") for number in range(count)))
        best = 1e9
        for _ in range(3):
            begin = time.process_time()
            registry.read_object(many, Terms(objects.NOW_MS))
            best = min(best, time.process_time() - begin)
        return best

    assert seconds(10_000) < 40 * max(seconds(1_000), 0.001)  # quadratic would be a hundred times
