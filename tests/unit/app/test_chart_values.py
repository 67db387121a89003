"""The values of the chart, read without Helm: every kept set fits, and no setting of the operator is missing."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from e2e.bootstrap.paths import CHECKOUT
from hajob.app.settings import Settings
from release.generate.chart import BY_THE_CHART, ChartValues, defaults

SETS = sorted((CHECKOUT / "tests/integration/chart/values").glob("*.yaml"))


@pytest.mark.parametrize("path", SETS, ids=lambda path: path.stem)
def test_a_kept_set_of_values_fits(path: Path) -> None:
    ChartValues.model_validate(yaml.safe_load(path.read_text()))


@pytest.mark.parametrize("given", [{"replica": 3}, {"settings": {"leaseSecond": 3}}, {"logLevel": "LOUD"}])
def test_a_value_that_nobody_knows_does_not(given: Any) -> None:
    with pytest.raises(ValidationError):
        ChartValues.model_validate(given)


def test_every_setting_of_the_operator_is_a_value_or_derived() -> None:
    fields = {field.name: field.default for field in dataclasses.fields(Settings)}
    assert fields.keys() >= BY_THE_CHART
    expected = {to_camel(name): value for name, value in fields.items() if name not in BY_THE_CHART}
    assert defaults()["settings"] == expected
