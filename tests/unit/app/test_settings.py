"""What the environment says is checked before the operator starts: a wrong word ends it with one sentence."""

from __future__ import annotations

import re

import pytest

from e2e.bootstrap.paths import CHECKOUT
from hajob.app.settings import Settings


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HAJOB_LEASE_SECONDS", "0"),
        ("HAJOB_LEASE_SECONDS", "soon"),
        ("HAJOB_LEASE_SECONDS", "inf"),
        ("HAJOB_LEASE_RETRY_SECONDS", "-1"),
        ("HAJOB_LEASE_RETRY_SECONDS", "nan"),
        ("HAJOB_CERTIFICATE_DAYS", "-5"),
        ("HAJOB_CERTIFICATE_DAYS", "1.5"),
        ("HAJOB_METRICS_PORT", "99999"),
        ("HAJOB_LOG_LEVEL", "LOUD"),
        ("HAJOB_TOPOLOGY_LABEL", ""),
        ("HAJOB_TOPOLOGY_LABEL", "a b"),
        ("HAJOB_SAVING_FUNCTIONS", "save ckpt"),
        ("HAJOB_SIDECAR_IMAGE_PULL_POLICY", "Sometimes"),
    ],
)
def test_a_value_out_of_bounds_is_told_in_one_sentence(variable: str, value: str) -> None:
    with pytest.raises(SystemExit) as ended:
        Settings.from_environment({variable: value})
    assert re.fullmatch(rf"{variable}='{value}': [^\n]+", str(ended.value))


@pytest.mark.parametrize(
    "given",
    [
        {"HAJOB_LEASE_RENEW_SECONDS": "10"},
        {"HAJOB_LEASE_SECONDS": "3"},
        {"HAJOB_LEASE_RETRY_SECONDS": "3"},
    ],
)
def test_a_lease_ends_after_its_leader_has_stopped(given: dict[str, str]) -> None:
    """Else a standby leads while the leader before it still writes."""
    with pytest.raises(SystemExit) as ended:
        Settings.from_environment(given)
    assert re.fullmatch(
        r"HAJOB_LEASE_SECONDS=[\d.]+, HAJOB_LEASE_RENEW_SECONDS=[\d.]+, HAJOB_LEASE_RETRY_SECONDS=[\d.]+: each must be "
        r"larger than the next",
        str(ended.value),
    )


def test_values_are_read_as_what_they_are() -> None:
    given = {"HAJOB_LEASE_SECONDS": "10", "HAJOB_CERTIFICATE_DAYS": "90", "HAJOB_METRICS_PORT": "0"}
    found = Settings.from_environment({**given, "HAJOB_LEASE_RENEW_SECONDS": "7.5", "HAJOB_LOG_LEVEL": "DEBUG"})
    assert (found.lease_seconds, found.lease_renew_seconds, found.certificate_days) == (10.0, 7.5, 90)
    assert (found.metrics_port, found.log_level) == (0, "DEBUG")


def test_a_service_beside_it_sets_no_variable_of_its_pods() -> None:
    """For a Service hajob-metrics the kubelet would set HAJOB_METRICS_PORT=tcp://10.96.0.9:8080."""
    for name in (
        "deploy/hajob.yaml",
        "charts/hajob/templates/operator.yaml",
        "charts/hajob/templates/tests/installed.yaml",
    ):
        text = (CHECKOUT / name).read_text()
        accounts, links = (
            re.findall(rf"^( +){line}$", text, re.MULTILINE)
            for line in ("serviceAccountName: hajob-operator", "enableServiceLinks: false")
        )
        assert accounts, name
        assert accounts == links, name
