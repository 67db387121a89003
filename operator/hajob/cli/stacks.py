"""`kubectl hajob stacks`: where the ranks of a job stand now, those that stand at the same place together.

A script is run in each trainer container by exec. It sends the ranks the signal on which faulthandler writes their
Python stacks, as the launcher does before it ends a rank that hangs (docs/protocols/launcher.md#stacks). The training
is not disturbed. A rank that was not started through the launcher's entry has none.
"""

from __future__ import annotations

import argparse
import json
import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.cli.cluster import ClusterError, Container, ForbiddenError, KubernetesCluster, Streams
from hajob.cli.exits import run_reported
from hajob.cli.options import Commands, add_context_option, add_job, add_output_option, add_verb
from hajob.cli.output import FORMATS, UNKNOWN, Answer, Block, print_answer, resource_name_of_job
from hajob.domain.text import counted_noun, harmless_text, number_runs
from hajob.sources.reading import mapping, name_of_object, text

SCRIPT: Final = r"""
import json, os, sys, time
own = os.path.join(os.environ.get("HAJOB_DIR", ""), "stacks") + os.sep
found = {}
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open("/proc/%s/environ" % pid, "rb") as file:
            pairs = [one.partition("=") for one in os.fsdecode(file.read()).split("\0")]
        with open("/proc/%s/status" % pid) as file:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    except (OSError, ValueError):
        continue
    known = {name: value for name, _, value in pairs}
    path, number = known.get("HAJOB_STACK_FILE", ""), known.get("HAJOB_STACK_SIGNAL", "")
    if path.startswith(own) and number.isdigit():
        found[pid] = path, int(number), known.get("RANK") or os.path.basename(path).split("-")[-1].split(".")[0], status
for pid, (path, number, rank, status) in sorted(found.items(), key=lambda one: int(one[0])):
    if found.get(status.get("PPid"), ("",))[0] == path:
        continue  # a helper that a rank has started
    told = {"rank": int(rank) if rank.isdigit() else -1, "pid": int(pid), "stack": "", "problem": ""}
    try:
        if not int(status.get("SigCgt", "0"), 16) >> (number - 1) & 1:
            raise OSError("it takes no signal for its stack")
        before = os.path.getsize(path)
        os.kill(int(pid), number)
        size = -1
        for _ in range(20):
            time.sleep(0.1)
            now = os.path.getsize(path)
            if now > before and now == size:
                break
            size = now
        with open(path, "rb") as file:
            file.seek(before)
            told["stack"] = file.read(262144).decode("utf-8", "replace")
        if not told["stack"]:
            told["problem"] = "it did not answer for 2 s"
    except OSError as problem:
        told["problem"] = str(problem)
    print(json.dumps(told))
"""
"""For any Python from 3.7 on: it is the image's."""
_PYTHON: Final = ("python3", "-c", SCRIPT)
_FRAMES: Final = 12
_PAUSE_SECONDS: Final = 0.7
"""Between two looks: no multiple of usual step times, or each look would meet the same moment of a step."""
_STARTER: Final = re.compile(r'File "(<frozen runpy>|[^"]*/entry\.py)"')


@dataclass(frozen=True, slots=True)
class RankStack:
    """Where a rank stands: its stack as faulthandler writes it, or why there is none."""

    rank: int
    stack: str
    problem: str = ""
    node: str = ""

    @property
    def main_thread(self) -> tuple[str, ...]:
        """Return the frames of the main thread, the innermost first, without those that started the program."""
        frames: list[str] = []
        for line in self.stack.splitlines():
            if line.startswith(("Thread ", "Current thread ")):
                frames = []  # faulthandler writes the main thread last
            elif line.startswith("  File "):
                frames.append(line.strip())
        # They differ from pod to pod, by the directory of the launcher.
        own = (place for place, frame in enumerate(frames) if _STARTER.match(frame))
        return tuple(frames[: next(own, len(frames))])


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_verb(commands, "stacks")
    add_job(parser)
    parser.add_argument("--rank", type=int, metavar="R", help="ask only the pod of this rank (default: all pods)")
    parser.add_argument(
        "--times",
        type=int,
        default=1,
        metavar="N",
        help="look N times, and name the ranks that keep the others waiting (default: %(default)s)",
    )
    parser.add_argument("--all-threads", action="store_true", help="print every thread of every rank")
    add_context_option(parser)
    add_output_option(parser, FORMATS)
    parser.set_defaults(run=run_stacks)


