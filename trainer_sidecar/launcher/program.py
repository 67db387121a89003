"""What a start script asked for: the command line of torchrun or msrun, read as those tools read it.

Sizes, addresses and ranks belong to the job. A script may name them all the same, since it worked before Hajob; what
contradicts the job is overridden and said once in the output.
"""

from __future__ import annotations

import argparse
import os
from typing import Dict, List, NamedTuple, NoReturn, Tuple

TORCHRUN = "torchrun"
MSRUN = "msrun"
ENTRY = "entry.py"

# option names as torchrun writes them; each is also accepted with underscores
TORCHRUN_VALUES = """
    nnodes nproc-per-node node-rank master-addr master-port local-addr rdzv-backend rdzv-endpoint rdzv-id
    rdzv-conf max-restarts monitor-interval start-method event-log-handler role log-dir local-ranks-filter logs-specs
    numa-binding signals-to-handle duplicate-stdout-filters duplicate-stderr-filters shutdown-timeout
"""
TORCHRUN_FLAGS = "standalone no-python run-path virtual-local-rank"
MSRUN_VALUES = """
    worker_num local_worker_num node_rank master_addr master_port log_dir join cluster_time_out bind_core sim_level
    sim_rank_id rank_table_file worker_log_name tail_worker_log
"""
LOCAL_SIZE_WORDS = ("auto", "gpu", "cpu", "npu", "xpu")


class ProgramError(Exception):
    """The call can't be carried out; the text is for the person who wrote the script."""


class Size(NamedTuple):
    """The job's size as this pod knows it."""

    node_rank: int
    ranks_per_node: int
    world_size: int

    @property
    def nodes(self) -> int:
        """How many rank pods the job has."""
        return self.world_size // self.ranks_per_node


class Call(NamedTuple):
    """One call of a shim: the tool, its arguments, and where and with what it was called."""

    tool: str
    arguments: List[str]
    cwd: str
    environment: Dict[str, str]
    python: str


class Program(NamedTuple):
    """What every rank executes, its environment before the job's own is added, and remarks for the output."""

    argv: List[str]
    cwd: str
    environment: Dict[str, str]
    notes: List[str]
    is_python: bool  # argv is an interpreter, -u, and a script or -m with a module


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ProgramError("{}: {}".format(self.prog, message))


def parse(call: Call, size: Size) -> Program:
    """The program of a shim's call. ProgramError: the tool itself would have refused the arguments."""
    if call.tool == TORCHRUN:
        return _torchrun(call, size)
    if call.tool == MSRUN:
        return _msrun(call, size)
    raise ProgramError("no shim is called {!r}; there are torchrun and msrun".format(call.tool))


def _torchrun(call: Call, size: Size) -> Program:
    parser = _Parser(prog=TORCHRUN, add_help=False)
    for name in TORCHRUN_VALUES.split():
        parser.add_argument("--" + name, "--" + name.replace("-", "_"))
    for name in TORCHRUN_FLAGS.split():
        parser.add_argument("--" + name, "--" + name.replace("-", "_"), action="store_true")
    parser.add_argument("-m", "--module", action="store_true")
    parser.add_argument("-r", "--redirects")
    parser.add_argument("-t", "--tee")
    _add_script(parser)
    options = parser.parse_args(call.arguments)
    interpreter = [call.environment.get("PYTHON_EXEC") or call.python, "-u"]
    prefix = [] if options.no_python else interpreter + (["-m"] if options.module else [])
    environment = dict(call.environment)
    if size.ranks_per_node > 1:
        environment.setdefault("OMP_NUM_THREADS", "1")
    notes = _contradictions(
        TORCHRUN,
        size,
        [
            ("--nnodes", options.nnodes, _nodes_fit(options.nnodes, size.nodes), size.nodes),
            ("--nproc-per-node", options.nproc_per_node, _fits(options.nproc_per_node, size.ranks_per_node),
             size.ranks_per_node),
            ("--node-rank", options.node_rank, _fits(options.node_rank, size.node_rank), size.node_rank),
            ("--standalone", "", not options.standalone or size.nodes == 1, "{} nodes".format(size.nodes)),
        ],
    )  # fmt: skip
    argv = [*prefix, options.script, *options.arguments]
    return Program(argv, call.cwd, environment, notes, is_python=not options.no_python)


