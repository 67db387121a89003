"""Who may speak to whom: TLS both ways, names made of the job's UID.

Certificates carry no address, because pods have none beforehand: the name in them says role and job (`agent.UID`),
and the side that dials overrides the name it expects.

A kubelet brings new content into a pod's directory of certificates within minutes of a change of the Secret. Open
streams stay open; from the next handshake on the new files count. Clients read the files at each dial.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import grpc

log = logging.getLogger(__name__)

FILES = ("ca.crt", "tls.key", "tls.crt")
Content = tuple[bytes, bytes, bytes]
Option = tuple[str, str | int]
Stamp = tuple[tuple[int, int, int], ...]

LARGEST_MESSAGE = ("grpc.max_receive_message_length", 64 << 20)
"""The state of a job of 100,000 ranks takes 20 MiB; gRPC's own limit is 4."""


def names_of_peer(auth_context: Mapping[str, Iterable[bytes]]) -> list[str]:
    """Return the names for which the certificate on the other side is made out."""
    return [name.decode("utf-8", "replace") for name in auth_context.get("x509_subject_alternative_name", ())]


def read_tls_files(directory: Path) -> Content:
    """Return authorities, key and certificate; OSError: a file is missing."""
    authorities, key, certificate = ((directory / name).read_bytes() for name in FILES)
    return authorities, key, certificate


def secure_channel(address: str, peer: str, content: Content, options: Iterable[Option] = ()) -> grpc.aio.Channel:
    """Open a channel to whoever has a certificate for `peer`. `options`: what else gRPC is to be told."""
    own = (("grpc.ssl_target_name_override", peer), ("grpc.enable_http_proxy", 0), LARGEST_MESSAGE)
    return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(*content), options=(*own, *options))


def server_credentials(directory: Path) -> grpc.ServerCredentials:
    """Return credentials of a server that requires client certificates. OSError: a file is missing now."""
    files = _Files(directory)
    newer: Any = files.newer_configuration  # its None is "no change", which the stubs of grpc do not say
    return grpc.dynamic_ssl_server_credentials(files.read_configuration(), newer, require_client_authentication=True)


class _Files:
    """The last content read; gRPC asks at each handshake, in threads of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stamp = self._stamp_of_files()

    def _stamp_of_files(self) -> Stamp:
        found = [(self._directory / name).stat() for name in FILES]
        return tuple((one.st_mtime_ns, one.st_ino, one.st_size) for one in found)

    def read_configuration(self) -> grpc.ServerCertificateConfiguration:
        """Return the configuration from the files as they are now."""
        authorities, key, certificate = read_tls_files(self._directory)
        return grpc.ssl_server_certificate_configuration([(key, certificate)], authorities)

    def newer_configuration(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the configuration if it has changed; when files cannot be read, keep the one in use."""
        try:
            stamp = self._stamp_of_files()
            if stamp == self._stamp:
                return None
            found = self.read_configuration()
            if self._stamp_of_files() != stamp:
                return None  # being written: the next handshake sees the whole file
        except OSError as error:
            log.warning("the certificates in %s cannot be read, the old ones stay in use: %s", self._directory, error)
            return None
        self._stamp = stamp
        log.info("the certificates in %s have changed", self._directory)
        return found
