"""A request as the server in memory sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hajob.api.base import Json


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        method: of HTTP.
        path: without query.
        query: its parameters.
        body: decoded; None where there is none.
        content_type: of the body; tells the kinds of patches apart.
        client: who asks; for faults between the server and one of its clients.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Json | Sequence[Json] | None = None
    content_type: str = "application/json"
    client: str = ""

    @property
    def dry_run(self) -> bool:
        """Whether nothing is to be changed."""
        return "dryRun" in self.query

    @property
    def strict(self) -> bool:
        """Whether unknown fields are refused."""
        return self.query.get("fieldValidation") == "Strict"

    @property
    def is_watch(self) -> bool:
        """Whether the answer is a stream of events."""
        return self.query.get("watch") in {"1", "true"}

    @property
    def is_write(self) -> bool:
        """Whether something is to be changed; questions that are asked by POST are none."""
        return self.method != "GET" and not self.dry_run and not self.path.endswith("/tokenreviews")


Matching = Callable[[Request], bool]


def any_request(_: Request) -> bool:
    """Every one."""
    return True


def requests(resource: str = "", *methods: str, client: str = "") -> Matching:
    """Those that concern a resource, by some methods (none: all), of a client (empty: all)."""

    def matches(request: Request) -> bool:
        return (
            (not resource or resource in request.path.split("/"))
            and (not methods or request.method in methods)
            and (not client or request.client == client)
        )

    return matches


def writes(request: Request) -> bool:
    """Those that change something, Leases left aside."""
    return request.is_write and "leases" not in request.path