def run_stacks(arguments: argparse.Namespace) -> int:
    """Print where the ranks stand."""

    def print_stacks() -> None:
        cluster = KubernetesCluster(context=arguments.context)
        namespace = arguments.namespace or cluster.namespace
        if arguments.times < 1:
            raise ValueError(f"--times {arguments.times}: it takes one look at least")
        looks = []
        for number in range(arguments.times):
            if number:
                threading.Event().wait(_PAUSE_SECONDS)
            looks.append(take_stacks(cluster, namespace, arguments.job, arguments.rank))
        found, problems = looks[-1]
        answer = answer_with_stacks(arguments.job, found, problems, all_threads=arguments.all_threads)
        if arguments.times > 1:
            answer = with_ranks_apart(answer, [look for look, _ in looks])
        print_answer(answer, arguments.output)

    return run_reported(print_stacks)


def take_stacks(
    cluster: KubernetesCluster, namespace: str, job: str, rank: int | None = None
) -> tuple[list[RankStack], list[str]]:
    """Return the stacks of the ranks, and what could not be asked.

    Raises:
        ClusterError: there is no such job, none of its pods runs, or none may be asked.
    """
    raw = cluster.get_job(namespace, job)
    uid = text(mapping(raw.get("metadata")).get("uid"))
    pods = cluster.list_pods(namespace, f"{names.LABEL_JOB_UID}={uid},{names.LABEL_ROLE}={names.ROLE_RANK}")
    running = [pod for pod in pods if _is_trainer_running(pod)]
    if rank is not None:
        running = [pod for pod in running if rank in _ranks_of_pod(raw, pod)]
    if not running:
        raise ClusterError(f"no pod of {job} runs" + (f" that has rank {rank}" if rank is not None else ""))
    found: list[RankStack] = []
    problems: list[str] = []
    for pod in running:
        try:
            node = text(mapping(pod.get("spec")).get("nodeName"))
            found += _ask_pod(cluster, Container(namespace, name_of_object(pod), names.TRAINER_CONTAINER), node)
        except ForbiddenError:
            raise  # to ask another pod needs the same right
        except ClusterError as problem:
            problems.append(str(problem))
    if not found and problems:
        raise ClusterError(problems[0])
    wanted = [one for one in found if rank is None or one.rank == rank]
    return sorted(wanted, key=lambda one: one.rank), problems


def _is_trainer_running(pod: Json) -> bool:
    statuses = mapping(pod.get("status")).get("containerStatuses") or []
    return any(one.get("name") == names.TRAINER_CONTAINER and "running" in (one.get("state") or {}) for one in statuses)


def _ranks_of_pod(job: Json, pod: Json) -> range:
    chips = mapping(mapping(job.get("status")).get("effective")).get("chipsPerNode") or 1
    node_rank = int(mapping(mapping(pod.get("metadata")).get("labels")).get(names.LABEL_NODE_RANK, -1))
    return range(node_rank * chips, (node_rank + 1) * chips)


def _ask_pod(cluster: KubernetesCluster, container: Container, node: str) -> Iterator[RankStack]:
    written, complaints = bytearray(), bytearray()
    streams = Streams(written.extend, complaints.extend)
    code = cluster.execute_in_container(container, [*_PYTHON], streams, hold=False)
    if code:
        told = complaints.decode(errors="replace").strip().splitlines() or [f"exit code {code}"]
        raise ClusterError(f"pod {container.pod}: {harmless_text(told[-1])}")
    lines = written.decode(errors="replace").splitlines()
    if not lines:
        raise ClusterError(f"pod {container.pod} has no rank that was started through the launcher's entry")
    for line in lines:
        told = json.loads(line)
        yield RankStack(told["rank"], harmless_text(told["stack"]), told["problem"], node)


