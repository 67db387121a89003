"""`kubectl hajob lint`: what the API server and the operator would say of a manifest, without either of them.

Everything that needs no cluster is asked: fields, the CRD's rules (with the package common-expression-language), what
the operator refuses, what works and is worth knowing, and which actions the spec leaves.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from hajob.api import constants as names
from hajob.api.base import ApiModel, Json
from hajob.api.job import HATrainingJob
from hajob.api.log_rules import log_rule_notes
from hajob.cli.exits import NOT_DONE, run_reported
from hajob.cli.language import in_language
from hajob.cli.lint_pods import ERROR, NOTE, findings_of_pods
from hajob.cli.manifests import read_objects, unknown_fields
from hajob.cli.options import Commands, add_output_option, add_verb
from hajob.cli.output import FORMATS, Answer, Block, print_answer, resource_name_of_job
from hajob.domain.errors import MALFORMED, HajobInputError
from hajob.plan.policy import policy_from_spec
from hajob.plan.protection import remedy_of_precondition
from hajob.pods.review import notes_on_spec, why_not_started

_OLD: Final = re.compile(r"\boldSelf\b")
_NO_CEL: Final = (
    "the rules of the CRD are not evaluated: that needs `pip install 'hajob[cli]'`, or kubectl apply --dry-run=server"
)


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_verb(commands, "lint")
    parser.add_argument("filename", metavar="FILE", help="manifest of HATrainingJobs; - reads stdin")
    add_output_option(parser, FORMATS)
    parser.set_defaults(run=run_lint)


def run_lint(arguments: argparse.Namespace) -> int:
    """Print the findings; 1 where one of them is an error."""

    def print_findings() -> int:
        found = findings_of_file(arguments.filename)
        print_answer(_answer_with_findings(arguments.filename, found), arguments.output)
        return NOT_DONE if any(one["grade"] == ERROR for one in found) else 0

    return run_reported(print_findings)


def findings_of_file(filename: str) -> list[Json]:
    """Return what is found in the jobs of a file.

    Raises:
        HajobInputError: it cannot be read, or holds no job.
    """
    jobs = [dict(one) for one in read_objects(filename) if one.get("kind") == names.KIND]
    if not jobs:
        raise HajobInputError(f"{filename} holds no object of kind {names.KIND}")
    return [finding for job in jobs for finding in findings_of_job(job)]


def _answer_with_findings(filename: str, found: list[Json]) -> Answer:
    told: list[Block] = [f"{one['grade']:<5} {one['job']}: {in_language(one['message'])}" for one in found]
    errors = sum(one["grade"] == ERROR for one in found)
    told.append(f"{filename}: {errors} to be changed, {len(found) - errors} worth knowing")
    jobs = dict.fromkeys(one["job"] for one in found if one["grade"] == ERROR)
    return Answer(told, found, [*map(resource_name_of_job, jobs)])


def findings_of_job(raw: Json) -> Iterator[Json]:
    """Yield what is wrong with a job, then what is worth knowing; each with its grade, job and message."""
    metadata = raw.get("metadata")
    name = str(metadata.get("name", "")) if isinstance(metadata, Mapping) else ""
    for grade, message in _told_of_job(raw):
        yield {"grade": grade, "job": name or "(without a name)", "message": message}


def _told_of_job(raw: Json) -> Iterator[tuple[str, str]]:
    if (version := raw.get("apiVersion")) != names.API_VERSION:
        yield ERROR, f"apiVersion: {version}: it must be {names.API_VERSION}"
    for field in unknown_fields(HATrainingJob, raw, ""):
        yield ERROR, f"{field.lstrip('.')}: there is no such field; look for a misspelling"
    try:
        job = HATrainingJob.model_validate({key: value for key, value in raw.items() if key != "status"})
    except ValidationError as refusal:
        yield from ((ERROR, f"{'.'.join(map(str, one['loc']))}: {one['msg']}") for one in refusal.errors())
        return
    broken = [*_broken_rules(job), *findings_of_pods(raw)]
    yield from broken
    if any(grade == ERROR for grade, _ in broken):
        return  # what follows reads a template that the rules have refused
    try:
        if refused := why_not_started(job.spec):
            yield ERROR, refused
            return
        yield from ((NOTE, told) for told in (*notes_on_spec(job), log_rule_notes(job.spec)) if told)
    except MALFORMED:
        yield ERROR, "spec.template is no pod: kubectl apply --dry-run=server says why"
        return
    yield from _unmet_preconditions(job)


def _unmet_preconditions(job: HATrainingJob) -> Iterator[tuple[str, str]]:
    """Yield what spec and visible arguments leave unmet: the job is taken, and some actions would not work."""
    policy = policy_from_spec(job.spec)
    actions: dict[str, list[str]] = {}
    messages: dict[str, str] = {}
    for action in policy.allowed_actions:
        for one in (*policy.refusals.get(action, ()), *policy.advice.get(action, ())):
            if action not in actions.setdefault(one.name, []):
                actions[one.name].append(action)
            messages[one.name] = one.message
    for name, stopped in actions.items():
        yield NOTE, f"not {', '.join(stopped)}: {messages[name]} ({name}) -> {remedy_of_precondition(name)}"


def _broken_rules(job: HATrainingJob) -> Iterator[tuple[str, str]]:
    """Yield the rules of the CRD that a new job does not keep."""
    try:
        import cel
    except ImportError:
        yield NOTE, _NO_CEL
        return
    for carrier in _models_with_rules(job):
        value = _as_server_stores(carrier)
        extra: Any = type(carrier).model_config.get("json_schema_extra") or {}
        for rule in extra.get("x-kubernetes-validations", ()):
            if _OLD.search(rule["rule"]):
                continue  # about edits
            context = cel.Context({"self": value})
            if not _rule_holds(cel, rule["rule"], context):
                yield ERROR, _message_of_rule(cel, rule, context)


def _models_with_rules(model: ApiModel) -> Iterator[ApiModel]:
    """Yield a model and every model in it."""
    yield model
    for name in type(model).model_fields:
        value = getattr(model, name)
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, ApiModel) and name != "status":
                yield from _models_with_rules(one)


def _as_server_stores(model: BaseModel) -> Json:
    """Return a model as the server has it: with its defaults, but for those that are empty."""
    whole: Json = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    given: Json = model.model_dump(mode="json", by_alias=True, exclude_unset=True)
    stored: Json = _without_empty(whole, given)
    stored.pop("status", None)
    return stored


def _without_empty(whole: Json, given: Json) -> Json:
    kept: Json = {}
    for key, value in whole.items():
        own = given.get(key)
        nested = isinstance(value, dict) and isinstance(own, dict | None)
        stored = _without_empty(value, own or {}) if nested else value
        if key in given or stored not in ({}, [], ""):
            kept[key] = stored
    return kept


def _rule_holds(cel: Any, rule: str, context: Any) -> bool:  # noqa: ANN401  the package is optional
    try:
        return bool(cel.compile(rule).execute(context))
    except (RuntimeError, TypeError, ValueError, KeyError):  # an expression that fails is a refusal on the server, too
        return False


def _message_of_rule(cel: Any, rule: Json, context: Any) -> str:  # noqa: ANN401  the package is optional
    if "messageExpression" in rule:
        return str(cel.compile(rule["messageExpression"]).execute(context))
    return str(rule["message"])
