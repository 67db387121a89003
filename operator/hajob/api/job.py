"""The HATrainingJob as a whole, read from the API server and checked once, at the door."""

from typing import Annotated, Any, Final, Self

from pydantic import ConfigDict, Field, ValidationError, WithJsonSchema

from hajob.api import new_jobs
from hajob.api.base import ApiModel, Timestamp, unread_fields, validation_rule, validation_rules
from hajob.api.constants import API_VERSION, JOB_NAME_MAX_LENGTH, KIND, MANAGED_BY
from hajob.api.spec import HATrainingJobSpec
from hajob.api.status import HATrainingJobStatus


class Metadata(ApiModel):
    """The part of the object's metadata that Hajob reads."""

    name: str
    """Name of the job: a DNS label of at most 40 characters."""
    namespace: str = "default"
    """Its namespace."""
    uid: str = ""
    """Its identity; a job that is applied again has another."""
    generation: int = 0
    """Version of the spec."""
    resource_version: str = ""
    """Version of the object."""
    creation_timestamp: Timestamp | None = None
    """When it was made."""
    deletion_timestamp: Timestamp | None = None
    """When its deletion was asked for; none: it wasn't."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Its labels."""


_RULES: Final = validation_rules(
    validation_rule(
        f"size(self.metadata.name) <= {JOB_NAME_MAX_LENGTH}",
        f"metadata.name must have at most {JOB_NAME_MAX_LENGTH} characters, because node rank and incarnation are "
        "added to it in the names of the pods: choose a shorter name",
    ),
    validation_rule(
        "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        "metadata.name must be a DNS label, because it becomes a label of the pods: use lower-case letters, digits "
        "and dashes, no dots",
    ),
    *new_jobs.RULES,
)


_DECISIVE: Final = frozenset({("status", "journal"), ("status", "journalVersion"), ("status", "fence")})
"""Parts of the status that are no account for people."""


class HATrainingJob(ApiModel):
    """A training job on Ascend NPUs that is kept training through faults."""

    api_version: str = API_VERSION
    """Version of this API."""
    kind: str = KIND
    """HATrainingJob."""
    metadata: Annotated[Metadata, WithJsonSchema({"type": "object"})]
    """Standard metadata; the name is a DNS label of at most 40 characters."""
    spec: HATrainingJobSpec
    """What the job should be."""
    status: HATrainingJobStatus = HATrainingJobStatus()
    """What the job is."""

    model_config = ConfigDict(json_schema_extra=_RULES)

    _unread: tuple[str, ...] = ()

    @classmethod
    def from_object(cls, raw: dict[str, Any]) -> Self:
        """Read the job from an object of the API server.

        A newer operator may have written parts of the status in words that this one does not know. Those that are
        written for people are left out: they are built anew, and the job can go on. The journal has its own reader
        (hajob.job.status.journal).

        Raises:
            pydantic.ValidationError: the object is not one that this version's CRD admits.
        """
        made = cls._validate_object(raw)
        made._unread = tuple(unread_fields(made.spec, raw.get("spec"), "spec"))
        return made

    @property
    def unread_fields(self) -> tuple[str, ...]:
        """Fields of the spec that this version does not know, by their paths: they are as if not set."""
        return self._unread

    @classmethod
    def _validate_object(cls, raw: dict[str, Any]) -> Self:
        status = raw.get("status") or {}
        try:
            return cls.model_validate({**raw, "status": status})
        except ValidationError as error:
            foreign = {one["loc"][:2] for one in error.errors()}
            known = {name: value for name, value in status.items() if ("status", name) not in foreign}
            if foreign & _DECISIVE or len(known) + len(foreign) != len(status):
                raise
            return cls.model_validate({**raw, "status": known})

    @property
    def is_ours(self) -> bool:
        """Whether this operator is the one to look after the job."""
        return self.spec.managed_by == MANAGED_BY
