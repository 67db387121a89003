"""The plugin speaks Chinese where it is asked to: every sentence, with every value, and English costs nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from e2e.bootstrap.paths import CHECKOUT
from hajob.api.conditions import Reason
from hajob.cli import language
from hajob.cli.catalogue import CATALOGUE, Catalogue, read_catalogue
from hajob.cli.language import language_of
from hajob.cli.main import main
from hajob.cli.output import Table
from hajob.cli.widths import display_width
from release.generate import catalogue as generator
from release.generate.sentences import placeholders_of, sentences

ENTRIES = read_catalogue(CATALOGUE.read_text(encoding="utf-8"))
SENTENCES = sentences()
CHINESE = Catalogue(ENTRIES)
QUICKSTART = str(CHECKOUT / "examples/quickstart.yaml")


def values_of(sentence: str) -> dict[str, str]:
    """Return a value for each placeholder, such as none of the catalogue has."""
    named = [name[1:-1] for name in placeholders_of(sentence) if name[0] == "{"]
    return {name: "37" if name == "number" else f"v{place}" for place, name in enumerate(named)}


def filled(sentence: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        sentence = sentence.replace(f"{{{name}}}", value)
    return sentence


def is_chinese(text: str) -> bool:
    return any("\u4e00" <= each <= "\u9fff" for each in text)


@pytest.fixture
def chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language, "catalogue_of_person", lambda: CHINESE)


def test_the_catalogue_is_current() -> None:
    assert generator.main(["--check"]) == 0


def test_no_sentence_lacks_its_translation() -> None:
    assert len(SENTENCES) > 800
    assert [sentence for sentence in SENTENCES if sentence not in ENTRIES] == []


def test_no_placeholder_differs() -> None:
    wrong = [each for each, told in ENTRIES.items() if placeholders_of(each) != placeholders_of(told)]
    assert wrong == []


def test_what_repeats_the_english_is_nothing_to_translate() -> None:
    """Commands, patterns, lines of a training, and bare values repeat it; a sentence does not."""
    same = [each for each, told in ENTRIES.items() if each == told]
    assert len(same) < 40, same


def test_every_sentence_is_shown_in_chinese_with_its_values() -> None:
    """As it is printed: with values in it, found by no other sentence's template."""
    shown = {}
    for sentence, told in ENTRIES.items():
        values = values_of(sentence)
        shown[filled(sentence, values)] = filled(told, values)
    wrong = {text: (CHINESE.translate(text), told) for text, told in shown.items() if CHINESE.translate(text) != told}
    assert wrong == {}


def test_every_remedy_has_its_words() -> None:
    remedies = [one.remedy for one in Reason if one.remedy]
    assert [remedy for remedy in remedies if not is_chinese(CHINESE.translate(remedy))] == []


@pytest.mark.parametrize(
    "text",
    [
        "loss: nan at iteration 12",
        "RuntimeError: HCCL function error: hcclAllReduce, error code is 6",
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/corpus.bin'",
        "qwen3-8b-2-f00d",
        "98%",
    ],
)
def test_what_a_training_prints_is_shown_as_it_is(text: str) -> None:
    assert CHINESE.translate(text) == text


@pytest.mark.parametrize(
    ("english", "told"),
    [
        (
            (
                "rank 3 on node-1 ended: SIGKILL; rank 3 starts again in its pod (InPlace); "
                "training again after 0.6 s, no step lost"
            ),
            "node-1",
        ),
        (
            "12 preconditions cannot be seen from outside, taken as met: CheckpointFormatTorch, StoreKept and 9 more",
            "9",
        ),
        ("node-0 fell silent; ranks 0-1 go to another node (Replace), not done yet", "node-0"),
        (
            "needs 2 nodes with 8 huawei.com/Ascend910; of 3 such nodes, 1 is used (team/first 1), 2 are free",
            "huawei.com/Ascend910",
        ),
    ],
)
def test_sentences_of_a_status_are_translated_as_a_whole(english: str, told: str) -> None:
    shown = CHINESE.translate(english)
    assert told in shown
    left = [word for word in shown.replace("(", " ").split() if word.islower() and word.isalpha() and word.isascii()]
    assert set(left) <= {"rank", "s"}, shown


@pytest.mark.parametrize(
    ("environment", "asked"),
    [
        ({}, "en"),
        ({"LANG": "en_US.UTF-8"}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "HAJOB_LANG": "en"}, "en"),
        ({"HAJOB_LANG": "zh"}, "zh"),
        ({"HAJOB_LANG": "zh-CN", "LANG": "C"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "HAJOB_LANG": ""}, "zh"),
    ],
)
def test_the_language_is_that_of_the_person(environment: dict[str, str], asked: str) -> None:
    assert language_of(environment) == asked


@pytest.mark.usefixtures("chinese")
def test_columns_stand_below_one_another() -> None:
    table = Table(("NODE", "WHAT", "SINCE"), [("node-1", "no known obstacle", "3m"), ("node-2", "x" * 20, "4m")])
    lines = list(table.plain_lines())
    assert is_chinese(lines[1])
    assert {display_width(line[: line.rindex("  ") + 2]) for line in lines} == {6 + 3 + 20 + 3}


def test_a_sentence_in_a_column_leaves_the_others_where_they_are() -> None:
    line = CHINESE.translate("  Replace     refused  2 more nodes are needed; none became free within 270 s")
    assert line.startswith("  Replace     ")
    assert line.endswith(CHINESE.translate("2 more nodes are needed; none became free within 270 s"))


@pytest.mark.usefixtures("chinese")
def test_help_and_wrong_command_lines_are_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["simulate", "--help"])
    told = capsys.readouterr().out
    assert is_chinese(told)
    assert max(map(display_width, told.splitlines())) <= 200
    with pytest.raises(SystemExit):
        main(["simulate"])
    assert is_chinese(capsys.readouterr().err.splitlines()[-1])


@pytest.mark.usefixtures("chinese")
def test_an_answer_is_chinese_and_its_json_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    simulate = ["simulate", "-f", QUICKSTART, "--lose", "node=1", "--free-nodes", "1"]
    assert main(simulate) == 0
    assert is_chinese(capsys.readouterr().out)
    assert main([*simulate, "-o", "json"]) == 0
    assert not is_chinese(capsys.readouterr().out)


@pytest.mark.usefixtures("chinese")
def test_an_error_is_chinese(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "/nowhere.yaml"]) == 2
    assert is_chinese(capsys.readouterr().err)


def test_english_reads_no_catalogue() -> None:
    """A new process, as kubectl starts one: the file is never opened, nor the module that knows how to read it."""
    program = (
        "import sys; opened = []\n"
        "sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == 'open' else None)\n"
        "from hajob.cli.main import main\n"
        f"main(['lint', {QUICKSTART!r}])\n"
        "assert not [path for path in opened if path.endswith('.po')], opened\n"
        "assert 'hajob.cli.catalogue' not in sys.modules\n"
    )
    environment = {
        key: value for key, value in os.environ.items() if key not in {"HAJOB_LANG", "LC_ALL", "LC_MESSAGES", "LANG"}
    }
    subprocess.run([sys.executable, "-c", program], check=True, env={**environment, "LANG": "C"}, capture_output=True)
