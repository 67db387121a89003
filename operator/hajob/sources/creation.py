"""The API server's reasons for not creating a pod."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_OVER_QUOTA: Final = "exceeded quota"
"""The words of the ResourceQuota admission; all its other refusals ("failed quota") are about the pod itself."""

_CALLING: Final = "calling webhook"
"""The API server's words where a webhook that must be asked does not answer, or answers nonsense: its status is 500."""


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


def is_from_webhook(message: str) -> bool:
    """Return whether nothing can be said of the pods because a webhook does not answer: that may last for long."""
    return _CALLING in message
