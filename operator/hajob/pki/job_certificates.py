"""The certificates of one job: keeps its Secret's content current, and restores the Secret if it was deleted.

Pods mount the Secret, so none can be created without it; running pods keep their files. The leader remembers the
content and restores the same. A leader that never saw it has the authority sign new certificates, which the running
pods trust as well.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Final

from hajob import metrics
from hajob.api.base import Json, format_time
from hajob.api.constants import GROUP
from hajob.api.job import HATrainingJob
from hajob.clock import Clock
from hajob.coordinator_link.channel import CoordinatorCredentials
from hajob.kube.client import ALREADY_EXISTS, ApiError, Kube
from hajob.pki.authority_store import AuthorityStore
from hajob.pki.certificates import issue, material_at
from hajob.pki.tls_secret import read_tls_secret, tls_secret
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
    def due(self) -> bool:
        """Whether the next check is due."""
        return self._clock.monotonic() >= self.due_at

    @property
    def recent(self) -> bool:
        """Whether the last check was a moment ago."""
        return self.due_at - self._clock.monotonic() > CHECK_SECONDS - RECENT_SECONDS

    async def look(self, job: HATrainingJob, *, new: bool = False) -> None:
        """Bring Secret and credentials to what they should be.

        Args:
            job: their owner.
            new: the Secret probably does not exist: create it without reading first, which saves each start a request.

        Raises:
            ApiError: there is no Secret, and none can be made.
        """
        self.due_at = self._clock.monotonic() + RETRY_SECONDS
        made = await self._create_first(job) if new and self._secret is None else None
        self._take(made or await self._current(job))
        self.due_at = self._clock.monotonic() + CHECK_SECONDS

    async def look_again(self, job: HATrainingJob) -> None:
        """Check again for a job that has its credentials; report a failure, and retry soon."""
        try:
            await self.look(job)
        except ApiError as error:
            self._say(job, f"its certificates cannot be looked at: {error}")

    async def _create_first(self, job: HATrainingJob) -> Json | None:
        """Create the Secret; None if there was one."""
        try:
            return await self._create(job)
        except ApiError as error:
            if error.reason != ALREADY_EXISTS:
                raise
            return None

    async def _create(self, job: HATrainingJob) -> Json:
        secret = await self._made(job)
        await self._kube.create("secrets", job.metadata.namespace, secret)
        log.info("%s/%s: the Secret with its certificates is made", job.metadata.namespace, job.metadata.name)
        return secret

    async def _current(self, job: HATrainingJob) -> Json:
        secret = await self._kube.find("secrets", job.metadata.namespace, tls_secret_name(job))
        if secret is None:
            return await self._create(job)
        # The API server refuses a change of its content, and would of a replacement under the same name.
        if secret.get("immutable"):
            return secret  # of 0.1, for ten years; kubelets would not bring a change of it into pods
        try:
            return await self._followed(job, secret)
        except (ApiError, ValueError) as error:
            metrics.CERTIFICATES_NOT_REPLACED.inc()
            self._say(job, f"its certificates cannot be replaced, the old ones stay in use: {error}")
            return secret

    async def _made(self, job: HATrainingJob) -> Json:
        """Return the Secret as it was, or with new certificates if that is unknown."""
        if self._secret is not None:
            made = tls_secret(job, read_tls_secret(self._secret))
            if self._secret.get("immutable"):
                made["immutable"] = True
            return _dated(made, _trust_changed(self._secret, self._store.now))
        store = self._store
        material = issue(job.metadata.uid, await store.authorities(), store.now, store.lifetime)
        return _dated(tls_secret(job, material), store.now)

    async def _followed(self, job: HATrainingJob, secret: Json) -> Json:
        """Take the next step of a replacement, if one is due."""
        store, before = self._store, read_tls_secret(secret)
        changed = _trust_changed(secret, store.now)
        after = material_at(
            job.metadata.uid,
            before,
            await store.authorities(),
            trust_changed=changed,
            now=store.now,
            lifetime=store.lifetime,
        )
        if after == before:
            return secret
        body = {**secret, "data": tls_secret(job, after)["data"]}
        step = "other authorities are trusted" if after["ca.crt"] != before["ca.crt"] else "they are signed anew"
        changed = store.now if after["ca.crt"] != before["ca.crt"] else changed
        await self._kube.replace("secrets", job.metadata.namespace, _dated(body, changed))
        log.info("%s/%s: its certificates are replaced: %s", job.metadata.namespace, job.metadata.name, step)
        return body

    def _take(self, secret: Json) -> None:
        material = read_tls_secret(secret)
        self._secret = secret
        given = (material["ca.crt"], material["operator.crt"], material["operator.key"])
        if self.credentials is None:
            self.credentials = CoordinatorCredentials(*given)
        else:
            self.credentials.authority, self.credentials.certificate, self.credentials.key = given

    def _say(self, job: HATrainingJob, sentence: str) -> None:
        if sentence != self._said:
            log.warning("%s/%s: %s", job.metadata.namespace, job.metadata.name, sentence)
        self._said = sentence


def _dated(secret: Json, changed: datetime) -> Json:
    annotations = {**(secret["metadata"].get("annotations") or {}), TRUST_CHANGED: format_time(changed)}
    return {**secret, "metadata": {**secret["metadata"], "annotations": annotations}}


def _trust_changed(secret: Json, now: datetime) -> datetime:
    """Return when `ca.crt` was changed; now, if the Secret does not say."""
    text = (secret["metadata"].get("annotations") or {}).get(TRUST_CHANGED, "")
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return now
