"""A controller host whose controller is TaskD's: calls become signals, reports become MindIO's callbacks.

Pure: time and messages come in; lines for the coordinator and signals for the manager go out. The log is that of a
controller host, so that a restarted coordinator reads where the conversation is; the shell keeps it on a volume of the
pod, so that a restarted agent does not forget it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hajob.protocol import taskd_pb2 as pb
from trainer_sidecar import controller_protocol
from trainer_sidecar.agent.clock import SECOND
from trainer_sidecar.agent.taskd.signals import Call
from trainer_sidecar.agent.taskd.table import SignalStream, StreamMemory

Message = dict[str, Any]
ISOLATED = 201
FAULT_FOUND = "2"
"""TaskD's code of a stress test that found its chip faulty."""
AWAY_SECONDS = 5.0
"""A manager that lives subscribes again within 1.1 s over the same connection; this pod's loopback loses none."""
AFTER_RESTART_SECONDS = 150.0
"""After the agent itself was away, the manager's gRPC waits up to 120 s until it dials again."""
SETTLED_SECONDS = 0.5
"""From a signal to MindIO's call it takes up to 0.3 s. What only follows from the call waits: second processes, which
MindIO takes for intruders before a hot switch was announced, are let in when the announcement is answered."""
UNHEARD_TEXT = (
    "no TaskD manager has subscribed at {}:8899: does the start script of node rank 0 start one, and leave "
    "MINDX_SERVER_IP as it is?"
)
LOST_TEXT = "the TaskD manager of node rank 0 is gone, and MindIO's controller with it"
ANOTHER_TEXT = "another TaskD manager has come: it knows none of the agents, and MindIO's controller is a new one"


@dataclass
class Kept:
    """State that outlives the agent's process."""

    state: Message = field(default_factory=lambda: controller_protocol.state_without_controller(0))
    log: list[Message] = field(default_factory=list)
    done: list[str] = field(default_factory=list)  # names of the newest calls: a repeated one is answered, not sent
    work: Message = field(default_factory=dict)  # of the newest pause, that TaskD was asked to do
    result: Message = field(default_factory=dict)  # what it said of it
    memory: StreamMemory = field(default_factory=StreamMemory)


