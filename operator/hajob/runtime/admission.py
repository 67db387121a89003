"""What a job needs before its first pod: pods that the API server accepts, and certificates.

The CRD does not validate the template, so only the API server can tell whether its pods can be created: each kind of
pod is created with dry-run, and a refusal becomes `Accepted=False` with the server's own words.
"""

from __future__ import annotations

import hashlib

import orjson

from hajob.api.base import Json
from hajob.api.conditions import Reason
from hajob.api.derived import not_served
from hajob.api.job import HATrainingJob
from hajob.api.log_rules import log_rule_refusal
from hajob.objects.coordinator_pod import coordinator_pod
from hajob.objects.rank_pod import rank_pod
from hajob.objects.settings import PodSettings
from hajob.objects.spare_pod import spare_pod
from hajob.runtime.authority_store import AuthorityStore
from hajob.runtime.channel import CoordinatorCredentials
from hajob.runtime.clock import Clock
from hajob.runtime.dry_run_cache import Answer, DryRunCache
from hajob.runtime.job_certificates import JobCertificates
from hajob.runtime.kube import ALREADY_EXISTS, ApiError, Kube
from hajob.sources.creation import is_over_quota

REFUSALS = frozenset({400, 403, 422})
"""Answers that will not change by asking again."""
AGAIN = frozenset({Reason.POD_REFUSED, Reason.INVALID})
"""Refusals that another spec may undo."""
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError)
"""A template may hold anything anywhere."""


class Admission:
    """The admission of one job.

    Attributes:
        reason: of the condition Accepted.
        message: why the job is not accepted.
        certificates: of the job.
    """

    def __init__(
        self, kube: Kube, clock: Clock, settings: PodSettings, store: AuthorityStore, dry_runs: DryRunCache
    ) -> None:
        self._kube, self._clock, self._settings, self._dry_runs = kube, clock, settings, dry_runs
        self.reason, self.message = Reason.NOT_CHECKED, ""
        self.certificates = JobCertificates(kube, clock, store)

    @property
    def credentials(self) -> CoordinatorCredentials | None:
        """The operator's credentials for the job's coordinator; None before the job is admitted."""
        return self.certificates.credentials

    @property
    def admitted(self) -> bool:
        """Whether pods may be created."""
        return self.reason is Reason.VALID

    def spec_changed(self) -> None:
        """Check a refused spec again, because it has changed."""
        if self.reason in AGAIN:
            self.reason = Reason.NOT_CHECKED

    async def ask(self, job: HATrainingJob, *, accepted_before: bool = False) -> bool:
        """Evaluate the job, and get its credentials; return whether it is admitted now.

        Args:
            job: as it is now.
            accepted_before: its pods may exist: it is not checked again, for a dry run would meet a quota that they
                fill, or a policy that is newer than they are.

        Raises:
            ApiError: the server could not be asked, or refuses the Secret.
        """
        reason, refusal = (Reason.VALID, "") if accepted_before else await self._evaluated(job)
        if reason is Reason.VALID:
            await self.certificates.look(job, new=not accepted_before)
        self.reason, self.message = reason, refusal
        return self.admitted

    async def _evaluated(self, job: HATrainingJob) -> Answer:
        try:
            pods = _but_for_its_name(job, self._settings)
        except _MALFORMED:
            return await evaluate(self._kube, job, self._settings)
        return await self._dry_runs.ask(pods, lambda: evaluate(self._kube, job, self._settings), self._clock)


async def evaluate(kube: Kube, job: HATrainingJob, settings: PodSettings) -> tuple[Reason, str]:
    """Whether the job can be served: VALID, or why not, in words for the person who wrote it.

    Raises:
        ApiError: the server could not be asked.
    """
    if refusal_reason := not_served(job.spec) or log_rule_refusal(job.spec):
        return Reason.INVALID, refusal_reason
    try:
        pods = _pods(job, settings)
    except _MALFORMED as error:
        refusal = await _refusal(kube, job.metadata.namespace, _as_written(job))
        return Reason.INVALID, f"spec.template: {refusal or error}"
    for pod in pods:
        if refusal := await _refusal(kube, job.metadata.namespace, pod):
            return Reason.POD_REFUSED, refusal
    return Reason.VALID, ""


def _pods(job: HATrainingJob, settings: PodSettings) -> list[Json]:
    """Build one pod of each kind."""
    pods = [rank_pod(job, 0, 1, settings), coordinator_pod(job, 1, settings)]
    if job.spec.scheduling.num_spare_nodes:
        pods.append(spare_pod(job, 0, settings))
    return pods


def _but_for_its_name(job: HATrainingJob, settings: PodSettings) -> bytes:
    """Return a digest of the pods: equal for jobs that differ only in UID and name, with names of the same length."""
    metadata = job.metadata.model_copy(update={"name": "x" * len(job.metadata.name), "uid": ""})
    return hashlib.sha256(
        orjson.dumps(
            [
                not_served(job.spec),
                log_rule_refusal(job.spec),
                _pods(job.model_copy(update={"metadata": metadata}), settings),
            ]
        )
    ).digest()


async def _refusal(kube: Kube, namespace: str, pod: Json) -> str:
    """Return the server's reason for refusing a pod; empty if it accepts the pod."""
    try:
        await kube.create("pods", namespace, pod, dry_run=True)
    except ApiError as error:
        if error.reason == ALREADY_EXISTS or is_over_quota(error.status, error.message):
            return ""  # nothing is wrong with the pod
        if error.status not in REFUSALS:
            raise
        return error.message
    return ""


def _as_written(job: HATrainingJob) -> Json:
    """Return the template as a pod of its own: the server explains its errors better than a builder that fails."""
    metadata = {"generateName": f"{job.metadata.name}-"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": job.spec.template["spec"]}
