"""A test that subtracts standstills subtracts nothing else."""

from __future__ import annotations

import pytest

from tests.integration.sidecar.standstill import Standstill


def test_only_long_ticks_within_the_measurement_count() -> None:
    standstill = Standstill(100.0)
    for now in (100.01, 100.3, 100.31, 102.32, 102.33):
        standstill.tick(now)
    assert standstill.seconds(100.0, 110.0) == pytest.approx(2.0)
    assert standstill.seconds(100.0, 101.32) == pytest.approx(1.0)
    assert standstill.seconds(102.32, 110.0) == 0.0
