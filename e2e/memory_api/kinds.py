"""What differs from kind to kind: how a body is read, completed and checked."""

from __future__ import annotations

import base64
from typing import Final

from e2e.memory_api import decoding, pods, rules, schema
from e2e.memory_api.errors import Cause, bad_request, invalid_value, required
from e2e.memory_api.resources import JOBS, NAMESPACES, PODS, QUOTAS, Resource
from hajob.api.base import Json

_EVENT_FIELDS: Final = ("reportingComponent", "reportingInstance", "action", "reason")
_NOTE_BYTES: Final = 1024


def readable(resource: Resource, body: Json) -> Json:
    """The body as an object of its kind.

    Raises:
        ApiError: 400, it is none.
    """
    if resource.foreign:
        return body
    if not resource.custom:
        return decoding.decoded(resource, body)
    if not body.get("kind"):
        why = f"the object provided is unrecognized (must be of type {resource.kind}): Object 'Kind' is missing"
        raise bad_request(why)
    read = {**body, "apiVersion": resource.api_version, "kind": resource.kind}
    whole: Json = schema.completed(schema.schema_of(resource.plural), read)
    return {**whole, "metadata": body.get("metadata") or {}}


def unknown_fields(resource: Resource, body: Json) -> list[str]:
    """Paths of the fields that `readable` drops: `fieldValidation=Strict` refuses them."""
    if resource.foreign:
        return []
    if not resource.custom:
        return list(decoding.unknown_fields(resource, body))
    written = {key: value for key, value in body.items() if key != "metadata"}
    return list(schema.unknown_fields(schema.schema_of(resource.plural), written))


def completed(resource: Resource, body: Json, now: str) -> Json:
    """A new object with what the server adds."""
    if resource is PODS:
        return pods.defaulted(body, now)
    if resource is NAMESPACES:
        return {**body, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
    if resource is QUOTAS or ((resource.custom or resource.foreign) and resource.status and "status" in body):
        return {key: value for key, value in body.items() if key != "status"}
    if resource.kind == "Secret":
        plain = {key: base64.b64encode(text.encode()).decode() for key, text in (body.get("stringData") or {}).items()}
        rest = {key: value for key, value in body.items() if key != "stringData"}
        return {**rest, "type": body.get("type") or "Opaque", "data": {**(body.get("data") or {}), **plain}}
    return body


def problems(resource: Resource, body: Json) -> list[Cause]:
    """What validation says against it."""
    if resource.custom:
        content = {key: value for key, value in body.items() if key != "metadata"}
        return list(schema.problems(schema.schema_of(resource.plural), content, ""))
    if resource is PODS:
        return pods.problems(body)
    if resource.kind == "Event":
        return _event_problems(body)
    if resource.kind == "Lease":
        return _lease_problems(body.get("spec") or {})
    return []


def forbidden_changes(resource: Resource, old: Json, new: Json) -> list[Cause]:
    """What an update may not change."""
    if resource is PODS:
        return pods.forbidden_changes(old, new)
    return list(schema.shrunken_fence(old, new)) if resource is JOBS else []


def broken_rules(resource: Resource, new: Json, old: Json | None) -> list[Cause]:
    """What the rules of a custom resource say against an object that passes its schema."""
    return list(rules.broken_rules(resource.plural, new, old)) if resource.custom else []


def _event_problems(body: Json) -> list[Cause]:
    """What the core group asks of an Event; one without `eventTime` is of the old kind, of which little is asked."""
    found = []
    about = (body.get("involvedObject") or {}).get("namespace", "")
    if about and about != body["metadata"].get("namespace"):
        found.append(invalid_value("involvedObject.namespace", about, "does not match event.namespace"))
    if body.get("eventTime"):
        found += [required(field) for field in _EVENT_FIELDS if not body.get(field)]
        if len(body.get("message", "").encode()) > _NOTE_BYTES:
            found.append(invalid_value("message", "", f"can have at most {_NOTE_BYTES} characters"))
    return found


def _lease_problems(spec: Json) -> list[Cause]:
    found = []
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        found.append(invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        found.append(invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return found
