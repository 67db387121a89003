"""The certificate files of a pod as gRPC server credentials, reloaded when the files change.

A kubelet brings new content into the mounted directory within minutes of a change of the Secret. Open streams stay
open; from the next handshake on the new files count. Clients read the files at each dial.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import grpc

log = logging.getLogger(__name__)

FILES = ("ca.crt", "tls.key", "tls.crt")
Content = tuple[bytes, bytes, bytes]
Stamp = tuple[tuple[int, int, int], ...]


def read(directory: Path) -> Content:
    """Return authorities, key and certificate; OSError: a file is missing."""
    authorities, key, certificate = ((directory / name).read_bytes() for name in FILES)
    return authorities, key, certificate


def server_credentials(directory: Path) -> grpc.ServerCredentials:
    """Return credentials of a server that requires client certificates. OSError: a file is missing now."""
    files = _Files(directory)
    newer: Any = files.newer  # its None is "no change", which the stubs of grpc do not say
    return grpc.dynamic_ssl_server_credentials(files.configuration(), newer, require_client_authentication=True)


class _Files:
    """The last content read; gRPC asks at each handshake, in threads of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stamp = self._look()

    def _look(self) -> Stamp:
        found = [(self._directory / name).stat() for name in FILES]
        return tuple((one.st_mtime_ns, one.st_ino, one.st_size) for one in found)

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        """Return the configuration from the files as they are now."""
        authorities, key, certificate = read(self._directory)
        return grpc.ssl_server_certificate_configuration([(key, certificate)], authorities)

    def newer(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the configuration if it has changed; when files cannot be read, keep the one in use."""
        try:
            stamp = self._look()
            if stamp == self._stamp:
                return None
            found = self.configuration()
            if self._look() != stamp:
                return None  # being written: the next handshake sees the whole file
        except OSError as error:
            log.warning("the certificates in %s cannot be read, the old ones stay in use: %s", self._directory, error)
            return None
        self._stamp = stamp
        log.info("the certificates in %s have changed", self._directory)
        return found
