"""Protocols of others that stand-ins speak: their modules are made of the `.proto` files when they are asked for."""

from __future__ import annotations

import importlib
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final

from grpc_tools import protoc

OUTPUTS: Final = {"pb2": "python_out", "pb2_grpc": "grpc_python_out"}
"""What protoc is asked for: messages, services."""


@cache
def load_protocol(file: Path, *kinds: str) -> tuple[ModuleType, ...]:
    """Return the modules of these kinds, by `OUTPUTS`; gRPC's own loader refuses a path that is not ASCII."""
    with tempfile.TemporaryDirectory() as directory:
        targets = [f"--{OUTPUTS[kind]}={directory}" for kind in kinds]
        code = protoc.main(["protoc", f"-I{file.parent}", *targets, file.name])
        if code != 0:
            raise RuntimeError(f"protoc failed with code {code} on {file}")
        sys.path.insert(0, directory)
        try:
            importlib.invalidate_caches()
            return tuple(importlib.import_module(f"{file.stem}_{kind}") for kind in kinds)
        finally:
            sys.path.remove(directory)
