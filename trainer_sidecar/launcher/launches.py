"""The launches of a start script: which of them is the training, and how each ends.

A script may convert weights before the training and evaluate after it, each by a launcher. The training is the launch
whose ranks register with MindIO; a launch whose ranks all end with 0 and of which none has registered was not the
training, and the script goes on to the next. docs/protocols/launcher.md#launches
"""

from __future__ import annotations

from typing import Callable, List, NamedTuple

from . import mindformers, output, program, protocol, ranks
from .clients import Clients

# The script waits for it; the thread that writes is done within a millisecond or two.
OUTPUT_WAIT_SECONDS = 0.005
OUTPUT_WAITS = 400  # 2 s in all


class Launch:
    """One call of a shim that starts this pod's ranks."""

    def __init__(self, number: int, call: program.ShimCall, what: program.Program, shim: protocol.Connection) -> None:
        self.number = number
        self.tool = call.tool
        self.program = what
        self.shim: protocol.Connection | None = shim
        self.passed: List[output.Descriptor] = []
        self.target = ranks.Target(output.Descriptor(1).write_all, output.Descriptor(2).write_all)
        self.is_training = False
        self.without_mindio = False  # none of its ranks will register
        self.concluded = False
        self.finished = False  # the training has ended
        self.waits_for_verdict = False
        self.mended_for = ""  # the attempt whose changed arguments were reported

    def set_output(self, descriptors: List[int], is_ours: Callable[[int], bool]) -> None:
        """Print to the shim's stdout and stderr, unless they are the script's own, which are passed on anyway."""
        targets = [output.Descriptor(1), output.Descriptor(2)]
        for index, passed in enumerate(descriptors[:2]):
            self.passed.append(output.Descriptor(passed, targets[index]))
            if not is_ours(passed):
                targets[index] = self.passed[-1]
        if not self.program.detached:  # a call that returns at once leaves no reader
            self.target = ranks.Target(targets[0].write_all, targets[1].write_all)


class LaunchLimits(NamedTuple):
    """The limits that decide when a launch is over."""

    ranks_per_node: int  # ranks that must finish
    ordered_end_seconds: float  # wait for a new start after the last ranks were ended by order


