"""The process that holds one MindIO controller, for one attempt of the job.

MindIO keeps its state in the process: a repair counter that is never reset, serials that run out, native logging that
cannot be set up twice. So the host forks a new process for each attempt, and never starts a second controller in one.
Callbacks come on MindIO's own threads and must neither raise nor wait: they write one line into a pipe.

A controller for running ranks gets its repair counter and serials raised before its address is published: ranks ignore
actions whose serials they have seen, and would look healthy until the next fault (docs/protocols/mindio.md#winding).

After a "continue" MindIO accepts calls and forgets them until it is at rest again, which nothing tells. So every call
waits for a moment after that result, and one that MindIO does not answer is made again (`AfterContinue`).
"""

from __future__ import annotations

import os
import queue
from types import ModuleType
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from trainer_sidecar import mindio_tls
from trainer_sidecar.controller_host.after_continue import AGAIN_SECONDS, AfterContinue
from trainer_sidecar.controller_host.part import Part
from trainer_sidecar.controller_host.problems import StartError, check_address, load_controller_module
from trainer_sidecar.controller_protocol import OTHER, RESULT, Message

PING = "ping"
"""The host's own call: its answer shows that this process lives and that no call hangs. MindIO is not asked."""
CALLBACKS = ("report_fault_ranks", "report_stop_complete", "report_strategies", RESULT)
FAULT_RANKS, STOP_COMPLETE = CALLBACKS[0], CALLBACKS[1]
SERIALS_OF_A_PAUSE = 3
PAUSE_SECONDS = 30
"""After so long MindIO ends a pause of the winding by itself, and the controller with it. A pause takes milliseconds;
this is for a host that stands still. It lengthens MindIO's later waits as well, which are longer in any case."""
WINDING_SECONDS = 10.0
"""Within it each of the winding's callbacks comes, or another controller is to be started."""
FIRST_MOMENT_SECONDS = 0.005
"""What MindIO gets between two pauses of the winding, of which there are dozens; each one that it forgets makes it ten
times as long."""


def as_json_value(value: object) -> object:
    """Return a callback's argument as JSON can carry it: a dictionary by rank becomes a list of pairs."""
    if isinstance(value, dict):
        return [[int(rank), entry] for rank, entry in value.items()]
    if isinstance(value, (list, tuple)):
        return [as_json_value(entry) for entry in value]
    return value


def kinds_by_rank(pairs: List[List[int]]) -> Dict[int, int]:
    """Return the dictionary that MindIO requires; keys and values must be real integers."""
    return {int(rank): int(kind) for rank, kind in pairs}


CALLS: Dict[str, Callable[[Any, Mapping[str, Any]], int]] = {
    "stop_train": lambda mindio, given: mindio.tft_notify_controller_stop_train(kinds_by_rank(given["ranks"])),
    "pause": lambda mindio, given: mindio.tft_notify_controller_stop_train({}, "pause", int(given["timeout"])),
    "on_global_rank": lambda mindio, given: mindio.tft_notify_controller_on_global_rank(
        kinds_by_rank(given["ranks"]), int(given.get("time", 1))
    ),
    "change_strategy": lambda mindio, given: mindio.tft_notify_controller_change_strategy(
        given["strategy"], given.get("parameters", "")
    ),
    "prepare_action": lambda mindio, given: mindio.tft_notify_controller_prepare_action(
        given["action"], kinds_by_rank(given.get("ranks", []))
    ),
    "dump": lambda mindio, _: mindio.tft_notify_controller_dump(),
}


