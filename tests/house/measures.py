"""Figures of the code's structure, counted in syntax trees.

Each says what a stranger pays for: connections (callables handed in, functions that only pass on, classes with a timer
of their own), names that do not say their object, numbers without a reason. What is good, the limits say.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Final, TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
GENERATED: Final = ("_pb2.py", "_pb2_grpc.py")
MOST_ARGUMENTS: Final = 5
"""More than these, and nobody who reads a call knows which is which."""
MOST_HOMONYMS: Final = 5
"""A bare verb that more functions than these share names none of them."""
TIMERS: Final = frozenset({"call_later", "call_at"})
PRAGMAS: Final = ("# noqa", "# ruff:", "# type:", "# fmt:", "# pragma", "#!")


@dataclass(frozen=True)
class Source:
    """One module: where it is, relative to the checkout, its text and its tree."""

    path: Path
    text: str
    tree: ast.Module

    @cached_property
    def nodes(self) -> Sequence[ast.AST]:
        """All nodes of its tree; walking dominates what counting costs, so it is done once."""
        return list(ast.walk(self.tree))


def sources(top: Path, *directories: str) -> list[Source]:
    """Read every module below these directories of a checkout, generated ones apart."""
    paths = (path for name in directories for path in sorted((top / name).rglob("*.py")))
    return [read(path.relative_to(top), path.read_text()) for path in paths if not path.name.endswith(GENERATED)]


def read(path: Path, text: str) -> Source:
    """Parse one module."""
    return Source(path, text, ast.parse(text))


def nodes(found: Iterable[Source]) -> Iterator[ast.AST]:
    """All nodes of all trees."""
    return chain.from_iterable(source.nodes for source in found)


def functions(found: Iterable[Source]) -> list[Function]:
    """All functions and methods, those that Python itself calls apart."""
    return [node for node in nodes(found) if isinstance(node, FUNCTIONS) and not node.name.startswith("__")]


def classes(found: Iterable[Source]) -> list[ast.ClassDef]:
    """All classes."""
    return [node for node in nodes(found) if isinstance(node, ast.ClassDef)]


def lines(found: Iterable[Source]) -> int:
    """Lines of all modules, blank ones and docstrings too."""
    return sum(len(source.text.splitlines()) for source in found)


def comments(found: Iterable[Source]) -> float:
    """Lines with a comment that says something, in a thousand; what a tool reads is none."""
    found = list(found)
    said = 0
    for source in found:
        tokens = tokenize.generate_tokens(io.StringIO(source.text).readline)
        said += sum(token.type == tokenize.COMMENT and not token.string.startswith(PRAGMAS) for token in tokens)
    return 1000 * said / max(1, lines(found))


def mean_name(found: Iterable[Source]) -> float:
    """Mean length of the names of functions, the leading underscore not counted."""
    names = [one.name.lstrip("_") for one in functions(found)]
    return sum(map(len, names)) / max(1, len(names))


def homonyms(found: Iterable[Source]) -> Mapping[str, int]:
    """Names of one word that more than `MOST_HOMONYMS` functions have, and how many have them.

    A function that its module calls where it is run as a program has the name that Python gives it, and is not counted.
    """
    found = list(found)
    programs = {id(one) for source in found for one in _program_entries(source)}
    counted = Counter(one.name.lstrip("_") for one in functions(found) if id(one) not in programs)
    return {name: count for name, count in counted.most_common() if "_" not in name and count > MOST_HOMONYMS}


def _program_entries(source: Source) -> Iterator[Function]:
    """Functions of a module that it calls itself below `if __name__ == "__main__"`."""
    guarded = (node for node in source.tree.body if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test))
    called = {_called(node) for block in guarded for node in ast.walk(block) if isinstance(node, ast.Call)}
    return (one for one in source.tree.body if isinstance(one, FUNCTIONS) and one.name in called)


def passing_on(found: Iterable[Source]) -> list[Function]:
    """Functions that only call another one, with just the arguments that they were given, in their order."""
    return [one for one in functions(found) if _passes_on(one)]


def _passes_on(function: Function) -> bool:
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    if len(body) != 1 or not isinstance(body[0], ast.Return | ast.Expr):
        return False
    call = body[0].value
    if isinstance(call, ast.Await):
        call = call.value
    if not isinstance(call, ast.Call) or any(isinstance(one, ast.Starred) for one in call.args):
        return False
    given = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    given = given[1:] if given[:1] in (["self"], ["cls"]) else given
    handed = [one.id if isinstance(one, ast.Name) else "" for one in call.args]
    handed += [one.value.id if isinstance(one.value, ast.Name) else "" for one in call.keywords]
    return handed == given + [one.arg for one in function.args.kwonlyargs]


def handed_callables(found: Iterable[Source]) -> int:
    """Callables in constructors and in the fields of classes: each is an edge that no import shows."""
    count = 0
    for one in classes(found):
        for member in one.body:
            if isinstance(member, ast.AnnAssign):
                count += _is_callable(member.annotation)
            elif isinstance(member, FUNCTIONS) and member.name == "__init__":
                arguments = (*member.args.args, *member.args.kwonlyargs)
                count += sum(
                    argument.annotation is not None and _is_callable(argument.annotation) for argument in arguments
                )
    return count


def _is_callable(annotation: ast.expr) -> bool:
    named = (node for node in ast.walk(annotation) if isinstance(node, ast.Name | ast.Attribute))
    return any((node.id if isinstance(node, ast.Name) else node.attr) == "Callable" for node in named)


def wide_constructors(found: Iterable[Source]) -> list[ast.ClassDef]:
    """Classes whose constructor is written out and takes more than `MOST_ARGUMENTS`."""

    def is_wide(member: ast.stmt) -> bool:
        if not isinstance(member, FUNCTIONS) or member.name != "__init__":
            return False
        return len(member.args.args) - 1 + len(member.args.kwonlyargs) > MOST_ARGUMENTS

    return [one for one in classes(found) if any(is_wide(member) for member in one.body)]


def own_timers(found: Iterable[Source]) -> list[ast.ClassDef]:
    """Classes that set a timer of their own."""

    def sets_one(node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and _called(node) in TIMERS

    return [one for one in classes(found) if any(sets_one(node) for node in ast.walk(one))]


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def lonely_protocols(found: Iterable[Source]) -> list[ast.ClassDef]:
    """Protocols that at most one class fulfils, by the names of its methods and fields."""
    everyone = classes(found)
    protocols = [one for one in everyone if "Protocol" in map(_name_of, one.bases)]
    fulfilled = {one.name: _members(one) for one in protocols}
    others = [_members(one) for one in everyone if one.name not in fulfilled]
    return [one for one in protocols if sum(fulfilled[one.name] <= members for members in others) <= 1]


def _name_of(base: ast.expr) -> str:
    return _name_of(base.value) if isinstance(base, ast.Subscript) else getattr(base, "attr", getattr(base, "id", ""))


def _members(one: ast.ClassDef) -> frozenset[str]:
    found = {member.name for member in one.body if isinstance(member, FUNCTIONS)}
    found |= {
        node.target.id for node in one.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    for node in ast.walk(one):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
            found.add(node.attr)
    return frozenset(found - {"__init__"})


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in {"self", "cls"}


def borrowing_tests(found: Iterable[Source]) -> list[Source]:
    """Test modules that import from another test module."""

    def borrows(source: Source) -> bool:
        modules = (node.module or "" for node in source.nodes if isinstance(node, ast.ImportFrom))
        return any(name.startswith("tests.") and name.rpartition(".")[2].startswith("test_") for name in modules)

    return [source for source in found if source.path.name.startswith("test_") and borrows(source)]


def private_reaches(found: Iterable[Source]) -> int:
    """How often code reaches into an attribute of something else that begins with an underscore."""

    def reaches(node: ast.AST) -> bool:
        if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.startswith("__"):
            return False
        return not _is_self(node.value)

    return sum(map(reaches, nodes(found)))


def imperative(found: Iterable[Source], verbs: frozenset[str]) -> float:
    """Share in percent of documented public functions whose docstring begins with a verb that commands.

    A property tells what it is, and is not counted.
    """
    told = [
        (ast.get_docstring(one) or "").split(maxsplit=1)[0].strip(".,:;").lower()
        for one in functions(found)
        if not one.name.startswith("_") and ast.get_docstring(one) and not _is_property(one)
    ]
    return 100 * sum(word in verbs for word in told) / max(1, len(told))


def _is_property(one: Function) -> bool:
    return any(_name_of(each) in {"property", "cached_property"} for each in one.decorator_list)
