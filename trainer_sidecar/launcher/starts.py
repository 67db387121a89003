"""The program and environment of a rank's process, from the start script's launch and the agent's order."""

from __future__ import annotations

import os
from typing import Dict, Iterable, List, Tuple

from trainer_sidecar import mindio_tls

from . import arguments, mindformers, program, shells, stacks, variables
from .launches import Launch
from .output import Terminal
from .protocol import ProcessName

TLS_INFO = "HAJOB_MINDIO_TLS_INFO"
"""Variable with the path of a file whose text a trainer gives as `tls_info` of `tft_init_processor`."""


def write_private_file(path: str, text: str) -> None:
    """Replace a file by one with this text that nobody else may read."""
    beside = "{}.{}".format(path, os.getpid())
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w") as file:
        file.write(text)
    os.replace(beside, path)


class Starts:
    """Builder of program and environment; it reports once what the job overrides."""

    def __init__(self, directory: str, terminal: Terminal) -> None:
        self._directory = directory
        self._terminal = terminal
        self._noted: List[str] = []

    def program_for_rank(
        self, launch: Launch, rank: int, name: ProcessName, ordered: Dict[str, str], is_restart: bool
    ) -> Tuple[program.Program, Dict[str, str]]:
        """Return program and environment of a rank's process; `ordered`: the variables that the agent sets.

        ProgramError: it would not load what it has saved.
        """
        called = shells.environment_without_shims(launch.program.environment, self._directory)
        environment, notes = variables.merge_variables(called, ordered, is_restart=is_restart)
        self._print_once(notes)
        if launch.tool == program.MSRUN:
            environment.update(program.mindspore_environment(environment))
        environment.update(self._tls_variables(environment))
        environment.update(stacks.stack_variables(self._directory, "rank-{}.{}.{}".format(rank, *name)))
        what = self._ordered_program(launch, environment) if launch.program.fields else launch.program
        own = program.program_of_rank(
            self._resuming_program(launch, what, environment), environment.get("LOCAL_RANK", "0")
        )
        return own._replace(argv=program.armed_arguments(own, self._directory)), environment

    def _tls_variables(self, environment: Dict[str, str]) -> Dict[str, str]:
        """Write what a trainer that speaks TLS to its gate is to give MindIO, with the newest certificate."""
        path = os.path.join(self._directory, "mindio-tls-info")
        try:
            info = mindio_tls.tls_info_of_job(environment, self._directory)
            if not info:
                return {}
            write_private_file(path, info)
        except (OSError, mindio_tls.MindIOTLSError) as problem:
            text = "{} is not set, so the ranks can speak no TLS to their gate: {}"
            self._print_once([text.format(TLS_INFO, problem)])
            return {}
        return {TLS_INFO: path}

    def program_before_rank(self, launch: Launch) -> Tuple[List[str], Dict[str, str]]:
        """Return program and environment of a process that has no rank yet."""
        return program.armed_arguments(launch.program, self._directory), shells.environment_without_shims(
            launch.program.environment, self._directory
        )

    def _print_once(self, notes: Iterable[str]) -> None:
        for note in notes:
            if note not in self._noted:
                self._noted.append(note)
                self._terminal.print_message(note)

    def _ordered_program(self, launch: Launch, environment: Dict[str, str]) -> program.Program:
        """Return MindFormers' program with the shards in the order of the ranks. ProgramError: that is not possible."""
        what, mindio = launch.program, environment.get(variables.MINDSPORE_WORDS, "")
        try:
            call = mindformers.Call(what.script, what.arguments, what.cwd)
            found = mindformers.resumed_arguments(what.fields, call, self._directory, mindio)
        except OSError as problem:
            text = "the strategy files cannot be put into the order of the ranks, which would load others' shards: {}"
            raise program.ProgramError(text.format(problem)) from None
        self._print_once(found.notes)
        return program.with_arguments(what, found.arguments)

    def _resuming_program(self, launch: Launch, what: program.Program, environment: Dict[str, str]) -> program.Program:
        """Return the program with arguments that load its own save, if the job asks for that."""
        if launch.tool == program.MSRUN or not arguments.is_resumed_start(environment, what.arguments):
            return what
        resumed = arguments.resumed_arguments(what.arguments)
        attempt = environment.get("HAJOB_ATTEMPT", "")
        if resumed.changes and launch.mended_for != attempt:
            launch.mended_for = attempt
            self._terminal.print_message("start {}: {}".format(attempt, ", ".join(resumed.changes)))
        return program.with_arguments(what, resumed.arguments)