class Bridge:
    """The host of a controller in another process.

    Attributes:
        stream: the signals that wait.
        kept: what outlives this process.
        job: the manager's own name of the job, which it puts into every message.
    """

    def __init__(self, stream: SignalStream, address: str, tell: Callable[[Message], None], kept: Kept) -> None:
        self.stream = stream
        self.kept = kept
        self.job = ""
        self._address = address
        self._tell = tell
        self._peer = ""  # the manager's connection, empty before the first
        self._work_waits = False
        self._settling: list[tuple[float, Message]] = []  # answers, and when they are given
        self._lost_at: float | None = None  # when a manager that has not come back by then counts as lost

    def resume_service(self, now: float) -> None:
        """Wait for the manager that an agent before this one had heard, if there was one."""
        if self.kept.state["controller"] == "serving" and self.kept.state["kind"] != controller_protocol.UNHEARD:
            self._lost_at = now + AFTER_RESTART_SECONDS

    # -- the coordinator ------------------------------------------------------------------------------------------

    def greet_coordinator(self, at: int) -> None:
        """Say how the controller is, and all that was said since MindIO last was at rest; `at`: by this clock."""
        hello = {"event": "hello", "version": controller_protocol.VERSION, "now": at}
        self._tell({**hello, "state": self.kept.state, "log": self.kept.log})

    def apply_call(self, message: Mapping[str, Any], at: int) -> None:
        """Take a line of the coordinator's. `at`: nanoseconds of the clock that all processes of a pod share."""
        name = str(message.get("call", ""))
        if name in ("start", "store"):
            self._begin_attempt(message)
        elif name == "end":
            self.kept.state = controller_protocol.state_without_controller(0)
            self._tell_controller_state()
        elif name == "work":
            self._ask_for_work(message["arguments"]["work"])
            self._tell({"answer": message.get("id"), "call": name, "code": 0, "t": at})
        elif name != "known":
            self._apply_mindio_call(name, message, at)

    def _ask_for_work(self, work: Message) -> None:
        """Take the work of a pause, once for each request; one that is done already is told again."""
        if work.get("request") != self.kept.work.get("request"):
            self.kept.work, self.kept.result = work, {}
            self._work_waits = True
        elif self.kept.result:
            self._tell({"event": "work", "result": self.kept.result})

    def take_rail_switch(self) -> pb.RailSwitch | None:
        """Return the switch of rails that is to be sent; None: there is none."""
        rails = self._take_work("rails")
        return pb.RailSwitch(ranks=list(rails), borrowed=list(rails.values()), job=self.job) if rails else None

    def take_stress_test(self) -> pb.StressTest | None:
        """Return the stress test that is to be sent; None: there is none."""
        stress = self._take_work("stress")
        if not stress:
            return None
        test = pb.StressTest(job=self.job)
        for rank, operations in stress.items():
            test.ranks[rank].operations.extend(operations)
        return test

    def _take_work(self, kind: str) -> Message:
        """Return what a pause asks of each rank, once; empty: there is nothing of this kind."""
        work: Message = self.kept.work.get(kind, {}) if self._work_waits else {}
        self._work_waits = self._work_waits and not work
        return work

    def _begin_attempt(self, message: Mapping[str, Any]) -> None:
        attempt = int(message["attempt"])
        if self.kept.state["attempt"] != attempt:
            self.kept.log, self.kept.done = [], []
            self.kept.state.update(attempt=attempt, world_size=int(message["world_size"]), instance=f"taskd-{attempt}")
            self.kept.state.update(controller="serving", store="listening", problem="", kind="")
            self._show_manager()
        self._tell_controller_state()

    def _apply_mindio_call(self, name: str, message: Mapping[str, Any], at: int) -> None:
        number = str(message.get("id", ""))
        if number not in self.kept.done:
            call = Call(name, message.get("arguments", {}))
            try:
                self.stream.queue_signals_of_call(call)
            except ValueError as problem:
                self._tell({"answer": number, "call": name, "code": -1, "exception": str(problem), "t": at})
                return
            copied = {key: message.get(key) for key in ("id", "order")}
            called = {"called": name, "arguments": dict(call.arguments), **copied}
            controller_protocol.log_message(self.kept.log, called)
            self.kept.done = [*self.kept.done[-controller_protocol.LOG_LIMIT :], number]
        answer: Message = {"answer": number, "call": name, "code": 0, "t": at}
        if name == "prepare_action":
            due = at / SECOND + (self.stream.backlog_seconds + SETTLED_SECONDS)
            self._settling.append((due, answer))
        else:
            self._tell(answer)

    def give_settled_answers(self, now: float) -> None:
        """Give the answers whose calls MindIO has heard by now."""
        for due, answer in [one for one in self._settling if one[0] <= now]:
            self._settling.remove((due, answer))
            self._tell(answer)

    def wait_seconds(self, now: float) -> float | None:
        """Return how long until an answer is to be given; None: there is none."""
        return max(0.0, min(due for due, _ in self._settling) - now) if self._settling else None

    def _tell_controller_state(self) -> None:
        self._tell({"event": "state", "state": self.kept.state})

    # -- the manager ----------------------------------------------------------------------------------------------

    def note_subscriber(self, peer: str, job: str) -> bool:
        """Take in that a manager hears signals from now on; return whether it is one that may be told anything."""
        if self.kept.state["kind"] == controller_protocol.LOST:
            return False
        if self._peer and peer != self._peer:
            self._lose_manager(ANOTHER_TEXT)
            return False
        self._peer, self.job, self._lost_at = peer, job, None
        self._show_manager()
        self._tell_controller_state()
        return True

    def note_left_subscriber(self, now: float) -> None:
        """Take in that the manager's stream has ended."""
        self._lost_at = now + AWAY_SECONDS

    def check_manager(self, now: float) -> None:
        """Report the manager's loss once it has been away for longer than one that lives would be."""
        if self._lost_at is not None and now >= self._lost_at:
            self._lost_at = None
            self._lose_manager(LOST_TEXT)

    def _lose_manager(self, text: str) -> None:
        self.kept.state.update(controller="lost", problem=text, kind=controller_protocol.LOST)
        self._tell_controller_state()

    def _show_manager(self) -> None:
        heard = bool(self._peer)
        self.kept.state.update(
            kind="" if heard else controller_protocol.UNHEARD,
            problem="" if heard else UNHEARD_TEXT.format(self._address),
        )

    # -- the manager's reports, as MindIO's callbacks -----------------------------------------------------------------

    def report_process_fault(self, message: pb.ProcessFault, at: int) -> None:
        """Take ReportProcessFault; after a naming and after an unasked stop it tells of nothing new."""
        self._tell_callback("report_fault_ranks", [_pairs_of_rank_and_kind(message.ranks), []], at)

    def report_stop_complete(self, message: pb.StopComplete, at: int) -> None:
        """Take ReportStopComplete."""
        status = message.status
        self._tell_callback(
            "report_stop_complete", [status.code, status.info, _pairs_of_rank_and_kind(message.ranks)], at
        )

    def report_offered_strategies(self, message: pb.Strategies, at: int) -> None:
        """Take ReportRecoverStrategy."""
        self._tell_callback("report_strategies", [_pairs_of_rank_and_kind(message.ranks), list(message.strategies)], at)

    def report_strategy_result(self, message: pb.Result, at: int) -> None:
        """Take ReportRecoverStatus; after 201 TaskD has to be told that somebody leaves."""
        status = message.status
        ranks = [[int(rank), 1] for rank in message.ranks if rank.isdecimal()]
        if status.code == ISOLATED:
            self.stream.queue_signals_of_call(Call("isolated"))
        self._tell_callback(controller_protocol.RESULT, [status.code, status.info, ranks, message.strategy], at)

    def report_switched_rails(self, message: pb.RailResult, _at: int) -> None:
        """Take ReplySwitchNicResult, which is about all ranks together."""
        code = "0" if message.done else "1"
        self._note_result(dict.fromkeys(self.kept.work.get("rails", {}), code))

    def report_stress_test(self, message: pb.StressResult, _at: int) -> None:
        """Take ReplyStressTestResult: of a rank's operations the worst counts, a fault most."""
        codes = {}
        for rank, told in message.ranks.items():
            of_rank = [one.code for one in told.operations.values()]
            codes[rank] = FAULT_FOUND if FAULT_FOUND in of_rank else max(of_rank, default="1")
        self._note_result(codes)

    def _note_result(self, codes: Mapping[str, str]) -> None:
        if not self.kept.work or self.kept.result:
            return
        asked: Message = {name: self.kept.work[name] for name in ("request", "nodes") if name in self.kept.work}
        self.kept.result = {**asked, "codes": dict(codes)}
        self._tell({"event": "work", "result": self.kept.result})

    def _tell_callback(self, name: str, arguments: list[Any], at: int) -> None:
        message: Message = {"event": name, "arguments": arguments, "t": at}
        controller_protocol.log_message(self.kept.log, message)
        self._tell({**message, "attempt": self.kept.state["attempt"]})


def _pairs_of_rank_and_kind(ranks: Iterable[pb.FaultyRank]) -> list[list[int]]:
    known = (one for one in ranks if one.rank.isdecimal() and one.kind.isdecimal())
    return [[int(one.rank), int(one.kind)] for one in known]
