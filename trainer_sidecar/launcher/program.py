"""The program that a start script launches: the command line of a launcher, read as that launcher reads it.

Sizes, addresses and ranks belong to the job. A script may still name them, since it worked before Hajob; the launcher
overrides what contradicts the job and names it once in the output, together with options that have no effect here.
"""

from __future__ import annotations

import argparse
import ast
import os
from typing import Any, Dict, List, NamedTuple, NoReturn, Tuple

from .limits import ProcessLimits

TORCHRUN = "torchrun"
LAUNCH = "launch"
NPU_RUN = "torch_npu_run"
MSRUN = "msrun"
SPOKEN = {LAUNCH: "torch.distributed.launch"}
ENTRY = "entry.py"

# option names as torchrun writes them (1.13 to 2.9); each is also accepted with underscores, and as PET_NAME
TORCHRUN_VALUES = """
    nnodes nproc-per-node node-rank master-addr master-port local-addr rdzv-backend rdzv-endpoint rdzv-id
    rdzv-conf max-restarts monitor-interval start-method event-log-handler role log-dir local-ranks-filter logs-specs
    numa-binding signals-to-handle duplicate-stdout-filters duplicate-stderr-filters shutdown-timeout redirects tee
"""
TORCHRUN_FLAGS = "standalone no-python run-path virtual-local-rank module"
MSRUN_VALUES = """
    worker_num local_worker_num node_rank master_addr master_port log_dir join cluster_time_out bind_core bind_numa
    sim_level sim_rank_id rank_table_file worker_log_name tail_worker_log
"""
MSRUN_TOPO_SECONDS = "600"
"""What msrun 2.7 to 2.10 sets where no `--cluster_time_out` is given: MindSpore alone would wait half an hour."""
MSRUN_INTERPRETED = ("python", "python3", "pytest")
"""What msrun starts as it is; before everything else it puts `python`."""
WITHOUT_EFFECT = """
    max-restarts log-dir redirects tee local-ranks-filter logs-specs event-log-handler numa-binding
    duplicate-stdout-filters duplicate-stderr-filters
"""
MSRUN_WITHOUT_EFFECT = "bind_core bind_numa rank_table_file worker_log_name tail_worker_log"
SHORT = {"redirects": "-r", "tee": "-t", "module": "-m"}
LOCAL_SIZE_WORDS = ("auto", "gpu", "cpu", "npu", "xpu")


class ProgramError(Exception):
    """A call that can't be carried out; the text is for the author of the script."""


class Size(NamedTuple):
    """The job's size as this pod knows it."""

    node_rank: int
    ranks_per_node: int
    world_size: int

    @property
    def number_of_nodes(self) -> int:
        """Return the number of rank pods of the job."""
        return self.world_size // self.ranks_per_node


class ShimCall(NamedTuple):
    """One call of a shim: the tool, its arguments, working directory and environment."""

    tool: str
    arguments: List[str]
    cwd: str
    environment: Dict[str, str]
    python: str
    limits: ProcessLimits = ProcessLimits()
    configuration: Dict[str, Any] = {}  # noqa: RUF012  never changed; of MindFormers, as far as the shim could read it


class Program(NamedTuple):
    """The program of every rank, its environment before the job's own is added, and remarks for the output."""

    argv: List[str]
    cwd: str
    environment: Dict[str, str]
    notes: List[str]
    is_python: bool  # argv is an interpreter, -u, and a script or -m with a module
    script: str = ""  # or the module
    arguments: List[str] = []  # noqa: RUF012  never changed
    numbered: bool = False  # --local-rank=N comes first after the script
    detached: bool = False  # the call returns when the ranks are started
    log_directory: str | None = None  # where a script looks for worker_<rank>.log
    limits: ProcessLimits = ProcessLimits()  # of the call
    fields: Dict[str, Any] = {}  # noqa: RUF012  never changed; of MindFormers' configuration


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ProgramError("{}: {}".format(self.prog, message))


def parse_call(call: ShimCall, size: Size) -> Program:
    """Return the program of a shim's call. ProgramError: the tool itself would have refused the arguments."""
    if call.tool in (TORCHRUN, LAUNCH, NPU_RUN):
        return _parse_torchrun(call, size)
    if call.tool == MSRUN:
        return _parse_msrun(call, size)
    raise ProgramError("no shim is called {!r}; there are torchrun, torch_npu_run and msrun".format(call.tool))


