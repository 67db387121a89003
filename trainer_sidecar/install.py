"""Put launcher, controller host and shims into the directory that a pod's containers share.

    python3 -m trainer_sidecar.install DIRECTORY

The init container of every pod runs this; the training image then needs nothing of Hajob's but a Python. Each file
appears at once and whole (written under another name, then renamed), so that a restarted init container disturbs no
other process. Any user can read and execute all of it, since image and sidecar seldom run as the same one.
"""

from __future__ import annotations

import signal
import sys

if __name__ == "__main__":  # before all other imports: to a first process without a handler it would not be delivered
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))

import argparse
import io
import tempfile
import zipfile
from pathlib import Path

from hajob.version import VERSION

PACKAGE = Path(__file__).parent
SHIMS = ("torchrun", "msrun", "torch_npu_run")
INTERPRETERS = ("python", "python3")
ARCHIVES = {"launcher.pyz": "launcher", "controller_host.pyz": "controller_host"}
SHARED = ("__init__.py", "controller_protocol.py", "mindio_tls.py", "prctl.py", "signals.py")
EARLIEST = (1980, 1, 1, 0, 0, 0)
SHEBANG = b"#!/usr/bin/env python3\n"


def build_archive(name: str) -> bytes:
    """Pack the sub-package `name` as a zipapp under its own import name; the same sources give the same bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        _add_to_archive(archive, "__main__.py", _source_of_entry(name))
        for shared in SHARED:
            _add_to_archive(archive, f"trainer_sidecar/{shared}", (PACKAGE / shared).read_text())
        for source in sorted((PACKAGE / name).rglob("*.py")):
            _add_to_archive(archive, f"trainer_sidecar/{source.relative_to(PACKAGE).as_posix()}", source.read_text())
    return SHEBANG + content.getvalue()


def _source_of_entry(name: str) -> str:
    said = f"hajob {VERSION} ({name})"
    return (
        f"import sys\n\nif sys.argv[1:] == ['--version']:\n    print({said!r})\n    sys.exit()\n\n"
        "from trainer_sidecar import signals\n\nsignals.block_signals()\n\nimport runpy\n\n"
        f"runpy.run_module('trainer_sidecar.{name}.__main__', run_name='__main__', alter_sys=False)\n"
    )


def _add_to_archive(archive: zipfile.ZipFile, path: str, text: str) -> None:
    archive.writestr(zipfile.ZipInfo(path, EARLIEST), text)


def write_whole(path: Path, content: bytes) -> None:
    """Replace `path` by an executable file with this content, in one step."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as beside:
        beside.write(content)
    Path(beside.name).chmod(0o755)
    Path(beside.name).replace(path)


def install_below(directory: Path) -> list[Path]:
    """Write all files below `directory` and return their paths. OSError: it can't be written to."""
    shims = directory / "bin"
    shims.mkdir(parents=True, exist_ok=True)
    shims.chmod(0o755)
    contents = {directory / file: build_archive(name) for file, name in ARCHIVES.items()}
    shim = (PACKAGE / "launcher" / "shim.py").read_bytes()
    contents.update({shims / name: shim for name in SHIMS})
    contents[directory / "shim.py"] = shim
    interpreter = (PACKAGE / "launcher" / "interpreter.sh").read_bytes()
    contents.update({shims / name: interpreter for name in INTERPRETERS})
    contents[directory / "entry.py"] = (PACKAGE / "launcher" / "entry.py").read_bytes()
    for path, content in contents.items():
        write_whole(path, content)
    return list(contents)


def main() -> int:
    """Install below the given directory; return 1, with the reason on stderr, when that fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"hajob {VERSION} (install)")
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    try:
        written = install_below(directory)
    except OSError as problem:
        print(f"hajob: {directory} cannot be filled: {problem}", file=sys.stderr)
        return 1
    print("\n".join(str(path) for path in written))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
