"""Settings of the coordinator, from its environment. A missing or wrong one is named, with what it is for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainer_sidecar.coordinator.job import Endpoint, Limits

ANSWER_MARGIN_SECONDS = 2.0


class CoordinatorSettingsError(ValueError):
    """A variable of the pod's environment is missing or unusable."""


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


def read_settings(environment: Mapping[str, str]) -> CoordinatorSettings:
    """The settings in `environment`; `CoordinatorSettingsError` names the variable that is wrong."""
    endpoint = Endpoint(
        _text(environment, "POD_IP"),
        _number(environment, "HAJOB_MINDIO_PORT", 8000),
        _number(environment, "HAJOB_RENDEZVOUS_PORT", 29500),
    )
    wait = _number(environment, "MINDIO_WAIT_MINDX_TIME")
    token = environment.get("HAJOB_TOKEN_FILE", "")
    return CoordinatorSettings(
        job_uid=_text(environment, "HAJOB_JOB_UID"),
        pod_name=_text(environment, "POD_NAME"),
        pod_uid=_text(environment, "POD_UID"),
        directory=Path(_text(environment, "HAJOB_DIR")),
        tls_directory=Path(_text(environment, "HAJOB_TLS_DIR")),
        token_file=Path(token) if token else None,
        endpoint=endpoint,
        port=_number(environment, "HAJOB_COORDINATOR_PORT", 7070),
        agent_port=_number(environment, "HAJOB_AGENT_PORT", 7071),
        limits=Limits(
            answer_seconds=max(wait - ANSWER_MARGIN_SECONDS, wait / 2),
            finish_seconds=float(_number(environment, "HAJOB_FINISH_DEADLINE_SECONDS", 1800)),
        ),
        incarnation=_number(environment, "HAJOB_INCARNATION", 0) if environment.get("HAJOB_INCARNATION") else 0,
    )


def _text(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise CoordinatorSettingsError(f"{name} is not set; the coordinator's pod must carry it")
    return value


def _number(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    value = environment.get(name, "") if default is not None else _text(environment, name)
    try:
        number = int(value or str(default))
    except ValueError:
        number = 0
    if number <= 0:
        raise CoordinatorSettingsError(f"{name}={value!r} is not a positive whole number")
    return number