def launches_one_process(call: ShimCall, size: Size) -> bool:
    """Return whether a call launches one process on one node although the job has several per pod.

    Such a call is not this job's training.
    """
    if call.tool == MSRUN or size.ranks_per_node == 1:
        return False
    options = _torchrun_options(call)
    return options.nproc_per_node == "1" and options.nnodes in (None, "1", "1:1")


def _torchrun_options(call: ShimCall) -> argparse.Namespace:
    """Parse the command line, with PET_<OPTION> as defaults, as torchrun does."""
    parser = _Parser(prog=SPOKEN.get(call.tool, call.tool), add_help=False)
    for name in TORCHRUN_VALUES.split():
        given = call.environment.get("PET_" + name.replace("-", "_").upper())
        parser.add_argument(*_spellings_of_option(name), default=given)
    for name in TORCHRUN_FLAGS.split():
        given = call.environment.get("PET_" + name.replace("-", "_").upper(), "0")
        parser.add_argument(*_spellings_of_option(name), action="store_true", default=given.strip() == "1")
    if call.tool == LAUNCH:
        parser.add_argument("--use-env", "--use_env", action="store_true")
    if call.tool == NPU_RUN:
        parser.add_argument("--enable-tiered-parallel-tcpstore", "--enable_tiered_parallel_tcpstore")
    _add_script_arguments(parser)
    return parser.parse_args(call.arguments)


def _spellings_of_option(name: str) -> List[str]:
    return [*([SHORT[name]] if name in SHORT else []), "--" + name, "--" + name.replace("-", "_")]


def _parse_torchrun(call: ShimCall, size: Size) -> Program:
    options, tool = _torchrun_options(call), SPOKEN.get(call.tool, call.tool)
    if options.virtual_local_rank:
        raise ProgramError("{}: --virtual-local-rank is not possible under Hajob; leave it out".format(tool))
    if options.no_python and options.module:
        raise ProgramError("{}: --no-python and --module exclude each other".format(tool))
    interpreter = [call.environment.get("PYTHON_EXEC") or call.python, "-u"]
    prefix = [] if options.no_python else interpreter + (["-m"] if options.module else [])
    environment = dict(call.environment)
    if size.ranks_per_node > 1:
        environment.setdefault("OMP_NUM_THREADS", "1")
    notes = _notes_on_contradictions(
        tool,
        size,
        [
            ("--nnodes", options.nnodes, _fits_number_of_nodes(options.nnodes, size.number_of_nodes),
             size.number_of_nodes),
            ("--nproc-per-node", options.nproc_per_node, _fits_own_number(options.nproc_per_node, size.ranks_per_node),
             size.ranks_per_node),
            ("--node-rank", options.node_rank, _fits_own_number(options.node_rank, size.node_rank), size.node_rank),
            ("--standalone", "", not options.standalone or size.number_of_nodes == 1,
             "{} nodes".format(size.number_of_nodes)),
        ],
    )  # fmt: skip
    return Program(
        [*prefix, options.script, *options.arguments],
        call.cwd,
        environment,
        notes + _notes_without_effect(tool, options, WITHOUT_EFFECT),
        is_python=not options.no_python,
        script=options.script,
        arguments=options.arguments,
        numbered=call.tool == LAUNCH and not options.use_env,
        limits=call.limits,
    )


def _parse_msrun(call: ShimCall, size: Size) -> Program:
    parser = _Parser(prog=MSRUN, add_help=False)
    for name in MSRUN_VALUES.split():
        parser.add_argument("--" + name)
    parser.set_defaults(join="False")
    _add_script_arguments(parser)
    options = parser.parse_args(call.arguments)
    if options.sim_level not in (None, "-1"):
        raise ProgramError("msrun: --sim_level is a dry run without chips, not a job for Hajob; leave it out")
    joins = _msrun_joins(options.join)
    is_python = options.script not in MSRUN_INTERPRETED
    prefix = [call.python, "-u"] if is_python else []
    notes = _notes_on_contradictions(
        MSRUN,
        size,
        [
            ("--worker_num", options.worker_num, _fits_own_number(options.worker_num, size.world_size),
             size.world_size),
            ("--local_worker_num", options.local_worker_num,
             _fits_own_number(options.local_worker_num, size.ranks_per_node), size.ranks_per_node),
            ("--node_rank", options.node_rank, _fits_own_number(options.node_rank, size.node_rank), size.node_rank),
        ],
    )  # fmt: skip
    topology_seconds = options.cluster_time_out or MSRUN_TOPO_SECONDS
    environment = dict(call.environment, MS_TOPO_TIMEOUT=topology_seconds)
    return Program(
        [*prefix, options.script, *options.arguments],
        call.cwd,
        environment,
        notes + _notes_without_effect(MSRUN, options, MSRUN_WITHOUT_EFFECT),
        is_python=is_python,
        script=options.script,
        arguments=options.arguments,
        detached=not joins,
        log_directory=os.path.join(call.cwd, options.log_dir or ""),
        limits=call.limits,
    )


