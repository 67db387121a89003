"""The certificates of a job let its own parts speak to each other, and nobody else's."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography import x509

from hajob.pki.tls_secret import KEYS
from tests.rigs.certificates import certificates_of_a_job
from tests.rigs.tls_handshakes import tls_context, tls_handshake

UID = "7f9e7fc7-74d5-4678-88e6-1dfe8cb6055f"


def test_every_part_gets_its_file_and_its_name() -> None:
    material = certificates_of_a_job(UID)
    assert set(material) == set(KEYS)
    for identity in ("agent", "coordinator", "operator"):
        certificate = x509.load_pem_x509_certificate(material[f"{identity}.crt"])
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == [f"{identity}.{UID}"]


def test_coordinator_and_agent_of_one_job_accept_each_other(tmp_path: Path) -> None:
    material = certificates_of_a_job(UID)
    client = tls_context(ssl.Purpose.SERVER_AUTH, tmp_path, material, "coordinator")
    server = tls_context(ssl.Purpose.CLIENT_AUTH, tmp_path, material, "agent")
    tls_handshake(client, server, f"agent.{UID}")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        tls_handshake(client, server, f"operator.{UID}")


def test_another_job_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    client = tls_context(ssl.Purpose.SERVER_AUTH, tmp_path / "other", certificates_of_a_job(UID), "coordinator")
    server = tls_context(ssl.Purpose.CLIENT_AUTH, tmp_path, certificates_of_a_job(UID), "agent")
    with pytest.raises(ssl.SSLError):
        tls_handshake(client, server, f"agent.{UID}")
