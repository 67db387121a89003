"""TLS handshakes in memory, with certificates as the operator makes them."""

from __future__ import annotations

import ssl
from pathlib import Path


def tls_context(purpose: ssl.Purpose, directory: Path, material: dict[str, bytes], identity: str) -> ssl.SSLContext:
    """Write certificates and keys by file name to a directory; make the context of one of their identities."""
    for name, content in material.items():
        (directory / name).write_bytes(content)
    context = ssl.create_default_context(purpose, cafile=str(directory / "ca.crt"))
    context.load_cert_chain(directory / f"{identity}.crt", directory / f"{identity}.key")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def tls_handshake(client: ssl.SSLContext, server: ssl.SSLContext, server_name: str) -> None:
    """Shake hands in memory; raises what either side would."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    dialling = client.wrap_bio(to_client, to_server, server_hostname=server_name)
    serving = server.wrap_bio(to_server, to_client, server_side=True)
    done = set()
    for _ in range(10):
        for side in (dialling, serving):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            done.add(side)
    assert len(done) == 2
