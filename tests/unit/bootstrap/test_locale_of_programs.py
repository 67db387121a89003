"""The locale of the project's programs: one by which Python reads a path of any letters."""

from __future__ import annotations

import pytest

from e2e.bootstrap.setup import execution_environment


@pytest.mark.parametrize(
    ("machine", "program"),
    [
        ({"LC_ALL": "C"}, "C.UTF-8"),
        ({"LC_ALL": "", "LC_CTYPE": "POSIX", "LANG": "de_DE.UTF-8"}, "C.UTF-8"),
        ({}, "C.UTF-8"),
        ({"LANG": "de_DE.UTF-8"}, None),
        ({"LC_ALL": "en_US.ISO-8859-1", "LANG": "C"}, "en_US.ISO-8859-1"),
    ],
)
def test_that_of_c_is_never_theirs(
    monkeypatch: pytest.MonkeyPatch, machine: dict[str, str], program: str | None
) -> None:
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in machine.items():
        monkeypatch.setenv(name, value)
    assert execution_environment().get("LC_ALL") == program
