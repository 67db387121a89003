"""The status of a HATrainingJob: the journal of its recovery and the account for people.

The operator keeps no state elsewhere. Killed at any moment, it continues from here, so every field is optional when
read, and a status that an older or newer operator wrote is still understood.
"""

from typing import Annotated, Final

from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints, WithJsonSchema

from hajob.api.base import ApiModel, Json, JsonValue, Timestamp, keyed_list, validation_rule, validation_rules
from hajob.api.enums import ConditionStatus
from hajob.domain.actions import Action
from hajob.domain.incidents import IncidentOutcome, RestoredFrom

MAX_INCIDENTS: Final = 16

Number = Annotated[int, Field(ge=0)]
MAX_FENCE: Final = 2_000_000_000
"""Room below what a Lease can count to; a number that is larger can still be read, only not written."""


def _cut_to(most: int) -> BeforeValidator:
    """Shorten a text: others write parts of it, such as the server's list of all that is wrong with a template."""

    def cut(value: object) -> object:
        return f"{value[: most - 1]}…" if isinstance(value, str) and len(value) > most else value

    return BeforeValidator(cut)


Word = Annotated[str, StringConstraints(max_length=64)]
NodeName = Annotated[str, StringConstraints(max_length=253)]
Sentence = Annotated[str, StringConstraints(max_length=4096), _cut_to(4096)]
Message = Annotated[str, StringConstraints(max_length=32768), _cut_to(32768)]
SOURCES_OF_LOST_STATE: Final = (
    RestoredFrom.OPTIMIZER_COPY,
    RestoredFrom.SAVED_CHECKPOINT,
    RestoredFrom.PERIODIC_CHECKPOINT,
)
LostState = Annotated[
    RestoredFrom, WithJsonSchema({"type": "string", "enum": [str(source) for source in SOURCES_OF_LOST_STATE]})
]


class Condition(ApiModel):
    """A condition as in every Kubernetes object."""

    type: Annotated[str, StringConstraints(min_length=1, max_length=316)]
    """What the condition is about."""
    status: ConditionStatus
    """True, False or Unknown."""
    reason: Annotated[str, StringConstraints(min_length=1, max_length=1024)]
    """Why, in one CamelCase word."""
    message: Message = ""
    """Why, in a sentence."""
    last_transition_time: Timestamp
    """When the status changed last."""
    observed_generation: Number | None = None
    """The generation of the spec that it speaks of."""


class Summary(ApiModel):
    """Short texts for the columns of kubectl; no promise."""

    state: Word = ""
    """What the job does."""
    reason: Word = ""
    """Why, in one CamelCase word; empty where there is nothing to say."""
    size: Word = ""
    """Data-parallel ranks now and wanted."""
    recovery: Word = ""
    """The action of the newest incident."""
    last_outage: Word = ""
    """How long the newest outage took."""
    goodput: Word = ""
    """Share of the time that went into training, without what was asked for (Paused, Suspended)."""
    step_time: Word = ""
    """How long a step takes now."""
    protected: Word = ""
    """Which of the allowed actions would work now: Full (all), Partial or None; empty while the job does not train."""
    nodes: Word = ""
    """Nodes that its rank pods have, and nodes wanted."""
    spares: Word = ""
    """Spare nodes that are held, and spare nodes wanted."""
    restarts: Word = ""
    """Restarts of the whole job."""


class CopyGroup(ApiModel):
    """Ranks that hold the same shard of the optimizer: each can be restored, or its file filled, from another one."""

    kind: Word
    """Which parameters: Dense, or Expert."""
    num_ranks: Number
    """How many ranks; 1: nobody else holds it."""
    ranks: Annotated[tuple[Number, ...], Field(max_length=16)] = ()
    """The first of them, in the order in which MindIO asks them."""