def answer_with_stacks(
    job: str, found: Sequence[RankStack], problems: Sequence[str], *, all_threads: bool = False
) -> Answer:
    """Return where the ranks stand; ranks whose main threads stand at the same place are told together."""
    told: list[Block] = []
    groups: dict[tuple[str, ...], list[int]] = {}
    for one in found:
        if one.problem:
            told.append(f"rank {one.rank}: {UNKNOWN}, {one.problem}")
        else:
            groups.setdefault(one.main_thread, []).append(one.rank)
    number = sum(map(len, groups.values()))
    # The few that stand elsewhere are what one looks for.
    for frames, ranks in sorted(groups.items(), key=lambda group: len(group[1])):
        stand = "stands" if len(ranks) == 1 else "stand"
        told.append(f"{ranks_in_words(ranks)} {stand} here ({len(ranks)} of {number}), the innermost call first:")
        told += [f"  {frame}" for frame in frames[:_FRAMES]] or ["  outside of Python"]
        if len(frames) > _FRAMES:
            told.append(f"  … {counted_noun(len(frames) - _FRAMES, 'call')} more")
    if all_threads:
        for one in found:
            told += [f"rank {one.rank}, all threads:", *(f"  {line}" for line in one.stack.splitlines())]
    told += [f"{UNKNOWN}: {problem}" for problem in problems]
    data: list[dict[str, Any]] = [
        {"rank": one.rank, "mainThread": list(one.main_thread), "stack": one.stack, "problem": one.problem}
        for one in found
    ]
    return Answer(told or [f"no rank of {job} was found"], data, [resource_name_of_job(job)])


def with_ranks_apart(answer: Answer, looks: Sequence[Sequence[RankStack]]) -> Answer:
    """Return an answer with the ranks that stood elsewhere than most of the others, and how often, before the rest.

    Steps do not tell a slow rank, because at each one everybody waits for it. But while most wait at one place, the
    one that they wait for stands elsewhere.
    """
    apart, seen = Counter[RankPlace](), 0
    for look in looks:
        found = ranks_apart(look)
        seen += found is not None
        apart.update(found or ())
    told = list(_sentences_of_apart(apart, seen, len(looks)))
    data = {
        "looks": len(looks),
        "looksWithMost": seen,
        "apart": [{"rank": one.rank, "node": one.node, "times": times} for one, times in apart.most_common()],
        "ranks": answer.data,
    }
    return Answer([*told, "the last look:", *answer.told], data, answer.names)


@dataclass(frozen=True, slots=True, order=True)
class RankPlace:
    """A rank and the node that it is on."""

    rank: int
    node: str


def ranks_apart(look: Sequence[RankStack]) -> list[RankPlace] | None:
    """Return the ranks that stand elsewhere than most of the others; None where no place has most of them."""
    places = {one.rank: one.main_thread for one in look if not one.problem}
    most, number = next(iter(Counter(places.values()).most_common(1)), ((), 0))
    if 2 * number <= len(places):
        return None
    return [RankPlace(one.rank, one.node) for one in look if places.get(one.rank, most) != most]


def _sentences_of_apart(apart: Counter[RankPlace], seen: int, looks: int) -> Iterator[str]:
    if not seen:
        yield f"in none of {looks} looks most ranks stood at one place: who is slow cannot be known from that"
    elif not apart:
        yield f"in {seen} of {looks} looks most ranks stood at one place and none elsewhere: nobody is seen to be slow"
    for one, times in sorted(apart.items(), key=lambda item: (-item[1], item[0])):
        told = f"rank {one.rank} on {one.node or UNKNOWN} stood apart in {times} of {looks} looks"
        # Once may be chance: every rank is the last one now and then.
        yield f"{told}; the others wait for it" if times > 1 and 2 * times > seen else told


def ranks_in_words(ranks: Iterable[int]) -> str:
    """Return `rank 3`, `ranks 0-2, 5`."""
    listed = sorted(ranks)
    return f"{'rank' if len(listed) == 1 else 'ranks'} {', '.join(number_runs(listed))}"
