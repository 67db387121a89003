"""The API server's audit log, read as the neutral clock and counter: who wrote what, when.

What counts as a write is decided here once. Leases are a heartbeat, TokenReviews and access reviews ask a question,
a dry run changes nothing: each is told apart, none is hidden.
"""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

WRITING_VERBS = frozenset({"create", "update", "patch", "delete", "deletecollection"})
REVIEWS = frozenset(
    {
        "tokenreviews",
        "subjectaccessreviews",
        "selfsubjectaccessreviews",
        "selfsubjectrulesreviews",
        "selfsubjectreviews",
    }
)


@dataclass(frozen=True)
class Request:
    """One request that the API server answered.

    Attributes:
        received: When it came, UTC, microseconds.
        answered: When it was answered.
        user: User name of the client, for example system:serviceaccount:hajob-system:hajob-operator.
        pod: Of a service account: the pod whose token it is.
        agent: Its User-Agent header.
        verb: create, patch, …
        group: API group; empty for the core's.
        resource: Plural name, with the subresource after a slash.
        namespace: Empty for what has none.
        name: Empty for lists and for creations that let the server choose.
        status: HTTP status of the answer.
        dry_run: Whether nothing was to be changed.
    """

    received: datetime.datetime
    answered: datetime.datetime
    user: str
    pod: str
    agent: str
    verb: str
    group: str
    resource: str
    namespace: str
    name: str
    status: int
    dry_run: bool

    @property
    def kind(self) -> str:
        """What sort of request it is: read, write, lease, token, review or dry-run."""
        resource, _, subresource = self.resource.partition("/")
        if self.verb not in WRITING_VERBS:
            return "read"
        if resource == "leases":
            return "lease"
        if resource in REVIEWS:
            return "review"
        if (resource, subresource) == ("serviceaccounts", "token"):
            return "token"
        return "dry-run" if self.dry_run else "write"


@dataclass
class AuditLog:
    """The audit log at `path`; reading it costs the API server nothing."""

    path: Path

    def requests(
        self,
        since: datetime.datetime | None = None,
        until: datetime.datetime | None = None,
        user: str = "",
        agent: str = "",
        namespace: str = "",
    ) -> Iterator[Request]:
        """Requests answered in a time window, of users and agents whose names begin with `user` and `agent`."""
        with self.path.open("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    return  # the server is writing this one now
                request = parse(json.loads(line))
                if request is None or (since and request.answered < since) or (until and request.answered > until):
                    continue
                if not (request.user.startswith(user) and request.agent.startswith(agent)):
                    continue
                if not namespace or request.namespace == namespace:
                    yield request

    def writes(
        self,
        since: datetime.datetime | None = None,
        until: datetime.datetime | None = None,
        user: str = "",
        agent: str = "",
        namespace: str = "",
    ) -> list[Request]:
        """Requests that changed, or tried to change, something: refused ones count, leases and reviews do not."""
        return [each for each in self.requests(since, until, user, agent, namespace) if each.kind == "write"]

    def kinds(self, since: datetime.datetime | None = None, user: str = "") -> Counter[str]:
        """How many requests of each kind there were."""
        return Counter(request.kind for request in self.requests(since, user=user))


def now() -> datetime.datetime:
    """The present, as the audit log writes it: UTC."""
    return datetime.datetime.now(datetime.UTC)


def parse(event: dict[str, object]) -> Request | None:
    """A line of the audit log; None for a stage that is no answer."""
    if event.get("stage") not in {"ResponseComplete", "Panic"}:
        return None
    reference = _mapping(event.get("objectRef"))
    user = _mapping(event.get("user"))
    pods = _mapping(user.get("extra")).get("authentication.kubernetes.io/pod-name")
    parts = [str(reference.get("resource", "")), str(reference.get("subresource", ""))]
    return Request(
        received=_time(event["requestReceivedTimestamp"]),
        answered=_time(event["stageTimestamp"]),
        user=str(user.get("username", "")),
        pod=str(pods[0]) if isinstance(pods, list) and pods else "",
        agent=str(event.get("userAgent", "")),
        verb=str(event.get("verb", "")),
        group=str(reference.get("apiGroup", "")),
        resource="/".join(filter(None, parts)),
        namespace=str(reference.get("namespace", "")),
        name=str(reference.get("name", "")),
        status=int(str(_mapping(event.get("responseStatus")).get("code", 0))),
        dry_run="dryRun=" in str(event.get("requestURI", "")),
    )


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _time(value: object) -> datetime.datetime:
    return datetime.datetime.fromisoformat(str(value))
