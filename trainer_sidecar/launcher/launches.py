"""The launches of a start script: which of them is the training, and what becomes of the others.

A script may convert weights before the training and evaluate after it, each by a launcher. The training is the launch
whose ranks register with MindIO; until one has, a launch whose ranks all end with 0 was none, and the script goes on to
the next. docs/protocols/launcher.md#launches
"""

from __future__ import annotations

from typing import Callable, List, NamedTuple

from . import output, program, protocol, ranks


class Launch:
    """One call of a shim whose ranks are this pod's."""

    def __init__(self, number: int, call: program.ShimCall, what: program.Program, shim: protocol.Connection) -> None:
        self.number = number
        self.tool = call.tool
        self.program = what
        self.shim: protocol.Connection | None = shim
        self.passed: List[output.Descriptor] = []
        self.target = ranks.Target(output.Descriptor(1).write, output.Descriptor(2).write)
        self.is_training = False
        self.concluded = False
        self.finished = False  # the training has come to its end
        self.waits_for_verdict = False
        self.mended_for = ""  # the attempt whose changed arguments were said

    def print_to(self, descriptors: List[int], is_ours: Callable[[int], bool]) -> None:
        """The shim's stdout and stderr, unless they are the script's own, which are passed on anyway."""
        targets = [output.Descriptor(1), output.Descriptor(2)]
        for index, passed in enumerate(descriptors[:2]):
            self.passed.append(output.Descriptor(passed, targets[index]))
            if not is_ours(passed):
                targets[index] = self.passed[-1]
        if not self.program.detached:  # what returns at once leaves nobody who reads
            self.target = ranks.Target(targets[0].write, targets[1].write)


class Decision(NamedTuple):
    """What becomes of a call: `program` its ranks are started, None: it runs as what it is; `note` says why."""

    program: program.Program | None
    note: str = ""


def decide(call: program.ShimCall, size: program.Size, current: Launch | None) -> Decision:
    """What becomes of a call while `current` is the newest launch. ProgramError: it is refused."""
    if current is not None and (current.is_training or current.concluded):
        return Decision(None, "{} runs as what it is: the training was launched before it".format(call.tool))
    if current is not None:
        text = "{}: the launch of {} before it has not ended, and one pod has one set of ranks"
        raise program.ProgramError(text.format(call.tool, current.program.script))
    if program.is_single(call, size):
        text = "{} runs as what it is: it asks for one process, the job has {} per pod"
        return Decision(None, text.format(call.tool, size.ranks_per_node))
    return Decision(program.parse(call, size))
