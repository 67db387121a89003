"""The certificate of a page for a team follows its files, and half of a new pair changes nothing."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from hajob.pki.signing import Signer, certificate_pem, private_key_pem, sign_authority, sign_leaf
from hajob.web.team_tls import TeamCertificate

NAME = "hajob-ui.hajob-system.svc"
Files = tuple[bytes, bytes]


def new_files() -> tuple[str, Files]:
    """An authority, and a certificate of it with its key."""
    now, life = datetime.now(UTC), timedelta(days=1)
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = sign_authority(authority_key, "it", now, life)
    leaf = sign_leaf(key, NAME, Signer(authority, authority_key), now, life)
    return certificate_pem(authority).decode(), (certificate_pem(leaf), private_key_pem(key))


def write_files(directory: Path, files: Files) -> None:
    for name, content in zip(("tls.crt", "tls.key"), files, strict=True):
        (directory / name).write_bytes(content)


def is_served(context: ssl.SSLContext, authority: str) -> bool:
    """Whether a browser that trusts this authority is served."""
    to_server, to_browser = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(to_server, to_browser, server_side=True)
    trusting = ssl.create_default_context(cadata=authority)
    browser = trusting.wrap_bio(to_browser, to_server, server_hostname=NAME)
    ended = set[int]()
    while len(ended) < 2:
        for number, side in enumerate((browser, server)):
            try:
                side.do_handshake()
                ended.add(number)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError:
                return False
    return True


def test_new_files_are_served_once_they_fit(tmp_path: Path) -> None:
    (first, old), (second, new) = new_files(), new_files()
    write_files(tmp_path, old)
    certificate = TeamCertificate(tmp_path)
    for half in (old, (new[0], old[1]), (b"", b"")):
        write_files(tmp_path, half)
        certificate.take_changed_files()
        assert (is_served(certificate.context, first), is_served(certificate.context, second)) == (True, False)
    (tmp_path / "tls.key").unlink()
    certificate.take_changed_files()
    write_files(tmp_path, new)
    certificate.take_changed_files()
    assert (is_served(certificate.context, first), is_served(certificate.context, second)) == (False, True)


def test_a_key_behind_a_password_is_refused(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    write_files(tmp_path, (new_files()[1][0], locked))
    with pytest.raises(OSError, match=r"(?i)bad|pass|decrypt|SSL"):
        TeamCertificate(tmp_path)
