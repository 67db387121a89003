"""The certificates of one job: keeps its Secret's content current, and restores the Secret if it was deleted.

Pods mount the Secret, so none can be created without it; running pods keep their files. The leader remembers the
content and restores the same. A leader that never saw it has the authority sign new certificates, which the running
pods trust as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from hajob import metrics
from hajob.api.base import Json, format_time
from hajob.api.constants import GROUP
from hajob.api.enums import MindIOTLSPolicy
from hajob.api.job import HATrainingJob
from hajob.clock import Clock
from hajob.coordinator_link.channel import CoordinatorCredentials
from hajob.kube.client import ALREADY_EXISTS, ApiError, Kube
from hajob.pki.authority_store import AuthorityStore
from hajob.pki.certificates import certificates_due, issue_certificates
from hajob.pki.mindio_certificates import (
    is_mindio_certificate_due,
    issue_mindio_certificates,
    renew_mindio_certificate,
)
from hajob.pki.tls_secret import MINDIO_KEYS, read_tls_secret, tls_secret
from hajob.pods.naming import tls_secret_name

log = logging.getLogger(__name__)

# A replacement is due long before a certificate ends, and each of its steps waits a day: an hour is soon enough.
CHECK_SECONDS: Final = 3600.0
# Pods cannot be made without the Secret, so a failed check is repeated soon.
RETRY_SECONDS: Final = 30.0
RECENT_SECONDS: Final = 1.0
TRUST_CHANGED: Final = f"{GROUP}/trust-changed"
"""Annotation of a job's Secret: when its `ca.crt` was last changed."""


