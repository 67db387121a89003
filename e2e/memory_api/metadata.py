"""An object's metadata: what the server sets, and what it checks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from e2e.memory_api.errors import Cause, forbidden_field, invalid_value, required
from hajob.api.base import Json

_SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_NAME_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_LABEL: Final = r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_LABEL_RULE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'{_LABEL}')"
)
_SYSTEM: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"


def seconds(milliseconds: int) -> str:
    """RFC 3339 without fractions, as `metav1.Time`."""
    return f"{datetime.fromtimestamp(milliseconds // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def created(meta: Json, namespace: str, now: str, number: int) -> Json:
    """The metadata of a new object; `number` tells it from every other one."""
    kept = {key: value for key, value in meta.items() if key not in {*_SYSTEM, "resourceVersion", "managedFields"}}
    if namespace:
        kept["namespace"] = namespace
    if not kept.get("name") and kept.get("generateName"):
        kept["name"] = kept["generateName"] + _suffix(number)
    return {**kept, "uid": f"{number:08x}-0000-4000-8000-{number:012x}", "creationTimestamp": now}


def _suffix(number: int) -> str:
    digits = ""
    for _ in range(5):
        number, digit = divmod(number, len(_LETTERS))
        digits = _LETTERS[digit] + digits
    return digits


def updated(old: Json, new: Json) -> Json:
    """The metadata after an update: what the server sets stays, a changed UID is left to be refused."""
    kept: Json = {key: old[key] for key in ("namespace", "name", "resourceVersion", *_SYSTEM) if key in old}
    free: Json = {
        key: value for key, value in new.items() if key not in {*kept, *_SYSTEM, "managedFields"} and value != {}
    }
    uid: Json = {"uid": new["uid"]} if new.get("uid") else {}
    return {**free, **kept, **uid}


def problems(meta: Json, old: Json | None) -> Iterator[Cause]:
    """What is wrong with it."""
    name = meta.get("name")
    if not name:
        yield required("metadata.name", "name or generateName is required")
    elif not re.fullmatch(_SUBDOMAIN, name):
        yield invalid_value("metadata.name", name, _NAME_RULE)
    for value in (meta.get("labels") or {}).values():
        if len(value) > 63 or not re.fullmatch(_LABEL, value):
            yield invalid_value("metadata.labels", value, _LABEL_RULE)
    if old is None:
        return
    if meta["uid"] != old["uid"]:
        yield invalid_value("metadata.uid", meta["uid"], "field is immutable")
    added = [each for each in meta.get("finalizers") or [] if each not in (old.get("finalizers") or [])]
    if added and old.get("deletionTimestamp"):
        shown = ", ".join(f'"{each}"' for each in added)
        why = "no new finalizers can be added if the object is being deleted, found new finalizers "
        yield forbidden_field("metadata.finalizers", f"{why}[]string{{{shown}}}")
