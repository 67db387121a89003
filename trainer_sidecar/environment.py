"""Read settings from a container's environment; an error names the variable that is missing or wrong."""

from __future__ import annotations

from collections.abc import Mapping


class SettingsError(ValueError):
    """A variable of the pod's environment that is missing or unusable; the text names it."""


def is_started_by_taskd(environment: Mapping[str, str]) -> bool:
    """Return whether TaskD starts the ranks (`launcher: TaskD`)."""
    return environment.get("HAJOB_LAUNCHER", "") == "TaskD"


def required_text(environment: Mapping[str, str], name: str) -> str:
    """Return a required variable. SettingsError: it is missing."""
    value = environment.get(name, "")
    if not value:
        raise SettingsError(f"{name} is not set; the pod must carry it")
    return value


def required_number(environment: Mapping[str, str], name: str, default: int | None = None, *, least: int = 0) -> int:
    """Return a whole number, at least the minimum; without a default it is required. SettingsError: it is none."""
    value = environment.get(name) or (required_text(environment, name) if default is None else str(default))
    if not value.isdecimal() or int(value) < least:
        raise SettingsError(f"{name}={value!r} is not a whole number of {least} or more")
    return int(value)
