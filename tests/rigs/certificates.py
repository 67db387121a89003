"""Certificates as the operator makes them for a job, for tests of both ends of the sidecar's channels."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hajob.pki.certificates import issue_certificates, new_authority

DAY = datetime.timedelta(days=1)
YEAR = datetime.timedelta(days=365)


class Authority:
    """A CA that lasts a day."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        basic = x509.BasicConstraints(ca=True, path_length=None)
        self._certificate = self._builder(self._name, self._key).add_extension(basic, critical=True)
        self.pem = self._sign(self._certificate)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
        )

    def _sign(self, builder: x509.CertificateBuilder) -> bytes:
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def issue(self, name: str) -> tuple[bytes, bytes]:
        """Issue certificate and key, PEM, for one DNS name."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = x509.SubjectAlternativeName([x509.DNSName(name)])
        certificate = self._sign(self._builder(subject, key).add_extension(names, critical=False))
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return certificate, private

    def write(self, directory: Path, name: str) -> Path:
        """Write ca.crt, tls.crt and tls.key of one party, as they are mounted into its pod."""
        directory.mkdir(parents=True, exist_ok=True)
        certificate, key = self.issue(name)
        for file, content in (("ca.crt", self.pem), ("tls.crt", certificate), ("tls.key", key)):
            (directory / file).write_bytes(content)
        return directory


def certificates_of_a_job(uid: str) -> dict[str, bytes]:
    """Make the certificates of a job, signed by an authority of their own."""
    now = datetime.datetime.now(datetime.UTC)
    return issue_certificates(uid, [new_authority(now, YEAR)], now, YEAR)
