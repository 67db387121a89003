# ruff: noqa: ANN401 - values of strangers pass through here
"""The laboratory's controller process: MindX's place, with callbacks that only tell what they get.

Commands: {"call": name, "args": [...], "kwargs": {...}} calls a function of the package and tells what came back;
{"answer": callback, "call": ..., "args": ...} makes a callback answer from inside itself; {"raise": callback} and
{"slow": callback, "seconds": s} make it fail or late.
"""

from __future__ import annotations

import os
import time
from typing import Any

from mindio_ttp import controller_ttp as package

from e2e.mindio.lab.lines import listen, tell

CALLBACKS = ("report_fault_ranks", "report_stop_complete", "report_strategies", "report_result")

answers: dict[str, list[dict[str, Any]]] = {}
faults: dict[str, dict[str, Any]] = {}


def callback(name: str) -> Any:
    """A callback that tells its arguments and does what it was told beforehand."""

    def called(*args: Any) -> None:
        tell("callback", name=name, args=list(args))
        fault = faults.get(name)
        if fault is not None and "slow" in fault:
            time.sleep(fault["seconds"])
        if fault is not None and "raise" in fault:
            raise ValueError("asked for")
        if answers.get(name):
            call(answers[name].pop(0))

    if name == "report_fault_ranks" and os.environ.get("LAB_ONE_ARGUMENT"):
        return lambda faulty: tell("callback", name=name, args=[faulty])
    return called


def call(command: dict[str, Any]) -> None:
    """Call a function of the package by its short name."""
    name = command["call"]
    function = None
    for prefix in ("tft_notify_controller_", "tft_query_", "tft_", ""):
        function = function or getattr(package, prefix + name, None)
    if function is None:
        tell("return", call=name, raised="missing", text="")
        return
    begun = time.monotonic()
    try:
        value = function(*command.get("args", []), **command.get("kwargs", {}))
    except BaseException as error:  # SystemExit is one of the answers
        tell("return", call=name, raised=type(error).__name__, text=str(error), took=time.monotonic() - begun)
    else:
        tell("return", call=name, value=value, took=time.monotonic() - begun)


def take(command: dict[str, Any]) -> None:
    """Carry out one command."""
    if "register" in command:
        for name in command["register"]:
            package.tft_register_mindx_callback(name, callback(name))
    elif "answer" in command:
        answers.setdefault(command["answer"], []).append(command)
    elif "raise" in command or "slow" in command:
        faults[command.get("raise") or command["slow"]] = command
    elif "leave" in command:
        raise SystemExit(0)
    else:
        call(command)


def main() -> None:
    """Serve commands."""
    tell("ready")
    listen(take)


if __name__ == "__main__":
    main()
