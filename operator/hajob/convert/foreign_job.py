"""A training job of another kind, as all kinds have it, and what a conversion finds out on its way. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from hajob.api.base import Json


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Pods of one role, all from one template.

    Attributes:
        name: as the job calls the role: Master, worker.
        count: how many pods.
        template: of the pods, with `metadata` and `spec`.
        starts_others: it only starts the processes of the other pods, as the launcher of an MPIJob does.
    """

    name: str
    count: int
    template: Json
    starts_others: bool = False


@dataclass(slots=True)
class Findings:
    """What a person has to know of a conversion.

    Attributes:
        questions: what was chosen for the person, by field; each says how to decide it.
        left_out: what the new job does not have, and why.
    """

    questions: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def ask_person(self, question: str) -> None:
        """Note a value that a person must decide."""
        if question not in self.questions:
            self.questions.append(question)

    def leave_out(self, what: str) -> None:
        """Note what the new job does not have, and why."""
        if what not in self.left_out:
            self.left_out.append(what)


@dataclass(frozen=True, slots=True)
class ForeignJob:
    """A training job of another kind.

    Attributes:
        kind: such as AscendJob.
        name: of the job; empty: it has none.
        namespace: of the job; empty: it names none.
        labels: of the job.
        annotations: of the job.
        groups: its pods, by role.
        queue: of Volcano; empty: none.
        chips: of each pod, where the kind says so itself; 0: the containers say it.
        suspend: whether the job waits for somebody to start it.
        fields: of the new job's spec that come from the kind's own fields, such as ttlSecondsAfterFinished.
    """

    kind: str
    name: str
    namespace: str
    labels: Json
    annotations: Json
    groups: tuple[PodGroup, ...]
    queue: str = ""
    chips: int = 0
    suspend: bool = False
    fields: Json = field(default_factory=dict)
