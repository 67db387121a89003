"""MindIO's own certificates as pods have them, and a controller and a rank that speak TLS behind the connect frame."""

from __future__ import annotations

import contextlib
import datetime
import socket
import ssl
import struct
import threading
from collections.abc import Mapping
from pathlib import Path

from hajob.pki.mindio_certificates import issue_mindio_certificates, renew_mindio_certificate
from hajob.pods.containers import MINDIO_TLS_FILES

CONNECT = struct.Struct("<hh4xQ")
DAY = datetime.timedelta(days=1)


def issue_mindio_files() -> dict[str, bytes]:
    """Issue what the operator makes for one job."""
    return issue_mindio_certificates("uid-1", datetime.datetime.now(datetime.UTC), DAY)


def renewed_mindio_files(files: Mapping[str, bytes], *, ended: bool = False) -> dict[str, bytes]:
    """Issue another certificate of the same authority; `ended`: it is valid no longer."""
    now = datetime.datetime.now(datetime.UTC)
    return renew_mindio_certificate("uid-1", files, now - DAY / 2 if ended else now, DAY / 4)


def write_mindio_files(directory: Path, files: Mapping[str, bytes]) -> Path:
    """Write them as they are mounted into pods, and return the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for key, name in MINDIO_TLS_FILES.items():
        (directory / name).write_bytes(files[key])
    return directory


def mindio_context(directory: Path, *, serves: bool) -> ssl.SSLContext:
    """Build what MindIO makes of its files: TLS 1.3, and each side has to show a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if serves else ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(directory / "ca.crt")
    context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
    return context


class SecureController:
    """A controller that takes every rank, and notes what it hears in the clear.

    Attributes:
        ranks: That were taken, in order.
        heard: What they have said since.
        serials: Of the certificates that were shown.
    """

    def __init__(self, address: str, context: ssl.SSLContext) -> None:
        self._listener = socket.create_server((address, 0))
        self._context = context
        self.address = "{}:{}".format(*self._listener.getsockname())
        self.ranks: list[int] = []
        self.heard = b""
        self.serials: list[str] = []
        self._links: list[ssl.SSLSocket] = []
        self._thread = threading.Thread(target=self._accept_links, daemon=True)
        self._thread.start()

    def _accept_links(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                link, _ = self._listener.accept()
                frame = link.recv(CONNECT.size, socket.MSG_WAITALL)
                try:
                    secure = self._context.wrap_socket(link, server_side=True)
                except OSError:
                    link.close()
                    continue
                self._links.append(secure)
                self.serials.append(str((secure.getpeercert() or {}).get("serialNumber")))
                self.ranks.append(CONNECT.unpack(frame)[2])
                secure.sendall(b"\0\0")
                threading.Thread(target=self._read_link, args=(secure,), daemon=True).start()

    def _read_link(self, link: ssl.SSLSocket) -> None:
        with contextlib.suppress(OSError):
            while data := link.recv(65536):
                self.heard += data

    def say(self, data: bytes) -> None:
        """Send to the newest link."""
        self._links[-1].sendall(data)

    def close(self) -> None:
        """End it and all links."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in self._links:
            link.close()
        self._thread.join()


def dial_securely(address: str, port: int, context: ssl.SSLContext, rank: int = 2) -> ssl.SSLSocket:
    """Connect as a rank of MindIO's does with TLS on; the handshake begins at once. OSError: it fails."""
    link = socket.create_connection((address, port))
    link.sendall(CONNECT.pack(0, 1, rank))
    return context.wrap_socket(link)
