"""`kubectl hajob logs`: print the output of a rank, of every attempt that is kept.

Output is kept in files beside the checkpoints (docs/protocols/launcher.md#output). They are read where they are seen,
in the agent's container, by exec: no further port, no further right than `pods/exec`. Where the files lie on a
volume every rank pod sees those of all ranks, so a rank whose pod is gone is read in another one.
"""

import argparse
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import PurePosixPath
from typing import Final

from pydantic import ValidationError

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.conditions import ConditionType, find_condition
from hajob.api.derived import chips_per_node, world_size_of
from hajob.api.enums import Launcher
from hajob.api.job import HATrainingJob
from hajob.cli import log_reader
from hajob.cli.cluster import ClusterError, Container, ForbiddenError, KubernetesCluster, Streams
from hajob.cli.exits import DONE, NOT_DONE, run_reported
from hajob.cli.options import Commands, add_context_option, add_namespace, add_verb
from hajob.domain.errors import HajobInputError
from hajob.pods.containers import trainer_container
from hajob.pods.rank_pod import innermost_mount, output_directory
from hajob.sources.pod import UNSTARTABLE
from hajob.sources.pod import pod_view_of as view_of_pod

_READER_NOT_KEPT: Final = 3  # trainer_sidecar.logs.NOT_KEPT
_READER: Final = ("python3", "-m", "trainer_sidecar.logs")
_PRINTING: Final = ("env", "HAJOB_LOGS_OF_PRINTING=yes")
"""Before the reader where the rank is a guess: it looks for one that prints steps. An older reader prints the guess."""
_AGENT: Final = "agent"
_POLL_SECONDS: Final = 1.0
_OF_ITS_POD: Final = frozenset({"emptyDir", "ephemeral"})
"""Kinds of volumes that are made for each pod and go with it."""
# No rank has these numbers: they stand for whoever it is in this job.
CULPRIT: Final = -1
LAST: Final = -2


class _NobodyError(ClusterError):
    """No container could be asked."""


@dataclass(frozen=True)
class LogQuery:
    """The output that is asked for.

    Attributes:
        job: name of the job.
        namespace: its namespace; empty: that of the kubeconfig.
        rank: whose output; `CULPRIT`: of the rank that the newest incident began with; `LAST`: of the last one, which
            prints the steps of a Megatron training.
        attempt: of which attempt, all processes of it; None: of the newest process.
        previous: of the process before that one.
        tail: at most so many last lines; None: all.
        follow: go on with what is printed from now on.
        plog: only say where CANN's logs lie.
        is_guess: nobody has named the rank: another one that prints steps is as good.
    """

    job: str
    namespace: str
    rank: int
    attempt: int | None = None
    previous: bool = False
    tail: int | None = None
    follow: bool = False
    plog: bool = False
    is_guess: bool = False

    def reader_command(self) -> list[str]:
        """Return the command that reads the output, inside the container of an agent."""
        words = [*(_PRINTING if self.is_guess else ()), *_READER, f"--rank={self.rank}"]
        if self.attempt is not None:
            words.append(f"--attempt={self.attempt}")
        if self.tail is not None:
            words.append(f"--tail={self.tail}")
        return words + ["--previous"] * self.previous + ["--follow"] * self.follow


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_verb(commands, "logs")
    parser.add_argument("job", metavar="JOB", help="name of the HATrainingJob")
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument(
        "--rank",
        type=_parse_number,
        metavar="R",
        default=LAST,
        help="number of the rank (default: one that prints steps)",
    )
    whose.add_argument(
        "--failed",
        dest="rank",
        action="store_const",
        const=CULPRIT,
        help="print the output of the rank that the newest incident began with",
    )
    parser.add_argument(
        "--attempt",
        type=_parse_number,
        metavar="A",
        help="print all processes of this attempt (default: the newest process)",
    )
    parser.add_argument("-p", "--previous", action="store_true", help="print the process before the newest")
    parser.add_argument("--tail", type=_parse_number, metavar="N", help="print only the last N lines")
    parser.add_argument(
        "--plog", action="store_true", help="say where CANN's logs of the rank's node lie, for ascend-fd"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="keep printing, also after the rank restarts")
    add_namespace(parser)
    parser.add_argument("--kubeconfig", metavar="FILE", help="kubeconfig file (default: $KUBECONFIG or ~/.kube/config)")
    add_context_option(parser)
    parser.set_defaults(run=run_logs, is_guess=False)