def _msrun_joins(given: str) -> bool:
    """Read the value of `--join` as msrun does: a Python literal that equals True or False."""
    try:
        joins = ast.literal_eval(given)
    except (SyntaxError, ValueError):
        joins = None
    if joins not in (True, False):
        raise ProgramError("msrun: --join is True or False, spelled so; here it is {}".format(given))
    return bool(joins)


def _notes_without_effect(tool: str, options: argparse.Namespace, names: str) -> List[str]:
    values = {name: getattr(options, name.replace("-", "_"), None) for name in names.split()}
    idle = [name for name, value in values.items() if value is not None and value.strip() not in ("", "0", "False")]
    return ["{} --{} has no effect under Hajob".format(tool, name) for name in idle]


def _add_script_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)


def _fits_own_number(given: str | None, ours: int) -> bool:
    """Whether an option is absent, a word for "as many as there are", or the job's own number."""
    return given is None or given in LOCAL_SIZE_WORDS or given.strip() == str(ours)


def _fits_number_of_nodes(given: str | None, ours: int) -> bool:
    """Whether torchrun's N or MIN:MAX allows the job's number of nodes."""
    if given is None:
        return True
    least, _, most = given.partition(":")
    try:
        return int(least) <= ours <= int(most or least)
    except ValueError:
        return False


def _notes_on_contradictions(tool: str, size: Size, options: List[Tuple[str, str | None, bool, object]]) -> List[str]:
    return [
        "{} {} {} is overridden by the job: {} (this is node {} of {})".format(
            tool, name, given, ours, size.node_rank, size.number_of_nodes
        ).replace("  ", " ")
        for name, given, fits, ours in options
        if not fits
    ]


def with_arguments(program: Program, changed: List[str]) -> Program:
    """Return the same program with other arguments."""
    before = len(program.argv) - len(program.arguments)
    return program._replace(argv=[*program.argv[:before], *changed], arguments=changed)


def program_of_rank(program: Program, local_rank: str) -> Program:
    """Return the program of one rank: torch.distributed.launch passes each its number as an argument."""
    if not program.numbered:
        return program
    before = len(program.argv) - len(program.arguments)
    argv = [*program.argv[:before], "--local-rank={}".format(local_rank), *program.argv[before:]]
    return program._replace(argv=argv)


def armed_arguments(program: Program, directory: str) -> List[str]:
    """Return the program's argv, through entry.py if that can start it (docs/protocols/launcher.md#stacks).

    Scripts without `.py` may be directories or archives, which the interpreter starts in ways of their own; with
    HAJOB_STACKS=off the user's program is started directly.
    """
    argv = program.argv
    known = program.is_python and (argv[2] == "-m" or argv[2].endswith(".py"))
    if not known or program.environment.get("HAJOB_STACKS") == "off":
        return argv
    return [*argv[:2], os.path.join(directory, ENTRY), *argv[2:]]


OF_A_WORKER = ("MS_NODE_ID", "MS_NODE_RANK", "RANK_ID", "RANK_SIZE", "DEVICE_ID")


def mindspore_environment(environment: Dict[str, str]) -> Dict[str, str]:
    """Return what msrun would set for one worker, from the rank's variables (RANK, LOCAL_RANK, MASTER_ADDR ...).

    Variables that differ between workers are set whatever the script has exported, as msrun does; MindIO takes the rank
    from MS_NODE_ID. The rest is set only where the script has not set it.
    """
    table = {
        "MS_ROLE": "MS_WORKER",
        "MS_WORKER_NUM": environment.get("WORLD_SIZE"),
        "MS_SCHED_HOST": environment.get("MASTER_ADDR"),
        "MS_SCHED_PORT": environment.get("MASTER_PORT"),
        "MS_NODE_ID": environment.get("RANK"),
        "MS_NODE_RANK": environment.get("GROUP_RANK"),
        "RANK_ID": environment.get("RANK"),
        "RANK_SIZE": environment.get("WORLD_SIZE"),
        "DEVICE_ID": environment.get("LOCAL_RANK"),
    }
    wanted = {name: value for name, value in table.items() if value is not None}
    return {name: value for name, value in wanted.items() if name in OF_A_WORKER or name not in environment}
