"""The messages of ClusterD's services as TaskD sends them, and its calls."""

from __future__ import annotations

import importlib
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import grpc
from grpc_tools import protoc

PROTOCOL: Final = "recover"
PORT: Final = 8899
SECONDS_OF_A_DIAL: Final = 20.0
"""As long as a server that takes the connection and says nothing holds up a report."""


@cache
def load_messages() -> ModuleType:
    """Return the messages of recover.proto."""
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as directory:
        code = protoc.main(["protoc", f"-I{here}", f"--python_out={directory}", f"{PROTOCOL}.proto"])
        if code != 0:
            raise RuntimeError(f"protoc failed with code {code} on {here / PROTOCOL}.proto")
        sys.path.insert(0, directory)
        try:
            importlib.invalidate_caches()
            return importlib.import_module(f"{PROTOCOL}_pb2")
        finally:
            sys.path.remove(directory)


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
