"""What all API models share: camelCase outside, snake_case inside, frozen, described by their own docstrings.

The docstring under a field is the description in the CRD and the only place where its meaning is written down.
Unknown fields are ignored when an object is *read*: after a roll-back an older operator must still understand the
objects of a newer one. The API server has refused them long before, when they were written.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from pydantic import AwareDatetime, BaseModel, ConfigDict, PlainSerializer, WithJsonSchema
from pydantic.alias_generators import to_camel

Json = dict[str, Any]
JsonValue = Any
"""A piece of JSON of unknown shape."""


class ApiModel(BaseModel):
    """Base of every object in the HATrainingJob."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
        frozen=True,
        extra="ignore",
    )

    def to_json(self) -> Json:
        """Return the object as Kubernetes sees it; absent fields are left out, never null."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def unread_fields(model: ApiModel, raw: JsonValue, path: str) -> Iterator[str]:
    """Yield the paths of the fields of an object that its model does not know."""
    if not isinstance(raw, dict):
        return
    known = {field.alias or name: name for name, field in type(model).model_fields.items()}
    for key, value in raw.items():
        if key not in known:
            yield f"{path}.{key}"
            continue
        member, place = getattr(model, known[key]), f"{path}.{key}"
        if isinstance(member, ApiModel):
            yield from unread_fields(member, value, place)
        elif isinstance(member, tuple) and isinstance(value, list):
            for number, (one, written) in enumerate(zip(member, value, strict=False)):
                if isinstance(one, ApiModel):
                    yield from unread_fields(one, written, f"{place}[{number}]")


def format_time(moment: datetime) -> str:
    """Format a time as RFC 3339 in UTC; microseconds only where there are some, because metav1.Time has none."""
    utc = moment.astimezone(UTC)
    return utc.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if utc.microsecond else "%Y-%m-%dT%H:%M:%SZ")


Timestamp = Annotated[
    AwareDatetime,
    PlainSerializer(format_time, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


def validation_rule(expression: str, message: str, *, field: str = "", told: str = "") -> Json:
    """Build one entry of x-kubernetes-validations.

    Args:
        expression: CEL over `self` and, for a transition, `oldSelf`.
        message: the sentence for the person whose `kubectl apply` is refused; it names the fix. It is fixed text,
            because the server's estimate for a text made of numbers alone exceeds the budget of a whole CRD.
        field: path below the object that carries the rule, such as `.numNodes`.
        told: CEL for a text of limited length that is shown in front of the message, such as the refused value.
    """
    entry: Json = {"rule": expression, "message": message}
    if told:
        entry["messageExpression"] = f"{told} + {json.dumps(f': {message}', ensure_ascii=False)}"
    if field:
        entry["fieldPath"] = field
    return entry


def validation_rules(*entries: Json) -> Json:
    """Build the `json_schema_extra` of a model that carries these rules."""
    return {"x-kubernetes-validations": list(entries)}


def unchanged_rule(field: str, fix: str) -> Json:
    """Build a rule for the parent: the field keeps its value, and can be neither added nor removed.

    The API server would not evaluate a rule on the field itself when the field is added or removed.
    """
    expression = f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})"
    return validation_rule(expression, f"spec.{field} cannot be changed: {fix}", field=f".{field}")


def keyed_list(*keys: str) -> Json:
    """Build the `json_schema_extra` of a list whose items have a key: duplicates are refused, owners can share it."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


SECONDS_PER_YEAR: Final = 366 * 24 * 3600
