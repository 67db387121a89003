"""What a job needs before its first pod: pods that the API server accepts, and certificates.

The CRD does not validate the template, so only the API server can tell whether its pods can be created: each kind of
pod is created with dry-run as it will be made, and a refusal becomes `Accepted=False` with the server's own words.
Fields that the server does not know are refused, too: stored, a pod would be without them.
"""

from __future__ import annotations

import hashlib
import logging
import re
from typing import Final

import orjson

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.conditions import Reason
from hajob.api.enums import GangPolicy
from hajob.api.job import HATrainingJob
from hajob.clock import Clock
from hajob.coordinator_link.channel import CoordinatorCredentials
from hajob.domain.errors import MALFORMED
from hajob.job.dry_run_cache import Answer, DryRunCache
from hajob.kube.client import ALREADY_EXISTS, ApiError, Kube
from hajob.pki.authority_store import AuthorityStore
from hajob.pki.job_certificates import JobCertificates
from hajob.pods.coordinator_pod import coordinator_pod
from hajob.pods.hook_pod import build_hook_pod
from hajob.pods.pod_group import build_pod_group
from hajob.pods.rank_pod import OWN_INIT_CONTAINERS, build_rank_pod
from hajob.pods.review import checkpoint_claim, note_on_claim, why_not_started
from hajob.pods.settings import PodSettings
from hajob.pods.spare_pod import build_spare_pod
from hajob.sources import pause
from hajob.sources.creation import is_over_quota

log = logging.getLogger(__name__)

REFUSALS = frozenset({400, 403, 422})
"""Answers that will not change by asking again."""
AGAIN = frozenset({Reason.POD_REFUSED, Reason.INVALID})
"""Refusals that another spec may undo."""