def _parse_number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return int(text)


def run_logs(arguments: argparse.Namespace) -> int:
    """Print the output of a rank, or say why it cannot be shown."""
    question = LogQuery(**{each.name: getattr(arguments, each.name) for each in fields(LogQuery)})

    def print_asked_output() -> int:
        check_question(question)
        return print_output(
            question, KubernetesCluster(arguments.kubeconfig, arguments.context), Streams(_write_stdout, _write_stderr)
        )

    return run_reported(print_asked_output)


def _write_stdout(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _write_stderr(data: bytes) -> None:
    sys.stderr.buffer.write(data)
    sys.stderr.buffer.flush()


def check_question(question: LogQuery) -> None:
    """Raise `HajobInputError` for what makes no sense whatever the job is."""
    if question.follow and (question.previous or question.attempt is not None):
        raise HajobInputError("--follow shows the newest process; leave out --previous and --attempt")


def print_output(question: LogQuery, cluster: KubernetesCluster, streams: Streams) -> int:
    """Print what was asked for.

    Returns:
        0, or 1 where it is not kept; the reader's sentence has been printed then.

    Raises:
        HajobInputError: the job has no such rank, or its ranks are not Hajob's to keep output of.
        ClusterError: there is no such job, or nobody who could read the files.
    """
    namespace = question.namespace or cluster.namespace
    job = _read_job_object(cluster.get_job(namespace, question.job), question)
    question = replace(question, rank=_rank_asked_for(job, question.rank), is_guess=question.rank == LAST)
    if question.plog:
        streams.out(f"{where_plogs_lie(job, question)}\n".encode())
        return DONE
    pods = cluster.list_pods(
        namespace, f"{names.LABEL_JOB_UID}={job.metadata.uid},{names.LABEL_ROLE}={names.ROLE_RANK}"
    )
    node_rank = question.rank // chips_per_node(job.spec)
    able = pods_to_read_from(pods, node_rank, shared=_volume_of_output(job) is not None)
    containers = [Container(namespace, pod["metadata"]["name"], _AGENT) for pod in able]
    try:
        code = _ask_containers(cluster, containers, question, streams)
    except _NobodyError as nobody:
        ended = _newest_ended_pod(pods, node_rank)
        if (waits := _why_nothing_yet(job)) and not ended:
            raise ClusterError(f"output of rank {question.rank} cannot be read: {waits}") from None
        is_in_files = not ended or question.attempt is not None or question.previous
        if is_in_files and _volume_of_output(job) is not None and not containers and not question.follow:
            return _by_reader_pod(job, cluster, question, streams)
        if is_in_files:
            raise ClusterError(
                f"output of rank {question.rank} cannot be read: {nobody}; {where_files_lie(job)}"
            ) from None
        said = f"pod {ended} has ended, this is what the log of its container has; {where_files_lie(job)}"
        streams.error(f"==> {said} <==\n".encode())
        log = cluster.container_log(Container(namespace, ended, names.TRAINER_CONTAINER))
        _from_container_log(question, log, streams)
        return 0
    return NOT_DONE if code == _READER_NOT_KEPT else code


def _rank_asked_for(job: HATrainingJob, rank: int) -> int:
    """Return the number of a rank that is asked for by number, or by what it is."""
    if rank == CULPRIT:
        return _rank_of_newest_incident(job)
    return world_size_of(job.spec) - 1 if rank == LAST else rank


def _rank_of_newest_incident(job: HATrainingJob) -> int:
    """The rank that the newest incident of a rank began with."""
    for incident in job.status.incidents:
        if incident.cause.first_rank >= 0:
            return incident.cause.first_rank
    raise HajobInputError(f"no incident of {job.metadata.name} began with a rank; name one with --rank")


def _why_nothing_yet(job: HATrainingJob) -> str:
    """Why the job has printed nothing: it waits for its first start; empty: it has begun."""
    status = job.status
    state = status.summary.state if status.summary is not None else ""
    has_trained = status.progress is not None and status.progress.step >= 0  # one that was suspended waits again
    has_begun = has_trained or status.restarts.infrastructure or status.restarts.program
    if state not in {"Pending", "Refused"} or has_begun:
        return ""
    wanted = (ConditionType.ACCEPTED, ConditionType.SCHEDULED, ConditionType.RUNNING)
    said = (find_condition(status.conditions, kind) for kind in wanted)
    why = next((one.message or one.reason for one in said if one is not None and one.status != "True"), "")
    return f"{job.metadata.name} is {state} and has printed nothing yet{f': {why}' if why else ''}"


def _by_reader_pod(job: HATrainingJob, cluster: KubernetesCluster, question: LogQuery, streams: Streams) -> int:
    """Print it by a pod that is made for this, and deleted afterwards."""
    pod = log_reader.build_reader_pod(
        job, question.rank, question.attempt, question.tail, previous=question.previous, is_guess=question.is_guess
    )
    namespace = pod["metadata"]["namespace"] = job.metadata.namespace or cluster.namespace
    try:
        name = cluster.create_pod(pod)
    except ClusterError as refusal:
        words = f"no pod of {job.metadata.name} runs, and none can be made to read {where_files_lie(job)}: {refusal}"
        raise ClusterError(f"{words}\nwho may create pods there can run:\n{log_reader.commands_by_hand(pod)}") from None
    streams.error(
        f"==> no pod of {job.metadata.name} runs; pod {name} reads its files and is deleted then <==\n".encode()
    )
    try:
        phase, trouble = _wait_for_end(cluster, namespace, name)
        if not phase:
            raise ClusterError(f"pod {name} did not start: {trouble or 'no reason is known'}; {where_files_lie(job)}")
        for line in cluster.container_log(Container(namespace, name, log_reader.CONTAINER)):
            (streams.out if phase == "Succeeded" else streams.error)(line)
        return 0 if phase == "Succeeded" else NOT_DONE
    finally:
        cluster.delete_pod(namespace, name)


def _wait_for_end(cluster: KubernetesCluster, namespace: str, name: str) -> tuple[str, str]:
    """Wait until a pod has ended; its phase, empty where it never will, and what it says of itself."""
    for _ in range(int(log_reader.DEADLINE_SECONDS / _POLL_SECONDS)):
        view = view_of_pod(cluster.get_pod(namespace, name))
        if view.has_ended:
            return view.phase, view.trouble
        if view.trouble_code in UNSTARTABLE:
            return "", view.trouble
        threading.Event().wait(_POLL_SECONDS)
    return "", view.trouble or view.unschedulable


def _ask_containers(
    cluster: KubernetesCluster, containers: Iterable[Container], question: LogQuery, streams: Streams
) -> int:
    """The reader's exit code in the first container that answers; `_NobodyError` where none does."""
    problems: list[str] = []
    begun = False

    def out(data: bytes) -> None:
        nonlocal begun
        begun = True
        streams.out(data)

    for container in containers:
        try:
            return cluster.execute_in_container(
                container, question.reader_command(), streams._replace(out=out), hold=question.follow
            )
        except ClusterError as problem:
            # Another pod would print it all again, and to ask another one needs the same right.
            if begun or isinstance(problem, ForbiddenError):
                raise
            problems.append(str(problem))
    raise _NobodyError("; ".join(problems) or f"no pod of {question.job} runs that could")


def _read_job_object(raw: Json, question: LogQuery) -> HATrainingJob:
    try:
        job = HATrainingJob.from_object(raw)
    except ValidationError as problem:
        raise HajobInputError(f"{question.job} is not understood by this version of kubectl-hajob: {problem}") from None
    if job.spec.launcher is not Launcher.HAJOB:
        raise HajobInputError(f"{question.job} has launcher {job.spec.launcher}, which keeps its ranks' output itself")
    ranks = world_size_of(job.spec)
    if question.rank >= ranks:
        raise HajobInputError(f"{question.job} has no rank {question.rank}: its ranks are 0 to {ranks - 1}")
    return job


def pods_to_read_from(pods: Iterable[Json], node_rank: int, *, shared: bool) -> list[Json]:
    """Return the pods whose agent runs and sees the files: those of the node rank, newest first, then others.

    Pods of other node ranks see the files only on a volume that all share (`shared`).
    """
    able = [pod for pod in pods if _is_agent_running(pod)]
    own = [pod for pod in able if _number_in_label(pod, names.LABEL_NODE_RANK) == node_rank]
    others = [pod for pod in able if pod not in own] if shared else []
    newest_first = sorted(own, key=lambda pod: _number_in_label(pod, names.LABEL_INCARNATION), reverse=True)
    return [*newest_first, *others[:2]]


def _number_in_label(pod: Json, name: str) -> int:
    return int(pod["metadata"].get("labels", {}).get(name, -1))


def _is_agent_running(pod: Json) -> bool:
    statuses = pod.get("status", {}).get("initContainerStatuses") or []
    running = any(each["name"] == _AGENT and "running" in (each.get("state") or {}) for each in statuses)
    return running and "deletionTimestamp" not in pod["metadata"]


def _newest_ended_pod(pods: Iterable[Json], node_rank: int) -> str:
    """The newest pod of a node rank that has ended and is still there; empty: none."""
    found = [
        pod
        for pod in pods
        if _number_in_label(pod, names.LABEL_NODE_RANK) == node_rank
        and pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}
    ]
    newest = max(found, key=lambda pod: _number_in_label(pod, names.LABEL_INCARNATION), default=None)
    return str(newest["metadata"]["name"]) if newest else ""


