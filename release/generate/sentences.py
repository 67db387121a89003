"""Find the sentences of the source that people read: constants, and f-strings as templates with named placeholders."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from hajob.cli.catalogue import OF_ARGPARSE
from release.generate.files import ROOT

SPOKEN: Final = (
    "cli",
    "api/conditions.py",
    "api/derived.py",
    "api/job.py",
    "api/log_rules.py",
    "api/new_jobs.py",
    "api/template.py",
    "capacity",
    "convert",
    "coordinator_link",
    "domain/batch.py",
    "domain/cause_words.py",
    "domain/checkpoints.py",
    "domain/incident_words.py",
    "domain/layout.py",
    "domain/memory.py",
    "domain/patterns.py",
    "domain/text.py",
    "faults/rules",
    "kube/credentials.py",
    "kube/http.py",
    "kube/kubeconfig.py",
    "job",
    "job/policies",
    "job/status",
    "plan/checks.py",
    "plan/coordinators.py",
    "plan/elastic.py",
    "plan/ending.py",
    "plan/evaluator.py",
    "plan/lifecycle.py",
    "plan/pause.py",
    "plan/policy.py",
    "plan/preconditions.py",
    "plan/protection.py",
    "plan/recovery.py",
    "plan/recoverability.py",
    "plan/repeats.py",
    "plan/resize.py",
    "plan/simulate.py",
    "plan/waits.py",
    "pods/review.py",
    "sources",
    "web/command.py",
    "web/local_door.py",
    "web/nodes.py",
)
"""Modules, below `operator/hajob`, whose words reach the screen of the plugin: its own, and those of a job's status."""
TOLD_BY_SIDECARS: Final = (
    "agent/report",
    "agent/supervise",
    "agent/taskd",
    "checkpoints",
    "controller_host",
    "coordinator/conversation",
    "coordinator/state",
    "coordinator/watch",
    "launcher",
)
"""Those below `trainer_sidecar` whose words become facts, and with them part of a status."""
_TRANSLATING: Final = frozenset({"language.py", "catalogue.py"})
"""Modules that hold words of other sentences."""
_CODE: Final = re.compile(
    r"iteration +\d|\d\d:\d\d:\d\d|megatron|torch distributed|world size: \d|will not load any|loss value"
    r"|^hajob: |^usage: |^from |^if hasattr|queue\.Queue|Traceback|nnodes|max-restarts|no-python run|-filters"
    r"|\(\?|\(!|\[\^|\\[swbdn]|\$\(|^import |^kubectl (?!.*; )|https?://|^Callable|has\(|size\(self|oldSelf|self\.spec"
)
"""What is no sentence, although it has blanks: patterns, scripts, commands to be copied, rules of the CRD."""
_WORD: Final = re.compile(r"(?<![\w/.\-])[a-z][a-z'’-]+(?![\w/(=])")
_UNNAMED: Final = re.compile(r"%[srd](?!\w)|\{\}")
_GAP: Final = " \u00a7 "
_WORDS_OF_TABLES: Final = (
    "unknown none ok note problem error options commands operator breaker sources rejected faults conditions pods "
    "status state rights jobs actions refused taken created started ready starts ends training free cordoned sick "
    "waits stands stand step goodput nodes incidents why protected incident output protection"
)
_COUNTED: Final = (
    *("node", "such node", "free node", "spare node", "pod", "rank", "step", "incident", "job", "chip", "file", "call"),
    *("precondition", "time", "offence", "block", "queue", "LocalQueue", "such eviction", "silent writer"),
)
SHORT: Final = (
    *_WORDS_OF_TABLES.split(),
    *(f"{{number}} {noun}{ending}" for noun in _COUNTED for ending in ("", "s")),
    *(f"{size} {{number}}" for size in ("tensor", "pipeline", "context", "expert")),
    *("data {size}", "usage: ", "Example:", "not ready", "a node", "a rank"),
    "data-parallel rank 0 would be dropped",
    "newest: {rest}",
)
"""Single words of tables, and what is made of a number and a noun."""
_NOT_SPOKEN: Final = frozenset({"metavar", "choices", "dest", "style", "justify", "example"})
"""Arguments that hold words for programs."""


def sentences() -> dict[str, list[tuple[str, int]]]:
    """Return the sentences, each with the places (path below the checkout, line) where it is written."""
    found: dict[str, list[tuple[str, int]]] = {}
    for path in _modules():
        for line, sentence in sentences_of_module(path.read_text(encoding="utf-8")):
            found.setdefault(sentence, []).append((path.relative_to(ROOT).as_posix(), line))
    for sentence in SHORT:
        found.setdefault(sentence, [("release/generate/sentences.py", 0)])
    for sentence in OF_ARGPARSE:
        found.setdefault(sentence, [("operator/hajob/cli/catalogue.py", 0)])
    return found


