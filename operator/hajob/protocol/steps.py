"""A step that may be unknown, as it travels: an optional field, and −1 from peers of version 0.1."""

from __future__ import annotations

from hajob.protocol import sidecar_pb2 as pb


def known_step(message: pb.CoordinatorState | pb.RankState | pb.Fact) -> int | None:
    """Return the step of a message, None where it is unknown."""
    return message.step if message.HasField("step") and message.step >= 0 else None
