"""MindIO's own certificates for one job: an authority that signs for nobody else, and one certificate.

MindIO checks no names: whoever has a certificate of a trusted authority is taken. So each job has an authority of its
own, whose key no pod gets. MindIO reads its files once, when a process starts, and never again: hence the authority
stays the same for as long as the job exists, and gates let a certificate pass that has ended meanwhile
(trainer_sidecar.agent.gate.security). What is replaced is the certificate, for the processes that start from then on.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from hajob.pki.signing import Signer, certificate_pem, private_key_pem, read_private_key, sign_authority, sign_leaf
from hajob.pki.tls_secret import MINDIO_AUTHORITY, MINDIO_AUTHORITY_KEY, MINDIO_CERTIFICATE, MINDIO_KEY

KEY_BITS: Final = 3072
"""MindIO refuses a shorter key, of the authority as well; one of an elliptic curve counts by its 256 bits."""
_AUTHORITY_LIFETIME: Final = timedelta(days=365 * 20)
"""It ends with the job, and a process that trusts it cannot be told of another."""


def issue_mindio_certificates(job_uid: str, now: datetime, lifetime: timedelta) -> dict[str, bytes]:
    """Make authority, its key, certificate and key, PEM, by the names in `hajob.pki.tls_secret.MINDIO_KEYS`.

    Takes about a second of one core.
    """
    key = _new_key()
    authority = sign_authority(key, f"mindio {job_uid}", now, _AUTHORITY_LIFETIME)
    files = {MINDIO_AUTHORITY: certificate_pem(authority), MINDIO_AUTHORITY_KEY: private_key_pem(key)}
    return {**files, **_new_certificate(files, job_uid, now, lifetime)}


def is_mindio_certificate_due(files: Mapping[str, bytes], now: datetime, lifetime: timedelta) -> bool:
    """Return whether the job needs another certificate: a third of the life of its own is left.

    Raises:
        ValueError: the file is no certificate.
    """
    return x509.load_pem_x509_certificate(files[MINDIO_CERTIFICATE]).not_valid_after_utc - now < lifetime / 3


def renew_mindio_certificate(
    job_uid: str, files: Mapping[str, bytes], now: datetime, lifetime: timedelta
) -> dict[str, bytes]:
    """Return the files with another certificate of the same authority.

    Raises:
        ValueError: the authority's files are none.
    """
    return {**files, **_new_certificate(files, job_uid, now, lifetime)}


def _new_certificate(files: Mapping[str, bytes], job_uid: str, now: datetime, lifetime: timedelta) -> dict[str, bytes]:
    """Controller, gates and ranks have the same one: each of them is client or server of another."""
    key = _new_key()
    authority = x509.load_pem_x509_certificate(files[MINDIO_AUTHORITY])
    signer = Signer(authority, read_private_key(files[MINDIO_AUTHORITY_KEY]))
    signed = sign_leaf(key, f"mindio.{job_uid}", signer, now, lifetime)
    return {MINDIO_CERTIFICATE: certificate_pem(signed), MINDIO_KEY: private_key_pem(key)}


def _new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=KEY_BITS)