def _msrun(call: Call, size: Size) -> Program:
    parser = _Parser(prog=MSRUN, add_help=False)
    for name in MSRUN_VALUES.split():
        parser.add_argument("--" + name)
    _add_script(parser)
    options = parser.parse_args(call.arguments)
    prefix = [call.python, "-u"] if options.script.endswith(".py") else []
    notes = _contradictions(
        MSRUN,
        size,
        [
            ("--worker_num", options.worker_num, _fits(options.worker_num, size.world_size), size.world_size),
            ("--local_worker_num", options.local_worker_num, _fits(options.local_worker_num, size.ranks_per_node),
             size.ranks_per_node),
            ("--node_rank", options.node_rank, _fits(options.node_rank, size.node_rank), size.node_rank),
        ],
    )  # fmt: skip
    argv = [*prefix, options.script, *options.arguments]
    environment = dict(call.environment)
    if options.cluster_time_out:
        environment["MS_TOPO_TIMEOUT"] = options.cluster_time_out
    return Program(argv, call.cwd, environment, notes, is_python=bool(prefix))


def _add_script(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)


def _fits(given: str | None, ours: int) -> bool:
    """Whether an option is absent, a word for "as many as there are", or the job's own number."""
    return given is None or given in LOCAL_SIZE_WORDS or given.strip() == str(ours)


def _nodes_fit(given: str | None, ours: int) -> bool:
    """Whether torchrun's N or MIN:MAX allows the job's number of nodes."""
    if given is None:
        return True
    least, _, most = given.partition(":")
    try:
        return int(least) <= ours <= int(most or least)
    except ValueError:
        return False


def _contradictions(tool: str, size: Size, options: List[Tuple[str, str | None, bool, object]]) -> List[str]:
    return [
        "{} {} {} is overridden by the job: {} (this is node {} of {})".format(
            tool, name, given, ours, size.node_rank, size.nodes
        ).replace("  ", " ")
        for name, given, fits, ours in options
        if not fits
    ]


def armed(program: Program, directory: str) -> List[str]:
    """The program's argv, by way of entry.py where that knows how to start it (docs/protocols/launcher.md#stacks).

    Scripts without `.py` may be directories or archives, which the interpreter starts in ways of their own; with
    HAJOB_STACKS=off nothing stands before the user's program.
    """
    argv = program.argv
    known = program.is_python and (argv[2] == "-m" or argv[2].endswith(".py"))
    if not known or program.environment.get("HAJOB_STACKS") == "off":
        return argv
    return [*argv[:2], os.path.join(directory, ENTRY), *argv[2:]]


def mindspore_environment(environment: Dict[str, str]) -> Dict[str, str]:
    """What msrun would set for one worker, from the variables of the rank (RANK, LOCAL_RANK, MASTER_ADDR ...)."""
    table = {
        "MS_ROLE": "MS_WORKER",
        "MS_WORKER_NUM": environment.get("WORLD_SIZE"),
        "MS_SCHED_HOST": environment.get("MASTER_ADDR"),
        "MS_SCHED_PORT": environment.get("MASTER_PORT"),
        "MS_NODE_ID": environment.get("RANK"),
        "RANK_ID": environment.get("RANK"),
        "RANK_SIZE": environment.get("WORLD_SIZE"),
        "DEVICE_ID": environment.get("LOCAL_RANK"),
    }
    return {name: value for name, value in table.items() if value is not None and name not in environment}


def script_environment(environment: Dict[str, str], directory: str) -> Dict[str, str]:
    """The environment of the user's command: the shims' directory comes first on PATH."""
    shims = os.path.join(directory, "bin")
    path = environment.get("PATH") or os.defpath
    return dict(environment, PATH=shims + os.pathsep + path, HAJOB_DIR=directory)
