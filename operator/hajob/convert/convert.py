"""Converts the objects of a file: each job of another kind into a HATrainingJob, with what a person must know. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hajob.api.base import Json
from hajob.convert.build import build_job
from hajob.convert.foreign_job import Findings
from hajob.convert.readers import READERS, read_foreign_job
from hajob.domain.errors import HajobInputError
from hajob.sources.reading import mapping, text

_READ_ALONG: Final = frozenset({"TrainingRuntime", "ClusterTrainingRuntime"})


@dataclass(frozen=True, slots=True)
class Converted:
    """A converted job.

    Attributes:
        source: kind and name of the job that it was.
        manifest: of the HATrainingJob.
        questions: what a person must decide, by field.
        left_out: what of the old job is not in the new one, and why.
    """

    source: str
    manifest: Json
    questions: tuple[str, ...]
    left_out: tuple[str, ...]


def convert_objects(objects: Iterable[Mapping[str, Any]]) -> tuple[list[Converted], list[str]]:
    """Convert all jobs among the objects of a file.

    Returns:
        The new jobs, and sentences about the objects that are no jobs.

    Raises:
        HajobInputError: no object is a job that can be converted.
    """
    whole = [dict(one) for one in objects]
    jobs, others = [], []
    for body in whole:
        found, source = Findings(), _name_of_object(body)
        job = read_foreign_job(body, whole, found)
        manifest = build_job(job, found) if job is not None else None
        if manifest is not None:
            jobs.append(Converted(source, manifest, tuple(found.questions), tuple(found.left_out)))
        elif job is not None:
            others.append(f"{source} has no pods that could train")
        elif body.get("kind") not in _READ_ALONG:
            others.append(f"{source} is not converted: apply it by itself where the training needs it")
    if not jobs:
        kinds = ", ".join(f"{kind} ({group})" for group, kind in READERS)
        raise HajobInputError(f"nothing to convert: {'; '.join(others) or 'no object'} (known kinds: {kinds})")
    return jobs, others


def _name_of_object(body: Mapping[str, Any]) -> str:
    name = text(mapping(body.get("metadata")).get("name"))
    return f"{text(body.get('kind')) or 'an object without a kind'} {name}".rstrip()
