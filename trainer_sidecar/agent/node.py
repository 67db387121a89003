"""State of this agent, and every rule that connects orders, processes, links and reports.

No input or output happens here: messages of the launcher and the coordinator come in, commands go out through ports,
and a fake clock can stand behind all of it. Every change wakes the report, and the gate if it may open it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hajob.domain.facts import CONTAINER_KILLED, CONTAINER_STOPPED
from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.agent.clock import Clock
from trainer_sidecar.agent.gate import frames
from trainer_sidecar.agent.gate.lease import Lease
from trainer_sidecar.agent.gate.rules import LinkPhase
from trainer_sidecar.agent.report import facts
from trainer_sidecar.agent.report.finish import Finish
from trainer_sidecar.agent.report.foreign_connections import ForeignConnections
from trainer_sidecar.agent.report.log_watch import LogWatch
from trainer_sidecar.agent.report.outbox import GATHERED, Outbox
from trainer_sidecar.agent.report.ports import AgentPorts
from trainer_sidecar.agent.report.protection import Protection
from trainer_sidecar.agent.report.rank_tables import RankTables
from trainer_sidecar.agent.settings import CHECKPOINT_DIRECTORY, AgentSettings
from trainer_sidecar.agent.supervise.environment import rank_environment, script_environment
from trainer_sidecar.agent.supervise.fence import Fence
from trainer_sidecar.agent.supervise.launcher_messages import Script, read_process, read_script
from trainer_sidecar.agent.supervise.orders import Orders
from trainer_sidecar.agent.supervise.processes import Processes
from trainer_sidecar.agent.supervise.ranks import Command, RankProcess, Wanted, commands_to_reconcile, is_admitted
from trainer_sidecar.launcher.protocol import ProcessName, read_process_name

log = logging.getLogger(__name__)

# What a process that SIGKILL has ended returns: nobody is left to tell how ranks of a killed container really ended.
KILLED = -9


class Node:
    """State and rules of one rank pod."""

    def __init__(self, settings: AgentSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self.ports = AgentPorts()
        self.lease = Lease()
        self.outbox = Outbox()
        self._orders = Orders(settings)
        self._processes = Processes()
        self._script = Script()
        self._ends_with = ""  # code of what ends this container, and its processes with it
        self._logs = LogWatch(settings, self.ports, self._report_fact)
        self._finish = Finish(settings, clock, self._report_fact, self._let_launcher_go)
        self._protection = Protection(settings, self._processes, self.ports)
        self._foreign = ForeignConnections(settings)
        self._fence = Fence(settings.fence_after_seconds, clock.now())
        self._tables = RankTables(self.ports, is_wanted=settings.rank_table is not None)
        self._checkpoint: pb.CheckpointState | None = None
        self._volume_problems: Sequence[pb.Problem] = ()
        self._sign = 0  # when something below the launcher was last seen to compute or print; 0: never

    def _let_launcher_go(self) -> None:
        self.ports.send_launcher({"kind": "seen_end"})

    # ---- from the coordinator

    def begin_conversation(self, *, higher_fence: bool) -> None:
        """Begin with an accepted stream of a coordinator."""
        self.lease.begin_conversation(is_kept=not higher_fence)
        self._orders.begin_stream()
        self._fence.note_coordinator_message(self._clock.now())
        self.outbox.begin_stream(self._clock.now())
        self.ports.begin_controller_lines()

    def apply_coordinator_message(self, message: pb.CoordinatorToAgent) -> None:
        """Take a message of the accepted coordinator."""
        self._fence.note_coordinator_message(self._clock.now())
        body = message.WhichOneof("body")
        if body == "lease_grant":
            if self.lease.apply_grant(message.lease_grant.heartbeat, message.lease_grant.lease_milliseconds):
                self.ports.wake_gate()
            if message.lease_grant.acknowledged:
                self.outbox.acknowledge_reports(message.lease_grant.acknowledged)
        elif body == "node_order":
            self._apply_order(message.node_order)
        elif body == "acknowledge":
            self.outbox.acknowledge_reports(message.acknowledge.sequence)
        elif body == "controller":
            self.ports.apply_controller_line(message.controller)
        elif body == "rank_table":
            self._tables.take_table(message.rank_table)
            self._reconcile_processes()
            self._report_state()
        else:
            log.warning("a message of the coordinator is not understood: %s", body)

    def _apply_order(self, order: pb.NodeOrder) -> None:
        if not self._orders.apply_order(order):
            return
        self._declare_training_without_mindio()
        self._logs.set_log_rules(order.log_rules)
        self.ports.look_at_checkpoints(order.checkpoint if order.HasField("checkpoint") and not order.over else None)
        self._reconcile_processes()
        self._report_state()
        self.ports.wake_gate()

    # ---- from the launcher

    def apply_launcher_message(self, message: Mapping[str, Any]) -> None:
        """Take a message of the launcher (docs/protocols/launcher.md). KeyError, TypeError, ValueError: malformed."""
        kind = message["kind"]
        if kind == "rank":
            self._apply_process_message(message)
        elif kind == "steps":
            for rank, step, time in message["steps"]:
                self._apply_printed_step(int(rank), int(step), int(time))
            self.ports.wake_report()
        elif kind == "line":
            self._apply_printed_line(int(message["rank"]), str(message["text"]), int(message["time"]))
        elif kind == "stack":
            self._report_stack(
                int(message["rank"]), read_process_name(message), [str(line) for line in message["lines"]]
            )
        elif kind == "script":
            self._update_script(read_script(message))
            self._reconcile_processes()
        elif kind == "complete":
            self._logs.handle_connected_launcher()
            self._reconcile_processes()
        elif kind == "all_ended":
            problem, training = self._finish.why_unfinished(self._processes.newest.values()), self._script.training
            answer = {"launch": int(message["launch"]), "problem": problem, "training": training}
            self.ports.send_launcher({"kind": "verdict", **answer})
        else:
            self._apply_rare_message(kind, message)

    def _apply_rare_message(self, kind: str, message: Mapping[str, Any]) -> None:
        if kind == "refused":
            self._processes.note_refused_start(int(message["rank"]), str(message["reason"]))
        elif kind == "sign":
            self._sign = max(self._sign, int(message["time"]))
            if not self._processes.has_trained():  # afterwards steps tell
                self._report_state()
        elif kind != "launcher":
            log.warning("a message of the launcher is not understood: %s", kind)

    def handle_lost_launcher(self) -> None:
        """Handle the closed socket: a launcher closes it only by ending, and no rank outlives it."""
        end: dict[str, Any] = {"exit_code": KILLED, "last_lines": (facts.ENDED_WITH_CONTAINER[CONTAINER_KILLED],)}
        running = self._processes.running_processes()
        self._ends_with = self._ends_with or CONTAINER_KILLED
        for process in running:
            self._update_process(replace(process, running=False, changed=self._clock.now(), **end))
        if not self._script.ended:  # its ranks have told of the same already
            stopped = self._script.stopped or bool(running)
            self._update_script(replace(self._script, ready=False, ended=True, stopped=stopped, **end))

    def _apply_process_message(self, message: Mapping[str, Any]) -> None:
        process = read_process(message)
        self._settings.identity.name_pod(process.rank // self._settings.ranks_per_node, process.name.incarnation)
        step, time = int(message["step"]), int(message["step_time"])
        if step >= 0:
            self._finish.note_known_step(process, step, time)
            self._declare_training_without_mindio(has_trained=True)
        self._update_process(process)
        self._finish.check_tracker_notice(process, self._orders.wanted.get(process.rank))
        if step >= 0 and not self._processes.has_printed_step(process.rank):
            self._apply_printed_step(process.rank, step, time)
        self._reconcile_processes()

    def _update_process(self, process: RankProcess) -> None:
        before = self._processes.newest.get(process.rank)
        if not self._processes.update_process(process):
            return
        self._logs.note_started_process(process)
        was_running = before is None or before.running or before.name != process.name
        if not process.running and was_running:
            self._handle_ended_process(process)
        self._report_state()
        self.ports.wake_gate()

    def _handle_ended_process(self, process: RankProcess) -> None:
        self._logs.forget_ended_process(process)
        self.ports.end_links(process.rank)
        self._protection.forget_ended_rank(process.rank)
        step = self._processes.last_finished_step(process.rank)
        if process.exit_code == 0 and not process.ordered and self._script.training:
            wanted, alone = self._orders.wanted.get(process.rank), self._is_without_mindio
            self._finish.handle_zero_exit(process, wanted, step, only_prints=alone)
        fenced = self._fence.has_ended_process(process)
        if process.exit_code != 0 and (fenced or not process.ordered):
            log.warning(
                "rank %d (process %d) ended: %s", process.rank, process.pid, facts.name_of_exit_code(process.exit_code)
            )
            if self._ends_with and not fenced:
                fact = facts.ended_with_container_fact(self._settings, process, step, self._ends_with)
            else:
                fact = facts.process_exited_fact(self._settings, process, step)
                wanted = self._orders.wanted.get(process.rank)
                fact.load_failed = process.exit_code > 0 and self._finish.has_failed_to_load(process, wanted)
            if fenced:
                fact.message = f"ended by the agent: no coordinator for {self._settings.fence_after_seconds} s"
            self._report_fact(fact, process.changed)

    def _apply_printed_step(self, rank: int, step: int, time: int) -> None:
        self._processes.note_printed_step(rank, step)
        self._declare_training_without_mindio()
        self._check_finished_step(rank, step, time)
        self._fence.note_rank_sign(time)
        self.outbox.add_step(rank, step, time, self._clock.now())

    def _check_finished_step(self, rank: int, step: int, time: int) -> None:
        process = self._processes.newest.get(rank)
        if process is not None:
            self._finish.check_step(process, self._orders.wanted.get(rank), step, time)

    def _apply_printed_line(self, rank: int, text: str, time: int) -> None:
        process = self._processes.newest.get(rank)
        if process is not None and self._logs.match_line(process, self._processes.last_finished_step(rank), text, time):
            self._report_state()

    def _report_stack(self, rank: int, name: ProcessName, lines: list[str]) -> None:
        self._report_fact(facts.stack_fact(self._settings, rank, name, self._processes.stack_number(rank, name), lines))

    def _update_script(self, script: Script) -> None:
        before, self._script = self._script, script
        if script.launch != before.launch:
            for part in (self._processes, self._logs, self._protection, self._finish):
                part.begin_launch()
        self._finish.set_launch_arguments(script.arguments)
        self._declare_training_without_mindio()
        self._ends_with = CONTAINER_STOPPED if script.stopped else ""
        if script.lost_log and not before.lost_log:
            log.warning("output of the training is not kept where its start script wants it: %s", script.lost_log)
        if script.ended and not before.ended:
            log.info("the start script ended: %s", facts.name_of_exit_code(script.exit_code))
            phases = [self._process_phase(self._processes.newest.get(rank)) for rank in self._settings.local_ranks]
            self._finish.handle_ended_script(script, finished=set(phases) == {pb.FINISHED})
        self._report_state()

    # ---- the rules

    def _reconcile_processes(self) -> None:
        """Send the launcher the missing commands; harmless when repeated."""
        if self._orders.over:
            self.ports.send_launcher({"kind": "over"})
            return
        wanted = self._orders.wanted.values()
        can_start = self._script.ready and self._tables.has_table_to_start(self._orders.rank_table)
        for command, one in commands_to_reconcile(wanted, self._processes.newest, can_start=can_start):
            if command is Command.START:
                environment = self._start_environment(one)
                self._send_command("start", one.rank, one.name, environment=environment)
            else:
                self._send_command("end", one.rank, one.name, gently=command is Command.END)
        for one in wanted:
            if self._processes.is_stack_due(one):
                self._send_command("stack", one.rank, one.name)

    def _start_environment(self, wanted: Wanted) -> dict[str, str]:
        """The variables with which a rank's process is started, or the script that starts all of the pod."""
        if self._settings.is_followed:
            return script_environment(wanted, self._settings)
        return rank_environment(wanted, self._settings, meets_here=bool(self._orders.store_address))

    def _send_command(self, kind: str, rank: int, name: ProcessName, **more: object) -> None:
        """Send a command about one process."""
        named = {"kind": kind, "rank": rank, "incarnation": name.incarnation, "start": name.start}
        self.ports.send_launcher({**named, **more})

    def tick_every_second(self) -> None:
        """Report held facts, repeat refused commands, and end the ranks of a pod left alone.

        The agent calls it about every second.
        """
        self._finish.report_due_facts()
        if self._tables.write_again():
            self._reconcile_processes()
            self._report_state()
        if self._processes.refused and not self._orders.over:
            self._reconcile_processes()
        for process in self._fence.processes_to_end(self._clock.now(), self._processes.running_processes()):
            self._send_command("end", process.rank, process.name, gently=False)

    # ---- what the gate asks and tells

    def may_pass(self, rank: int) -> bool:
        """Return whether this rank's bytes may pass the gate now."""
        admitted = is_admitted(self._orders.wanted.get(rank), self._processes.newest.get(rank))
        return admitted and self._may_reach_server(self._orders.controller_address)

    def may_answer_for_dead(self) -> bool:
        """Return whether the gate may answer MindIO for a rank of this pod that has died."""
        return self._may_reach_server(self._orders.controller_address)

    def may_reach_store(self) -> bool:
        """Return whether processes of this pod may reach the rendezvous store now."""
        return not self._orders.store_held and self._may_reach_server(self._orders.store_address)

    def _may_reach_server(self, address: str) -> bool:
        return bool(address) and not self._orders.over and self.lease.is_valid(self._clock.now())

    def is_local(self, rank: int) -> bool:
        """Return whether this pod has that rank."""
        return rank in self._settings.local_ranks

    def controller_address(self) -> str:
        """Return host:port of the MindIO controller, empty while there is none."""
        return self._orders.controller_address

    def controller_name(self) -> str:
        """Return the name of that controller process, empty: not told."""
        return self._orders.controller

    def process_name(self, rank: int) -> str:
        """Return the name of the rank's present process."""
        process = self._processes.newest.get(rank)
        return f"{process.name.incarnation}.{process.name.start}" if process is not None else ""

    def is_incarnation_over(self) -> bool:
        """Return whether this pod's ranks are to end."""
        return self._orders.over

    def is_already_repaired(self) -> bool:
        """Return whether repairs that ranks made for a former controller must not be repeated."""
        return self._orders.repaired

    def missed_action_of(self, rank: int) -> frames.Message | None:
        """Return the action that the former controller gave to other ranks and not to this one; None: nothing."""
        orders = self._orders
        wanted = rank in orders.word_for and not orders.over and self.lease.is_valid(self._clock.now())
        return frames.parse_action(orders.word) if wanted else None

    def steps_ahead(self) -> int:
        """Return how many steps more MindIO is told where it asks how far the ranks are."""
        return self._orders.steps_ahead

    def ranks_to_stand_in_for(self) -> frozenset[int]:
        """Return the ranks without a process that the controller may be told of now."""
        reach = self._may_reach_server(self._orders.controller_address)
        return self._orders.stand_ins if reach else frozenset()

    def store_address(self) -> str:
        """Return host:port of the rendezvous store, empty while there is none."""
        return self._orders.store_address

    def store_name(self) -> str:
        """Return the name of that store, empty: not told."""
        return self._orders.store

    def is_store_kept(self) -> bool:
        """Return whether the store was filled with the content of the store before it."""
        return self._orders.store_kept

    def wanted_store_content(self) -> str:
        """Return the word by which the coordinator requests the store's content; empty: it does not."""
        return self._orders.store_wanted

    def note_link_change(self, rank: int) -> None:
        """Note that a link of this rank was opened, linked or closed, or that the controller knows the rank now."""
        phase = self.ports.link_phase(rank)
        log.info("rank %d: link %s", rank, phase.value)
        if phase is LinkPhase.LINKED:
            self._protection.note_linked_rank(rank)
        if phase is not LinkPhase.NONE:
            self._declare_training()
        self._report_state()

    def _declare_training_without_mindio(self, *, has_trained: bool = False) -> None:
        """Without MindIO the launch is the training that has ended a step, or says at which one it ends."""
        if not self._script.launch or not self._is_without_mindio:
            return
        if has_trained or self._processes.has_trained() or self._finish.is_end_known:
            self._declare_training()

    @property
    def _is_without_mindio(self) -> bool:
        """Whether the ranks register with nobody; the launcher knows it, too, for an agent that has no order yet."""
        return self._orders.without_mindio or self._script.without_mindio

    def _declare_training(self) -> None:
        """Tell the launcher, which can see neither links nor orders, that the newest launch is the training."""
        if not self._script.training:
            self._script = replace(self._script, training=True)
            self.ports.send_launcher({"kind": "registered", "launch": self._script.launch})

    def apply_heartbeat(self, rank: int, step: int | None, *, asked: bool) -> None:
        """Take a heartbeat; its step is the only one known if the rank prints none."""
        now = self._clock.now()
        self._fence.note_rank_sign(now)
        if not step:  # 0: none yet by this process, whatever was trained before it
            return
        is_news = self._processes.note_heartbeat_step(rank, step)
        if is_news:
            self._check_finished_step(rank, step, now)
        if is_news or asked:  # at a stop the old step is an answer, too: the rank has not finished the next one
            due = (now if is_news else now + GATHERED) if asked else None
            self.outbox.add_heartbeat(rank, step, now, due=due)
        if asked:
            self.ports.wake_report()

    def note_optimizer_copies(self, rank: int, *, told: bool) -> None:
        """Note, at each of its heartbeats, whether the rank has told MindIO of its optimizer copies."""
        if self._protection.note_optimizer_copies(rank, told=told):
            self._report_state()

    def report_tls(self, rank: int | None) -> None:
        """Report that a process of this pod speaks TLS at the gate."""
        self._protection.note_tls(rank)
        self._report_state()

    def report_silent_rank(self, rank: int, since: int) -> None:
        """Report a linked rank that sends nothing although it could."""
        process = self._processes.newest.get(rank)
        if process is not None and process.running:
            fact = facts.heartbeat_silent_fact(self._settings, rank, process.name, since, self._clock.now())
            if self._report_fact(fact, since):
                log.warning("%s", fact.message)

    def report_taken_port(self, port: int, problem: OSError) -> None:
        """Report that the gate can't listen on its port."""
        fact = facts.port_taken_fact(self._settings, port, problem)
        if self._report_fact(fact):
            log.error("%s", fact.message)

    def report_foreign_connection(self, port: int, host: str) -> None:
        """Report a held connection from outside of this pod."""
        if self._foreign.count_connection(port, host):
            self._report_state()

    def report_checkpoints(self, state: pb.CheckpointState, problems: Sequence[pb.Problem]) -> None:
        """Report a changed state of the checkpoints, and what is wrong with their volume."""
        self._checkpoint, self._volume_problems = state, problems
        self._report_state()

    # ---- reports

    def _report_fact(self, fact: pb.Fact, time: int | None = None) -> bool:
        """Report a fact that happened at `time`, None: now; False: it was reported before."""
        now = self._clock.now()
        is_new = self.outbox.add_fact(fact, now if time is None else time, now)
        if is_new:
            self.ports.wake_report()
        return is_new

    def _report_state(self) -> None:
        self.outbox.report_state_at_once(self._clock.now())
        self.ports.wake_report()

    def next_report(self, *, with_heartbeat: bool = False) -> pb.AgentReport | None:
        """Return the report that is due now, None: nothing to report. A heartbeat to the coordinator carries more."""
        now = self._clock.now()
        due = self.outbox.next_report_time()
        if (due is None or due > now) and not (with_heartbeat and self.outbox.has_steps_for_heartbeat(now)):
            return None
        return self.outbox.take_report(now, self._state_report())

    def _state_report(self) -> pb.AgentReport:
        script = self._script
        tells_all = self._settings.node_rank == 0  # what is the same for all, and long
        return pb.AgentReport(
            launcher_ready=script.ready,
            ranks=[self._rank_state(rank) for rank in self._settings.local_ranks],
            script_ended=script.ended,
            sees_checkpoints=bool(self._settings.checkpoint_directory),
            checkpoint=self._checkpoint,
            problems=[
                *self._protection.protection_problems(),
                *self._foreign.connection_problems(),
                *self._logs.log_rule_problems(),
                *self._table_problems(),
                *self._volume_problems,
            ],
            strangers=self._foreign.number,
            launched=[script.entry, *map(self._with_directory_variable, script.arguments)]
            if tells_all and script.entry
            else [],
            environment=self._orders.rank_environment if tells_all else {},
            sign_age_nanoseconds=max(0, self._clock.now() - self._sign) if self._sign else None,
            last_step=self._finish.last_training_step(self._processes.newest.values()) if script.training else 0,
            gate=self.ports.gate_state(),
        )

    def _table_problems(self) -> list[pb.Problem]:
        why = self._tables.problem
        return [facts.table_not_written_problem(self._settings, why)] if why else []

    def _with_directory_variable(self, argument: str) -> str:
        """Name the job's checkpoint directory by its variable: where a container sees it is the node's affair."""
        name, equals, value = argument.rpartition("=")
        directory = self._settings.checkpoint_directory.rstrip("/")
        is_it = bool(directory) and value.rstrip("/") == directory
        return f"{name}{equals}${CHECKPOINT_DIRECTORY}" if is_it else argument

    def _rank_state(self, rank: int) -> pb.RankState:
        process = self._processes.newest.get(rank)
        if process is None:
            return pb.RankState(rank=rank, phase=pb.ABSENT)
        return pb.RankState(
            rank=rank,
            incarnation=process.name.incarnation,
            start=process.name.start,
            pid=process.pid,
            phase=self._process_phase(process),
            step=self._processes.last_finished_step(rank),
            error_line=self._processes.error_line(rank),
        )

    def _phase_after_other_launches(self) -> pb.RankPhase:
        """Return the phase of ranks that ended with 0 in a launch that nothing shows to be the training.

        Without MindIO the last launch of a script that ends with 0 was it.
        """
        script = self._script
        if not script.ended:
            return pb.STARTING
        last = self._is_without_mindio and script.exit_code == 0 and not (script.stopped or script.problem)
        return pb.FINISHED if last else pb.DEAD

    def _process_phase(self, process: RankProcess | None) -> pb.RankPhase:
        if process is None:
            return pb.ABSENT
        if not process.running:
            if process.exit_code != 0 or process.ordered:
                return pb.DEAD
            if not self._script.training:  # the script may come to its training yet
                return self._phase_after_other_launches()
            return pb.DEAD if self._finish.is_process_unfinished(process) else pb.FINISHED
        phases = {LinkPhase.NONE: pb.STARTING, LinkPhase.AT_GATE: pb.AT_GATE, LinkPhase.LINKED: pb.LINKED}
        return phases[self.ports.link_phase(process.rank)]
