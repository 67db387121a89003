"""What the benchmark says of its numbers."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import pytest

from e2e.bench.__main__ import (
    many_ranks_rows,
    overhead_rows,
    resize_rows,
    retry_rows,
    save_rows,
    warm_spare_rows,
)
from e2e.bench.elastic import Resized
from e2e.bench.faults_without_deaths import Retried, Saved
from e2e.bench.overhead import Pair, interval
from e2e.bench.recoveries import time_of_day
from e2e.bench.report import Limit, quantile, row, table, write


@pytest.mark.parametrize(("share", "expected"), [(0.5, 10), (0.95, 19), (1.0, 20), (0.0, 1)])
def test_quantiles_are_values_that_were_measured(share: float, expected: int) -> None:
    assert quantile(list(range(1, 21)), share) == expected


@pytest.mark.parametrize(("limit", "verdict"), [(Limit("p50", 2), "ok"), (Limit("max", 2), "missed"), (None, "")])
def test_each_number_stands_beside_its_limit(limit: Limit | None, verdict: str) -> None:
    assert row("outage", "s", [1, 2, 3], limit).verdict == verdict


def test_what_was_not_measured_is_said() -> None:
    found = row("stop", "ms", [math.nan], Limit("p50", 50))
    assert (found.count, found.verdict) == (0, "not measured")
    assert "not measured" in table([found])


def test_the_file_holds_what_the_table_shows(tmp_path: Path) -> None:
    rows = [row("outage", "s", [1, 2, 3], Limit("p50", 3))]
    write(tmp_path / "results" / "recovery.json", rows, {"machine": {"cores": 2}}, [])
    content = json.loads((tmp_path / "results" / "recovery.json").read_text())
    assert content["machine"] == {"cores": 2}
    assert content["rows"][0]["p50"] == 2
    assert (tmp_path / "results" / "recovery.txt").read_text() == table(rows) + "\n"


def test_the_time_of_a_log_line_is_on_the_day_of_the_fault() -> None:
    fault = 1_795_266_332_000_000_000
    clock = time.strftime("%H:%M:%S", time.localtime(fault / 1e9)) + ".689"
    assert time_of_day(clock, fault) - fault == pytest.approx(689_000_000, abs=1000)
    assert time_of_day("nonsense", fault) == 0


@pytest.mark.parametrize(("count", "ends"), [(1, (0, 0)), (5, (0, 4)), (6, (0, 5)), (9, (1, 7)), (20, (5, 14))])
def test_the_interval_of_a_median(count: int, ends: tuple[int, int]) -> None:
    assert interval([float(number) for number in reversed(range(count))]) == ends


def test_the_overhead_is_the_median_of_the_pairs() -> None:
    found = [Pair(0.0502, 0.05), Pair(0.0501, 0.05), Pair(0.06, 0.05)]
    share = next(each for each in overhead_rows(8, found) if "share" in each.name)
    assert share.p50 == pytest.approx(0.4)
    assert share.verdict == "ok"


def test_a_retry_is_held_against_what_mindio_leaves() -> None:
    rows = {each.name: each for each in retry_rows([Retried("Retry", 2.4), Retried("Restart", 2.7)])}
    assert rows["Retry: outage beyond MindIO's own 2.0 s"].p50 == pytest.approx(0.4)
    assert rows["Retry: another action was taken"].verdict == "missed"


def test_shrinks_and_growths_are_told_apart_and_mindios_part() -> None:
    found = [(Resized("Shrink", 0.4, 0.3, -0.1), Resized("Expand", 0.6, 0.5, 1.2))]
    rows = {each.name: each for each in resize_rows(found)}
    assert (rows["Shrink: control share"].verdict, rows["Expand: control share"].verdict) == ("ok", "missed")
    assert rows["Expand: of it MindIO's and the trainer's"].p50 == pytest.approx(0.5)
    assert rows["Expand: ordered -> MindIO begins, the training goes on"].p50 == pytest.approx(1.2)
    assert rows["Shrink: another action was taken"].verdict == "ok"


def test_series_without_a_value_are_not_measured() -> None:
    rows = [*retry_rows([]), *save_rows([Saved(math.nan, math.nan)]), *many_ranks_rows({8: [], 64: []})]
    rows += [*resize_rows([]), *warm_spare_rows([])]
    assert {each.verdict for each in [*rows, *overhead_rows(8, [])]} == {"not measured"}
