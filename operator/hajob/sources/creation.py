"""The API server's reasons for not creating a pod."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_OVER_QUOTA: Final = "exceeded quota"
"""The words of the ResourceQuota admission; all its other refusals ("failed quota") are about the pod itself."""


@dataclass(frozen=True, slots=True)
class NotCreated:
    """The reason why desired pods are not created.

    Attributes:
        message: the server's words.
        over_quota: a ResourceQuota is used up: it passes when quota or pods go.
        code: the server's reason, such as Forbidden.
    """

    message: str
    over_quota: bool = False
    code: str = ""


def parse_refused_creation(status: int, code: str, message: str) -> NotCreated:
    """Parse a refusal: HTTP status, the API's reason, the server's sentence."""
    return NotCreated(message, is_over_quota(status, message), code)


def is_over_quota(status: int, message: str) -> bool:
    """Return whether the same request succeeds once a quota has room for it."""
    return status == 403 and _OVER_QUOTA in message
