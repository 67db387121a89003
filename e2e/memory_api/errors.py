"""The refusals of an API server, in its own words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hajob.api.base import Json
from hajob.kube.client import ApiError


@dataclass(frozen=True, slots=True)
class Cause:
    """What is wrong with one field.

    Attributes:
        field: its path, such as `spec.containers[0].name`.
        reason: the API's word, such as FieldValueRequired.
        message: the sentence.
    """

    field: str
    reason: str
    message: str

    def to_json(self) -> Json:
        """As in the details of a Status."""
        return {"reason": self.reason, "message": self.message, "field": self.field}


def required(field: str, hint: str = "") -> Cause:
    """A field that must be set."""
    return Cause(field, "FieldValueRequired", f"Required value: {hint}" if hint else "Required value")


def invalid_value(field: str, value: object, why: str) -> Cause:
    """A field with a value that is not accepted."""
    return Cause(field, "FieldValueInvalid", f"Invalid value: {_shown(value)}: {why}")


def unsupported(field: str, value: object, supported: Sequence[str]) -> Cause:
    """A field whose value is none of an enumeration."""
    known = ", ".join(f'"{each}"' for each in supported)
    return Cause(field, "FieldValueNotSupported", f"Unsupported value: {_shown(value)}: supported values: {known}")


def duplicate(field: str, value: object) -> Cause:
    """A key of a list that is there twice."""
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {_shown(value)}")


def forbidden_field(field: str, why: str) -> Cause:
    """A field that may not be set or changed."""
    return Cause(field, "FieldValueForbidden", f"Forbidden: {why}")


def invalid(kind: str, name: str, causes: Sequence[Cause]) -> ApiError:
    """422 for an object that does not pass validation."""
    told = [f"{cause.field}: {cause.message}" for cause in causes]
    sentence = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
    details: Json = {"kind": kind.partition(".")[0], "causes": [cause.to_json() for cause in causes]}
    if "." in kind:
        details["group"] = kind.partition(".")[2]
    if name:
        details["name"] = name
    return ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {sentence}', details)


def no_streaming_lists() -> ApiError:
    """422: the feature gate for lists in streams is off."""
    why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
    return invalid("ListOptions.meta.k8s.io", "", [forbidden_field("sendInitialEvents", why)])


def bad_request(message: str) -> ApiError:
    """400: the request itself cannot be read."""
    return ApiError(400, "BadRequest", message)


def cannot_be_read(kind: str, version: str, why: str) -> ApiError:
    """400: the body is not an object of that kind."""
    return bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {why}')


def unknown_fields(kind: str, version: str, paths: Sequence[str]) -> ApiError:
    """400: the body has fields that the kind does not know, and was to have none."""
    told = ", ".join(f'unknown field "{path}"' for path in paths)
    return cannot_be_read(kind, version, f"strict decoding error: {told}")


def patch_rejected() -> ApiError:
    """422 for a JSON patch that does not apply; the real server says no more either."""
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request")


def no_such_path() -> ApiError:
    """404 for a path that is none: nobody serves it, so the answer is no Status."""
    return ApiError(404, "Not Found", "")


def not_found(resource: str, name: str) -> ApiError:
    """404 for an object."""
    return ApiError(404, "NotFound", f'{resource} "{name}" not found', _details(resource, name))


def already_exists(resource: str, name: str) -> ApiError:
    """409 for a name that is taken."""
    return ApiError(409, "AlreadyExists", f'{resource} "{name}" already exists', _details(resource, name))


def conflict(what: str, name: str, why: str) -> ApiError:
    """409 for a write that is not about the present object."""
    message = f'Operation cannot be fulfilled on {what} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(what, name))


def modified(resource: str, name: str) -> ApiError:
    """409 for an older resourceVersion."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, why)


def forbidden(resource: str, name: str, why: str, causes: Sequence[Cause] = ()) -> ApiError:
    """403 by an admission rule."""
    details = _details(resource, name)
    if causes:
        details["causes"] = [cause.to_json() for cause in causes]
    return ApiError(403, "Forbidden", f'{resource} "{name}" is forbidden: {why}', details)


def expired(message: str) -> ApiError:
    """410: the server no longer has that version."""
    return ApiError(410, "Expired", message)


def budget_violated(message: str) -> ApiError:
    """429 for an eviction."""
    sentence = "Cannot evict pod as it would violate the pod's disruption budget."
    return ApiError(429, "TooManyRequests", sentence, {"causes": [{"reason": "DisruptionBudget", "message": message}]})


def status_of(error: ApiError) -> Json:
    """The Status object of an error, as an ERROR event of a watch holds it."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": error.message,
        "reason": error.reason,
        "code": error.status,
    }


def _details(resource: str, name: str) -> Json:
    plural, _, group = resource.partition(".")
    return {"name": name, **({"group": group} if group else {}), "kind": plural}


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)