class Effective(ApiModel):
    """What was derived from the spec."""

    chips_per_node: Number
    """Chips, that is training processes, per node."""
    world_size: Number
    """Ranks of the job."""
    extra_bytes_per_chip: Number = 0
    """Memory per chip that the second optimizer copy costs; 0 where the model's size is unknown."""
    num_copy_groups: Number = 0
    """Shards of the optimizer."""
    copy_groups: Annotated[tuple[CopyGroup, ...], Field(max_length=16)] = ()
    """The first of them, with the ranks that hold them; the pattern goes on (docs/user/layout.md)."""


class DataParallel(ApiModel):
    """The data-parallel ranks."""

    desired: Number
    """How many there should be."""
    current: Number
    """How many there are."""
    dropped: Annotated[tuple[Number, ...], Field(max_length=65536)] = ()
    """Those that were given up for now."""
    since: Timestamp | None = None
    """Since when there are fewer than there should be."""
    expected_throughput_percent: Number | None = None
    """Of full size, as the global batch is shared out; while there are fewer."""
    measured_throughput_percent: Number | None = None
    """Of full size, by the steps seen before and since; refreshed as `progress` is."""
    wait_reason: Word | None = None
    """What is waited for: Replacement (nodes for lost pods), or, once there are fewer, NoFreeNode,
    QuotaExceeded, ExpandDelay (they have to last), BudgetSpent (too many tries) or Returning (ranks on their way)."""
    wait_message: Sentence | None = None
    """The same in words: for which node ranks, what is missing and why, until when, and what follows."""


class Spares(ApiModel):
    """The spare nodes."""

    desired: Number
    """How many there should be: scheduling.numSpareNodes."""
    ready: Number
    """How many are held and could take a pod now."""


class Restarts(ApiModel):
    """Restarts of the whole job."""

    infrastructure: Number = 0
    """Because of nodes, chips or network."""
    program: Number = 0
    """Because of the training program."""


class Takeovers(ApiModel):
    """Lost MindIO controllers whose place another one has taken while the training went on."""

    count: Number = 0
    """How often."""
    last_milliseconds: Number = 0
    """From when the coordinator knew of the loss until the newest controller knew every rank. Where the coordinator's
    pod was lost, the time until its successor had heard every agent is not in it: `CoordinatorReady` shows it."""


class Progress(ApiModel):
    """How far the training is."""

    step: Annotated[int, Field(ge=-1)]
    """Newest finished step."""
    observed_time: Timestamp
    """When that was seen."""
    step_milliseconds: Number | None = None
    """How long a step takes at the present size; absent until a few were seen."""
    checkpoint_step: Number | None = None
    """Step of the newest complete checkpoint; absent where none is known."""
    checkpoint_time: Timestamp | None = None
    """When that checkpoint was first seen."""


class GoodputBucket(ApiModel):
    """Time that went into one thing."""

    name: Word
    """What the time went into."""
    seconds: Number
    """How long."""


class Goodput(ApiModel):
    """Where the time went."""

    percent: Annotated[int, Field(ge=0, le=100)]
    """Share of all time that went into training."""
    percent_of_wanted: Annotated[int, Field(ge=0, le=100)] | None = None
    """Share of the time in which nobody had asked the job to stand (Paused, Suspended) that went into training."""
    buckets: Annotated[tuple[GoodputBucket, ...], Field(max_length=32, json_schema_extra=keyed_list("name"))] = ()
    """All of the time since the start."""


class UnmetPrecondition(ApiModel):
    """Something that an action needs and that is missing."""

    name: Word
    """The precondition, in one CamelCase word."""
    message: Sentence = ""
    """What to do about it."""


class ActionRecoverability(ApiModel):
    """Whether one action would work now."""

    action: Action
    """The action."""
    status: ConditionStatus
    """Whether it would work."""
    message: Sentence = ""
    """What makes it quick, such as a spare node that is ready."""
    unmet: Annotated[tuple[UnmetPrecondition, ...], Field(max_length=32, json_schema_extra=keyed_list("name"))] = ()
    """What is missing, where the action would not work."""


