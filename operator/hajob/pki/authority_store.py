"""The authority of the installation, in a Secret beside the operator: the first leader creates it, later ones renew it.

It outlives the Secrets of jobs: it signs new certificates for a deleted one, and running pods trust them at once. If
its own Secret is deleted, the leader restores it from memory; a leader without that memory makes a new authority and
brings it to the jobs step by step (hajob.pki.certificates), while their own certificates stay valid.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from hajob.api.base import Json
from hajob.api.constants import GROUP
from hajob.clock import Clock
from hajob.kube.client import ApiError, Kube
from hajob.pki.certificates import Authority, authorities_at

log = logging.getLogger(__name__)

SECRET_NAME: Final = "hajob-authority"
REPLACE_BEFORE: Final = f"{GROUP}/replace-before"
"""Annotation of the Secret, a time: an authority that is older is replaced."""
KEPT_SECONDS: Final = 600.0
"""For so long what was read is taken for what is there."""


class AuthorityStore:
    """Reads, makes and renews the authorities.

    Args:
        kube: of the leader.
        clock: for dates and for how long an answer is kept.
        namespace: of the operator.
        lifetime: of the certificates that are signed.
    """

    def __init__(self, kube: Kube, clock: Clock, namespace: str, lifetime: timedelta) -> None:
        self._kube, self._clock, self._namespace = kube, clock, namespace
        self._lock = asyncio.Lock()
        self._known: Sequence[Authority] = ()
        self._until = 0.0
        self.lifetime = lifetime

    @property
    def current_time(self) -> datetime:
        """Return the time, for dates of certificates."""
        return datetime.fromtimestamp(self._clock.now_milliseconds() / 1000, UTC)

    async def trusted_authorities(self) -> Sequence[Authority]:
        """Return the trusted authorities, the newest last.

        Raises:
            ApiError: the server cannot be asked, refuses the Secret, or has one that cannot be read.
        """
        async with self._lock:
            if not self._known or self._clock.monotonic() >= self._until:
                self._known = await self._read_secret()
                self._until = self._clock.monotonic() + KEPT_SECONDS
            return self._known

    async def _read_secret(self) -> Sequence[Authority]:
        secret = await self._kube.find_object("secrets", self._namespace, SECRET_NAME)
        if secret is None:
            made = authorities_at(self._known, self.current_time, self.lifetime)
            await self._kube.create_object("secrets", self._namespace, self._build_secret(made))
            log.info("the Secret %s/%s with the authority of all jobs is made", self._namespace, SECRET_NAME)
            return made
        try:
            known = _authorities_in_secret(secret)
            desired = authorities_at(known, self.current_time, self.lifetime, _replace_before(secret))
        except ValueError as error:
            message = f"Secret {self._namespace}/{SECRET_NAME} cannot be read: {error}; delete it to have a new one"
            raise ApiError(0, "Unreadable", message) from error
        # An unchanged Secret is not written: every leader looks at it every ten minutes.
        return known if set(desired) == set(known) else await self._replace_secret(secret, known, desired)

    async def _replace_secret(
        self, secret: Json, known: Sequence[Authority], desired: Sequence[Authority]
    ) -> Sequence[Authority]:
        try:
            await self._kube.replace_object(
                "secrets", self._namespace, {**secret, "data": self._build_secret(desired)["data"]}
            )
        except ApiError as error:
            log.warning("the authority of all jobs cannot be renewed, the old one stays in use: %s", error)
            return known
        log.info("the authorities of all jobs have changed, there are %d", len(desired))
        return desired

    def _build_secret(self, authorities: Sequence[Authority]) -> Json:
        data: dict[str, str] = {}
        for number, one in enumerate(authorities):
            data[f"{number}.crt"] = base64.b64encode(one.certificate).decode()
            data[f"{number}.key"] = base64.b64encode(one.key).decode()
        metadata = {"name": SECRET_NAME, "namespace": self._namespace}
        return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": data}


def _authorities_in_secret(secret: Json) -> tuple[Authority, ...]:
    """Return the authorities in a Secret, the newest last; ValueError: an entry is no authority."""
    data = {name: base64.b64decode(text) for name, text in (secret.get("data") or {}).items()}
    names = sorted(name.removesuffix(".crt") for name in data if name.endswith(".crt"))
    if missing := [name for name in names if f"{name}.key" not in data]:
        raise ValueError(f"it lacks {missing[0]}.key")
    found = [Authority(data[f"{name}.crt"], data[f"{name}.key"]) for name in names]
    return tuple(sorted(found, key=lambda one: one.creation_time))


def _replace_before(secret: Json) -> datetime | None:
    text = (secret.get("metadata", {}).get("annotations") or {}).get(REPLACE_BEFORE, "")
    if not text:
        return None
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)
