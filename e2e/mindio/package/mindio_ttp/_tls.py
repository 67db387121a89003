"""MindIO's TLS: what it asks of its material, and a socket behind the connect frame that speaks it.

A rank with anything less ends with code 2, and a controller does not start (docs/protocols/mindio.md §14).
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import socket
import stat
import threading
from pathlib import Path

NEEDED = ("tlsCert", "tlsCaPath", "tlsCaFile", "tlsPk", "packagePath")
LIBRARIES = ("libssl.so", "libcrypto.so")
MOST_OPEN = 0o550
LEAST_BITS = 3072
LONGEST = 10 * 1024


def parts_of(info: str) -> dict[str, str]:
    """The parts of the text: key and value by the first colon."""
    return {
        key.strip(): value.strip() for part in info.split(";") for key, colon, value in [part.partition(":")] if colon
    }


def is_usable(info: str) -> bool:
    """Whether the text names everything, the keys are long enough and the libraries may be loaded."""
    parts = parts_of(info)
    if len(info) > LONGEST or any(not parts.get(name) for name in NEEDED):
        return False
    if not all(_may_be_loaded(Path(parts["packagePath"], name)) for name in LIBRARIES):
        return False
    try:
        files = [Path(parts["tlsCert"]), *_authorities(parts)]
        return all(_bits(path.read_text()) >= LEAST_BITS for path in files)
    except OSError:
        return False


def _authorities(parts: dict[str, str]) -> list[Path]:
    return [Path(parts["tlsCaPath"], name.strip()) for name in parts["tlsCaFile"].split(",") if name.strip()]


def _may_be_loaded(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) | MOST_OPEN == MOST_OPEN


def _bits(certificate: str) -> int:
    """Length of the RSA modulus in the first PEM certificate, its longest INTEGER; 0: none."""
    first = certificate.partition("-----END")[0]
    body = re.sub(r"-----[^-]*-----|\s", "", first)
    try:
        der = base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        return 0
    lengths = [int.from_bytes(match.group(1), "big") for match in re.finditer(rb"\x02\x82(..)\x00", der, re.DOTALL)]
    return max((8 * (length - 1) for length in lengths if length < len(der)), default=0)


class Material:
    """The context of one process, read once: a certificate that is replaced counts from the next process on."""

    def __init__(self, info: str, *, serves: bool) -> None:
        """Raises OSError: the files are no certificates, or the key is another one's."""
        import ssl  # with tempfile a hundredth of a second of the start of every rank that has no use for them
        import tempfile

        parts, self.serves = parts_of(info), serves
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if serves else ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname = False
        self.context.verify_mode = ssl.CERT_REQUIRED
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        for path in _authorities(parts):
            self.context.load_verify_locations(path)
        descriptor, name = tempfile.mkstemp()
        try:
            os.write(descriptor, parts["tlsPk"].encode())
            self.context.load_cert_chain(parts["tlsCert"], name)
        finally:
            os.close(descriptor)
            Path(name).unlink()


class SecureSocket:
    """What client and server use of a socket. Reading and writing may come from two threads at once."""

    def __init__(self, sock: socket.socket, material: Material) -> None:
        """Do the handshake, blocking; OSError: it fails."""
        import ssl

        self._wait = ssl.SSLWantReadError
        self._sock, self._lock, self._sending = sock, threading.Lock(), threading.Lock()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = material.context.wrap_bio(self._incoming, self._outgoing, server_side=material.serves)
        self._unsent, self._taken = memoryview(b""), 0
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                pass
            finally:
                sock.sendall(self._outgoing.read())
            data = sock.recv(65536)
            if not data:
                raise ConnectionResetError("closed in the handshake")
            self._incoming.write(data)

    def recv(self, size: int) -> bytes:
        """The next bytes in the clear; none: the end. BlockingIOError as the socket's own."""
        while True:
            with self._lock:
                try:
                    return bytes(self._tls.read(size))
                except self._wait:
                    pass
            data = self._sock.recv(65536)
            if not data:
                return b""
            with self._lock:
                self._incoming.write(data)

    def sendall(self, data: bytes) -> None:
        """Send everything."""
        with self._sending:
            self._sock.sendall(self._encrypt(data))

    def send(self, data: memoryview) -> int:
        """Send all of it or raise BlockingIOError; then it is to be called again with the same bytes."""
        with self._sending:
            if not self._unsent:
                self._unsent, self._taken = memoryview(self._encrypt(bytes(data))), len(data)
            while self._unsent:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
            return self._taken

    def _encrypt(self, data: bytes) -> bytes:
        with self._lock:
            self._tls.write(data)
            return self._outgoing.read()

    def fileno(self) -> int:
        """The socket's."""
        return self._sock.fileno()

    def setblocking(self, flag: bool) -> None:
        """The socket's."""
        self._sock.setblocking(flag)

    def settimeout(self, seconds: float | None) -> None:
        """The socket's."""
        self._sock.settimeout(seconds)

    def shutdown(self, how: int) -> None:
        """The socket's."""
        self._sock.shutdown(how)

    def close(self) -> None:
        """The socket's."""
        self._sock.close()
