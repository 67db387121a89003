"""The calls of ClusterD's services as TaskD makes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import grpc

PROTOCOL: Final = Path(__file__).with_name("recover.proto")
PORT: Final = 8899


def unary_call(channel: grpc.Channel, path: str, answer: Any) -> Any:  # noqa: ANN401 - generated messages
    """A callable that sends one message and returns one of the class `answer`."""
    return channel.unary_unary(
        path, request_serializer=lambda one: one.SerializeToString(), response_deserializer=answer.FromString
    )


def stream_call(channel: grpc.Channel, path: str, answer: Any) -> Any:  # noqa: ANN401 - generated messages
    """A callable that sends one message and returns a stream of the class `answer`."""
    return channel.unary_stream(
        path, request_serializer=lambda one: one.SerializeToString(), response_deserializer=answer.FromString
    )
