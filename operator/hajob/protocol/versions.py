"""Protocol versions: the range that a process speaks, and whether two processes have one in common.

Jobs outlive upgrades and roll-backs of the operator: their pods keep the sidecars that they were made with. So each
end sends the lowest and the highest version that it speaks, and a stream uses the highest that both speak. Peers from
before ranges existed know only `Hello.version` and require it to be their own; that is why it holds the lowest
(docs/decisions/0020-versions-between-operator-and-sidecars.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hajob.protocol import sidecar_pb2 as wire


@dataclass(frozen=True, slots=True)
class Versions:
    """A range of versions, both ends included."""

    lowest: int
    highest: int

    def __str__(self) -> str:
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest} to {self.highest}"


OURS: Final = Versions(1, 1)
"""Versions of this build. The highest rises when an old peer would misunderstand a new one (anything smaller is a
capability); the lowest rises only when no sidecar of a supported release speaks it any more."""


def hello(
    job_uid: str, *, fence: int = 0, incarnation: int = 0, pod_name: str = "", pod_uid: str = "", token: str = ""
) -> wire.Hello:
    """Build the first message of this end."""
    return wire.Hello(
        version=OURS.lowest,
        highest_version=OURS.highest,
        job_uid=job_uid,
        fence=fence,
        incarnation=incarnation,
        pod_name=pod_name,
        pod_uid=pod_uid,
        token=token,
    )


def of_hello(hello: wire.Hello) -> Versions:
    """Return the versions of a peer; one that sends no highest version speaks only one."""
    return Versions(hello.version, max(hello.version, hello.highest_version))


def disagreement(hello: wire.Hello, who: str, ours: Versions = OURS) -> str:
    """Say why two ends cannot talk; empty where a version is common to both.

    Args:
        hello: the peer's first message.
        who: name of the peer in the sentence.
        ours: versions of this end.
    """
    theirs = of_hello(hello)
    if max(ours.lowest, theirs.lowest) <= min(ours.highest, theirs.highest):
        return ""
    older = who if theirs.highest < ours.lowest else "this end"
    return f"{who} speaks protocol version {theirs}, this end {ours}: {older} is too old and must be replaced"
