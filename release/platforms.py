"""The platforms that images are built for, in everybody's words."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Platform:
    """One platform.

    Attributes:
        name: in OCI's words.
        debian: in Debian's.
        triplet: of its library directories.
        pip: the wheels it takes, best first.
        machine: `e_machine` of its ELF files.
        page_bytes: the largest page that its kernels are built with; segments must be aligned to it.
        loader: what starts its programs, below a root.
    """

    name: str
    debian: str
    triplet: str
    pip: tuple[str, ...]
    machine: int
    page_bytes: int
    loader: str

    @property
    def architecture(self) -> str:
        """In OCI's words, without the system."""
        return self.name.removeprefix("linux/")

    def python(self, root: str) -> list[str]:
        """The command of an unpacked Python, whatever libraries and loader the machine has; it wants PYTHONHOME."""
        libraries = ":".join(f"{root}/{place}/{self.triplet}" for place in ("lib", "usr/lib"))
        return [f"{root}/{self.loader}", "--library-path", libraries, f"{root}/usr/bin/python3"]


def _wheels(machine: str) -> tuple[str, ...]:
    """Wheels for glibc 2.36 (Debian 12) and older ones."""
    named = tuple(f"manylinux_2_{minor}_{machine}" for minor in range(36, 16, -1))
    return (*named, f"manylinux2014_{machine}")


PLATFORMS: Final = {
    each.name: each
    for each in (
        Platform(
            "linux/amd64", "amd64", "x86_64-linux-gnu", _wheels("x86_64"), 62, 4 << 10, "lib64/ld-linux-x86-64.so.2"
        ),
        Platform(
            "linux/arm64", "arm64", "aarch64-linux-gnu", _wheels("aarch64"), 183, 64 << 10, "lib/ld-linux-aarch64.so.1"
        ),
    )
}


def of_this_machine() -> Platform:
    """KeyError: there is no image for it."""
    return PLATFORMS[{"x86_64": "linux/amd64", "aarch64": "linux/arm64"}[platform.machine()]]
