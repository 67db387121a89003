"""The ranks' lines, requested from the launcher only if a rule of the job needs them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.agent.report import facts
from trainer_sidecar.agent.report.ports import AgentPorts
from trainer_sidecar.agent.settings import AgentSettings
from trainer_sidecar.agent.supervise.log_rules import LogRules, Rule
from trainer_sidecar.agent.supervise.ranks import RankProcess
from trainer_sidecar.launcher.output import KEPT_LINE_CHARACTERS, KEPT_LINES
from trainer_sidecar.launcher.protocol import ProcessName

log = logging.getLogger(__name__)

LOG_RULE_OFF = "LogRuleOff"

Tell = Callable[[pb.Fact, int | None], bool]
"""Reports a fact and when it happened, None: now; False: it was reported before."""


class LogWatch:
    """Applies the job's rules to what the ranks print."""

    def __init__(self, settings: AgentSettings, ports: AgentPorts, tell: Tell) -> None:
        self._settings, self._ports, self._tell = settings, ports, tell
        self._rules = LogRules()
        self._lines: dict[tuple[int, ProcessName], deque[str]] = {}  # the newest of a process
        self._following = False  # what the launcher was told

    def set_log_rules(self, rules: Iterable[pb.LogRule]) -> None:
        """Take the rules of the newest order."""
        self._rules.replace_rules(
            Rule(rule.name, rule.pattern, rule.threshold, rule.start_delay_seconds, rule.window_seconds)
            for rule in rules
        )
        self._request_lines()

    def handle_connected_launcher(self) -> None:
        """Reset: a launcher that has just connected sends no lines yet."""
        self._following = False
        self._request_lines()

    def _request_lines(self) -> None:
        """Request lines or stop them."""
        if self._following is self._rules.is_empty:
            self._following = not self._rules.is_empty
            self._ports.send_launcher({"kind": "follow", "lines": self._following})

    def log_rule_problems(self) -> list[pb.Problem]:
        """Return the one problem of rules that are not applied, or not to every line; empty: there is none."""
        told = [f"the log rule {rule} is off: the pattern {why}" for rule, why in self._rules.switched_off.items()]
        if rule := self._rules.costliest:
            told.append(
                f"some lines were not searched: that takes longer than printing them, most of all for rule {rule}"
            )
        return [pb.Problem(code=LOG_RULE_OFF, message="; ".join(told))] if told else []

    def note_started_process(self, process: RankProcess) -> None:
        """Note a process; rules with a delay count from its first sign."""
        self._rules.note_started_process(process.rank, process.name, process.changed)

    def forget_ended_process(self, process: RankProcess) -> None:
        """Note that a process has ended: it prints nothing more."""
        self._lines.pop((process.rank, process.name), None)

    def begin_launch(self) -> None:
        """Begin a launch: its processes reuse these names."""
        self._lines.clear()
        self._rules.begin_launch()

    def match_line(self, process: RankProcess, step: int | None, text: str, time: int) -> bool:
        """Take a line that a process has printed after this step; returns whether that changes the problems."""
        behind = self._rules.costliest
        lines = self._lines.setdefault((process.rank, process.name), deque(maxlen=KEPT_LINES))
        lines.append(text[:KEPT_LINE_CHARACTERS])
        for match in self._rules.match_line(process.rank, process.name, text, time):
            log.warning("rank %d meets the log rule %s: %s", process.rank, match.rule, match.line)
            self._tell(facts.log_rule_fact(self._settings, match, step, lines), time)
        return self._rules.costliest != behind