class Admission:
    """The admission of one job.

    Attributes:
        reason: of the condition Accepted.
        message: why the job is not accepted.
        certificates: of the job.
        claim_note: what the claim of its checkpoints does not allow; empty while nothing is known against it.
        edit_note: why pods that would be made since an edit are refused; empty while nothing is known against it.
    """

    def __init__(
        self, kube: Kube, clock: Clock, settings: PodSettings, store: AuthorityStore, dry_runs: DryRunCache
    ) -> None:
        self._kube, self._clock, self._settings, self._dry_runs = kube, clock, settings, dry_runs
        self.reason, self.message, self.claim_note, self.edit_note = Reason.NOT_CHECKED, "", "", ""
        self._claim_seen, self._generation_seen = False, 0
        self.pause_answer = ("", "")
        self.certificates = JobCertificates(kube, clock, store)

    @property
    def credentials(self) -> CoordinatorCredentials | None:
        """The operator's credentials for the job's coordinator; None before the job is admitted."""
        return self.certificates.credentials

    @property
    def is_admitted(self) -> bool:
        """Whether pods may be created."""
        return self.reason is Reason.VALID

    def note_changed_spec(self) -> None:
        """Check a refused spec again, because it has changed."""
        if self.reason in AGAIN:
            self.reason = Reason.NOT_CHECKED

    async def evaluate_job(
        self, job: HATrainingJob, *, accepted_before: bool = False, refused_by_nodes: str = ""
    ) -> bool:
        """Evaluate the job, and get its credentials; return whether it is admitted now.

        Args:
            job: as it is now.
            accepted_before: its pods may exist: it is not checked again, for a dry run would meet a quota that they
                fill, or a policy that is newer than they are.
            refused_by_nodes: why nodes would refuse its pods, though the server takes them; empty: they would not.

        Raises:
            ApiError: the server could not be asked, or refuses the Secret.
        """
        if accepted_before:
            reason, refusal = Reason.VALID, ""
        elif refused_by_nodes:  # asked about again, as what the server refuses: somebody may change it on the nodes
            reason, refusal = Reason.POD_REFUSED, refused_by_nodes
        else:
            reason, refusal = await self._cached_evaluation(job)
        seen = job.status.observed_generation if accepted_before else None
        self._generation_seen = seen or job.metadata.generation
        if reason is Reason.VALID:
            await self.certificates.reconcile_secret(job, new=not accepted_before)
        self.reason, self.message = reason, refusal
        return self.is_admitted

    async def ask_about_pause(self, job: HATrainingJob, seen: str) -> None:
        """Ask the server, once for each request, for a pod of the pause's work: none is held for one that cannot be.

        Args:
            job: as it is now.
            seen: the newest request that was handled.

        Raises:
            ApiError: the server could not be asked.
        """
        request = pause.identity_of_request(job.spec.pause)
        if request and request not in {seen, self.pause_answer[0]}:
            self.pause_answer = request, await pause_refusal(self._kube, job)

    async def look_at_edit(self, job: HATrainingJob) -> bool:
        """Ask, once for each edit of an admitted job, for pods as they would be made now; return whether it is news.

        Those that exist stay, so nothing is stopped: whoever edits the job hears of it before a pod is lost.

        Raises:
            ApiError: the server could not be asked.
        """
        if not self.is_admitted or job.metadata.generation == self._generation_seen:
            return False
        _, refusal = await self._cached_evaluation(job)
        note = f"pods that Hajob would make now are refused: {refusal}" if refusal else ""
        before, self.edit_note, self._generation_seen = self.edit_note, note, job.metadata.generation
        return note != before

    async def look_at_claim(self, job: HATrainingJob) -> bool:
        """Look at the PersistentVolumeClaim of the checkpoints until it is there; return whether there is news to tell.

        No start waits for it, and an operator that may not read claims does without.
        """
        if self._claim_seen or not self.is_admitted:
            return False
        if not (name := checkpoint_claim(job.spec)):
            self._claim_seen = True
            return False
        try:
            claim = await self._kube.find_object("persistentvolumeclaims", job.metadata.namespace, name)
        except ApiError as error:
            log.info("%s/%s: claim %s is not read: %s", job.metadata.namespace, job.metadata.name, name, error)
            self._claim_seen = not error.may_pass
            return False
        if claim is None:
            return False  # whoever applies both may apply the job first
        self._claim_seen, self.claim_note = True, note_on_claim(claim, job.spec.num_nodes)
        return bool(self.claim_note)

    async def _cached_evaluation(self, job: HATrainingJob) -> Answer:
        try:
            pods = _digest_but_for_name(job, self._settings)
        except MALFORMED:
            return await evaluate_pods(self._kube, job, self._settings)
        return await self._dry_runs.ask_once(pods, lambda: evaluate_pods(self._kube, job, self._settings), self._clock)


async def evaluate_pods(kube: Kube, job: HATrainingJob, settings: PodSettings) -> tuple[Reason, str]:
    """Return whether the job can be served: VALID, or why not, in words for the person who wrote it.

    Raises:
        ApiError: the server could not be asked.
    """
    try:
        if found := why_not_started(job.spec, serves_volcano=settings.serves_volcano):
            return Reason.INVALID, found
        pods = _build_one_of_each(job, settings)
    except MALFORMED as error:
        refusal = await _why_pod_refused(kube, job.metadata.namespace, _template_as_pod(job))
        return Reason.INVALID, f"spec.template: {refusal or error}"
    if job.spec.scheduling.gang_policy is GangPolicy.VOLCANO and (refusal := await _why_group_refused(kube, job)):
        return Reason.POD_REFUSED, refusal
    for pod in pods:
        if refusal := await _why_pod_refused(kube, job.metadata.namespace, pod):
            role = pod["metadata"]["labels"][names.LABEL_ROLE]
            return Reason.POD_REFUSED, _IN_THE_TEMPLATE.get(role, str)(refusal)
    return Reason.VALID, ""


async def pause_refusal(kube: Kube, job: HATrainingJob) -> str:
    """Return why no pod of the work of the job's pause can be made; empty where it can.

    Raises:
        ApiError: the server could not be asked.
    """
    if job.spec.pause is None or job.spec.pause.template is None:
        return ""
    try:
        pod = build_hook_pod(job, 0, _SOME_NODE, 1)
    except MALFORMED as error:
        return f"spec.pause.template is no pod: {error}"
    refusal = await _why_pod_refused(kube, job.metadata.namespace, pod)
    return _in_paths_of_pause(refusal) if refusal else ""


