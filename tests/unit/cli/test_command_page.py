"""docs/user/cli.md: every option of every command with its meaning, and examples that work."""

from __future__ import annotations

import io
import re
import shlex

import pytest
import yaml

from e2e.bootstrap.paths import CHECKOUT
from hajob.cli.main import build_parser, main
from release.generate import cli
from tests.rigs import hardware_objects as objects

COMMANDS = list(cli.commands(build_parser()))
LANGUAGES = cli.known_languages()
EXAMPLES = {command.prog: cli.example(command).rpartition("| ")[2] for command in COMMANDS}
NEEDS_NO_CLUSTER = ("kubectl hajob facts", "kubectl hajob lint", "kubectl hajob simulate", "kubectl hajob survive")


def test_the_pages_are_current() -> None:
    assert cli.main(["--check"]) == 0


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.prog)
def test_every_option_of_a_command_says_what_it_means(command: object) -> None:
    for language in LANGUAGES.values():
        told = dict(cli.options(command, language))  # type: ignore[arg-type]
        assert [name for name, meaning in told.items() if not meaning or name.endswith("None")] == []


def test_no_sentence_of_the_chinese_page_is_english() -> None:
    page = cli.page_of_language(LANGUAGES["docs/user/cli.zh.md"])
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    sentences = [line for line in page.splitlines() if line.endswith(("。", "."))]
    assert len(rows) > 100
    assert [line for line in (*rows, *sentences) if not re.search("[\u4e00-\u9fff]", line)] == []


@pytest.mark.parametrize("prog", EXAMPLES)
def test_the_example_is_a_command_line_of_its_command(prog: str) -> None:
    assert EXAMPLES[prog].startswith(prog)
    assert build_parser().parse_args(shlex.split(EXAMPLES[prog])[2:]).run


@pytest.mark.parametrize("prog", NEEDS_NO_CLUSTER)
def test_an_example_that_needs_no_cluster_works(
    prog: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(CHECKOUT)
    monkeypatch.setattr("sys.stdin", io.StringIO(yaml.safe_dump(objects.node())))
    assert main(shlex.split(EXAMPLES[prog])[2:]) == 0
    told = capsys.readouterr()
    assert (bool(told.out), told.err) == (True, "")


@pytest.mark.parametrize("prog", NEEDS_NO_CLUSTER)
def test_both_formats_for_programs_say_the_same(
    prog: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(CHECKOUT)
    told = []
    for form in ("json", "yaml"):
        monkeypatch.setattr("sys.stdin", io.StringIO(yaml.safe_dump(objects.node())))
        assert main([*shlex.split(EXAMPLES[prog])[2:], "-o", form]) == 0
        told.append(yaml.safe_load(capsys.readouterr().out))
    assert told[0] == told[1]