def _from_container_log(question: LogQuery, log: Iterable[bytes], streams: Streams) -> None:
    """The rank's lines in what the kubelet keeps of the container; the launcher marks each with its rank."""
    mark = f"[rank {question.rank}] ".encode()
    lines = [line.removeprefix(mark) for line in log if line.startswith(mark)]
    for line in lines if question.tail is None else lines[max(0, len(lines) - question.tail) :]:
        streams.out(line)


def _volume_of_output(job: HATrainingJob) -> Json | None:
    """The mount of the trainer under which output is kept; None: on no volume, or on one of each pod's own."""
    mount = _mount_of_output(job)
    return None if mount is None or _kind_of_volume(job, mount) in _OF_ITS_POD else mount


def _mount_of_output(job: HATrainingJob) -> Json | None:
    return innermost_mount(trainer_container(job.spec.template["spec"]), output_directory(job))


def _kind_of_volume(job: HATrainingJob, mount: Json) -> str:
    return next((key for key in _mounted_volume(job, mount) if key != "name"), "volume")


def _mounted_volume(job: HATrainingJob, mount: Json) -> Json:
    volumes: list[Json] = job.spec.template["spec"].get("volumes") or []
    return next((each for each in volumes if each["name"] == mount["name"]), {"name": mount["name"]})


