"""The one condition of a job that this version cannot read: everything else in its status stays as it is, raw."""

from __future__ import annotations

from datetime import UTC, datetime

from pydantic import ValidationError

from hajob.api.base import Json
from hajob.api.conditions import Reason, build_condition

ON_HOLD = "OnHold"
MOST_NAMED = 3
_REASON = Reason.SPEC_NOT_READ


def why_unread(error: ValidationError) -> str:
    """Name the first fields that cannot be read, each with what was expected."""
    problems = error.errors()
    named = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}, not {one['input']!r:.100}" for one in problems]
    more = len(named) - MOST_NAMED
    return "; ".join(named[:MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")


def patch_for_unread(raw: Json, why: str, fence: int, now_ms: int) -> list[Json]:
    """Build the JSON patch of the job's status that says why it cannot be read; empty when it says so already.

    Args:
        raw: the job as the server has it.
        why: which fields cannot be read.
        fence: of this leadership, without which the server takes no status.
        now_ms: milliseconds since 1970.
    """
    status = raw.get("status") or {}
    metadata, conditions = raw["metadata"], status.get("conditions") or []
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    message = f"{_REASON.sentence} {why}"
    wanted = build_condition(_REASON, now, message=message, generation=metadata.get("generation")).to_json()
    known: Json = next((one for one in conditions if one.get("type") == wanted["type"]), {})
    if known.get("status") == wanted["status"] and known.get("lastTransitionTime"):
        wanted["lastTransitionTime"] = known["lastTransitionTime"]
    if known == wanted:
        return []
    same_job: Json = {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]}
    if not status:
        new = {"conditions": [wanted], "summary": {"state": ON_HOLD}, "fence": fence}
        return [same_job, {"op": "add", "path": "/status", "value": new}]
    unchanged = [{"op": "test", "path": "/status/conditions", "value": conditions}] if conditions else []
    others = [one for one in conditions if one.get("type") != wanted["type"]]
    summary = {**(status.get("summary") or {}), "state": ON_HOLD}
    written = {"conditions": [wanted, *others], "summary": summary, "fence": fence}
    puts: list[Json] = [{"op": "add", "path": f"/status/{name}", "value": value} for name, value in written.items()]
    return [same_job, *unchanged, *puts]
