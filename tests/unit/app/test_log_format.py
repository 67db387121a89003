"""Logs as text for people, or as a JSON object a line for what collects them: operator, agent and coordinator alike."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime

import pytest

from hajob.app.settings import Settings
from hajob.pods.coordinator_pod import coordinator_pod
from hajob.pods.rank_pod import build_rank_pod
from hajob.pods.settings import PodSettings
from tests.rigs.example_jobs import example_job

ENTRIES = ("hajob.app.operator", "trainer_sidecar.agent.__main__", "trainer_sidecar.coordinator.__main__")
PROGRAM = """
import asyncio, importlib, logging, sys
from unittest.mock import Mock
entry = importlib.import_module(sys.argv[1])
for name in {"read_settings", "Hub", "serve", "serve_until_signal", "_run_agent"} & vars(entry).keys():
    setattr(entry, name, Mock())
def work(_):
    logging.getLogger("hajob.somewhere").warning("node %s\\nis sick: ü", "node-1", extra={"settings": object()})
    try:
        1 / 0
    except ZeroDivisionError:
        logging.getLogger("hajob.elsewhere").exception("a bug")
asyncio.run = work
sys.argv[1:] = []
entry.main()
"""


def lines(entry: str, log_format: str) -> list[str]:
    environment = os.environ | {"HAJOB_LOG_FORMAT": log_format}
    command = [sys.executable, "-c", PROGRAM, entry]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return done.stderr.splitlines()


@pytest.mark.parametrize("entry", ENTRIES)
def test_json_has_an_object_in_each_line(entry: str) -> None:
    sick, bug = map(json.loads, lines(entry, "json"))
    for each in (sick, bug):
        assert datetime.fromisoformat(each.pop("ts")).utcoffset() is not None
    assert sick == {"level": "WARNING", "logger": "hajob.somewhere", "msg": "node node-1\nis sick: ü"}
    assert bug.pop("exception").endswith("ZeroDivisionError: division by zero")
    assert bug == {"level": "ERROR", "logger": "hajob.elsewhere", "msg": "a bug"}


@pytest.mark.parametrize("entry", ENTRIES)
def test_text_is_for_people(entry: str) -> None:
    found = lines(entry, "text")
    assert "node node-1" in found[0]
    assert found[1] == "is sick: ü"


def test_the_operator_hands_its_format_to_the_sidecars() -> None:
    job, settings = example_job("quickstart"), Settings.from_environment({"HAJOB_LOG_FORMAT": "json"}).pod_settings()
    wanted = {"name": "HAJOB_LOG_FORMAT", "value": "json"}
    for pod, name in (
        (build_rank_pod(job, 0, 1, settings), "agent"),
        (coordinator_pod(job, 1, settings), "coordinator"),
    ):
        spec = pod["spec"]
        (container,) = [each for each in [*spec["initContainers"], *spec["containers"]] if each["name"] == name]
        assert wanted in container["env"]
        assert not any(wanted in each.get("env", []) for each in spec["containers"] if each["name"] == "trainer")


def test_pods_say_nothing_of_the_usual_format() -> None:
    assert "HAJOB_LOG_FORMAT" not in json.dumps(build_rank_pod(example_job("quickstart"), 0, 1, PodSettings("image")))
