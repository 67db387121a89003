"""The CRDs, generated from the models, so that server and operator can never disagree.

Pydantic's JSON schema is not a structural schema: Kubernetes forbids types inside `anyOf`, `$ref`,
`additionalProperties: false`, `const` and numeric exclusive bounds. The few overrides below rewrite what our models
use; everything else is refused here instead of by the server (docs/decisions names the alternatives looked at).
"""

from typing import Final

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from hajob.api import constants as names
from hajob.api.base import ApiModel, Json, JsonValue
from hajob.api.job import HATrainingJob
from hajob.api.quarantine import NodeQuarantine

SHORT_NAMES: Final = ("hajob", "hajobs")
_NOISE: Final = ("title", "$defs", "additionalProperties")

COLUMNS: Final[tuple[Json, ...]] = (
    {"name": "State", "type": "string", "jsonPath": ".status.summary.state"},
    {"name": "Reason", "type": "string", "jsonPath": ".status.summary.reason"},
    {"name": "Size", "type": "string", "jsonPath": ".status.summary.size"},
    {"name": "Step", "type": "integer", "jsonPath": ".status.progress.step"},
    {"name": "Step-Time", "type": "string", "jsonPath": ".status.summary.stepTime"},
    {"name": "Protected", "type": "string", "jsonPath": ".status.summary.protected"},
    {"name": "Goodput", "type": "string", "jsonPath": ".status.summary.goodput"},
    {"name": "Restarts", "type": "string", "jsonPath": ".status.summary.restarts"},
    {"name": "Recovery", "type": "string", "jsonPath": ".status.summary.recovery", "priority": 1},
    {"name": "Last-Outage", "type": "string", "jsonPath": ".status.summary.lastOutage", "priority": 1},
    {"name": "Nodes", "type": "string", "jsonPath": ".status.summary.nodes", "priority": 1},
    {"name": "Spares", "type": "string", "jsonPath": ".status.summary.spares", "priority": 1},
    {"name": "Checkpoint", "type": "date", "jsonPath": ".status.progress.checkpointTime", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
)

QUARANTINE_COLUMNS: Final[tuple[Json, ...]] = (
    {"name": "State", "type": "string", "jsonPath": ".status.state"},
    {"name": "Source", "type": "string", "jsonPath": ".spec.source"},
    {"name": "Reason", "type": "string", "jsonPath": ".spec.reason"},
    {"name": "Until", "type": "string", "jsonPath": ".spec.expireTime"},
    {"name": "Offences", "type": "integer", "jsonPath": ".status.offences"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
)


class StructuralJsonSchema(GenerateJsonSchema):
    """Pydantic's generator with the constructs replaced that Kubernetes refuses."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """An optional field is one that may be absent; the server prunes a null without a default by itself."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Keep a default, but not null and not empty: both mean absent, and would only fill people's objects."""
        result = super().default_schema(schema)
        if "default" in result:
            result["default"] = _without_empty(result["default"])
            if result["default"] in (None, {}, []):
                del result["default"]
        return result


def _without_empty(value: JsonValue) -> JsonValue:
    """A default without the members that say nothing."""
    if not isinstance(value, dict):
        return value
    kept = {name: _without_empty(member) for name, member in value.items()}
    return {name: member for name, member in kept.items() if member not in (None, {}, [])}


def _inlined(node: JsonValue, definitions: Json) -> JsonValue:
    """The schema without references and without what a CRD has no use for."""
    if isinstance(node, list):
        return [_inlined(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    merged = dict(node)
    if reference := merged.pop("$ref", None):
        merged = {**definitions[reference.rsplit("/", 1)[-1]], **merged}
    result: Json = {}
    for key, value in merged.items():
        if key == "properties":
            result[key] = {name: _inlined(child, definitions) for name, child in value.items()}
        elif key == "additionalProperties" and isinstance(value, dict):
            result[key] = _inlined(value, definitions)
        elif key in ("default", "enum", "x-kubernetes-validations"):
            result[key] = value
        elif key not in _NOISE:
            result[key] = _inlined(value, definitions)
    return result


def _drop_empty_texts(schema: JsonValue) -> None:
    """Take out defaults that are empty texts: the operator leaves them out, and the server would put them back."""
    if isinstance(schema, dict):
        if schema.get("default") == "" and "type" in schema:
            del schema["default"]
        for member in schema.values():
            _drop_empty_texts(member)
    elif isinstance(schema, list):
        for member in schema:
            _drop_empty_texts(member)


def _schema(model: type[ApiModel]) -> Json:
    """The structural schema of an object."""
    raw = model.model_json_schema(by_alias=True, schema_generator=StructuralJsonSchema, mode="validation")
    schema: Json = _inlined(raw, raw.get("$defs", {}))
    properties = schema["properties"]
    for name in ("apiVersion", "kind"):
        properties[name] = {"type": "string"}
    properties["metadata"] = {"type": "object"}
    properties["status"].pop("default", None)
    _drop_empty_texts(properties["status"])
    schema["required"] = ["spec"]
    return schema


def open_api_schema() -> Json:
    """The structural schema of a HATrainingJob."""
    return _schema(HATrainingJob)


def quarantine_schema() -> Json:
    """The structural schema of a NodeQuarantine."""
    return _schema(NodeQuarantine)


def custom_resource_definition() -> Json:
    """The CRD of HATrainingJobs as an object for the API server."""
    called = {
        "kind": names.KIND,
        "listKind": f"{names.KIND}List",
        "plural": names.PLURAL,
        "singular": names.KIND.lower(),
        "shortNames": list(SHORT_NAMES),
        "categories": ["all"],
    }
    return _definition("Namespaced", called, open_api_schema(), COLUMNS, {"subresources": {"status": {}}})


def quarantine_definition() -> Json:
    """The CRD of NodeQuarantines. Without a subresource: who, why and what follows are written at once."""
    kind = names.QUARANTINE_KIND
    called = {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": names.QUARANTINES,
        "singular": kind.lower(),
        "shortNames": ["hajobnq"],
    }
    return _definition("Cluster", called, quarantine_schema(), QUARANTINE_COLUMNS, {})


def _definition(scope: str, called: Json, schema: Json, columns: tuple[Json, ...], more: Json) -> Json:
    version = {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        **more,
        "additionalPrinterColumns": list(columns),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{called['plural']}.{names.GROUP}"},
        "spec": {"group": names.GROUP, "names": called, "scope": scope, "versions": [version]},
    }
