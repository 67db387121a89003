"""Text of users in what a command prints, asks and offers to be typed: it is shown, and never obeyed."""

from __future__ import annotations

import io
import json
import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from urllib.parse import unquote, urlsplit

import yaml
from hypothesis import given
from hypothesis import strategies as st

from hajob.cli import control, language, status, why
from hajob.cli.cluster import ClusterError
from hajob.cli.objects import find_node, listed, path_of_job
from hajob.cli.output import Answer, Table, lines_of_answer
from tests.rigs.told_job import NAME, NAMESPACE, NOW_MS, told_job
from tests.rigs.told_server import EVENTS, PODS, ToldServer, rank_pod_object

OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal does something for instead of showing it; beside tab and end of line."""
HOSTILE = st.one_of(
    st.text(max_size=80),
    st.text(st.sampled_from("\x1b[]()2J;31m\x07\x08\r\n\t\u202e\u2066\u061c\x9b'\"`$;&|<>*{}a "), max_size=60),
)
KUBERNETES_NAME = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)


class AskedServer:
    """Remembers the paths that it was asked for."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def find_object(self, path: str) -> None:
        self.paths.append(path)


@given(HOSTILE, HOSTILE)
def test_no_terminal_obeys_what_is_printed(line: str, cell: str) -> None:
    answer = Answer([line, Table(("NAME", "MESSAGE"), [(cell, line)])], {"line": line, "cells": [cell]})
    for output in ("text", "json", "yaml"):
        printed = "\n".join(lines_of_answer(answer, output))
        assert not OBEYED.search(printed), (output, printed)
    assert len(list(Table(("A",), [(cell,)]).plain_lines())) == 2, "a cell is one line"


@given(HOSTILE)
def test_programs_read_the_text_as_it_was(text: str) -> None:
    answer = Answer([], {"text": text})
    assert json.loads("\n".join(lines_of_answer(answer, "json"))) == {"text": text}
    assert yaml.safe_load("\n".join(lines_of_answer(answer, "yaml"))) == {"text": text}


@given(HOSTILE)
def test_no_terminal_obeys_an_error(text: str) -> None:
    said, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(said), redirect_stderr(errors):
        language.say(f"waits: {text}")
        language.say(f"error: {text}", to_errors=True)
    assert not OBEYED.search(said.getvalue() + errors.getvalue())


@given(HOSTILE)
def test_a_job_full_of_hostile_text_is_shown(text: str) -> None:
    job = told_job()
    job["metadata"]["annotations"] = {"note": text}
    for one in job["status"]["conditions"]:
        one["message"] = text
    for one in job["status"]["incidents"]:
        one["message"] = one["cause"]["message"] = text
    pod = rank_pod_object(0, phase="Pending", conditions=[{"type": "PodScheduled", "status": "False", "message": text}])
    waiting = [{"name": "trainer", "state": {"waiting": {"reason": "ErrImagePull", "message": text}}}]
    pod["status"]["containerStatuses"] = waiting
    event = {"type": "Warning", "reason": "FailedMount", "message": text, "involvedObject": {"name": "x"}}
    server = ToldServer(job, **{PODS: {"items": [pod]}, EVENTS: {"items": [event]}})
    for command in (status.screen_of_job, why.explanation_of_job):
        printed = "\n".join(lines_of_answer(command(server, NAMESPACE, NAME, NOW_MS), "text"))
        assert not OBEYED.search(printed), printed


@given(HOSTILE, HOSTILE)
def test_a_name_selects_nothing_but_itself(name: str, namespace: str) -> None:
    name, namespace = (text.encode(errors="ignore").decode() for text in (name, namespace))
    path = path_of_job(namespace, name)
    assert path.count("/") == path_of_job("a", "b").count("/")
    assert urlsplit(path).query == urlsplit(path).fragment == ""
    assert unquote(path.split("/")[-1]) == name
    server = AskedServer()
    listed(server, "/api/v1/pods", labelSelector=name, fieldSelector=namespace)
    assert urlsplit(server.paths[0]).query.count("&") <= 1
    assert urlsplit(server.paths[0]).path == "/api/v1/pods"
    try:
        find_node(server, name)
    except ClusterError:
        assert server.paths[-1].count("/") == "/api/v1/nodes/x".count("/")


@given(KUBERNETES_NAME, KUBERNETES_NAME)
def test_commands_that_are_offered_are_one_command(name: str, namespace: str) -> None:
    job = told_job()
    job["metadata"] |= {"name": name, "namespace": namespace}
    job["spec"]["suspend"] = False
    server = ToldServer(job)
    path = path_of_job(namespace, name)
    server.found[path] = job
    told = [control.suspend_job(server, namespace, name, NOW_MS)]
    told += [line for line in status.screen_of_job(server, namespace, name, NOW_MS).told if isinstance(line, str)]
    commands = [line[line.index("kubectl hajob") :] for line in told if "kubectl hajob" in line]
    assert len(commands) == 2
    for command in commands:
        assert shlex.split(command)[-3:] == [name, "-n", namespace], command
