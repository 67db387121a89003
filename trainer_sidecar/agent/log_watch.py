"""The ranks' lines, requested from the launcher only if a rule of the job needs them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.agent import facts
from trainer_sidecar.agent.log_rules import LogRules, Rule
from trainer_sidecar.agent.ports import AgentPorts
from trainer_sidecar.agent.ranks import RankProcess
from trainer_sidecar.agent.settings import AgentSettings
from trainer_sidecar.launcher.output import KEPT_LINE_CHARACTERS, KEPT_LINES
from trainer_sidecar.launcher.protocol import ProcessName

log = logging.getLogger(__name__)

Tell = Callable[[pb.Fact, int | None], bool]
"""Reports a fact and when it happened, None: now; False: it was reported before."""


class LogWatch:
    """Applies the job's rules to what the ranks print."""

    def __init__(self, settings: AgentSettings, ports: AgentPorts, tell: Tell) -> None:
        self._settings, self._ports, self._tell = settings, ports, tell
        self._rules = LogRules()
        self._lines: dict[tuple[int, ProcessName], deque[str]] = {}  # the newest of a process
        self._following = False  # what the launcher was told

    def set_rules(self, rules: Iterable[pb.LogRule]) -> None:
        """Take the rules of the newest order."""
        self._rules.set_rules(
            Rule(rule.name, rule.pattern, rule.threshold, rule.start_delay_seconds, rule.window_seconds)
            for rule in rules
        )
        self._follow()

    def launcher_connected(self) -> None:
        """Reset: a launcher that has just connected sends no lines yet."""
        self._following = False
        self._follow()

    def _follow(self) -> None:
        """Request lines or stop them, and report which rules are off."""
        if self._following is self._rules.is_empty:
            self._following = not self._rules.is_empty
            self._ports.send_launcher({"kind": "follow", "lines": self._following})
        for rule, reason in self._rules.switched_off.items():
            if self._tell(facts.log_rule_off(self._settings, rule, reason), None):
                log.error("the log rule %s is off: %s", rule, reason)

    def started(self, process: RankProcess) -> None:
        """Note a process; rules with a delay count from its first sign."""
        self._rules.process_started(process.rank, process.name, process.changed)

    def ended(self, process: RankProcess) -> None:
        """Note that a process has ended: it prints nothing more."""
        self._lines.pop((process.rank, process.name), None)

    def begin_launch(self) -> None:
        """Begin a launch: its processes reuse these names."""
        self._lines.clear()

    def line(self, process: RankProcess, step: int | None, text: str, time: int) -> None:
        """Take a line that a process has printed after this step."""
        lines = self._lines.setdefault((process.rank, process.name), deque(maxlen=KEPT_LINES))
        lines.append(text[:KEPT_LINE_CHARACTERS])
        for match in self._rules.line(process.rank, process.name, text, time):
            log.warning("rank %d meets the log rule %s: %s", process.rank, match.rule, match.line)
            self._tell(facts.log_rule(self._settings, match, step, lines), time)
        if self._rules.switched_off:
            self._follow()