def _build_one_of_each(job: HATrainingJob, settings: PodSettings) -> list[Json]:
    """Build one pod of each kind, as it is made."""
    gated = job.spec.scheduling.gang_policy is GangPolicy.SCHEDULING_GATES
    pods = [build_rank_pod(job, 0, 1, settings, gated=gated), coordinator_pod(job, 1, settings)]
    if job.spec.scheduling.num_spare_nodes:
        pods.append(build_spare_pod(job, 0, settings))
    for pod in pods:  # Volcano's webhook refuses pods whose group is not there yet
        (pod["metadata"].get("annotations") or {}).pop(names.ANNOTATION_GROUP_NAME, None)
    if job.spec.pause is not None and job.spec.pause.template is not None:
        pods.append(build_hook_pod(job, 0, _SOME_NODE, 1))
    return pods


def _in_paths_of_template(refusal: str) -> str:
    """The server's words about a rank pod, with the paths of the template: Hajob's own init containers come first."""

    def theirs(found: re.Match[str]) -> str:
        number = int(found[1]) - len(OWN_INIT_CONTAINERS)
        return f"spec.initContainers[{number}]" if number >= 0 else found[0]

    return _BELOW_SPEC.sub("spec.template.spec", _INIT_CONTAINER.sub(theirs, refusal))


def _in_paths_of_pause(refusal: str) -> str:
    return _BELOW_SPEC.sub("spec.pause.template.spec", refusal)


_SOME_NODE: Final = "some-node"
"""Of a pod of a pause that is never made; a node need not be there for a pod to be bound to it."""
_INIT_CONTAINER: Final = re.compile(r"\bspec\.initContainers\[(\d+)\]")
_BELOW_SPEC: Final = re.compile(r"\bspec(?=\.[a-zA-Z])")
_IN_THE_TEMPLATE: Final = {names.ROLE_RANK: _in_paths_of_template, names.ROLE_HOOK: _in_paths_of_pause}


def _digest_but_for_name(job: HATrainingJob, settings: PodSettings) -> bytes:
    """Return a digest of the pods: equal for jobs that differ only in UID and name, with names of the same length."""
    metadata = job.metadata.model_copy(update={"name": "x" * len(job.metadata.name), "uid": ""})
    return hashlib.sha256(
        orjson.dumps(
            [
                why_not_started(job.spec, serves_volcano=settings.serves_volcano),
                _build_one_of_each(job.model_copy(update={"metadata": metadata}), settings),
            ]
        )
    ).digest()


async def _why_group_refused(kube: Kube, job: HATrainingJob) -> str:
    """Return why no PodGroup of Volcano can be made for the job; empty where one can."""
    group = build_pod_group(job, names.ROLE_RANK, job.spec.num_nodes)
    try:
        await kube.create_object(names.POD_GROUPS, job.metadata.namespace, group, dry_run=True)
    except ApiError as error:
        if error.status == 404:
            return (
                "spec.scheduling.gangPolicy: Volcano: the cluster has no PodGroups of Volcano "
                f"({names.VOLCANO_API_VERSION}): install Volcano, or leave gangPolicy out"
            )
        if error.reason == ALREADY_EXISTS:
            return ""
        if error.status not in REFUSALS:
            raise
        return f"spec.scheduling.gangPolicy: Volcano: no PodGroup can be made: {error.message}"
    return ""


async def _why_pod_refused(kube: Kube, namespace: str, pod: Json) -> str:
    """Return the server's reason for refusing a pod; empty if it accepts the pod."""
    try:
        await kube.create_object("pods", namespace, pod, dry_run=True)
    except ApiError as error:
        if error.reason == ALREADY_EXISTS or is_over_quota(error.status, error.message):
            return ""  # nothing is wrong with the pod
        if error.status not in REFUSALS:
            raise
        return error.message
    return ""


def _template_as_pod(job: HATrainingJob) -> Json:
    """Return the template as a pod of its own: the server explains its errors better than a builder that fails."""
    metadata = {"generateName": f"{job.metadata.name}-"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": job.spec.template["spec"]}
