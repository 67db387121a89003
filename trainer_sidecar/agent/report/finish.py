"""Whether the training begins and ends as it should, told as facts where it does not.

The exit code does not tell (supervise/endings.py); a rank that nobody here explains is held for a moment
(supervise/unexplained_exits.py).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.agent.clock import Clock
from trainer_sidecar.agent.report import facts
from trainer_sidecar.agent.report.log_watch import Tell
from trainer_sidecar.agent.settings import AgentSettings
from trainer_sidecar.agent.supervise.endings import Endings, Training
from trainer_sidecar.agent.supervise.launcher_messages import Script
from trainer_sidecar.agent.supervise.ranks import RankProcess, Wanted
from trainer_sidecar.agent.supervise.unexplained_exits import UnexplainedExits
from trainer_sidecar.launcher import endings
from trainer_sidecar.launcher.arguments import ARGUMENTS, LOAD_STEP, RESUME_POLICY, means_to_resume, parse_options
from trainer_sidecar.launcher.protocol import ProcessName

log = logging.getLogger(__name__)


class Finish:
    """The newest launch's way from its first step to its end; `seen_end` lets a launcher whose script has ended go."""

    def __init__(self, settings: AgentSettings, clock: Clock, tell: Tell, seen_end: Callable[[], None]) -> None:
        self._settings, self._clock, self._tell, self._seen_end = settings, clock, tell, seen_end
        self._endings = Endings()
        self._unfinished: dict[tuple[int, ProcessName], str] = {}  # ended with 0, and why that is no finish
        self._held = UnexplainedExits()
        self._arguments: Sequence[str] = ()

    def begin_launch(self) -> None:
        """Forget the ends of the launch before: it was none of the training."""
        self._endings, self._unfinished = Endings(), {}

    def set_launch_arguments(self, arguments: Sequence[str]) -> None:
        """Set the arguments of the newest launch."""
        self._arguments = arguments
        self._endings.training = Training.from_options(parse_options(arguments))

    @property
    def is_end_known(self) -> bool:
        """Whether the arguments say when the training ends."""
        return self._endings.training.ends

    def note_known_step(self, process: RankProcess, step: int, time: int) -> None:
        """Note a step that the launcher knows of a process, before the end of the process is evaluated."""
        self._endings.note_step(process.rank, process.name, step, time)

    def check_step(self, process: RankProcess, wanted: Wanted | None, step: int, time: int) -> None:
        """Note a step of a process; its first one shows whether it has loaded what it should."""
        if step < 1 or not self._endings.note_step(process.rank, process.name, step, time):
            return
        loads = self._step_to_load(wanted)
        if loads is not None and step < loads:
            text = f"rank {process.rank} trains step {step} although it was started from the checkpoint of step {loads}"
            self._report_not_reloaded(process, step, text)

    def check_tracker_notice(self, process: RankProcess, wanted: Wanted | None) -> None:
        """Report a process that was to load a checkpoint and says that it finds none."""
        if endings.NO_TRACKER in process.notices and self._step_to_load(wanted):
            text = f"rank {process.rank} finds no checkpoint although it was started to load one"
            self._report_not_reloaded(process, None, text)

    def _step_to_load(self, wanted: Wanted | None) -> int | None:
        """The step of the checkpoint that this start is to load, None: none, or the script does not mean to resume."""
        mends = wanted is not None and wanted.environment.get(RESUME_POLICY) == ARGUMENTS
        return _given_step(wanted) if mends or means_to_resume(parse_options(self._arguments)) else None

    def has_failed_to_load(self, process: RankProcess, wanted: Wanted | None) -> bool:
        """Return whether a process ended before its first step and says that it could not load its checkpoint.

        Arguments that name no directory, as MindFormers' with its configuration file, tell nothing of what it loads:
        then it is the checkpoint that the start was given.
        """
        is_untold = not parse_options(self._arguments).keys() & {"save", "load"}
        loads = _given_step(wanted) if is_untold else self._step_to_load(wanted)
        if loads is None or self._endings.has_stepped(process.rank, process.name):
            return False
        return endings.NOT_LOADED in process.notices or any(map(endings.names_loading_function, process.last_lines))

    def _report_not_reloaded(self, process: RankProcess, step: int | None, text: str) -> None:
        tracker = process.notices.get(endings.NO_TRACKER)
        fact = facts.not_reloaded_fact(self._settings, process, step, f"{text}: {tracker}" if tracker else text)
        if self._tell(fact, None):
            log.error("%s", fact.message)

    def handle_zero_exit(
        self, process: RankProcess, wanted: Wanted | None, step: int | None, *, only_prints: bool = False
    ) -> None:
        """Decide whether a process that has ended with 0 has finished the training; else report its program's fault.

        `only_prints`: no heartbeat tells its steps.
        """
        rank, name, loads = process.rank, process.name, self._step_to_load(wanted)
        untold = self._untold_steps(rank, name) if only_prints else 0
        target = process.last_step or None
        problem = self._endings.why_unfinished(rank, name, process.notices, target, loads=loads, untold=untold)
        if not problem:
            return
        log.error("%s", problem)
        self._unfinished[rank, name] = problem
        fact = facts.not_finished_fact(self._settings, process, step, problem)
        fact.load_failed = self.has_failed_to_load(process, wanted)
        if self._endings.may_be_explained(rank, name, process.notices):
            fact.unexplained = True
            self._held.hold_fact(fact, process.changed, self._clock.now())
        else:
            self._tell(fact, process.changed)

    def _untold_steps(self, rank: int, name: ProcessName) -> float:
        """Steps that may have followed the newest printed one; of Megatron's ranks the last one alone prints any."""
        prints = rank == self._settings.world_size - 1 or self._endings.has_stepped(rank, name)
        return self._endings.training.log_interval - 1 if prints else math.inf

    def handle_ended_script(self, script: Script, *, finished: bool) -> None:
        """Note the end of the start script, and report it as a fault where ranks are unfinished.

        If facts of its ranks are held back, the end only follows theirs. It is held back with them, and the launcher
        waits.
        """
        if not finished and not script.stopped:
            fact, now = (
                facts.script_ended_fact(self._settings, script, reason=_reason_of_script_end(script)),
                self._clock.now(),
            )
            if self._held:
                fact.unexplained = True
                self._held.hold_fact(fact, now, now)
                return
            self._tell(fact, now)
        self._seen_end()

    def report_due_facts(self) -> None:
        """Report held facts for which nobody else has told a reason in time."""
        for fact, time in self._held.take_due_facts(self._clock.now()):
            self._tell(fact, time)
            if fact.kind == pb.SCRIPT_ENDED:
                self._seen_end()

    def is_process_unfinished(self, process: RankProcess) -> bool:
        """Return whether the process has ended with 0 without finishing the training."""
        return (process.rank, process.name) in self._unfinished

    def last_training_step(self, newest: Iterable[RankProcess]) -> int:
        """Return the step that the training is to reach, by its arguments or a rank's lines; 0: not known."""
        return self._endings.training.last_step or max((process.last_step for process in newest), default=0)

    def why_unfinished(self, newest: Iterable[RankProcess]) -> str:
        """Return why these processes, which have all ended with 0, have not finished; empty when they have."""
        return next((self._unfinished[p.rank, p.name] for p in newest if self.is_process_unfinished(p)), "")


def _given_step(wanted: Wanted | None) -> int | None:
    """The step of the checkpoint that this start was given, None: none."""
    text = wanted.environment.get(LOAD_STEP, "") if wanted is not None else ""
    return int(text) if text.isdecimal() else None


def _reason_of_script_end(script: Script) -> str:
    """How a script ended that has not brought its training to an end, as "the start script ended ..."."""
    if script.problem:
        return f"because the launcher ended it: {script.problem}"
    if not script.launch:
        return "without calling torchrun or msrun"
    if not script.training:
        return "and no launch of it registered with MindIO, so none was the training"
    return "before its ranks finished"