class JobCertificates:
    """The certificates of one job.

    Attributes:
        credentials: the operator's for the job's coordinator; None before the first check.
        due_at: when the next check is due, in seconds of the monotonic clock.
    """

    def __init__(self, kube: Kube, clock: Clock, store: AuthorityStore) -> None:
        self._kube, self._clock, self._store = kube, clock, store
        self._secret: Json | None = None
        self.due_at = 0.0
        self._said = ""
        self.credentials: CoordinatorCredentials | None = None

    @property
    def is_check_due(self) -> bool:
        """Whether the next check is due."""
        return self._clock.monotonic() >= self.due_at

    @property
    def was_just_checked(self) -> bool:
        """Whether the last check was a moment ago."""
        return self.due_at - self._clock.monotonic() > CHECK_SECONDS - RECENT_SECONDS

    async def reconcile_secret(self, job: HATrainingJob, *, new: bool = False) -> None:
        """Bring Secret and credentials to what they should be.

        Args:
            job: their owner.
            new: the Secret probably does not exist: create it without reading first, which saves each start a request.

        Raises:
            ApiError: there is no Secret, and none can be made.
        """
        self.due_at = self._clock.monotonic() + RETRY_SECONDS
        made = await self._create_first(job) if new and self._secret is None else None
        self._adopt_secret(made or await self._current_secret(job))
        self.due_at = self._clock.monotonic() + CHECK_SECONDS

    async def reconcile_again(self, job: HATrainingJob) -> None:
        """Check again for a job that has its credentials; report a failure, and retry soon."""
        try:
            await self.reconcile_secret(job)
        except ApiError as error:
            self._log_once(job, f"its certificates cannot be looked at: {error}")

    async def _create_first(self, job: HATrainingJob) -> Json | None:
        """Create the Secret; None if there was one."""
        try:
            return await self._create_secret(job)
        except ApiError as error:
            if error.reason != ALREADY_EXISTS:
                raise
            return None

    async def _create_secret(self, job: HATrainingJob) -> Json:
        secret = await self._restored_secret(job)
        await self._kube.create_object("secrets", job.metadata.namespace, secret)
        log.info("%s/%s: the Secret with its certificates is made", job.metadata.namespace, job.metadata.name)
        return secret

    async def _current_secret(self, job: HATrainingJob) -> Json:
        secret = await self._kube.find_object("secrets", job.metadata.namespace, tls_secret_name(job))
        if secret is None:
            return await self._create_secret(job)
        # The API server refuses a change of its content, and would of a replacement under the same name.
        if secret.get("immutable"):
            return secret  # of 0.1, for ten years; kubelets would not bring a change of it into pods
        try:
            return await self._next_replacement_step(job, secret)
        except (ApiError, ValueError) as error:
            metrics.CERTIFICATES_NOT_REPLACED.inc()
            self._log_once(job, f"its certificates cannot be replaced, the old ones stay in use: {error}")
            return secret

    async def _restored_secret(self, job: HATrainingJob) -> Json:
        """Return the Secret as it was, or with new certificates if that is unknown."""
        if self._secret is not None:
            made = tls_secret(job, read_tls_secret(self._secret))
            if self._secret.get("immutable"):
                made["immutable"] = True
            return _with_trust_time(made, _trust_changed(self._secret, self._store.current_time))
        store = self._store
        material = issue_certificates(
            job.metadata.uid, await store.trusted_authorities(), store.current_time, store.lifetime
        )
        material |= await self._mindio_files_due(job, material)
        return _with_trust_time(tls_secret(job, material), store.current_time)

    async def _next_replacement_step(self, job: HATrainingJob, secret: Json) -> Json:
        """Take the next step of a replacement, if one is due."""
        store, before = self._store, read_tls_secret(secret)
        changed = _trust_changed(secret, store.current_time)
        after = certificates_due(
            job.metadata.uid,
            before,
            await store.trusted_authorities(),
            trust_changed=changed,
            now=store.current_time,
            lifetime=store.lifetime,
        )
        after |= await self._mindio_files_due(job, before)
        if after == before:
            return secret
        body = {**secret, "data": tls_secret(job, after)["data"]}
        step = "other authorities are trusted" if after["ca.crt"] != before["ca.crt"] else "they are signed anew"
        changed = store.current_time if after["ca.crt"] != before["ca.crt"] else changed
        await self._kube.replace_object("secrets", job.metadata.namespace, _with_trust_time(body, changed))
        log.info("%s/%s: its certificates are replaced: %s", job.metadata.namespace, job.metadata.name, step)
        return body

    async def _mindio_files_due(self, job: HATrainingJob, before: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return MindIO's own files where they are new or renewed, made aside: their keys take a core for a second."""
        if job.spec.network.mindio_tls_policy is not MindIOTLSPolicy.ENABLED:
            return {}
        files = {name: before[name] for name in MINDIO_KEYS if name in before}
        uid, now, lifetime = job.metadata.uid, self._store.current_time, self._store.lifetime
        if not files:
            return await asyncio.to_thread(issue_mindio_certificates, uid, now, lifetime)
        if not is_mindio_certificate_due(files, now, lifetime):
            return {}
        return await asyncio.to_thread(renew_mindio_certificate, uid, files, now, lifetime)

    def _adopt_secret(self, secret: Json) -> None:
        material = read_tls_secret(secret)
        self._secret = secret
        given = (material["ca.crt"], material["operator.crt"], material["operator.key"])
        if self.credentials is None:
            self.credentials = CoordinatorCredentials(*given)
        else:
            self.credentials.authority, self.credentials.certificate, self.credentials.key = given

    def _log_once(self, job: HATrainingJob, sentence: str) -> None:
        if sentence != self._said:
            log.warning("%s/%s: %s", job.metadata.namespace, job.metadata.name, sentence)
        self._said = sentence


def _with_trust_time(secret: Json, changed: datetime) -> Json:
    annotations = {**(secret["metadata"].get("annotations") or {}), TRUST_CHANGED: format_time(changed)}
    return {**secret, "metadata": {**secret["metadata"], "annotations": annotations}}


def _trust_changed(secret: Json, now: datetime) -> datetime:
    """Return when `ca.crt` was changed; now, if the Secret does not say."""
    text = (secret["metadata"].get("annotations") or {}).get(TRUST_CHANGED, "")
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return now
