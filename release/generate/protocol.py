"""Generate the Python side of the protocols, or say that the checked-in files are out of date.

python -m release.generate.protocol [--check]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib import resources
from pathlib import Path

from release.generate.files import ROOT as REPOSITORY

ROOT = REPOSITORY / "operator"
PACKAGE = "hajob/protocol"
HERE = ROOT / PACKAGE
PROTOCOLS = ("sidecar", "taskd")
GENERATED = ("sidecar_pb2.py", "sidecar_pb2.pyi", "sidecar_pb2_grpc.py", "taskd_pb2.py", "taskd_pb2.pyi")
"""The services of TaskD have no package, so nothing is generated of them: they are served by their paths."""


def compile_protocol(target: Path) -> dict[str, str]:
    """Run protoc below `target`; file name -> text of each generated file."""
    from grpc_tools import protoc  # a development dependency, absent from images

    well_known = str(resources.files("grpc_tools") / "_proto")
    arguments = [
        "protoc",
        f"-I{ROOT}",
        f"-I{well_known}",
        f"--python_out={target}",
        f"--pyi_out={target}",
        f"--grpc_python_out={target}",
        *(f"{PACKAGE}/{name}.proto" for name in PROTOCOLS),
    ]
    code = protoc.main(arguments)
    if code != 0:
        raise SystemExit(f"protoc failed with code {code} in {PACKAGE}")
    return {name: (target / PACKAGE / name).read_text() for name in GENERATED}


def main() -> int:
    """Write the files, or with --check compare them; 1 when they differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as directory:
        generated = compile_protocol(Path(directory))
    stale = [name for name, text in generated.items() if (HERE / name).read_text() != text] if check else []
    if stale:
        print(f"out of date: {', '.join(stale)} in {PACKAGE}; run `make generate` and commit", file=sys.stderr)
        return 1
    if not check:
        for name, text in generated.items():
            (HERE / name).write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
