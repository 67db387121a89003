"""Whether and when an ended container is started again: the restart policy and a kubelet's crash-loop back-off.

The first restart comes at once, each further one after a wait that starts at ten seconds and doubles; a container that
ran for ten minutes starts over. The waits are settings, because a test has no ten seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from e2e.nodes.config import JsonObject
from e2e.nodes.states import Kind

FORGET_AFTER_SECONDS = 600.0


def restarts(kind: Kind, policy: str, exit_code: int) -> bool:
    """Whether a container of ``kind`` that ended with ``exit_code`` is started again under the pod's ``policy``.

    An init container is over when it has ended well; ``Always`` means ``OnFailure`` for it.
    """
    if kind is Kind.SIDECAR:
        return True
    if policy == "Never":
        return False
    return exit_code != 0 or (policy == "Always" and kind is Kind.MAIN)


def policy_of(pod_spec: JsonObject, container: JsonObject) -> str:
    """The restart policy that counts for a container: its own where it has one, else the pod's."""
    return str(container.get("restartPolicy") or pod_spec.get("restartPolicy") or "Always")


@dataclass
class Backoff:
    """The waits before one container's restarts. All times in seconds."""

    initial: float
    limit: float
    _next: float = 0.0

    def delay(self, ran_for: float) -> float:
        """How long to wait before the next start of a container that ran ``ran_for`` seconds."""
        if ran_for >= FORGET_AFTER_SECONDS:
            self._next = 0.0
        delay = self._next
        self._next = min(max(self.initial, 2 * delay), self.limit)
        return delay
