"""The certificates of one job: a CA of its own, and one certificate each for agents, coordinator and operator.

A CA per job means that no job's pod can speak to another job's. Names are `agent.<job uid>` and so on, because pods
have no DNS names that would lead anywhere, and their addresses change; whoever dials asks for the name and not for
the address (docs/protocols/sidecar.md). The CA's key is thrown away as soon as the three are signed.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hajob.objects.tls_secret import IDENTITIES

# A job has no way to change its certificates while it runs, so they outlive every training.
LIFETIME: Final = timedelta(days=3650)
# Nodes whose clocks are behind must not refuse a certificate that was just made.
_BACKDATED: Final = timedelta(days=1)


def issue(job_uid: str, now: datetime) -> dict[str, bytes]:
    """PEM files by the names in `hajob.objects.tls_secret.KEYS`, freshly made.

    Args:
        job_uid: the names in the certificates end with it.
        now: from when they are valid.
    """
    start = now - _BACKDATED
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _authority(authority_key, job_uid, start)
    material = {"ca.crt": _pem(authority)}
    for identity in IDENTITIES:
        key = ec.generate_private_key(ec.SECP256R1())
        name = f"{identity}.{job_uid}"
        material[f"{identity}.crt"] = _pem(_leaf(key, name, authority, authority_key))
        material[f"{identity}.key"] = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    return material


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _authority(key: ec.EllipticCurvePrivateKey, job_uid: str, start: datetime) -> x509.Certificate:
    name = _name(f"job {job_uid}")
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _leaf(
    key: ec.EllipticCurvePrivateKey,
    name: str,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    """A certificate that serves and dials: the coordinator does both."""
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(authority.not_valid_before_utc)
        .not_valid_after(authority.not_valid_after_utc)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
