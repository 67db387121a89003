"""The certificates of jobs: their signer, their lifetime, and when they are replaced.

One authority of the installation signs three certificates for each job: agents', coordinator's and operator's. Names
are `agent.<job uid>` and so on, because pods have no DNS names that resolve, and their addresses change;
client and server check the name with the job's UID in it, so no job's pod can speak to another job's.

Every result is a function of the existing files and the time, so every leader computes the same. Replacing goes in
steps in which any two parts can always connect, though a kubelet brings a Secret's new content to one pod
earlier than to another (docs/decisions/0022-certificates-can-be-lost-and-replaced.md):

1. a new authority is trusted (`ca.crt` holds old and new) while the old one's certificates are in use;
2. after `SPREAD`, when every pod has that, the certificates are signed by the new one;
3. after another `SPREAD` the old one is trusted no longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec

from hajob.pki.signing import (
    Signer,
    certificate_pem,
    creation_time_of,
    private_key_pem,
    read_private_key,
    sign_authority,
    sign_leaf,
)
from hajob.pki.tls_secret import IDENTITIES

_AUTHORITY_LIVES: Final = 10
"""Lifetimes of a certificate in one of its authority."""
SPREAD: Final = timedelta(days=1)
"""After so long every pod has what a Secret holds; a kubelet needs about two minutes, one that was away more."""
AUTHORITY: Final = "ca.crt"


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate that signs others, with its key; both PEM."""

    certificate: bytes
    key: bytes

    @property
    def parsed_certificate(self) -> x509.Certificate:
        """Return the parsed certificate."""
        return x509.load_pem_x509_certificate(self.certificate)

    @property
    def creation_time(self) -> datetime:
        """Return when it was made."""
        return creation_time_of(self.parsed_certificate)


def new_authority(now: datetime, lifetime: timedelta) -> Authority:
    """Make an authority, with a key of its own, for certificates that live for `lifetime`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = f"hajob {x509.random_serial_number():x}"[:24]
    certificate = sign_authority(key, name, now, _AUTHORITY_LIVES * lifetime)
    return Authority(certificate_pem(certificate), private_key_pem(key))


def authorities_at(
    known: Sequence[Authority], now: datetime, lifetime: timedelta, replace_before: datetime | None = None
) -> tuple[Authority, ...]:
    """Return the authorities that should exist, the newest last.

    Args:
        known: the existing ones.
        now: the time.
        lifetime: of the certificates that they sign.
        replace_before: the newest must have been made at this time or later; for an admin who lost a key.
    """
    living = sorted(
        (one for one in known if now < one.parsed_certificate.not_valid_after_utc), key=lambda one: one.creation_time
    )
    newest = living[-1] if living else None
    near_its_end = newest is not None and newest.parsed_certificate.not_valid_after_utc - now < 2 * lifetime
    unwanted = newest is not None and replace_before is not None and newest.creation_time < replace_before <= now
    if newest is None or near_its_end or unwanted:
        return (*living, new_authority(now, lifetime))
    # what older ones signed keeps its trust by itself (`certificates_due`)
    return tuple(living) if now < newest.creation_time + 7 * SPREAD else (newest,)


def issue_certificates(
    job_uid: str, authorities: Sequence[Authority], now: datetime, lifetime: timedelta
) -> dict[str, bytes]:
    """Issue certificates: PEM files by the names in `hajob.pki.tls_secret.KEYS`.

    Args:
        job_uid: the names in the certificates end with it.
        authorities: all are trusted, the last one signs.
        now: start of their validity, less an allowance for clocks that are behind.
        lifetime: for how long.
    """
    return {
        AUTHORITY: _pem_bundle(one.parsed_certificate for one in authorities),
        **_new_leaves(job_uid, authorities[-1], now, lifetime),
    }


def certificates_due(
    job_uid: str,
    material: Mapping[str, bytes],
    authorities: Sequence[Authority],
    *,
    trust_changed: datetime,
    now: datetime,
    lifetime: timedelta,
) -> dict[str, bytes]:
    """Return the PEM files that a job should have now, at most one step of a replacement after those that it has.

    Args:
        job_uid: the job.
        material: its files.
        authorities: those of the installation, the newest last.
        trust_changed: when its `ca.crt` was last changed.
        now: the time.
        lifetime: of a certificate.

    Raises:
        ValueError: a file is no certificate.
    """
    trusted = x509.load_pem_x509_certificates(material[AUTHORITY])
    leaves = [x509.load_pem_x509_certificate(material[f"{identity}.crt"]) for identity in IDENTITIES]
    spread = now >= trust_changed + SPREAD
    settled = spread and all(now >= creation_time_of(leaf) + SPREAD for leaf in leaves)
    needed = [one.parsed_certificate for one in authorities]
    needed += [
        one
        for one in trusted
        if one not in needed
        and now < one.not_valid_after_utc
        and (not settled or any(_is_signed_by(one, leaf) for leaf in leaves))
    ]
    if set(needed) != set(trusted):
        return {**material, AUTHORITY: _pem_bundle(needed)}
    left = min(leaf.not_valid_after_utc for leaf in leaves) - now
    foreign = not all(_is_signed_by(authorities[-1].parsed_certificate, leaf) for leaf in leaves)
    if (spread and (foreign or left < lifetime / 3)) or left < SPREAD:
        return {**material, **_new_leaves(job_uid, authorities[-1], now, lifetime)}
    return dict(material)


def _new_leaves(job_uid: str, authority: Authority, now: datetime, lifetime: timedelta) -> dict[str, bytes]:
    signer = Signer(authority.parsed_certificate, read_private_key(authority.key))
    made: dict[str, bytes] = {}
    for identity in IDENTITIES:
        key = ec.generate_private_key(ec.SECP256R1())
        leaf = sign_leaf(key, f"{identity}.{job_uid}", signer, now, lifetime)
        made[f"{identity}.crt"] = certificate_pem(leaf)
        made[f"{identity}.key"] = private_key_pem(key)
    return made


def _is_signed_by(authority: x509.Certificate, leaf: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _pem_bundle(certificates: Iterable[x509.Certificate]) -> bytes:
    return b"".join(certificate_pem(one) for one in certificates)
