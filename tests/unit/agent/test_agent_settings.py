"""Settings come from the environment; what is wrong is named."""

from __future__ import annotations

import pytest

from trainer_sidecar.agent.settings import read_settings
from trainer_sidecar.environment import SettingsError

COMPLETE = {
    "HAJOB_DIR": "/hajob", "HAJOB_TLS_DIR": "/tls", "POD_IP": "10.0.0.7", "POD_NAME": "job-1-abc", "POD_UID": "uid-1",
    "HAJOB_JOB_UID": "job", "HAJOB_NODE_RANK": "1", "HAJOB_RANKS_PER_NODE": "8", "HAJOB_WORLD_SIZE": "32",
    "HAJOB_INCARNATION": "17",
}  # fmt: skip


def test_what_is_optional_has_a_default() -> None:
    settings = read_settings(COMPLETE)
    assert (settings.agent_port, settings.mindio_port, settings.fence_after_seconds) == (7071, 8000, 60)
    assert settings.local_ranks == range(8, 16)


@pytest.mark.parametrize("name", sorted(COMPLETE))
def test_what_is_missing_is_named(name: str) -> None:
    with pytest.raises(SettingsError, match=name):
        read_settings({key: value for key, value in COMPLETE.items() if key != name})


def test_what_is_no_number_is_named() -> None:
    with pytest.raises(SettingsError, match="HAJOB_MINDIO_PORT='80a' is not a whole number"):
        read_settings({**COMPLETE, "HAJOB_MINDIO_PORT": "80a"})


def test_a_spare_has_no_ranks_before_it_is_named() -> None:
    settings = read_settings({**COMPLETE, "HAJOB_SPARE": "true", "HAJOB_NODE_RANK": "4"})
    assert list(settings.local_ranks) == []
    assert settings.identity.name_pod(2, 9)
    assert not settings.identity.name_pod(3, 10)
    assert (settings.local_ranks, settings.incarnation) == (range(16, 24), 9)
