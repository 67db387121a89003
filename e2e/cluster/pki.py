"""Certificates and keys of a control plane, made anew for every run: ECDSA, because making RSA keys takes seconds.

One authority signs everything, servers and clients. What a client is, its certificate says: the organization is its
group, the common name its user name (docs/internals/local-cluster.md).
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = datetime.timedelta(days=30)


@dataclass(frozen=True)
class Credential:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes

    def write(self, directory: Path, name: str) -> tuple[Path, Path]:
        """Write `name`.crt and `name`.key (readable by the owner only); returns both paths."""
        certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
        certificate.write_bytes(self.certificate)
        key.touch(mode=0o600)
        key.write_bytes(self.key)
        return certificate, key


class Authority:
    """A certificate authority that exists for one run, or is joined by its files."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, name: str) -> Authority:
        """A new authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = _builder(subject, subject, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(usage, critical=True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, directory: Path, name: str = "ca") -> Authority:
        """The authority that `credential().write(directory, name)` left there."""
        key = serialization.load_pem_private_key((directory / f"{name}.key").read_bytes(), password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TypeError(f"{directory / name}.key holds no ECDSA key")
        return cls(x509.load_pem_x509_certificate((directory / f"{name}.crt").read_bytes()), key)

    def credential(self) -> Credential:
        """The authority's own certificate and key."""
        return Credential(self._certificate.public_bytes(serialization.Encoding.PEM), _pem(self._key))

    def client(self, user: str, groups: Sequence[str] = ()) -> Credential:
        """A client certificate for the user name `user` in `groups`."""
        return self._issue(user, groups, (), ExtendedKeyUsageOID.CLIENT_AUTH)

    def server(self, name: str, hosts: Sequence[str], groups: Sequence[str] = ()) -> Credential:
        """A serving certificate for `hosts`, IP addresses or DNS names."""
        return self._issue(name, groups, hosts, ExtendedKeyUsageOID.SERVER_AUTH)

    def node_client(self, node: str) -> Credential:
        """What a kubelet shows the API server: the node authorizer and NodeRestriction go by it."""
        return self.client(f"system:node:{node}", ["system:nodes"])

    def node_server(self, node: str, addresses: Sequence[str]) -> Credential:
        """What a kubelet shows the API server when that asks it for logs."""
        return self.server(f"system:node:{node}", [node, *addresses], ["system:nodes"])

    def _issue(
        self, user: str, groups: Sequence[str], hosts: Sequence[str], purpose: x509.ObjectIdentifier
    ) -> Credential:
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        builder = _builder(subject, self._certificate.subject, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(authority, critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Credential(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


def signing_key() -> tuple[bytes, bytes]:
    """A key pair that signs service account tokens: private and public part, PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return _pem(key), public


def kubeconfig(server: str, authority: bytes, credential: Credential) -> str:
    """A kubeconfig with everything in it (JSON, which is YAML) for the API server at the URL `server`."""
    cluster = {"server": server, "certificate-authority-data": _encode(authority)}
    user = {
        "client-certificate-data": _encode(credential.certificate),
        "client-key-data": _encode(credential.key),
    }
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "local", "cluster": cluster}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": "user"}}],
        "current-context": "local",
    }
    return json.dumps(content, indent=1)


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + LIFETIME)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