class ControllerProcess(Part):
    """One controller: `run_until_closed` returns when the host has closed its end of the pipe."""

    _module: Any = None
    _winding: Optional["queue.Queue[Tuple[str, Tuple[Any, ...]]]"] = None

    def __init__(self, part: str, request: Message, read_end: int, write_end: int) -> None:
        super().__init__(part, request, read_end, write_end)
        self._after = AfterContinue()
        self._moment = FIRST_MOMENT_SECONDS

    @staticmethod
    def needed_package(_environment: Dict[str, str]) -> str:
        """Return the package its Python must have: the controller's half of MindIO needs neither torch nor CANN."""
        return "mindio_ttp"

    def run_until_closed(self) -> None:
        """Start the controller and carry out calls until the host closes the pipe."""
        os.environ.setdefault("TTP_LOG_STDOUT", "1")
        self.open_and_report("serving", self._start_controller)
        self.serve_until_closed(lambda message: self.send_to_host(self._answer_call(message)))

    def _start_controller(self) -> None:
        request = self.request
        check_address(request["address"], request["port"], "the MindIO controller")
        module = load_controller_module()
        self._register_callbacks(module)
        module.tft_init_controller(-1, request["world_size"], False, request["arf"], request["zit"])
        info = self._tls_info()
        try:
            module.tft_start_controller(request["address"], request["port"], bool(info), info)
        except SystemExit:
            raise StartError(
                OTHER,
                "MindIO refused to start its controller on %s:%d; its log above says why"
                % (request["address"], request["port"]),
            ) from None
        wind = request.get("wind") or {}
        if wind:
            self._raise_counters(module, int(wind["serials"]), int(wind["counter"]))
        self._module = module

    @staticmethod
    def _tls_info() -> str:
        try:
            return mindio_tls.tls_info_of_job(os.environ, os.environ.get("HAJOB_DIR", ""))
        except mindio_tls.MindIOTLSError as problem:
            raise StartError(OTHER, str(problem)) from None

    def _raise_counters(self, mindio: ModuleType, serials: int, counter: int) -> None:
        """Raise the repair counter, then the serials; the pauses also drop the word that "stop switch" leaves."""
        self._winding = queue.Queue()
        for _ in range(counter):
            self._require_success(mindio.tft_notify_controller_prepare_action("hot switch", {0: 0}), "prepare_action")
            self._require_success(mindio.tft_notify_controller_prepare_action("stop switch"), "prepare_action")
        for _ in range(max(1, -(-serials // SERIALS_OF_A_PAUSE))):
            self._pause_until_heard(mindio)
            self._require_success(mindio.tft_notify_controller_change_strategy("continue"), "change_strategy")
            self._await_callback(RESULT)
        self._winding = None

    def _pause_until_heard(self, mindio: ModuleType) -> None:
        """Pause, and again while MindIO has forgotten it."""
        for seconds in (*AGAIN_SECONDS, WINDING_SECONDS):
            self._after.wait_for_rest(self._moment)
            self._require_success(mindio.tft_notify_controller_stop_train({}, "pause", PAUSE_SECONDS), "stop_train")
            if self._is_called_back(STOP_COMPLETE, seconds):
                return
            self._moment *= 10
        raise self._missing_callback_error(STOP_COMPLETE)

    @staticmethod
    def _require_success(code: int, call: str) -> None:
        if code != 0:
            raise StartError(OTHER, "MindIO refused %s (%s) while its controller was wound on" % (call, code))

    def _await_callback(self, name: str) -> None:
        if not self._is_called_back(name, WINDING_SECONDS):
            raise self._missing_callback_error(name)

    def _is_called_back(self, name: str, seconds: float) -> bool:
        """Whether MindIO calls this within so many seconds; StartError: it calls something else."""
        assert self._winding is not None
        try:
            said, arguments = self._winding.get(timeout=seconds)
        except queue.Empty:
            return False
        if said != name or arguments[0] != 0:
            text = "MindIO called %s%r while its controller was wound on"
            raise StartError(OTHER, text % (said, arguments))
        return True

    @staticmethod
    def _missing_callback_error(name: str) -> StartError:
        return StartError(OTHER, "MindIO did not call %s while its controller was wound on" % name)

    def _register_callbacks(self, module: ModuleType) -> None:
        for name in CALLBACKS:
            if module.tft_register_mindx_callback(name, self._forwarding_callback(name)) != 0:
                raise StartError(OTHER, "MindIO refused the callback %s" % name)

    def _forwarding_callback(self, name: str) -> Callable[..., int]:
        def forward(*arguments: object) -> int:
            continued = name == RESULT and arguments[-1:] == ("continue",)
            self._after.note_callback(continued=continued, found=name == FAULT_RANKS)
            if self._winding is not None:
                self._winding.put((name, arguments))
                return 0
            try:
                self.send_to_host({"event": name, "arguments": as_json_value(list(arguments))})
            except BaseException as error:  # raising here would send the controller to its exit state
                os.write(2, b"hajob: callback lost: %s\n" % repr(error).encode())
            return 0

        return forward

    def _answer_call(self, message: Message) -> Message:
        answer: Message = {"answer": message.get("id"), "call": message.get("call")}
        try:
            answer["code"] = int(self._call_mindio(message["call"], message.get("arguments", {})))
        except BaseException as error:
            answer.update(code=-1, exception="%s: %s" % (type(error).__name__, error))
        return answer

    def _call_mindio(self, name: str, arguments: Mapping[str, Any]) -> int:
        if self._module is None:
            raise RuntimeError("the controller does not serve")
        if name == PING:
            return 0
        if name not in CALLS:
            raise ValueError("unknown call %s" % name)
        return self._after.call_at_rest(name, lambda: int(CALLS[name](self._module, arguments)))
