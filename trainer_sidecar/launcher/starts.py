"""The program and environment of a rank's process, from the start script's launch and the agent's order."""

from __future__ import annotations

from typing import Dict, List, Tuple

from . import arguments, program, shells, stacks, variables
from .launches import Launch
from .output import Terminal
from .protocol import ProcessName


class Starts:
    """Builder of program and environment; it reports once what the job overrides."""

    def __init__(self, directory: str, terminal: Terminal) -> None:
        self._directory = directory
        self._terminal = terminal
        self._noted: List[str] = []

    def program_for_rank(
        self, launch: Launch, rank: int, name: ProcessName, ordered: Dict[str, str], is_restart: bool
    ) -> Tuple[program.Program, Dict[str, str]]:
        """Return program and environment of a rank's process; `ordered`: the variables that the agent sets."""
        called = shells.environment_without_shims(launch.program.environment, self._directory)
        environment, notes = variables.merge_variables(called, ordered, is_restart=is_restart)
        for note in notes:
            if note not in self._noted:
                self._noted.append(note)
                self._terminal.print_message(note)
        if launch.tool == program.MSRUN:
            environment.update(program.mindspore_environment(environment))
        environment.update(stacks.stack_variables(self._directory, "rank-{}.{}.{}".format(rank, *name)))
        own = program.program_of_rank(self._resuming_program(launch, environment), environment.get("LOCAL_RANK", "0"))
        return own._replace(argv=program.armed_arguments(own, self._directory)), environment

    def program_before_rank(self, launch: Launch) -> Tuple[List[str], Dict[str, str]]:
        """Return program and environment of a process that has no rank yet."""
        return program.armed_arguments(launch.program, self._directory), shells.environment_without_shims(
            launch.program.environment, self._directory
        )

    def _resuming_program(self, launch: Launch, environment: Dict[str, str]) -> program.Program:
        """Return the program with arguments that load its own save, if the job asks for that."""
        if launch.tool == program.MSRUN or not arguments.is_resumed_start(environment, launch.program.arguments):
            return launch.program
        resumed = arguments.resumed_arguments(launch.program.arguments)
        attempt = environment.get("HAJOB_ATTEMPT", "")
        if resumed.changes and launch.mended_for != attempt:
            launch.mended_for = attempt
            self._terminal.print_message("start {}: {}".format(attempt, ", ".join(resumed.changes)))
        return program.with_arguments(launch.program, resumed.arguments)
