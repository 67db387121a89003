"""What pages tell people to type is typed here: jobs are linted, command lines of the plugin are parsed."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from e2e.bootstrap.paths import CHECKOUT
from hajob.api.job import HATrainingJob
from hajob.cli.lint import findings_of_job
from hajob.cli.lint_pods import ERROR
from hajob.cli.main import build_parser

PAGES = sorted([*(CHECKOUT / "docs").rglob("*.md"), *CHECKOUT.glob("README*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
JOBS = [
    (page.relative_to(CHECKOUT).as_posix(), job)
    for page in PAGES
    for language, text in BLOCK.findall(page.read_text(encoding="utf-8"))
    if language == "yaml" and "kind: HATrainingJob" in text
    for job in yaml.safe_load_all(text)
]
COMMAND = re.compile(r"kubectl hajob [a-z][^`\n|>#;…]*")
VALUES = {"N": "1", "K": "2", "R": "0", "CHIP": "1", "FILE": "job.yaml", "OBJECT.yaml": "job.yaml"}
"""For the words in capitals that stand for a number or a file."""


def commands_of(page: Path) -> set[str]:
    text = page.read_text(encoding="utf-8")
    blocks = " \n".join(block for _, block in BLOCK.findall(text))
    spans = " \n".join(re.findall(r"`([^`\n]+)`", BLOCK.sub("", text)))
    return {found.strip() for found in COMMAND.findall(f"{blocks}\n{spans}")}


def is_whole(command: str) -> bool:
    """Return whether a command line is one, and no name of a command that the text speaks of."""
    return len(command.split()) > 3


def test_there_are_jobs_and_commands() -> None:
    assert len(JOBS) >= 5
    assert sum(len(commands_of(page)) for page in PAGES) > 60


@pytest.mark.parametrize(("page", "job"), JOBS)
def test_a_job_of_a_page_is_valid(page: str, job: dict[str, object]) -> None:
    assert HATrainingJob.model_validate(job), page
    assert [one["message"] for one in findings_of_job(job) if one["grade"] == ERROR] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_a_command_line_of_a_page_is_parsed(page: Path) -> None:
    wrong = []
    for command in sorted(filter(is_whole, commands_of(page))):
        words = [VALUES.get(word, word) for word in shlex.split(command)[2:]]
        try:
            build_parser(words).parse_args(words)
        except SystemExit:
            wrong.append(command)
    assert wrong == []


def test_the_change_of_a_script_applies_to_it() -> None:
    """The page promises ten lines: they are changed where the script has them, and bash reads what comes out."""
    page = CHECKOUT / "docs/user/from-script-to-job.md"
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    script = next(text for language, text in blocks if language == "sh" and "torchrun" in text).splitlines()
    change = next(text for language, text in blocks if language == "diff").splitlines()
    assert sum(line[0] in "+-" for line in change) == 10
    before = [line[1:] for line in change if line[0] in " -"]
    (at,) = [place for place in range(len(script)) if script[place : place + len(before)] == before]
    changed = [*script[:at], *(line[1:] for line in change if line[0] in " +"), *script[at + len(before) :]]
    done = subprocess.run(["bash", "-n"], input="\n".join(changed), text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    launch = shlex.split(" ".join(changed[changed.index("PP=1") + 1 :]).replace("\\", ""))
    assert {"--bf16", "--use-distributed-optimizer", "--save-interval", "--save", "--load"} <= set(launch)