class MissingPrecondition(ApiModel):
    """Something that is missing, with everything that fails without it."""

    name: Word
    """The precondition, in one CamelCase word (docs/user/preconditions.md)."""
    actions: Annotated[tuple[Action, ...], Field(max_length=6)] = ()
    """The actions that would not work."""
    message: Sentence = ""
    """What was found, and what it should be."""
    remedy: Sentence = ""
    """What to change."""


class Protection(ApiModel):
    """How well the job is protected now. What is met is not shown."""

    unmet: Annotated[tuple[MissingPrecondition, ...], Field(max_length=32, json_schema_extra=keyed_list("name"))] = ()
    """What is missing, each precondition once."""
    unknown: Sentence = ""
    """What cannot be seen from outside the training, and is taken as met."""


class CauseEntry(ApiModel):
    """The fact that opened an incident."""

    source: Word
    """Who saw it."""
    code: Word
    """What it was."""
    node_name: NodeName = ""
    """On which node."""
    first_rank: Annotated[int, Field(ge=-1)] = -1
    """First rank that it hit; -1: none."""
    num_ranks: Number = 0
    """How many ranks it hit."""
    message: Sentence = ""
    """What was seen, with the last lines of output where a program failed."""


class RefusedActionEntry(ApiModel):
    """An action that would have been smaller, and did not work."""

    action: Action
    """The action."""
    unmet: Annotated[tuple[Word, ...], Field(max_length=8)] = ()
    """Preconditions that were not met, by name (docs/user/preconditions.md)."""


class PhaseEntry(ApiModel):
    """A part of an outage."""

    name: Word
    """What was waited for."""
    milliseconds: Number
    """How long."""


class RefusedCheckpoint(ApiModel):
    """A checkpoint that was not loaded (docs/user/checkpoints.md)."""

    name: Annotated[str, StringConstraints(max_length=128)]
    """Its name below checkpoint.path."""
    reason: Word
    """Why, in one CamelCase word."""
    message: Annotated[str, StringConstraints(max_length=512)] = ""
    """Why, in a sentence."""


class RankSource(ApiModel):
    """Where one rank's state came from."""

    rank: Number
    """The rank."""
    giver: Number | None = None
    """The rank that gave it its copy; absent where a checkpoint was loaded."""


class StateSource(ApiModel):
    """Ranks whose state came from the same place."""

    name: RestoredFrom
    """The place; LiveRank: they never lost it."""
    num_ranks: Number
    """How many ranks."""
    first_ranks: Annotated[tuple[RankSource, ...], Field(max_length=16, json_schema_extra=keyed_list("rank"))] = ()
    """The first of them."""


class IncidentEntry(ApiModel):
    """One outage, from the fault to the first step after it."""

    incarnation: Number
    """Its number."""
    start_time: Timestamp
    """End of the last step before it."""
    end_time: Timestamp | None = None
    """End of the first step after it, or when it was given up; absent while it is open."""
    message: Sentence = ""
    """What happened, what was done about it, and what it cost, in a sentence."""
    step: Number | None = None
    """The last step that all ranks had finished; absent where none is known."""
    from_nodes: Annotated[tuple[NodeName, ...], Field(max_length=8)] = ()
    """Nodes that pods were lost on, or left."""
    to_nodes: Annotated[tuple[NodeName, ...], Field(max_length=8)] = ()
    """Nodes that they went to."""
    cause: CauseEntry
    """The fact that opened it."""
    action: Action | None = None
    """What was decided; none while nothing is."""
    escalated_from: Annotated[tuple[Action, ...], Field(max_length=6)] = ()
    """What was tried before."""
    refused: Annotated[tuple[RefusedActionEntry, ...], Field(max_length=6, json_schema_extra=keyed_list("action"))] = ()
    """Smaller actions that were not tried, and why not."""
    outcome: IncidentOutcome = IncidentOutcome.OPEN
    """How it stands."""
    phases: Annotated[tuple[PhaseEntry, ...], Field(max_length=16, json_schema_extra=keyed_list("name"))] = ()
    """Its parts; they add up to the outage."""
    lost_steps: Number = 0
    """Steps that had to be done again."""
    restarts: Number | None = None
    """How often the whole job was started anew in it; absent for never."""
    restored_from: LostState | None = None
    """Where the lost optimizer state came from; absent also where the training started from step 0."""
    loaded_step: Number | None = None
    """Step of the checkpoint that was loaded; absent where none was."""
    state_sources: Annotated[tuple[StateSource, ...], Field(max_length=5, json_schema_extra=keyed_list("name"))] = ()
    """Where each rank's state came from."""
    refused_checkpoints: Annotated[tuple[RefusedCheckpoint, ...], Field(max_length=8)] = ()
    """Newer checkpoints that were not loaded, newest first."""


