"""What the exit code of the short half says: a failing scenario is not a machine that cannot have nodes.

A plugin of pytest. Code 1 remains for a scenario that failed; where only what stands around it did (nodes that do not
come up, nodes that cannot be removed) it becomes SET_UP_FAILED. Any other code is pytest's own.

Before pytest begins, programs are built and images made, and Python ends with 1 where that breaks down: so what decides
a build is told by a code of its own, SCENARIO_FAILED (.ci/run).
"""

from __future__ import annotations

from typing import Final

import pytest

SET_UP_FAILED: Final = 75
"""Of pytest; as sysexits.h has it: try again, nothing is wrong with what was asked for."""
SCENARIO_FAILED: Final = 70
"""Of the short half."""
_PLUGIN: Final = "hajob-verdict"


def is_decisive(code: int) -> bool:
    """Whether pytest's exit code is about Hajob; killed from outside it says nothing."""
    return code in range(1, SET_UP_FAILED)


class ShortHalfResult:
    """Notes whether a scenario itself has failed."""

    def __init__(self) -> None:
        self._has_failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of a test is over; fixtures are `setup` and `teardown`."""
        self._has_failed |= report.failed and report.when == "call"

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """All tests are over."""
        if session.exitstatus == pytest.ExitCode.TESTS_FAILED and not self._has_failed:
            session.exitstatus = SET_UP_FAILED


def pytest_configure(config: pytest.Config) -> None:
    """Pytest has loaded this."""
    config.pluginmanager.register(ShortHalfResult(), _PLUGIN)
