"""`kubectl hajob bundle`: everything that helps others to understand a job, in one archive without secrets.

It holds what the person may read: the job, its pods, Events and logs, the operator's lines about it, and what
`status`, `why`, `timeline`, `report` and `doctor` say. What may not be read is listed, with the right that is missing.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from hajob.api import constants as names
from hajob.cli import doctor, report, status, timeline, why
from hajob.cli.cluster import ClusterError, ForbiddenError
from hajob.cli.exits import run_reported
from hajob.cli.language import say
from hajob.cli.objects import NODES, Objects, find_job, job_asked_for, listed
from hajob.cli.options import (
    Commands,
    add_context_option,
    add_fault_namespaces,
    add_job,
    add_operator_namespace,
    add_verb,
)
from hajob.cli.output import UNKNOWN, plain_lines
from hajob.cli.redaction import redact_object, redact_text
from hajob.domain.text import counted_noun
from hajob.sources.reading import items, mapping, name_of_object, text

if TYPE_CHECKING:
    from hajob.api.base import Json

_OPERATOR_SELECTOR: Final = "app.kubernetes.io/name=hajob-operator"
_LINES: Final = 5_000
_BYTES: Final = 4 << 20
"""Most of one log: a job of a hundred nodes must fit into a mail."""

Contents = dict[str, str]
ReadText = Callable[[str], str]


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_verb(commands, "bundle")
    add_job(parser)
    parser.add_argument(
        "-f",
        "--filename",
        metavar="FILE",
        help="archive to write (default: hajob-NAMESPACE-JOB-TIME.tar.gz in the current directory)",
    )
    add_operator_namespace(parser)
    add_fault_namespaces(parser)
    add_context_option(parser)
    parser.set_defaults(run=run_bundle)


def run_bundle(arguments: argparse.Namespace) -> int:
    """Write the archive, and say what is in it."""

    def write_bundle() -> None:
        objects, namespace, name, now_ms = job_asked_for(arguments)
        bundle = Bundle(objects, objects.read_text, now_ms)
        spaces = (arguments.operator_namespace, *arguments.fault_namespaces.split(","))
        contents = bundle.collect_all(namespace, name, spaces)
        at = datetime.fromtimestamp(now_ms / 1000, UTC)
        path = Path(arguments.filename or f"hajob-{namespace}-{name}-{at:%Y%m%d-%H%M%S}.tar.gz")
        write_archive(path, contents, now_ms)
        say(f"{path}: {counted_noun(len(contents), 'file')}, {path.stat().st_size / 1e3:,.0f} kB")
        for line in bundle.missing:
            say(line)
        say("secrets that are known by their name or form are removed; look into it before you give it away")

    return run_reported(write_bundle)


def write_archive(path: Path, contents: Mapping[str, str], now_ms: int) -> None:
    """Write files into an archive that only its owner may read.

    Raises:
        ClusterError: the file cannot be written.
    """
    packed = io.BytesIO()
    top = path.name.removesuffix(".tar.gz")
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in contents.items():
            data = content.encode()
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.size, entry.mode, entry.mtime = len(data), 0o600, now_ms // 1000
            archive.addfile(entry, io.BytesIO(data))
    try:
        # Made with its rights, so that nobody reads it in between.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(packed.getvalue())
    except OSError as problem:
        raise ClusterError(f"{path} cannot be written: {problem.strerror}") from None


class Bundle:
    """Collects files about a job; `missing` says what could not be read.

    Args:
        objects: of the cluster.
        read_text: returns what is at a path that is no JSON, such as a log.
        now_ms: milliseconds since 1970.
    """

    def __init__(self, objects: Objects, read_text: ReadText, now_ms: int) -> None:
        self._objects, self._read_text, self._now_ms = objects, read_text, now_ms
        self._contents: Contents = {}
        self.missing: list[str] = []

    def collect_all(self, namespace: str, name: str, spaces: tuple[str, ...]) -> Contents:
        """Return all files by name; `spaces`: namespaces of the operator, then those of MindCluster's ConfigMaps.

        Raises:
            ClusterError: there is no such job, or it may not be read.
        """
        job = find_job(self._objects, namespace, name)
        self._add_job(job)
        self._add_answers(job, namespace, name, spaces)
        pods = self._list(f"pods in {namespace}", f"/api/v1/namespaces/{namespace}/pods", names.LABEL_JOB_NAME, name)
        for pod in pods:
            self._add_pod(namespace, pod)
        self._add_events(namespace, name, {name_of_object(pod) for pod in pods})
        for node in sorted({text(mapping(pod.get("spec")).get("nodeName")) for pod in pods} - {""}):
            self._try(f"get node {node}", partial(self._add_node, node))
        self._add_operator(spaces[0], job)
        self._try("get /version", self._add_versions)
        if self.missing:
            self._contents["missing.txt"] = "\n".join(self.missing) + "\n"
        return self._contents

    def _add_job(self, job: Json) -> None:
        journal = mapping(job.get("status")).get("journal")
        shown = {**job, "status": {key: value for key, value in mapping(job.get("status")).items() if key != "journal"}}
        self._add_yaml("job.yaml", shown)
        if isinstance(journal, str) and journal:
            try:
                told = json.dumps(redact_object(json.loads(journal)), indent=1)
            except ValueError:
                told = redact_text(journal)
            self._contents["journal.json"] = told

    def _add_answers(self, job: Json, namespace: str, name: str, spaces: tuple[str, ...]) -> None:
        """Add what the other commands say: mostly that is all that others need."""
        asked = (self._objects, namespace, name, self._now_ms)
        questions: dict[str, Callable[[], Iterable[str]]] = {
            "status": lambda: plain_lines(status.screen_of_job(*asked).told),
            "why": lambda: plain_lines(why.explanation_of_job(*asked).told),
            "timeline": lambda: plain_lines(timeline.history_of_job(*asked).told),
            "report": lambda: plain_lines(report.report_of_job(*asked).told),
            "doctor": lambda: doctor.lines_about_job(self._objects, job, spaces, self._now_ms),
        }
        for verb, ask in questions.items():
            self._try(verb, partial(self._add_answer, f"{verb}.txt", ask))

    def _add_answer(self, file: str, ask: Callable[[], Iterable[str]]) -> None:
        self._add_lines(file, ask())

    def _add_pod(self, namespace: str, pod: Json) -> None:
        name = name_of_object(pod)
        self._add_yaml(f"pods/{name}.yaml", pod)
        told = mapping(pod.get("status"))
        for one in (*items(told.get("initContainerStatuses")), *items(told.get("containerStatuses"))):
            container = mapping(one)
            path = f"/api/v1/namespaces/{namespace}/pods/{name}/log?container={container.get('name')}"
            if mapping(container.get("state")).keys() & {"running", "terminated"}:
                self._add_log(f"pods/{name}.{container.get('name')}.log", path, namespace)
            if restarts_of_container(container):
                self._add_log(f"pods/{name}.{container.get('name')}.previous.log", f"{path}&previous=true", namespace)

    def _add_log(self, file: str, path: str, namespace: str) -> None:
        def read() -> None:
            told = self._read_text(f"{path}&tailLines={_LINES}&limitBytes={_BYTES}")
            self._contents[file] = redact_text(told)

        self._try(f"get pods/log in {namespace}", read)

    def _add_events(self, namespace: str, name: str, pods: set[str]) -> None:
        found = self._list(f"events in {namespace}", f"/api/v1/namespaces/{namespace}/events")
        mine = [one for one in found if _is_about(one, name, pods)]
        self._add_yaml("events.yaml", sorted(mine, key=timeline.event_time))

    def _add_node(self, node: str) -> None:
        found = self._objects.find_object(f"{NODES}/{node}")
        if found is not None:
            # Images of a node are those of other people's work.
            told = {key: value for key, value in mapping(found.get("status")).items() if key != "images"}
            self._add_yaml(f"nodes/{node}.yaml", {**found, "status": told})

    def _add_operator(self, namespace: str, job: Json) -> None:
        """Add the lines of the operator's log that are about the job: others may be about other people's."""
        label, _, value = _OPERATOR_SELECTOR.partition("=")
        metadata = mapping(job.get("metadata"))
        marks = [f"{metadata.get('namespace')}/{metadata.get('name')}", text(metadata.get("uid"))]
        for pod in self._list(f"pods in {namespace}", f"/api/v1/namespaces/{namespace}/pods", label, value):
            name = name_of_object(pod)
            self._try(f"get pods/log in {namespace}", partial(self._add_operator_log, namespace, name, marks))

    def _add_operator_log(self, namespace: str, pod: str, marks: Sequence[str]) -> None:
        told = self._read_text(f"/api/v1/namespaces/{namespace}/pods/{pod}/log?limitBytes={_BYTES * 4}")
        lines = [line for line in told.splitlines() if any(map(line.__contains__, marks))]
        self._add_lines(f"operator/{pod}.log", lines[-_LINES:])

    def _add_versions(self) -> None:
        from hajob.version import VERSION

        told = {"kubectl-hajob": VERSION, "server": self._objects.find_object("/version")}
        self._contents["versions.yaml"] = yaml.safe_dump(told, sort_keys=False)

    def _list(self, what: str, path: str, label: str = "", value: str = "") -> list[Json]:
        found: list[Json] = []
        selector = {"labelSelector": f"{label}={value}"} if label else {}
        self._try(f"list {what}", lambda: found.extend(listed(self._objects, path, **selector)))
        return found

    def _add_yaml(self, file: str, content: Any) -> None:  # noqa: ANN401  any JSON
        self._contents[file] = yaml.safe_dump(redact_object(content), sort_keys=False, allow_unicode=True)

    def _add_lines(self, file: str, lines: Iterable[str]) -> None:
        self._contents[file] = redact_text("".join(f"{line}\n" for line in lines))

    def _try(self, right: str, read: Callable[[], object]) -> None:
        """Read something; what cannot be had is noted once, and the rest is read all the same."""
        try:
            read()
        except ForbiddenError:
            self._note(f"{UNKNOWN}: needs the right to {right}")
        except ClusterError as problem:
            self._note(f"{UNKNOWN}: {problem}")

    def _note(self, line: str) -> None:
        if line not in self.missing:
            self.missing.append(line)


def restarts_of_container(container: Mapping[str, Any]) -> int:
    """Return how often a container was started again."""
    number = container.get("restartCount")
    return number if isinstance(number, int) else 0


def _is_about(event: Json, job: str, pods: set[str]) -> bool:
    """Whether an Event is about the job or a pod of its, one that is gone included."""
    about = mapping(event.get("involvedObject"))
    kind, name = about.get("kind"), text(about.get("name"))
    return (kind, name) == (names.KIND, job) or (kind == "Pod" and (name in pods or name.startswith(f"{job}-")))