def _modules() -> Iterator[Path]:
    operator, sidecar = ROOT / "operator" / "hajob", ROOT / "trainer_sidecar"
    for path in (*(operator / name for name in SPOKEN), *(sidecar / name for name in TOLD_BY_SIDECARS)):
        found = sorted(path.glob("*.py")) if path.is_dir() else (path,)
        yield from (each for each in found if each.name not in _TRANSLATING)


def sentences_of_module(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and sentence of everything in a module that looks like one, each line of a text for itself."""
    tree = ast.parse(source)
    silent = set(_silent_nodes(tree))
    spoken = [
        (node.lineno, template_of(node))
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr | ast.Constant) and id(node) not in silent
    ]
    for number, text in sorted(spoken):
        if not _CODE.search(text):
            yield from ((number, line) for line in text.split("\n") if is_sentence(line))


def _silent_nodes(tree: ast.AST) -> Iterator[int]:
    """Yield the nodes that hold no sentence of their own: docstrings, parts of f-strings, words for programs."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield id(node.value)
        elif isinstance(node, ast.JoinedStr):
            for part in node.values:
                yield from (id(below) for below in (part, getattr(part, "format_spec", None)) if below is not None)
        elif isinstance(node, ast.Call) and _is_log(node.func):  # a log is English for whoever helps
            yield from (id(below) for argument in node.args for below in ast.walk(argument))
        elif isinstance(node, ast.keyword) and node.arg in _NOT_SPOKEN:
            yield id(node.value)
        elif isinstance(node, ast.Dict):  # descriptions of fields are for `kubectl explain`
            yield from (id(value) for key, value in zip(node.keys, node.values, strict=True) if _is_silent_key(key))


def _is_log(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "log"


def _is_silent_key(key: ast.expr | None) -> bool:
    return isinstance(key, ast.Constant) and key.value in {"description", "rule"}


def template_of(node: ast.JoinedStr | ast.Constant) -> str:
    """Return a constant's text, or an f-string with `{names}` for its values; empty for what is no text."""
    if isinstance(node, ast.Constant):
        # What `str.format` fills in has no name.
        text, numbers = str(node.value) if isinstance(node.value, str) else "", itertools.count(1)
        text = _UNNAMED.sub(lambda _: f"{{value{number if (number := next(numbers)) > 1 else ''}}}", text)
        return text if "{" not in re.sub(r"\{value\d*\}", "", text) else ""
    parts: list[str] = []
    names: dict[str, int] = {}
    for part in node.values:
        if isinstance(part, ast.Constant):
            parts.append(str(part.value))
        elif not (parts and parts[-1].startswith("{")):  # of two values side by side nobody can tell where one ends
            name = _name_of(part.value) if isinstance(part, ast.FormattedValue) else "value"
            names[name] = names.get(name, 0) + 1
            parts.append("{" + name + (str(names[name]) if names[name] > 1 else "") + "}")
    return "".join(parts)


_PASSED_ON: Final = frozenset(
    {"len", "text", "str", "round", "map", "join", "sorted", "mapping", "next", "first_of_list", "one_line", "int"}
)
"""Functions whose value is called by the name of their argument."""


def _name_of(value: ast.expr) -> str:
    match value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.strip("_").lower() or "value"
        case ast.Call(func=function, args=[ast.expr() as first, *_]) if _name_of(function) in _PASSED_ON:
            return _name_of(first)
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(key)), *_]):
            return re.sub(r"\W", "_", key)
        case ast.Call(func=function):
            return _name_of(function)
        case ast.Subscript(slice=ast.Constant(value=str(key))):
            return re.sub(r"\W", "_", key)
        case ast.Subscript(value=below):
            return _name_of(below)
    return "value"


def is_sentence(line: str) -> bool:
    """Return whether a line has words for people: two, or one beside a value."""
    bare = re.sub(r"\{\w+\}", _GAP, line)
    words = len(_WORD.findall(re.sub(r"%\(\w+\)s", _GAP, bare)))
    return " " in line.strip() and (words >= 2 or (words == 1 and _GAP.strip() in bare))


def placeholders_of(sentence: str) -> Sequence[str]:
    """Return the placeholders of a sentence, in the order of their names."""
    return sorted(re.findall(r"\{\w+\}|%\(\w+\)s", sentence))
