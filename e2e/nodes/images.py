"""An image of a process node: a directory with an ``image.json`` that says how to start it.

There is no registry and no file system of its own behind an image name; the file holds what an image's configuration
holds (``env``, ``entrypoint``, ``cmd``, ``workingDir``), and the programs are the machine's.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

_KNOWN = {"env", "entrypoint", "cmd", "workingDir"}


class ImageMissingError(Exception):
    """No image of that name can be had on this node."""


@dataclass(frozen=True)
class Image:
    """What a container inherits from its image. ``working_directory`` is absolute or empty."""

    directory: Path
    env: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    working_directory: str = ""


def writable(image: Image, layer: Path) -> Image:
    """The image as one container has it: with a copy of its files in `layer`, new at every start."""
    if not image.working_directory:
        return image
    shutil.rmtree(layer, ignore_errors=True)
    shutil.copytree(image.directory, layer)
    working = layer / Path(image.working_directory).relative_to(image.directory)
    return replace(image, directory=layer, working_directory=str(working))


def read_image(name: str, directories: Mapping[str, Path]) -> Image:
    """Find the image ``name`` in the node set's ``directories``.

    Raises:
        ImageMissingError: the name is not configured, or its ``image.json`` is missing or wrong.
    """
    directory = directories.get(name)
    if directory is None:
        known = ", ".join(sorted(directories)) or "none"
        raise ImageMissingError(f'failed to pull image "{name}": not among this node set\'s images ({known})')
    path = directory / "image.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ImageMissingError(f'failed to pull image "{name}": {path}: {error}') from error
    unknown = sorted(set(content) - _KNOWN)
    if unknown:
        raise ImageMissingError(f'failed to pull image "{name}": {path}: unknown fields {", ".join(unknown)}')
    working = content.get("workingDir") or ""
    return Image(
        directory=directory,
        env={key: str(value) for key, value in (content.get("env") or {}).items()},
        entrypoint=tuple(content.get("entrypoint") or ()),
        cmd=tuple(content.get("cmd") or ()),
        working_directory=str(directory / working) if working else "",
    )
