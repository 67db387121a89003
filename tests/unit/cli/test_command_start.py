"""What a command loads before it does anything: whoever types one waits for that each time."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from hajob.cli.main import build_parser
from hajob.cli.verbs import VERBS

HEAVY = ("aiohttp", "cel", "google", "grpc", "kopf", "kubernetes", "prometheus_client", "rich", "urllib3")
PLAY = """
import json, sys
from hajob.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print("loaded " + json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def loaded_by(*words: str) -> set[str]:
    """Return the packages that a command line has loaded at its end; there is no kubeconfig."""
    environment = {**os.environ, "KUBECONFIG": "/nowhere/config"}
    done = subprocess.run(
        [sys.executable, "-c", PLAY, *words], env=environment, capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout.rpartition("loaded ")[2]))


def test_the_help_loads_no_library() -> None:
    assert loaded_by("--help") & {*HEAVY, "pydantic", "yaml", "asyncio", "ssl"} == set()


def test_a_look_at_a_job_loads_no_heavy_library() -> None:
    assert loaded_by("status", "qwen") & {*HEAVY, "pydantic"} == set()


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_command_loads_no_client(verb: str) -> None:
    assert loaded_by(verb, "--help") & {"kopf", "kubernetes", "rich", "grpc"} == set()


def test_each_command_says_the_same_alone_and_among_all() -> None:
    whole = build_parser().format_help()
    assert build_parser([]).format_help() == whole
    assert all(build_parser([verb]).format_help() == whole for verb in VERBS)
