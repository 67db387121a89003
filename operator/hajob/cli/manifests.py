"""Manifests that commands read from a file or from standard input.

Everything that is wrong with one is a `HajobInputError` that names the file.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from hajob.api.base import Json
from hajob.api.spec import HATrainingJobSpec
from hajob.domain.errors import HajobInputError
from hajob.plan.policy import parse_spec
from hajob.sources.reading import items, mapping


def read_objects(filename: str) -> Iterator[Mapping[str, Any]]:
    """Yield every object of a file, those of a List one by one; `-` is standard input."""
    for document in _load_documents(filename):
        if document is None:
            continue
        if not isinstance(document, Mapping):
            raise HajobInputError(f"{filename} holds {type(document).__name__}, which is no Kubernetes object")
        if str(document.get("kind", "")).endswith("List"):
            yield from (mapping(one) for one in items(document.get("items")))
        else:
            yield document


def _load_documents(filename: str) -> list[Any]:
    try:
        content = sys.stdin.read() if filename == "-" else Path(filename).read_text(encoding="utf-8")
        return list(yaml.safe_load_all(content))
    except RecursionError:
        raise HajobInputError(f"{filename} cannot be read: its YAML is nested too deeply") from None
    except (OSError, yaml.YAMLError, ValueError) as error:
        raise HajobInputError(f"{filename} cannot be read: {error}") from None


def read_job_manifest(filename: str) -> HATrainingJobSpec:
    """Read the spec of the one HATrainingJob in a file."""
    jobs = [one for one in read_objects(filename) if one.get("kind") == "HATrainingJob"]
    if len(jobs) != 1:
        raise HajobInputError(f"{filename} holds {len(jobs)} objects of kind HATrainingJob; it must be one")
    spec = jobs[0].get("spec")
    if not isinstance(spec, Mapping):
        raise HajobInputError(f"{filename}: spec is missing")
    return _parse_job_spec(dict(spec))


def _parse_job_spec(spec: Json) -> HATrainingJobSpec:
    unknown = list(unknown_fields(HATrainingJobSpec, spec, "spec"))
    if unknown:
        raise HajobInputError(f"unknown fields: {', '.join(unknown)}; look for a misspelling")
    model = parse_spec(spec)
    containers = (model.template.get("spec") or {}).get("containers") or []
    trainers = [one for one in containers if isinstance(one, Mapping) and one.get("name") == "trainer"]
    if len(trainers) != 1:
        raise HajobInputError(
            f"spec.template.spec.containers holds {len(trainers)} containers named trainer; it must be one"
        )
    return model


def unknown_fields(model: type[BaseModel], data: Mapping[str, Any], where: str) -> list[str]:
    """Return the fields that the API does not have, as the server would refuse them."""
    known = {field.alias or name: field.annotation for name, field in model.model_fields.items()}
    found = [f"{where}.{key}" for key in data if key not in known]
    for key, kind in known.items():
        value = data.get(key)
        if isinstance(kind, type) and issubclass(kind, BaseModel) and isinstance(value, Mapping):
            found += unknown_fields(kind, value, f"{where}.{key}")
    return found
