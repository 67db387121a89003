"""Years of certificates in virtual time: at every moment every two parts of a job trust each other."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from hajob.pki.certificates import (
    SPREAD,
    Authority,
    authorities_at,
    certificates_due,
    issue_certificates,
    new_authority,
)
from tests.rigs.tls_handshakes import tls_context, tls_handshake

UID = "7f9e7fc7-74d5-4678-88e6-1dfe8cb6055f"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
LIFETIME = timedelta(days=60)
STEP = timedelta(hours=8)
LAG = 2
"""Steps by which the files in a pod are behind the Secret: far more than a kubelet is."""

Material = Mapping[str, bytes]


@cache
def parsed(pem: bytes) -> tuple[x509.Certificate, ...]:
    return tuple(x509.load_pem_x509_certificates(pem))


@cache
def signed(leaf: bytes, bundle: bytes) -> tuple[x509.Certificate, ...]:
    found = []
    for authority in parsed(bundle):
        try:
            parsed(leaf)[0].verify_directly_issued_by(authority)
        except (ValueError, TypeError, InvalidSignature):
            continue
        found.append(authority)
    return tuple(found)


def trusts(bundle: bytes, leaf: bytes, now: datetime) -> bool:
    """Whether TLS would take a certificate at that moment."""
    chain = [parsed(leaf)[0], *signed(leaf, bundle)]
    return len(chain) > 1 and all(one.not_valid_before_utc <= now <= one.not_valid_after_utc for one in chain)


class Years:
    """A job and the installation's authorities, step by step."""

    def __init__(self) -> None:
        self.now = BEGIN
        self.authorities: Sequence[Authority] = authorities_at((), BEGIN, LIFETIME)
        self.material: Material = issue_certificates(UID, self.authorities, BEGIN, LIFETIME)
        self.changed = BEGIN
        self.past: list[Material] = [self.material] * (LAG + 1)
        self.replace_before: datetime | None = None
        self.leaves_seen = {self.material["agent.crt"]}
        self.signers_seen = {self.authorities[-1].certificate}

    def step(self) -> None:
        self.now += STEP
        self.authorities = authorities_at(self.authorities, self.now, LIFETIME, self.replace_before)
        after = certificates_due(
            UID, self.material, self.authorities, trust_changed=self.changed, now=self.now, lifetime=LIFETIME
        )
        if after["ca.crt"] != self.material["ca.crt"]:
            assert after["agent.crt"] == self.material["agent.crt"], "one step at a time"
            self.changed = self.now
        self.material = after
        self.past = [*self.past[1:], after]
        self.leaves_seen.add(after["agent.crt"])
        self.signers_seen.add(self.authorities[-1].certificate)

    def everyone_is_trusted(self) -> bool:
        seen = list({id(one): one for one in self.past}.values())
        return all(
            trusts(one["ca.crt"], other[f"{identity}.crt"], self.now)
            for one in seen
            for other in seen
            for identity in ("agent", "coordinator", "operator")
        )


def test_four_years_without_a_moment_of_distrust() -> None:
    """Certificates of 60 days, authorities of 600: some thirty renewals and several new authorities."""
    years = Years()
    while years.now < BEGIN + timedelta(days=4 * 365):
        years.step()
        assert years.everyone_is_trusted(), years.now
        assert len(parsed(years.material["ca.crt"])) <= 2
    assert len(years.leaves_seen) > 30
    assert len(years.signers_seen) >= 3


def test_an_authority_is_replaced_because_an_admin_wants_it() -> None:
    years = Years()
    for _ in range(30):
        years.step()
    first = years.authorities[-1]
    years.replace_before = years.now + STEP
    for _ in range(30):
        years.step()
        assert years.everyone_is_trusted(), years.now
    assert first.certificate not in years.material["ca.crt"]
    assert len(years.signers_seen) == 2
    assert len(years.authorities) == 1


def test_a_lost_authority_is_succeeded_without_distrust() -> None:
    """Its Secret was deleted and nobody remembers it: the job's own certificates go on, and are replaced in steps."""
    years = Years()
    years.step()
    years.authorities = (new_authority(years.now, LIFETIME),)
    for _ in range(30):
        years.step()
        assert years.everyone_is_trusted(), years.now
    assert parsed(years.material["ca.crt"]) == parsed(years.authorities[-1].certificate)


def test_an_operator_that_was_away_spreads_trust_before_it_signs() -> None:
    years = Years()
    years.authorities = (new_authority(years.now + timedelta(days=1), LIFETIME),)
    years.now += timedelta(days=30)
    years.step()
    assert len(parsed(years.material["ca.crt"])) == 2
    for _ in range(LAG + 5):
        years.step()
        assert years.everyone_is_trusted(), years.now


def test_certificates_at_their_very_end_are_replaced_at_once() -> None:
    now = BEGIN + LIFETIME - timedelta(hours=1)
    authorities = [new_authority(BEGIN, LIFETIME)]
    material = issue_certificates(UID, authorities, BEGIN, LIFETIME)
    after = certificates_due(UID, material, authorities, trust_changed=now, now=now, lifetime=LIFETIME)
    assert parsed(after["agent.crt"])[0].not_valid_after_utc == now + LIFETIME


def test_nothing_is_replaced_that_is_good() -> None:
    authorities = [new_authority(BEGIN, LIFETIME)]
    material = issue_certificates(UID, authorities, BEGIN, LIFETIME)
    for now in (BEGIN, BEGIN + SPREAD, BEGIN + LIFETIME / 2):
        assert authorities_at(authorities, now, LIFETIME) == tuple(authorities)
        assert certificates_due(UID, material, authorities, trust_changed=BEGIN, now=now, lifetime=LIFETIME) == material


@pytest.mark.parametrize("client_is_behind", [True, False])
def test_tls_agrees_in_the_middle_of_a_replacement(tmp_path: Path, client_is_behind: bool) -> None:
    """The same with real handshakes, at the moment after the certificates were signed anew."""
    now = datetime.now(UTC)
    old, new = new_authority(now - 3 * SPREAD, LIFETIME), new_authority(now - 2 * SPREAD, LIFETIME)
    spread = issue_certificates(UID, [new, old], now - 2 * SPREAD, LIFETIME)
    after = certificates_due(UID, spread, [old, new], trust_changed=now - 2 * SPREAD, now=now, lifetime=LIFETIME)
    assert after["agent.crt"] != spread["agent.crt"]
    client, server = (spread, after) if client_is_behind else (after, spread)
    (tmp_path / "client").mkdir()
    (tmp_path / "server").mkdir()
    dialling = tls_context(ssl.Purpose.SERVER_AUTH, tmp_path / "client", dict(client), "coordinator")
    serving = tls_context(ssl.Purpose.CLIENT_AUTH, tmp_path / "server", dict(server), "agent")
    tls_handshake(dialling, serving, f"agent.{UID}")