class HATrainingJobStatus(ApiModel):
    """What the job is."""

    observed_generation: Number | None = None
    """The generation of the spec that this status speaks of."""
    conditions: Annotated[tuple[Condition, ...], Field(max_length=32, json_schema_extra=keyed_list("type"))] = ()
    """How the job stands, one entry for each of its conditions (docs/user/reference.md); SparesReady only where spare
    nodes are asked for."""
    summary: Summary | None = None
    """Short texts for the columns of kubectl; no promise."""
    effective: Effective | None = None
    """What was derived from the spec."""
    data_parallel: DataParallel | None = None
    """The data-parallel ranks."""
    spares: Spares | None = None
    """The spare nodes; absent where none are asked for."""
    incarnation: Number = 0
    """Grows with every incident; pods, commands and reports carry it."""
    fence: Annotated[Number, Field(json_schema_extra={"maximum": MAX_FENCE})] = 0
    """Number of the leadership that wrote this; only grows."""
    journal_version: Number = 1
    """What an operator must know to read the journal; one that does not leaves the job as it is."""
    journal: Annotated[str, StringConstraints(max_length=262144)] = ""
    """What the operator remembers of an unfinished recovery, as JSON; for the operator, not for people."""
    start_time: Timestamp | None = None
    """When the job was started first."""
    completion_time: Timestamp | None = None
    """When it completed or failed."""
    restarts: Restarts = Restarts()
    """Restarts of the whole job."""
    takeovers: Takeovers = Takeovers()
    """Lost MindIO controllers whose place another one took while the job trained."""
    progress: Progress | None = None
    """How far the training is; at most 10 seconds old while the job is young or in trouble, else 10 minutes."""
    goodput: Goodput | None = None
    """Where the time went."""
    recoverability: Annotated[
        tuple[ActionRecoverability, ...], Field(max_length=6, json_schema_extra=keyed_list("action"))
    ] = ()
    """What would work now, with each unmet precondition by name; `protection` explains them."""
    protection: Protection | None = None
    """What keeps actions from working, and what to change; absent while the job does not train."""
    incidents: Annotated[tuple[IncidentEntry, ...], Field(max_length=MAX_INCIDENTS)] = ()
    """The newest outages, newest first."""

    model_config = ConfigDict(
        json_schema_extra=validation_rules(
            validation_rule(
                "!has(oldSelf.fence) || (has(self.fence) && self.fence >= oldSelf.fence)",
                "status.fence may only grow: another operator has taken over since; this one must stop writing",
                field=".fence",
            )
        )
    )

    def to_json(self) -> Json:
        """Return the status as the API server stores it: inside its parts, what is empty is left out."""
        # People read this: forty empty lists and texts would be a tenth of it.
        return without_empty_parts(super().to_json())


def without_empty_parts(status: Json) -> Json:
    """Return a status as the operator writes it: a server with an older CRD fills in what is empty."""
    return {key: _without_empty(value) for key, value in status.items()}


def _without_empty(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {key: _without_empty(one) for key, one in value.items() if one not in ("", [])}
    return [_without_empty(one) for one in value] if isinstance(value, list) else value
