"""What this agent knows, and every rule that connects orders, processes, links and reports.

No input or output happens here: messages of the launcher and the coordinator come in, commands go out through ports,
and a fake clock can stand behind all of it. Whatever changes wakes the report, and the gate where it may open it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.agent import facts
from trainer_sidecar.agent.clock import SECOND, Clock
from trainer_sidecar.agent.endings import Endings, Training
from trainer_sidecar.agent.environment import rank_environment
from trainer_sidecar.agent.error_lines import ErrorLines
from trainer_sidecar.agent.gate import LinkPhase
from trainer_sidecar.agent.held import HeldFacts
from trainer_sidecar.agent.launcher_messages import Script, read_name, read_process, read_script
from trainer_sidecar.agent.lease import Lease
from trainer_sidecar.agent.log_rules import LogRules, Rule
from trainer_sidecar.agent.outbox import Outbox
from trainer_sidecar.agent.ranks import Command, Name, RankProcess, Wanted, is_admitted, reconcile, runs
from trainer_sidecar.agent.settings import AgentSettings
from trainer_sidecar.launcher import endings
from trainer_sidecar.launcher.arguments import ARGUMENTS, LOAD_STEP, RESUME_POLICY, means_to_resume, options
from trainer_sidecar.launcher.output import KEPT_LINE_CHARACTERS, KEPT_LINES

log = logging.getLogger(__name__)

KILLED = -9
LAUNCHER_GONE = "the launcher, first process of container trainer, is gone, and its ranks with it"


class Node:
    """State and rules of one rank pod."""

    def __init__(self, settings: AgentSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self.lease = Lease()
        self.outbox = Outbox()
        self._log_rules = LogRules()
        self.send_launcher: Callable[[dict[str, Any]], None] = lambda _: None
        self.wake_report: Callable[[], None] = lambda: None
        self.wake_gate: Callable[[], None] = lambda: None
        self.end_links: Callable[[int], None] = lambda _: None
        self.link_phase: Callable[[int], LinkPhase] = lambda _: LinkPhase.NONE
        self.look_at_checkpoints: Callable[[pb.CheckpointOrder | None], None] = lambda _: None
        self._checkpoint: pb.CheckpointState | None = None
        self._processes: dict[int, RankProcess] = {}
        self._steps: dict[int, int] = {}  # the newest that a rank's present process has printed
        self._beaten: dict[int, int] = {}  # … and that its heartbeats have told
        self._error_lines = ErrorLines()
        self._copies: dict[int, bool] = {}  # whether a rank that registered here has told MindIO of its copies
        self._tls_spoken = False  # by a process that did not say which rank it is
        self._tls_ranks: set[int] = set()
        self._wanted: dict[int, Wanted] = {}
        self._lines: dict[tuple[int, Name], deque[str]] = {}  # the newest of a process, where log rules need them
        self._fenced: set[tuple[int, Name]] = set()
        self._stacks: dict[tuple[int, Name], int] = {}  # how often the launcher was asked for a process's stack
        self._script = Script()
        self._endings = Endings()
        self._unfinished: dict[tuple[int, Name], str] = {}  # ended with 0, and why that is no finish
        self._held = HeldFacts()
        self._controller_address = self._store_address = ""
        self._following = False  # what the launcher was told about lines
        self._refused: dict[int, str] = {}  # why the launcher did not start a rank; asked again with each tick
        self._revision = 0
        self._over = False
        self._last_word = clock.now()
        self._last_sign = 0  # of life of a rank: a heartbeat, a finished step

    # ---- from the coordinator

    def begin_conversation(self, *, higher_fence: bool) -> None:
        """A coordinator's stream has been accepted."""
        if higher_fence:
            self.lease.end()
        self.lease.begin_conversation()
        self._revision = 0
        self._last_word = self._clock.now()
        self.outbox.begin_stream(self._clock.now())

    def take(self, message: pb.CoordinatorToAgent) -> None:
        """A message of the coordinator that is listened to."""
        self._last_word = self._clock.now()
        body = message.WhichOneof("body")
        if body == "lease_grant":
            if self.lease.grant(message.lease_grant.heartbeat, message.lease_grant.lease_milliseconds):
                self.wake_gate()
            if message.lease_grant.acknowledged:
                self.outbox.acknowledge(message.lease_grant.acknowledged)
        elif body == "node_order":
            self._take_order(message.node_order)
        elif body == "acknowledge":
            self.outbox.acknowledge(message.acknowledge.sequence)
        else:
            log.warning("a message of the coordinator is not understood: %s", body)

    def _take_order(self, order: pb.NodeOrder) -> None:
        if order.revision < self._revision:
            log.info("order %d came after %d and is ignored", order.revision, self._revision)
            return
        self._revision = order.revision
        self._controller_address, self._store_address = order.controller_address, order.store_address
        self._wanted = {}
        for entry in order.ranks:
            if not self.is_local(entry.rank):
                log.error(
                    "order %d names rank %d, this pod has %s", order.revision, entry.rank, self._settings.local_ranks
                )
                continue
            name = Name(entry.incarnation, entry.start)
            environment = dict(entry.environment)
            self._wanted[entry.rank] = Wanted(entry.rank, name, entry.run, entry.admitted, environment, entry.stacks)
        self._log_rules.set_rules(
            Rule(rule.name, rule.pattern, rule.threshold, rule.start_delay_seconds, rule.window_seconds)
            for rule in order.log_rules
        )
        self._follow_lines()
        self.look_at_checkpoints(order.checkpoint if order.HasField("checkpoint") and not order.over else None)
        if order.over and not self._over:
            log.warning("the incarnation of this pod is over, its ranks are ended")
            self._over = True
        self._carry_out()
        self._report_soon()
        self.wake_gate()

    # ---- from the launcher

    def take_launcher(self, message: Mapping[str, Any]) -> None:
        """A message of the launcher (docs/protocols/launcher.md). KeyError, TypeError, ValueError: malformed."""
        kind = message["kind"]
        if kind == "rank":
            self._take_process(message)
        elif kind == "steps":
            for rank, step, time in message["steps"]:
                self._take_step(int(rank), int(step), int(time))
            self.wake_report()
        elif kind == "line":
            self._take_line(int(message["rank"]), str(message["text"]), int(message["time"]))
        elif kind == "stack":
            self._take_stack(message)
        elif kind == "script":
            self._take_script(message)
        elif kind == "complete":
            self._following = False  # a launcher that is connected anew
            self._follow_lines()
            self._carry_out()
        elif kind == "all_ended":
            self._tell_verdict(int(message["launch"]))
        else:
            self._take_other(kind, message)

    def _take_other(self, kind: str, message: Mapping[str, Any]) -> None:
        if kind == "refused":
            self._take_refusal(int(message["rank"]), str(message["reason"]))
        elif kind != "launcher":
            log.warning("a message of the launcher is not understood: %s", kind)

    def _take_refusal(self, rank: int, reason: str) -> None:
        if self._refused.get(rank) != reason:
            log.error("the launcher refuses to start rank %d, it is asked again: %s", rank, reason)
        self._refused[rank] = reason

    def launcher_lost(self) -> None:
        """Its socket was closed: a launcher only does that by ending, and no rank outlives it."""
        now = self._clock.now()
        for process in list(self._processes.values()):
            if process.running:
                lines = (LAUNCHER_GONE,)
                self._set_process(replace(process, running=False, exit_code=KILLED, changed=now, last_lines=lines))
        if not self._script.ended:
            self._set_script(
                replace(self._script, ready=False, ended=True, exit_code=KILLED, last_lines=(LAUNCHER_GONE,))
            )

    def _take_process(self, message: Mapping[str, Any]) -> None:
        process = read_process(message)
        step, time = int(message["step"]), int(message["step_time"])
        if step >= 0:  # before its end is judged
            self._endings.stepped(process.rank, process.name, step, time)
        self._set_process(process)
        if endings.NO_TRACKER in process.notices and self._load_step(process.rank):
            text = f"rank {process.rank} finds no checkpoint after a start that was to load one"
            self._not_reloaded(process, None, text)
        if step >= 0 and process.rank not in self._steps:
            self._take_step(process.rank, step, time)
        self._carry_out()

    def _set_process(self, process: RankProcess) -> None:
        before = self._processes.get(process.rank)
        if before is not None and process.name < before.name:
            return
        if before is not None and before.name != process.name:
            self._steps.pop(process.rank, None)
            self._beaten.pop(process.rank, None)
        self._processes[process.rank] = process
        self._error_lines.take(process, self._step(process.rank))
        self._refused.pop(process.rank, None)
        self._log_rules.process_started(process.rank, process.name, process.changed)
        was_running = before is None or before.running or before.name != process.name
        if not process.running and was_running:
            self._process_ended(process)
        self._report_soon()
        self.wake_gate()

    def _process_ended(self, process: RankProcess) -> None:
        self._lines.pop((process.rank, process.name), None)
        self.end_links(process.rank)
        self._copies.pop(process.rank, None)
        if process.exit_code == 0 and not process.ordered and self._script.training:
            self._ended_with_zero(process)
        fenced = (process.rank, process.name) in self._fenced
        if process.exit_code != 0 and (fenced or not process.ordered):
            log.warning("rank %d (process %d) ended: %s", process.rank, process.pid, facts.exit_name(process.exit_code))
            fact = facts.process_exited(self._settings, process, self._step(process.rank))
            if fenced:
                fact.message = f"ended by the agent: no coordinator for {self._settings.fence_after_seconds} s"
            self.outbox.add_fact(fact, process.changed, self._clock.now())

    def _take_step(self, rank: int, step: int, time: int) -> None:
        self._steps[rank] = step
        self._stepped(rank, step, time)
        self._last_sign = max(self._last_sign, time)
        self.outbox.add_step(rank, step, time, self._clock.now())

    def _step(self, rank: int) -> int | None:
        """The last step that the rank's present process has finished, None: unknown."""
        known = [told[rank] for told in (self._steps, self._beaten) if rank in told]
        return max(known, default=None)

    def _take_line(self, rank: int, text: str, time: int) -> None:
        process = self._processes.get(rank)
        if process is None:
            return
        lines = self._lines.setdefault((rank, process.name), deque(maxlen=KEPT_LINES))
        lines.append(text[:KEPT_LINE_CHARACTERS])
        for match in self._log_rules.line(rank, process.name, text, time):
            log.warning("rank %d meets the log rule %s: %s", rank, match.rule, match.line)
            fact = facts.log_rule(self._settings, match, self._step(rank), lines)
            self.outbox.add_fact(fact, time, self._clock.now())
            self.wake_report()
        if self._log_rules.switched_off:
            self._follow_lines()

    def _take_stack(self, message: Mapping[str, Any]) -> None:
        rank, name = int(message["rank"]), read_name(message)
        number, lines = self._stacks.get((rank, name), 0), [str(line) for line in message["lines"]]
        now = self._clock.now()
        self.outbox.add_fact(facts.stack(self._settings, rank, name, number, lines), now, now)
        self.wake_report()

    def _follow_lines(self) -> None:
        """Ask for the ranks' lines only where a rule needs them, and say which rules are off."""
        wanted = not self._log_rules.is_empty
        if wanted != self._following:
            self._following = wanted
            self.send_launcher({"kind": "follow", "lines": wanted})
        for rule, reason in self._log_rules.switched_off.items():
            now = self._clock.now()
            if self.outbox.add_fact(facts.log_rule_off(self._settings, rule, reason), now, now):
                log.error("the log rule %s is off: %s", rule, reason)
                self.wake_report()

    def _take_script(self, message: Mapping[str, Any]) -> None:
        self._set_script(read_script(message))
        self._carry_out()

    def _set_script(self, script: Script) -> None:
        before, self._script = self._script, script
        if script.launch != before.launch:
            self._begin_launch()
        self._endings.training = Training.of(options(script.arguments))
        if script.lost_log and not before.lost_log:
            log.warning("output of the training is not kept where its start script wants it: %s", script.lost_log)
        if script.ended and not before.ended:
            log.info("the start script ended: %s", facts.exit_name(script.exit_code))
            self._script_ended(script)
        self._report_soon()

    def _script_ended(self, script: Script) -> None:
        """An end that only follows those of its ranks waits with them, and the launcher with it."""
        if not self._all_finished() and not script.stopped:
            fact, now = facts.script_ended(self._settings, script, reason=_reason(script)), self._clock.now()
            if self._held:
                fact.unexplained = True
                self._held.hold(fact, now, now)
                return
            self.outbox.add_fact(fact, now, now)
        self.send_launcher({"kind": "seen_end"})

    def _begin_launch(self) -> None:
        """The processes of the launch before were none of the training; what they were called is free again."""
        for processes in (self._processes, self._steps, self._beaten, self._copies, self._refused):
            processes.clear()
        self._lines.clear()
        self._endings, self._unfinished = Endings(), {}

    def _ended_with_zero(self, process: RankProcess) -> None:
        """A process has ended with 0: it has finished its training, or this is a fault of the program."""
        rank, name = process.rank, process.name
        problem = self._endings.verdict(rank, name, process.notices, process.last_step or None, self._load_step(rank))
        if not problem:
            return
        log.error("%s", problem)
        self._unfinished[rank, name] = problem
        fact = facts.not_finished(self._settings, process, self._step(rank), problem)
        if self._endings.may_be_explained(rank, name, process.notices):
            fact.unexplained = True
            self._held.hold(fact, process.changed, self._clock.now())
        else:
            self.outbox.add_fact(fact, process.changed, self._clock.now())

    def _tell_held(self) -> None:
        """Facts whose reason nobody else has told in time."""
        now = self._clock.now()
        for fact, time in self._held.take_due(now):
            if self.outbox.add_fact(fact, time, now):
                self.wake_report()
            if fact.kind == pb.SCRIPT_ENDED:
                self.send_launcher({"kind": "seen_end"})

    def _tells_launch(self) -> bool:
        """All pods launch the same, and what they launch is long: one of them tells."""
        return bool(self._script.entry) and self._settings.node_rank == 0

    def _tell_verdict(self, launch: int) -> None:
        newest = ((process.rank, process.name) for process in self._processes.values())
        problem = next((self._unfinished[one] for one in newest if one in self._unfinished), "")
        self.send_launcher({"kind": "verdict", "launch": launch, "problem": problem})

    def _stepped(self, rank: int, step: int, time: int) -> None:
        """A rank told of a step: the first one of a process tells whether it has loaded what it should."""
        process = self._processes.get(rank)
        if process is None or step < 1 or not self._endings.stepped(rank, process.name, step, time):
            return
        loads = self._load_step(rank)
        if loads is not None and step < loads:
            text = f"rank {rank} trains step {step} after a start that was to load the checkpoint of step {loads}"
            self._not_reloaded(process, step, text)

    def _load_step(self, rank: int) -> int | None:
        """The step of the checkpoint that this start is to load, None: none, or the script does not mean to resume."""
        wanted = self._wanted.get(rank)
        text = wanted.environment.get(LOAD_STEP, "") if wanted is not None else ""
        mends = wanted is not None and wanted.environment.get(RESUME_POLICY) == ARGUMENTS
        return int(text) if text.isdecimal() and (mends or means_to_resume(options(self._script.arguments))) else None

    def _not_reloaded(self, process: RankProcess, step: int | None, text: str) -> None:
        tracker = process.notices.get(endings.NO_TRACKER)
        fact = facts.not_reloaded(self._settings, process, step, f"{text}: {tracker}" if tracker else text)
        if self.outbox.add_fact(fact, self._clock.now(), self._clock.now()):
            log.error("%s", fact.message)
            self.wake_report()

    def _all_finished(self) -> bool:
        return all(self._process_phase(self._processes.get(rank)) == pb.FINISHED for rank in self._settings.local_ranks)

    # ---- the rules

    def _carry_out(self) -> None:
        """Tell the launcher what is missing; harmless when repeated."""
        if self._over:
            self.send_launcher({"kind": "over"})
            return
        can_start = self._script.ready
        for command, wanted in reconcile(self._wanted.values(), self._processes, can_start=can_start):
            named = {"rank": wanted.rank, "incarnation": wanted.name.incarnation, "start": wanted.name.start}
            if command is Command.START:
                self.send_launcher({"kind": "start", **named, "environment": self._environment(wanted)})
            else:
                self.send_launcher({"kind": "end", **named, "gently": command is Command.END})
        self._ask_for_stacks()

    def _environment(self, wanted: Wanted) -> dict[str, str]:
        return rank_environment(wanted, self._settings, meets_here=bool(self._store_address))

    def _ask_for_stacks(self) -> None:
        for wanted in self._wanted.values():
            process, name = (wanted.rank, wanted.name), wanted.name
            if wanted.stacks > self._stacks.get(process, 0) and runs(wanted, self._processes.get(wanted.rank)):
                self._stacks[process] = wanted.stacks
                named = {"rank": wanted.rank, "incarnation": name.incarnation, "start": name.start}
                self.send_launcher({"kind": "stack", **named})

    def tick(self) -> None:
        """About every second: tell what was held, try again what was refused; end the ranks of a silent pod.

        Silent is a pod without a word for `fence_after`.

        A rank that trains, saves or waits for the others has a heartbeat every 2 s, whoever else is away.
        """
        self._tell_held()
        if self._refused and not self._over:
            self._carry_out()
        limit = self._settings.fence_after_seconds * SECOND
        if self._clock.now() - max(self._last_word, self._last_sign) <= limit:
            return
        for process in self._processes.values():
            if process.running and (process.rank, process.name) not in self._fenced:
                log.error(
                    "rank %d is ended: no coordinator, no heartbeat and no step for %d s", process.rank, limit // SECOND
                )
                self._fenced.add((process.rank, process.name))
                name = {"incarnation": process.name.incarnation, "start": process.name.start}
                self.send_launcher({"kind": "end", "rank": process.rank, **name, "gently": False})

    # ---- what the gate asks and tells

    def may_pass(self, rank: int) -> bool:
        """Whether this rank's bytes may pass the gate now."""
        return (
            bool(self._controller_address)
            and not self._over
            and self.lease.is_valid(self._clock.now())
            and is_admitted(self._wanted.get(rank), self._processes.get(rank))
        )

    def is_local(self, rank: int) -> bool:
        """Whether this pod has that rank."""
        return rank in self._settings.local_ranks

    def controller_address(self) -> str:
        """host:port of the MindIO controller, empty while there is none."""
        return self._controller_address

    def may_meet(self) -> bool:
        """Whether processes of this pod may reach the rendezvous store now."""
        return bool(self._store_address) and not self._over and self.lease.is_valid(self._clock.now())

    def store_address(self) -> str:
        """host:port of the rendezvous store, empty while there is none."""
        return self._store_address

    def link_changed(self, rank: int) -> None:
        """A link of this rank was opened, linked or closed."""
        phase = self.link_phase(rank)
        log.info("rank %d: link %s", rank, phase.value)
        if phase is LinkPhase.LINKED:
            self._tls_ranks.discard(rank)
        self._tell_registered(rank)
        self._report_soon()

    def _tell_registered(self, rank: int) -> None:
        """The launch whose ranks reach the gate is the training; the launcher can't see that."""
        if not self._script.training and self.link_phase(rank) is not LinkPhase.NONE:
            self._script = replace(self._script, training=True)
            self.send_launcher({"kind": "registered", "launch": self._script.launch})

    def heartbeat(self, rank: int, step: int | None, *, asked: bool) -> None:
        """The rank lives; its step is the only one that is known where it prints none."""
        now = self._clock.now()
        self._last_sign = now
        if step and step != self._beaten.get(rank):  # 0: none yet by this process, whatever was trained before it
            self._stepped(rank, step, now)
            self._beaten[rank] = step
            self.outbox.add_heartbeat(rank, step, now, at_once=asked)
            if asked:
                self.wake_report()

    def copies(self, rank: int, *, told: bool) -> None:
        """Whether the rank has told MindIO of its optimizer's copies, looked at with each of its heartbeats."""
        before = self._problems()
        self._copies[rank] = told
        if self._problems() != before:
            self._report_soon()

    def tls_spoken(self, rank: int | None) -> None:
        """A process of this pod speaks TLS at the gate."""
        if rank is None:
            self._tls_spoken = True
        else:
            self._tls_ranks.add(rank)
        self._report_soon()

    def _problems(self) -> list[pb.Problem]:
        untold = [rank for rank, told in sorted(self._copies.items()) if not told and (self._step(rank) or 0) >= 1]
        found = [facts.copies_not_registered(untold[0])] if untold else []
        outside = [p.rank for p in self._processes.values() if p.running and self.link_phase(p.rank) is LinkPhase.NONE]
        speaks_tls = self._tls_ranks.union(outside if self._tls_spoken else ())
        return [*found, facts.tls_mismatch(min(speaks_tls), self._settings)] if speaks_tls else found

    def silent(self, rank: int, since: int) -> None:
        """A linked rank says nothing although it could."""
        process = self._processes.get(rank)
        if process is not None and process.running:
            now = self._clock.now()
            fact = facts.heartbeat_silent(self._settings, rank, process.name, since, now)
            if self.outbox.add_fact(fact, since, now):
                log.warning("%s", fact.message)
            self.wake_report()

    def port_taken(self, port: int, problem: OSError) -> None:
        """The gate can't listen on its port."""
        fact = facts.port_taken(self._settings, port, problem)
        if self.outbox.add_fact(fact, self._clock.now(), self._clock.now()):
            log.error("%s", fact.message)
        self.wake_report()

    def checkpoints_seen(self, state: pb.CheckpointState) -> None:
        """A look at the checkpoints has found something new."""
        self._checkpoint = state
        self._report_soon()

    # ---- reports

    def _report_soon(self) -> None:
        self.outbox.touch(self._clock.now())
        self.wake_report()

    def next_report(self, *, with_heartbeat: bool = False) -> pb.AgentReport | None:
        """The report that is due now, None: nothing to say yet. A heartbeat to the coordinator takes more along."""
        now = self._clock.now()
        due = self.outbox.due()
        if (due is None or due > now) and not (with_heartbeat and self.outbox.rides(now)):
            return None
        return self.outbox.take(now, self._state())

    def _state(self) -> pb.AgentReport:
        return pb.AgentReport(
            launcher_ready=self._script.ready,
            ranks=[self._rank_state(rank) for rank in self._settings.local_ranks],
            script_ended=self._script.ended,
            script_exit_code=self._script.exit_code,
            sees_checkpoints=bool(self._settings.checkpoint_directory),
            checkpoint=self._checkpoint,
            problems=self._problems(),
            launched=[self._script.entry, *self._script.arguments] if self._tells_launch() else [],
        )

    def _rank_state(self, rank: int) -> pb.RankState:
        process = self._processes.get(rank)
        if process is None:
            return pb.RankState(rank=rank, phase=pb.ABSENT)
        return pb.RankState(
            rank=rank,
            incarnation=process.name.incarnation,
            start=process.name.start,
            pid=process.pid,
            phase=self._process_phase(process),
            step=self._step(rank),
            error_line=self._error_lines.of(rank, self._step(rank)),
        )

    def _process_phase(self, process: RankProcess | None) -> pb.RankPhase:
        if process is None:
            return pb.ABSENT
        if not process.running:
            if process.exit_code != 0 or process.ordered:
                return pb.DEAD
            if not self._script.training:  # the script may come to its training yet
                return pb.DEAD if self._script.ended else pb.STARTING
            return pb.DEAD if (process.rank, process.name) in self._unfinished else pb.FINISHED
        phases = {LinkPhase.NONE: pb.STARTING, LinkPhase.AT_GATE: pb.AT_GATE, LinkPhase.LINKED: pb.LINKED}
        return phases[self.link_phase(process.rank)]


def _reason(script: Script) -> str:
    """How a script ended that has not brought its training to an end, as "the start script ended ..."."""
    if script.problem:
        return f"by the launcher's hand: {script.problem}"
    if not script.launch:
        return "without calling torchrun or msrun"
    if not script.training:
        return "and no launch of it registered with MindIO, so none was the training"
    return "before its ranks finished"
