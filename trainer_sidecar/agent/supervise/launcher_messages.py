"""What the launcher says of the pod's processes, read into types of the agent's own (docs/protocols/launcher.md).

KeyError, TypeError and ValueError mean a message that this agent does not understand; its caller says so and goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainer_sidecar.agent.supervise.ranks import RankProcess
from trainer_sidecar.launcher.protocol import read_process_name


@dataclass(frozen=True)
class Script:
    """The start script, as the launcher last described it."""

    ready: bool = False
    finished: bool = False
    ended: bool = False
    exit_code: int = 0
    last_lines: tuple[str, ...] = ()
    tool: str = ""
    stopped: bool = False  # the launcher was told to end, with its pod
    launch: int = 0  # number of the newest launch
    training: bool = False  # it is the training: one of its ranks has registered with MindIO, or trains without it
    without_mindio: bool = False  # its ranks were started to train without MindIO
    entry: str = ""  # the script or module of the newest launch
    arguments: tuple[str, ...] = ()  # and what it was called with
    lost_log: str = ""  # what `tee` said when it could not write its file
    problem: str = ""  # why the launcher has ended the script


def read_process(message: Mapping[str, Any]) -> RankProcess:
    """Read the process that a message of kind `rank` describes."""
    return RankProcess(
        rank=int(message["rank"]),
        name=read_process_name(message),
        pid=int(message["pid"]),
        running=bool(message["running"]),
        exit_code=int(message["exit_code"]),
        ordered=bool(message["ordered"]),
        changed=int(message["changed"]),
        last_lines=tuple(str(line) for line in message["last_lines"]),
        last_step=int(message["last_step"]),
        notices={str(kind): str(line) for kind, line in message["notices"].items()},
    )


def read_script(message: Mapping[str, Any]) -> Script:
    """Read the start script that a message of kind `script` describes."""
    return Script(
        ready=bool(message["ready"]),
        finished=bool(message["finished"]),
        ended=bool(message["ended"]),
        exit_code=int(message["exit_code"]),
        last_lines=tuple(str(line) for line in message["last_lines"]),
        tool=str(message["tool"]),
        stopped=bool(message["stopped"]),
        launch=int(message["launch"]),
        training=bool(message["training"]),
        without_mindio=bool(message["without_mindio"]),
        entry=str(message["entry"]),
        arguments=tuple(str(argument) for argument in message["arguments"]),
        lost_log=str(message["lost_log"]),
        problem=str(message["problem"]),
    )
