"""`kubectl hajob list` and `top`: all jobs, a line each, with what the ones in trouble wait for."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Iterable

from hajob.cli.exits import run_reported
from hajob.cli.job_view import COLUMNS, JobView
from hajob.cli.objects import JOBS, KubernetesObjects, ReadObjects, listed
from hajob.cli.options import Commands, add_context_option, add_namespace, add_output_option, add_verb
from hajob.cli.output import FORMATS, Answer, Table, live_screen, print_answer
from hajob.clock import SystemClock

_WORST_FIRST = ("Failed", "Refused", "OnHold", "Held", "Recovering", "Restarting", "Pending", "Starting", "Unprotected")


def add_parser(commands: Commands) -> None:
    """Add both commands to the command line."""
    one = add_verb(commands, "list")
    _add_scope_of_jobs(one)
    add_output_option(one, FORMATS)
    one.set_defaults(run=run_list)
    live = add_verb(commands, "top")
    _add_scope_of_jobs(live)
    live.add_argument(
        "--every", type=float, default=2.0, metavar="SECONDS", help="look so often (default: %(default)s)"
    )
    live.add_argument("--once", action="store_true", help="print one picture and end")
    live.set_defaults(run=run_top)


def _add_scope_of_jobs(parser: argparse.ArgumentParser) -> None:
    add_namespace(parser)
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="jobs of all namespaces")
    add_context_option(parser)


def run_list(arguments: argparse.Namespace) -> int:
    """Print the jobs."""
    return run_reported(
        lambda: print_answer(
            table_of_jobs(_objects_of_cluster(arguments), _namespace_asked_for(arguments)), arguments.output
        )
    )


def run_top(arguments: argparse.Namespace) -> int:
    """Print the jobs again and again."""

    def draw_until_interrupted() -> int:
        objects = _objects_of_cluster(arguments)
        pause = threading.Event()
        with live_screen() as draw:
            while True:
                draw(table_of_jobs(objects, _namespace_asked_for(arguments), worst_first=True).told)
                if arguments.once:
                    return 0
                pause.wait(max(arguments.every, 0.5))

    return run_reported(draw_until_interrupted)


def _objects_of_cluster(arguments: argparse.Namespace) -> KubernetesObjects:
    found = KubernetesObjects(context=arguments.context)
    arguments.namespace = arguments.namespace or found.namespace
    return found


def _namespace_asked_for(arguments: argparse.Namespace) -> str:
    return "" if arguments.all_namespaces else arguments.namespace


def table_of_jobs(
    objects: ReadObjects, namespace: str, *, worst_first: bool = False, now: Callable[[], int] | None = None
) -> Answer:
    """Return the jobs of a namespace (empty: of all) as a table."""
    now_ms = (now or SystemClock().now_milliseconds)()
    jobs = jobs_of_namespace(objects, namespace, now_ms)
    jobs = order_by_trouble(jobs) if worst_first else sorted(jobs, key=lambda job: (job.namespace, job.name))
    if not jobs:
        where = f"in namespace {namespace}" if namespace else "in the cluster"
        return Answer([f"there is no HATrainingJob {where}"], [])
    table = Table(COLUMNS, [job.row() for job in jobs])
    return Answer([table], [job.data() for job in jobs], [job.resource_name for job in jobs])


def jobs_of_namespace(objects: ReadObjects, namespace: str, now_ms: int) -> list[JobView]:
    """Return the jobs of a namespace, empty: of all.

    Raises:
        ClusterError: they may not be read.
    """
    group, _, plural = JOBS.rpartition("/")
    path = f"{group}/namespaces/{namespace}/{plural}" if namespace else JOBS
    return [JobView(raw, now_ms) for raw in listed(objects, path)]


def order_by_trouble(jobs: Iterable[JobView]) -> list[JobView]:
    """Return the jobs with those in trouble first: whoever watches looks at the first lines."""
    return sorted(jobs, key=lambda job: (_rank_of_trouble(job), job.namespace, job.name))


def _rank_of_trouble(job: JobView) -> int:
    return _WORST_FIRST.index(job.state) if job.state in _WORST_FIRST else len(_WORST_FIRST)
