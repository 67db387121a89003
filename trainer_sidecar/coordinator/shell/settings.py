"""Settings of the coordinator, from its environment. A missing or wrong one is named, with what it is for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hajob.domain.patience import ANSWER_MARGIN_SECONDS
from hajob.domain.savers import DEFAULT_SAVERS, compile_savers
from trainer_sidecar.coordinator.state.job import Endpoint, Limits
from trainer_sidecar.environment import SettingsError, is_started_by_taskd, required_number, required_text


@dataclass(frozen=True)
class CoordinatorSettings:
    """Where things are, which ports are used, and the incarnation this pod was made for (0: not told)."""

    job_uid: str
    pod_name: str
    pod_uid: str
    directory: Path
    tls_directory: Path
    token_file: Path | None
    endpoint: Endpoint
    port: int
    agent_port: int
    limits: Limits = field(default_factory=Limits)
    incarnation: int = 0
    is_followed: bool = False


def read_settings(environment: Mapping[str, str]) -> CoordinatorSettings:
    """Read the settings from `environment`; `SettingsError` names the variable that is wrong."""
    endpoint = Endpoint(
        required_text(environment, "POD_IP"),
        required_number(environment, "HAJOB_MINDIO_PORT", 8000, least=1),
        required_number(environment, "HAJOB_RENDEZVOUS_PORT", 29500, least=1),
    )
    wait = required_number(environment, "MINDIO_WAIT_MINDX_TIME", least=1)
    token = environment.get("HAJOB_TOKEN_FILE", "")
    return CoordinatorSettings(
        job_uid=required_text(environment, "HAJOB_JOB_UID"),
        pod_name=required_text(environment, "POD_NAME"),
        pod_uid=required_text(environment, "POD_UID"),
        directory=Path(required_text(environment, "HAJOB_DIR")),
        tls_directory=Path(required_text(environment, "HAJOB_TLS_DIR")),
        token_file=Path(token) if token else None,
        endpoint=endpoint,
        port=required_number(environment, "HAJOB_COORDINATOR_PORT", 7070, least=1),
        agent_port=required_number(environment, "HAJOB_AGENT_PORT", 7071, least=1),
        limits=Limits(
            answer_seconds=max(wait - ANSWER_MARGIN_SECONDS, wait / 2),
            savers=_saving_functions(environment),
        ),
        incarnation=required_number(environment, "HAJOB_INCARNATION", 0),
        is_followed=is_started_by_taskd(environment),
    )


def _saving_functions(environment: Mapping[str, str]) -> re.Pattern[str]:
    try:
        return compile_savers(environment.get("HAJOB_SAVING_FUNCTIONS", DEFAULT_SAVERS))
    except ValueError as error:
        raise SettingsError(f"HAJOB_SAVING_FUNCTIONS: {error}") from None
