from collections.abc import Sequence

import pytest

from hajob.cli.completion import names_in_cluster, offered_lines, value_of_option
from tests.rigs.told_job import NAME, NAMESPACE, told_job
from tests.rigs.told_server import ToldServer


def names(*words: str) -> list[str]:
    *lines, directive = offered_lines(words)
    assert directive in {":4", ":0"}
    return [line.split("\t")[0] for line in lines]


def test_commands_are_offered_with_their_help() -> None:
    lines = offered_lines([""])
    assert any(line.startswith("quarantine\tlist, add and release nodes") for line in lines)
    assert lines[-1] == ":4"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["qu"], ["quarantine"]),
        (["quarantine", ""], ["list", "add", "release"]),
        (["quarantine", "add", "--re"], ["--reason"]),
        (["quarantine", "add", "--reason", ""], []),
        (["unknown", "qu"], ["quarantine"]),
        ([], ["facts", "logs", "quarantine", "breaker", "inject", "simulate"]),
    ],
)
def test_what_fits_the_words_so_far_is_offered(words: list[str], expected: list[str]) -> None:
    assert set(expected) <= set(names(*words))
    assert not expected or len(words) == 0 or names(*words) == expected


def test_files_may_follow_an_option_that_takes_a_word() -> None:
    assert offered_lines(["simulate", "-f", ""])[-1] == ":0"


def found(kind: str, words: Sequence[str]) -> list[str]:
    return [f"{kind.lower()}-{number}" for number in (1, 2)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["status", ""], ["job-1", "job-2"]),
        (["status", "job-2"], ["job-2"]),
        (["status", "-n", "team", ""], ["job-1", "job-2"]),
        (["status", "qwen", ""], []),
        (["status", "-n", ""], ["namespace-1", "namespace-2"]),
        (["drain", ""], ["node-1", "node-2"]),
        (["migrate", "qwen", "--off", ""], ["node-1", "node-2"]),
        (["quarantine", "add", ""], ["node-1", "node-2"]),
        (["logs", "qwen", "--rank", ""], ["r-1", "r-2"]),
        (["inject", "ch"], ["chip"]),
        (["inject", "chip", ""], ["node-1", "node-2"]),
        (["status", "qwen", "-o", "y"], ["yaml"]),
    ],
)
def test_names_of_the_cluster_are_offered(words: list[str], expected: list[str]) -> None:
    *lines, directive = offered_lines(words, found)
    assert (lines, directive) == (expected, ":4")


def test_names_are_read_in_the_namespace_of_the_words() -> None:
    job = told_job()
    server = ToldServer(job)
    assert names_in_cluster(server, "JOB", NAMESPACE, []) == [NAME]
    assert names_in_cluster(server, "R", NAMESPACE, ["logs", NAME, "--rank"]) == [str(rank) for rank in range(8)]
    assert names_in_cluster(server, "R", NAMESPACE, ["logs", "other", "--rank"]) == []
    assert names_in_cluster(server, "NODE", NAMESPACE, []) == []


def test_without_a_cluster_nothing_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    assert offered_lines(["status", ""]) == [":4"]


def test_a_file_may_stand_where_one_is_asked_for() -> None:
    assert offered_lines(["lint", ""], found) == [":0"]


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["status", "-n", "team"], "team"),
        (["status", "--namespace=team"], "team"),
        (["status", "--namespace", "team"], "team"),
        (["status", "-nteam"], "team"),
        (["status", "--no-browser"], None),
    ],
)
def test_the_namespace_counts_in_every_form(words: list[str], value: str | None) -> None:
    assert value_of_option(words, "-n", "--namespace") == value
