"""What MindIO is told of its certificates: a text with their paths and the key, and the OpenSSL that it loads itself.

Controller host and launcher both run in the training image and use it; standard library, Python >= 3.7. MindIO takes
`libssl.so` and `libcrypto.so` only as regular files that nobody may write, and images have links there: so the image's
own are copied. docs/protocols/mindio.md#tls
"""

from __future__ import annotations

import glob
import os
import shutil
import sys
from collections.abc import Iterable, Mapping

DIRECTORY = "HAJOB_MINDIO_TLS_DIR"
"""Variable with the directory of `ca.crt`, `tls.crt` and `tls.key`; not set: MindIO's links are not encrypted."""
LIBRARIES = ("libssl.so", "libcrypto.so")
LIBRARY_MODE = 0o500
"""MindIO takes at most 0550."""
PLACES = (
    "/usr/lib/*-linux-gnu",
    "/usr/lib64",
    "/lib64",
    "/usr/local/lib*",
    "/usr/local/openssl/lib*",
    "/opt/*/lib",
    "/usr/lib",
)
VERSIONS = ("3", "1.1")


class MindIOTLSError(Exception):
    """MindIO cannot be told of its certificates; the text says what is missing where."""


def tls_info_of_job(environment: Mapping[str, str], shared: str) -> str:
    """Return the text for `tls_info`, and copy the libraries below `shared`; empty: the job wants no TLS.

    MindIOTLSError: a file is missing.
    """
    directory = environment.get(DIRECTORY, "")
    if not directory:
        return ""
    try:
        with open(os.path.join(directory, "tls.key")) as key:
            parts = {
                "tlsCert": os.path.join(directory, "tls.crt"),
                "tlsCaPath": directory,
                "tlsCaFile": "ca.crt",
                "packagePath": copy_libraries(shared),
                "tlsPk": key.read().strip(),
            }
    except OSError as problem:
        raise MindIOTLSError(f"MindIO's certificates in {directory} cannot be read: {problem}") from None
    odd = [value for value in parts.values() if ":" in value or ";" in value]
    if odd:
        raise MindIOTLSError(f"MindIO cannot be told of {odd[0]}: a colon or a semicolon ends a value")
    return ";".join(f"{name}:{value}" for name, value in parts.items())


def copy_libraries(shared: str) -> str:
    """Put a copy of the image's OpenSSL below `shared`, and return its directory. MindIOTLSError: it has none."""
    target = os.path.join(shared, "openssl")
    if all(os.path.isfile(os.path.join(target, name)) for name in LIBRARIES):
        return target
    found = find_libraries()
    if found is None:
        text = "the training image has no OpenSSL for MindIO's TLS: libssl.so.3 and libcrypto.so.3 side by side"
        raise MindIOTLSError(text)
    os.makedirs(target, exist_ok=True)
    for name, path in found.items():
        beside = os.path.join(target, f".{name}.{os.getpid()}")
        shutil.copyfile(path, beside)
        os.chmod(beside, LIBRARY_MODE)
        os.replace(beside, os.path.join(target, name))
    return target


def find_libraries() -> dict[str, str] | None:
    """Return the path of each library, both of one version: those that this Python uses, else the image's."""
    for directory in _library_directories():
        for version in VERSIONS:
            paths = {name: os.path.join(directory, f"{name}.{version}") for name in LIBRARIES}
            if all(map(os.path.isfile, paths.values())):
                return paths
    return None


def _library_directories() -> Iterable[str]:
    found = _loaded_directories()
    for place in (os.path.join(sys.base_prefix, "lib"), *PLACES):
        found += sorted(glob.glob(place))
    return dict.fromkeys(found)


def _loaded_directories() -> list[str]:
    """Return where this process has loaded OpenSSL from."""
    try:
        import ssl  # noqa: F401  loads them

        with open("/proc/self/maps") as maps:
            paths = [line.split()[-1] for line in maps if "libssl.so" in line or "libcrypto.so" in line]
    except (ImportError, OSError):
        return []
    return [os.path.dirname(path) for path in paths]