class Launches:
    """The newest launch, from its call to its end.

    Calls `changed` when the agent must be told, `goes_on` when the start script goes on after a launch.
    """

    def __init__(
        self,
        processes: ranks.Ranks,
        clients: Clients,
        limits: LaunchLimits,
        *,
        changed: Callable[[], None],
        goes_on: Callable[[], None],
    ) -> None:
        self._ranks, self._loop, self._terminal = processes, processes.loop, processes.terminal
        self._clients, self._limits = clients, limits
        self._changed, self._goes_on = changed, goes_on
        self.current: Launch | None = None  # also when the newest was not the training
        self.number = 0  # number of launches so far
        self.was_last_in_order = False  # the newest has ended with 0, and without MindIO it may have been the training

    @property
    def is_training(self) -> bool:
        """Whether ranks of the newest launch have registered with MindIO."""
        return self.current is not None and self.current.is_training

    @property
    def is_without_mindio(self) -> bool:
        """Whether the ranks of the newest launch were started to train without MindIO."""
        return self.current.without_mindio if self.current is not None else self.was_last_in_order

    @property
    def is_finished(self) -> bool:
        """Whether the training has ended."""
        return self.current is not None and self.current.finished

    @property
    def is_open(self) -> bool:
        """Whether there is a launch whose ranks may be started."""
        return self.current is not None and not self.current.concluded

    @property
    def goes_on_alone(self) -> bool:
        """Whether a launch goes on after the script's end: in its background, or because the call returned at once."""
        launch = self.current
        return launch is not None and self.is_open and (launch.shim is not None or launch.program.detached)

    def begin_launch(
        self, call: program.ShimCall, what: program.Program, shim: protocol.Connection, is_ours: Callable[[int], bool]
    ) -> None:
        """Take a shim's launch of the ranks; `is_ours`: whether a descriptor is the script's own output."""
        self.number += 1
        self.was_last_in_order = False
        launch = self.current = Launch(self.number, call, what, shim)
        launch.set_output(shim.take_descriptors(), is_ours)
        for note in what.notes:
            self._clients.send_message(shim, {"kind": "say", "text": note})
        self._changed()
        if what.detached:
            self._release_shim(launch)

    def mark_as_training(self, number: int) -> None:
        """Note that a rank has registered with MindIO, or trains without it: this launch is the training."""
        if self.current is not None and self.current.number == number and not self.is_training:
            self.current.is_training = True
            self._changed()

    def handle_closed_shim(self, connection: protocol.Connection, *, expected: bool) -> None:
        """Handle a closed connection; `expected`: the script, or the whole pod, is being ended."""
        launch = self.current
        if launch is None or connection is not launch.shim:
            return
        launch.shim = None
        if not launch.concluded and not expected:
            self._terminal.print_message("{} was ended by the script; its ranks are ended, too".format(launch.tool))
            launch.concluded = True
            self._ranks.end_all_processes(gently=False, ordered=False)
            self._changed()
            self._goes_on()
        self._close_output(launch)

    def _close_output(self, launch: Launch) -> None:
        """Close the shim's output, because its reader waits for the end."""
        for passed in launch.passed:
            self._terminal.call_in_order(passed.close)

    def _release_shim(self, launch: Launch) -> None:
        """Have the shim exit with 0."""
        if launch.shim is not None:
            shim, launch.shim = launch.shim, None
            self._clients.send_message(shim, {"kind": "outcome", "exit_code": 0})
            self._close_output(launch)

    def handle_ended_rank(self) -> None:
        """Let the script go on when all ranks of this pod have finished."""
        self._clients.read_agent_messages()  # it may have reported a registration just now
        newest = self._ranks.newest_processes()
        finished = [rank for rank in newest if rank.is_finished]
        if len(finished) == self._limits.ranks_per_node:
            self._conclude_launch()
        elif finished and all(rank.is_finished or (rank.ordered and not rank.running) for rank in newest):
            self._loop.call_after(self._limits.ordered_end_seconds, lambda: self._conclude_unless_started(newest))

    def _conclude_unless_started(self, newest: List[ranks.Rank]) -> None:
        """Conclude the launch if its last ranks ended by order after others finished, without a new start since."""
        if self._ranks.newest_processes() == newest:
            self._conclude_launch()

    def _conclude_launch(self) -> None:
        launch = self.current
        if launch is None or launch.concluded:
            return
        if launch.is_training or launch.without_mindio:
            self._ask_for_verdict(launch)
        else:
            self._drop_launch(launch, "its ranks never registered with MindIO: it was not the training")

    def _drop_launch(self, launch: Launch, why: str) -> None:
        """Go on to the next launch: nothing shows that this one was the training."""
        self._terminal.print_message("{} has ended with 0 and {}".format(launch.program.script, why))
        self.was_last_in_order = launch.without_mindio
        self._ranks.forget_processes()
        self.current = None
        self._changed()
        self._let_script_go_on(launch, OUTPUT_WAITS)

    def _ask_for_verdict(self, launch: Launch) -> None:
        """Ask the agent, which knows it from heartbeats, whether the ranks have trained to the end.

        Nothing goes on without its answer: the container's 0 says that the training has finished, and is believed.
        """
        if not launch.waits_for_verdict:
            launch.waits_for_verdict = True
            self.repeat_question()

    def repeat_question(self) -> None:
        """Ask an agent that may not have heard the question."""
        if self.current is not None and self.current.waits_for_verdict:
            self._clients.tell_agent({"kind": "all_ended", "launch": self.current.number})

    def apply_verdict(self, number: int, problem: str, *, training: bool) -> None:
        """Take the agent's verdict on ranks that all ended with 0; `problem`: why the training is not at its end.

        `training`: this launch is the training.
        """
        launch = self.current
        if launch is None or launch.number != number or not launch.waits_for_verdict:
            return
        launch.waits_for_verdict = False
        if problem:  # the ranks will be started again, or the pod is deleted
            self._terminal.print_message("the training has not finished: {}".format(problem))
        elif not self._ranks.running_processes() and training:
            self._finish_training(launch)
        elif not training:
            self._drop_launch(launch, "printed no step: it was the training if no other launch follows")

    def _finish_training(self, launch: Launch) -> None:
        launch.concluded = launch.finished = True
        self._changed()
        self._let_script_go_on(launch, OUTPUT_WAITS)

    def _let_script_go_on(self, launch: Launch, waits: int) -> None:
        """Release the shim, after the ranks' output has been written: the script may read it next."""
        if waits > 0 and not self._ranks.wait_until_written(0.0):
            self._loop.call_after(OUTPUT_WAIT_SECONDS, lambda: self._let_script_go_on(launch, waits - 1))
            return
        self._release_shim(launch)
        self._goes_on()


class Decision(NamedTuple):
    """Decision on a call: start the ranks of `program`; None: run the call as it is; `note` says why."""

    program: program.Program | None
    note: str = ""


def decide_on_call(call: program.ShimCall, size: program.Size, current: Launch | None, mindio: str = "") -> Decision:
    """Decide on a call while `current` is the newest launch. ProgramError: it is refused.

    `mindio`: what the job sets MS_ENABLE_TFT to.
    """
    if current is not None and (current.is_training or current.concluded):
        return Decision(None, "{} runs as what it is: the training was launched before it".format(call.tool))
    if current is not None:
        text = "{}: the launch of {} before it has not ended, and one pod has one set of ranks"
        raise program.ProgramError(text.format(call.tool, current.program.script))
    if program.launches_one_process(call, size):
        text = "{} runs as what it is: it asks for one process, the job has {} per pod"
        return Decision(None, text.format(call.tool, size.ranks_per_node))
    return Decision(_with_configuration(program.parse_call(call, size), call, mindio))


def _with_configuration(what: program.Program, call: program.ShimCall, mindio: str) -> program.Program:
    """Return the program with what MindFormers' configuration says. ProgramError: it fails with MindIO."""
    if not call.configuration:
        return what
    # What the order says of MindIO comes only with the first rank; the pod's own environment has it already.
    fields = mindformers.settle_fields(call.configuration, what.arguments)
    refused = mindformers.why_refused(fields, mindio)
    if refused:
        raise program.ProgramError("{}: {}".format(what.script, refused))
    return what._replace(fields=fields, notes=what.notes + mindformers.notes_on_fields(fields, mindio))