def where_plogs_lie(job: HATrainingJob, question: LogQuery) -> str:
    """Say for a person where the plogs of a rank's node lie, and what reads them (docs/protocols/launcher.md)."""
    attempt = "ATTEMPT" if question.attempt is None else str(question.attempt)
    worker = f"worker-{question.rank // chips_per_node(job.spec)}"
    place = PurePosixPath(output_directory(job)) / attempt / worker / "process_log"
    newest = " (ATTEMPT: the highest number there is the newest)" if question.attempt is None else ""
    return (
        f"plogs of rank {question.rank} and its node: {place}{newest}, unless the start script sets "
        f"ASCEND_PROCESS_LOG_PATH; {where_files_lie(job)}\n"
        f"read them with: ascend-fd parse --process_log {place} -o DIRECTORY"
    )


def where_files_lie(job: HATrainingJob) -> str:
    """Say for a person in which directory of which volume the files lie."""
    directory, mount = output_directory(job), _mount_of_output(job)
    if mount is None:
        return (
            f"{directory} is on no volume of the container {names.TRAINER_CONTAINER}, so output was kept in the pods "
            "only and went with them; set spec.output.path to a directory on a volume"
        )
    kind = _kind_of_volume(job, mount)
    if kind in _OF_ITS_POD:
        return (
            f"output was kept on {kind} {mount['name']} in the pods only and went with them; set spec.output.path to a "
            "directory on a volume that all ranks share"
        )
    volume = _mounted_volume(job, mount)
    source = volume.get(kind) or {}
    name = source.get("claimName") or source.get("path") or volume["name"]
    return f"its files are in {directory}, as the container {names.TRAINER_CONTAINER} sees it, on {kind} {name}"
