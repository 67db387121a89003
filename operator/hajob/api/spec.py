"""The spec of a HATrainingJob: what a person writes.

Everything that can be derived is optional and derived in one place (hajob.api.derived). Defaults stand here and
nowhere else; the CRD takes them from these models, so that server and operator agree. What differs between A2 and
A3 has no default here, because a default would be written into the object and then look like a person's choice.
"""

from itertools import combinations
from typing import Annotated, Final

from pydantic import ConfigDict, Field, StringConstraints, WithJsonSchema

from hajob.api.base import (
    SECONDS_PER_YEAR,
    ApiModel,
    Timestamp,
    keyed_list,
    unchanged_rule,
    validation_rule,
    validation_rules,
)
from hajob.api.constants import COORDINATOR_PORT, DEFAULT_RESOURCE_NAME, MANAGED_BY
from hajob.api.enums import (
    CoordinatorLossPolicy,
    CordonPolicy,
    ElasticPolicy,
    Framework,
    GangPolicy,
    Launcher,
    MindIOTLSPolicy,
    Product,
    Rail,
    RankTablePolicy,
    RecoveryMode,
    RestartCheckpointPolicy,
    RestartSize,
    ResumePolicy,
    ShrunkPodPolicy,
    SpareMode,
    StressOperation,
    SubHealthPolicy,
    WaitingPodPolicy,
)
from hajob.api.template import TEMPLATE_UNCHANGED, HookTemplate, PodTemplate
from hajob.domain.actions import FAULT_ACTIONS, Action
from hajob.domain.layout import RankOrder, Sharding

Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[int, Field(ge=1, le=SECONDS_PER_YEAR)]
Count = Annotated[int, Field(ge=0, le=1_000_000)]
Degree = Annotated[int, Field(ge=1, le=65536)]
DnsLabel = Annotated[str, StringConstraints(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
RecoveryStep = Annotated[Action, WithJsonSchema({"type": "string", "enum": [str(step) for step in FAULT_ACTIONS]})]
NodeName = Annotated[str, StringConstraints(min_length=1, max_length=253)]
Quantity = Annotated[
    str | int, WithJsonSchema({"x-kubernetes-int-or-string": True, "description": "A quantity such as 500m."})
]


class Accelerator(ApiModel):
    """The chips of a node. Immutable."""

    product: Product
    """Generation of the nodes: A2 or A3. What is left out below is derived from it."""
    chips_per_node: Annotated[int, Field(ge=1, le=64)] | None = None
    """Chips, that is training processes, per node. Default: 8 on A2, 16 on A3."""
    resource_name: Annotated[str, StringConstraints(min_length=1, max_length=317)] = DEFAULT_RESOURCE_NAME
    """Name under which the device plugin offers the chips."""
    super_pod_chips: Annotated[int, Field(ge=1, le=65536)] | None = None
    """A3: chips of one logical super pod (sp-block), which are placed in one; not with gangPolicy None."""


class Parallelism(ApiModel):
    """How the model is spread over the ranks. Data parallel follows from it and the number of chips. Immutable."""

    tensor: Degree
    """Tensor-parallel ranks."""
    pipeline: Degree = 1
    """Pipeline stages."""
    context: Degree = 1
    """Context-parallel ranks."""
    expert: Degree = 1
    """Expert-parallel ranks."""
    expert_tensor: Degree | None = None
    """Tensor-parallel ranks of the experts (--expert-tensor-parallel-size). Default: tensor; with framework MindSpore,
    which deals experts out over data × tensor, 1."""
    rank_order: RankOrder = RankOrder.TENSOR_DATA_PIPELINE
    """Order in which global ranks run through the coordinates; TensorPipelineData is --use-tp-pp-dp-mapping."""


class Optimizer(ApiModel):
    """How the optimizer state is kept. Immutable."""

    sharding: Sharding = Sharding.DISTRIBUTED
    """Distributed: spread over the data-parallel ranks (ZeRO-1). None: every rank has all of it."""
    copies: Annotated[int, Field(ge=1, le=2)] = 2
    """Places in which every optimizer shard is kept; 1 is the no-replica mode, which recovers from checkpoints."""


class Model(ApiModel):
    """What is known about the model."""

    parameters: Annotated[int, Field(ge=1, le=10**15)]
    """Number of parameters; the extra memory per chip is told from it beforehand."""


class Checkpoint(ApiModel):
    """Where checkpoints are kept. Immutable."""

    path: Annotated[str, StringConstraints(min_length=1, max_length=4096)]
    """Directory on a volume that all ranks share, the same as the trainer's --save and --load."""
    saved_limit: Annotated[int, Field(ge=1, le=1000)] = 2
    """How many checkpoints that were saved while recovering are kept."""
    resume_policy: ResumePolicy = ResumePolicy.SCRIPT
    """Script: every start runs the script as it is. Arguments: from the second start on, where a checkpoint was saved,
    the launcher sets the trainer's --load to its --save and leaves out --finetune, --no-load-optim, --no-load-rng and
    --ckpt-step, so that an unchanged script resumes (PyTorch)."""

    model_config = ConfigDict(
        json_schema_extra=validation_rules(
            validation_rule(
                "self.path.startsWith('/')",
                "spec.checkpoint.path must be absolute: write the path where the container trainer mounts the volume",
                field=".path",
            )
        )
    )


class Scheduling(ApiModel):
    """Where and how the pods are placed."""

    gang_policy: GangPolicy = GangPolicy.SCHEDULING_GATES
    """Who makes sure that all pods start together. SchedulingGates: pods of a start ask for nodes once there are some
    for all of them, free or held by a lower priority (0039), with any scheduler. None: each asks when it is made, as a
    cluster autoscaler needs it. Volcano: Volcano places them, in a PodGroup that Hajob keeps."""
    queue_name: Annotated[str, StringConstraints(max_length=253)] = ""
    """Queue of Volcano, with gangPolicy Volcano; `default` when left out."""
    num_spare_nodes: Annotated[int, Field(ge=0, le=4096)] = 0
    """Nodes that pods without training hold ready, once the job trains: what is lost or moved goes there first."""
    spare_mode: SpareMode = SpareMode.PLACEHOLDER
    """Placeholder: a spare's pod waits, with the image on its node. Warm: it is a whole rank pod whose start script has
    run up to its launch; it becomes the pod of what is lost or moved as it is, and only the ranks are started."""
    capacity_timeout_seconds: Seconds | None = None
    """How long a start may wait for quota and nodes before the job fails; none: as long as the job lives."""
    waiting_pod_policy: WaitingPodPolicy = WaitingPodPolicy.KEEP
    """Keep: a start that waits keeps the pods that have a node. Release: after a minute it gives them up, and makes all
    of them anew once there are nodes for all."""
    excluded_node_names: Annotated[tuple[NodeName, ...], Field(max_length=256)] = ()
    """Nodes that the job is moved off and never placed on."""


class ActionPolicy(ApiModel):
    """Limits of one action; what is left out is derived (hajob.api.derived)."""

    name: RecoveryStep
    """The action."""
    max_count: Count | None = None
    """How often within the window; 0 switches the action off."""
    window_seconds: Seconds | None = None
    """Window in which the action is counted."""
    deadline_seconds: Seconds | None = None
    """Longest time that one such action may take before the next larger one is tried."""


class Hang(ApiModel):
    """When a training that takes no step counts as hanging."""

    step_time_multiple: Annotated[int, Field(ge=2, le=10_000)] = 20
    """Multiple of the usual step time without a step."""
    min_timeout_seconds: Seconds = 120
    """Shortest time without a step, whatever the step time."""


class LogRule(ApiModel):
    """A line of the ranks' output that calls for an action."""

    name: DnsLabel
    """Name of the rule, as it stands in an incident."""
    pattern: Annotated[str, StringConstraints(min_length=1, max_length=1024)]
    """Regular expression (RE2) that a line has to match."""
    action: RecoveryStep = Action.RESTART
    """What is done."""
    threshold: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """Matching lines within the window before something is done."""
    start_delay_seconds: Annotated[int, Field(ge=0, le=SECONDS_PER_YEAR)] = 0
    """Time after a start in which the rule is not applied."""
    window_seconds: Seconds = 60
    """Window in which the lines are counted."""


class Recovery(ApiModel):
    """What Hajob may do about a fault, and how often."""

    mode: RecoveryMode = RecoveryMode.ENFORCE
    """Enforce: act. Observe: do nothing, say what would be done. Hold: start nothing. Either keeps a fault open, in
    every state of the job, until Enforce decides it; what a person asks for is done, an action under way is ended."""
    actions: Annotated[tuple[ActionPolicy, ...], Field(max_length=6, json_schema_extra=keyed_list("name"))] = ()
    """Limits per action; an action that is not listed has its default limits."""
    max_program_failures: Count = 3
    """Failures of the training program itself before the job fails; faults of the infrastructure don't count."""
    replacement_timeout_seconds: Seconds = 270
    """How long a replacement pod may take to stand ready; then the job shrinks, or saves and starts anew. At most 3480:
    MindIO, which holds the training meanwhile, waits for an hour and then leaves."""
    sub_health_policy: SubHealthPolicy = SubHealthPolicy.MIGRATE
    """What is done about a node that works badly."""
    cordon_policy: CordonPolicy = CordonPolicy.MIGRATE
    """What is done about a node that is cordoned."""
    drain_timeout_seconds: Annotated[int, Field(ge=0, le=SECONDS_PER_YEAR)] = 900
    """How long evictions from a cordoned node wait for the pods to be moved; then they go through."""
    preemption_timeout_seconds: Seconds = 1800
    """How long the job may take to save when its queue (Kueue) takes the quota back, which waits for that; then the
    pods end, and the job resumes from the newest checkpoint before."""
    coordinator_loss_policy: CoordinatorLossPolicy = CoordinatorLossPolicy.AT_NEXT_CHECKPOINT
    """When the job is restarted after its MindIO controller was lost; until then it trains unprotected."""
    hang: Hang = Hang()
    """When a training that takes no step counts as hanging."""
    log_rules: Annotated[tuple[LogRule, ...], Field(max_length=32, json_schema_extra=keyed_list("name"))] = ()
    """Lines of output that call for an action."""


class Elastic(ApiModel):
    """Going on with fewer data-parallel ranks, and growing back."""

    policy: ElasticPolicy = ElasticPolicy.ENABLED
    """Whether the job may shrink."""
    min_data_parallel: Degree = 1
    """Fewest data-parallel ranks with which the job goes on."""
    shrunk_pod_policy: ShrunkPodPolicy = ShrunkPodPolicy.KEEP
    """What happens to the healthy pods of a dropped data-parallel rank."""
    expand_delay_seconds: Annotated[int, Field(ge=0, le=SECONDS_PER_YEAR)] = 120
    """How long capacity must have been back before the job grows."""
    restart_size: RestartSize = RestartSize.ORIGINAL
    """With how many data-parallel ranks the job is started anew: all, or as many as there are nodes for (0038)."""


class Resources(ApiModel):
    """Resources of a container, as in a Pod."""

    requests: dict[str, Quantity] = Field(default_factory=dict, max_length=32)
    """What is reserved."""
    limits: dict[str, Quantity] = Field(default_factory=dict, max_length=32)
    """What is not exceeded."""


class Toleration(ApiModel):
    """A toleration, as in a Pod."""

    key: Annotated[str, StringConstraints(max_length=317)] | None = None
    """Key of the taint; none tolerates every key."""
    operator: Annotated[str, StringConstraints(pattern="^(Exists|Equal)$")] | None = None
    """Exists or Equal."""
    value: Annotated[str, StringConstraints(max_length=63)] | None = None
    """Value of the taint."""
    effect: Annotated[str, StringConstraints(pattern="^(NoSchedule|PreferNoSchedule|NoExecute)$")] | None = None
    """Effect of the taint; none tolerates every effect."""
    toleration_seconds: int | None = None
    """How long NoExecute is tolerated."""


class StressTest(ApiModel):
    """A test of the chips by TaskD, while their ranks wait."""

    operations: Annotated[tuple[StressOperation, ...], Field(min_length=1, max_length=2)] = tuple(StressOperation)
    """What is tested. PointToPoint needs 10 GB of free memory on each chip."""


class RailSwitch(ApiModel):
    """Chips of one node that are to send on another rail."""

    node_name: NodeName
    """The node."""
    chips: Annotated[tuple[Annotated[int, Field(ge=0, le=63)], ...], Field(min_length=1, max_length=64)]
    """Its chips, by the local rank that each carries."""
    rail: Rail = Rail.BORROWED
    """Borrowed: the rail of the neighbouring chip; Own: back to its own."""


class PlannedPause(ApiModel):
    """Every rank waits at the end of a step while other work is done: a switch of network rails, a test of nodes."""

    request_time: Timestamp
    """A time newer than that of the last pause asks for another one."""
    timeout_seconds: Annotated[int, Field(ge=1, le=7200)] = 600
    """How long the training may be held; then it goes on, whatever the work has come to."""
    node_names: Annotated[tuple[NodeName, ...], Field(max_length=256)] = ()
    """Nodes on which the work is done; none: every node of the job."""
    template: HookTemplate | None = None
    """Pod of the work on each node, bound to it. Exit code 0: the node is well. 2: it is bad, is quarantined, and its
    ranks are replaced. Others: the work has failed, nothing follows. Without a template the training is held until
    spec.pause is taken back, or for timeoutSeconds."""
    stress_test: StressTest | None = None
    """A stress test by TaskD on these nodes (launcher TaskD): code 2 quarantines a node, and its ranks are replaced."""
    switch_rails: Annotated[tuple[RailSwitch, ...], Field(max_length=64)] = ()
    """Network rails that TaskD switches (launcher TaskD, A3)."""

    model_config = ConfigDict(
        json_schema_extra=validation_rules(
            validation_rule(
                "[has(self.template), has(self.stressTest), has(self.switchRails) && size(self.switchRails) > 0]"
                ".filter(there, there).size() <= 1",
                "a pause does one kind of work: leave all but one of template, stressTest and switchRails out",
            )
        )
    )

    @property
    def is_work_of_taskd(self) -> bool:
        """Whether TaskD does the work."""
        return self.stress_test is not None or bool(self.switch_rails)


class Coordinator(ApiModel):
    """The coordinator pod."""

    resources: Resources = Resources()
    """Resources of the container with the MindIO controller."""
    node_selector: dict[str, str] = Field(default_factory=dict, max_length=32)
    """Labels of the nodes on which it may run."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=32)] = ()
    """Taints that it tolerates."""
    priority_class_name: Annotated[str, StringConstraints(max_length=253)] = ""
    """Its priority class; none: that of the template."""
    python_path: Annotated[str, StringConstraints(max_length=1024, pattern="^(/.*)?$")] = ""
    """Absolute path of the Python with mindio_ttp in the training image; empty: it is found."""


class Agent(ApiModel):
    """The agent container in every rank pod."""

    resources: Resources = Resources()
    """Its resources."""


_PORTS: Final = ("agentPort", "coordinatorPort", "mindIOPort", "rendezvousPort")
_HIGHEST_COORDINATOR_PORT: Final = 65530
"""Above it are two for the controller and the store, whichever three the rank pods have."""


_INTERFACES_LENGTH: Final = 127
"""Eight names of the longest that Linux has, 15 letters, and what stands between them."""


class Network(ApiModel):
    """Interfaces and ports."""

    interface: Annotated[str, StringConstraints(min_length=1, max_length=_INTERFACES_LENGTH)] | None = None
    """Interface for HCCL and Gloo, or several with commas between; none: the one with the pod's address."""
    agent_port: Port = 7071
    """Port of the agent in every rank pod, for the coordinator. Immutable."""
    coordinator_port: Annotated[int, Field(ge=1, le=_HIGHEST_COORDINATOR_PORT)] = COORDINATOR_PORT
    """Port of the coordinator, for the operator; a change counts for its next pod. With hostNetwork, MindIO's
    controller and the rendezvous store have the next two ports that rank pods leave."""
    mindio_port: Annotated[Port, Field(alias="mindIOPort")] = 8000
    """Port of MindIO at every gate and, unless hostNetwork, at the coordinator. MindSpeed-LLM dials only 8000."""
    rendezvous_port: Port = 29500
    """Port of the rendezvous store at every rank pod and, unless hostNetwork, at the coordinator."""
    mindio_tls_policy: Annotated[MindIOTLSPolicy, Field(alias="mindIOTLSPolicy")] = MindIOTLSPolicy.DISABLED
    """Whether the gates and MindIO's controller speak TLS, by certificates of MindIO's own made for the job. Ranks may
    speak it to their gate, too (MindSpeed-LLM and MindSpore switch it off). Immutable."""
    rank_table_policy: RankTablePolicy = RankTablePolicy.DISABLED
    """Whether each rank pod has hccl.json, MindCluster's rank table, in /user/serverid/devindex/config; RANK_TABLE_FILE
    names it. Ranks start once it has the chips of all pods. Immutable."""

    model_config = ConfigDict(
        json_schema_extra=validation_rules(
            validation_rule(
                " && ".join(f"self.{one} != self.{other}" for one, other in combinations(_PORTS, 2)),
                f"two listeners cannot share a port: give each of network.{', '.join(_PORTS)} one of its own",
            )
        )
    )


class Output(ApiModel):
    """The ranks' output."""

    path: Annotated[str, StringConstraints(max_length=4096)] = ""
    """Directory on a volume; none: hajob-output below checkpoint.path. Each job's is below it, named by its UID."""
    attempt_limit: Annotated[int, Field(ge=1, le=1000)] = 5
    """Of how many attempts the output is kept: the newest ones, and the first."""


_LAYOUT: Final = "the rank layout is fixed while a job exists; delete the job and apply it again with the new value"
_IDENTITY: Final = "delete the job and apply it again with the new value"
_CHIPS: Final = (
    "(has(self.accelerator.chipsPerNode) ? self.accelerator.chipsPerNode : (self.accelerator.product == 'A3' ? 16 : 8))"
)
_RANKS: Final = f"(self.numNodes * {_CHIPS})"
_BLOCK: Final = "(self.parallelism.tensor * self.parallelism.pipeline * self.parallelism.context)"
_EXPERT_TENSOR: Final = (
    "(has(self.parallelism.expertTensor) ? self.parallelism.expertTensor : "
    "(self.framework == 'MindSpore' && self.parallelism.expert > 1 ? 1 : self.parallelism.tensor))"
)
_EXPERT_BLOCK: Final = f"({_EXPERT_TENSOR} * self.parallelism.expert * self.parallelism.pipeline)"

SPEC_RULES: Final = validation_rules(
    validation_rule(
        f"{_RANKS} % {_BLOCK} == 0",
        "the chips cannot be divided: numNodes × accelerator.chipsPerNode (8 on A2 and 16 on A3 when left out) must be "
        "a multiple of parallelism tensor × pipeline × context; change one of them so that data parallel comes out "
        "whole",
        field=".numNodes",
    ),
    validation_rule(
        f"{_RANKS} % {_EXPERT_BLOCK} == 0",
        "the experts cannot be spread: numNodes × accelerator.chipsPerNode must be a multiple of parallelism "
        "expertTensor (tensor when left out, 1 for MindSpore) × expert × pipeline: change one of them",
        field=".parallelism",
    ),
    validation_rule(
        f"{_RANKS} < {_BLOCK} || self.elastic.minDataParallel <= {_RANKS} / {_BLOCK}",
        "elastic.minDataParallel is larger than data parallel, which is numNodes × accelerator.chipsPerNode / "
        "(parallelism tensor × pipeline × context): lower it",
        field=".elastic",
    ),
    validation_rule(
        f"!has(self.accelerator.superPodChips) || self.accelerator.superPodChips % {_CHIPS} == 0",
        "a super pod consists of whole nodes: make accelerator.superPodChips a multiple of accelerator.chipsPerNode",
        field=".accelerator",
    ),
    validation_rule(
        "self.launcher != 'Hajob' || !has(self.template.spec) || !has(self.template.spec.containers) || "
        "self.template.spec.containers.all(c, c.name != 'trainer' || (has(c.command) && size(c.command) > 0))",
        "the container trainer needs a command, such as ['bash', 'train.sh']: Kubernetes cannot tell Hajob's launcher "
        "what the image would start by itself",
        field=".template",
    ),
    unchanged_rule("framework", _IDENTITY),
    unchanged_rule("accelerator", _LAYOUT),
    unchanged_rule("numNodes", _LAYOUT),
    unchanged_rule("parallelism", _LAYOUT),
    unchanged_rule("optimizer", _LAYOUT),
    unchanged_rule("launcher", _IDENTITY),
    unchanged_rule("managedBy", _IDENTITY),
    unchanged_rule("checkpoint", _IDENTITY),
    validation_rule(
        "self.network.agentPort == oldSelf.network.agentPort",
        f"spec.network.agentPort cannot be changed: {_IDENTITY}",
        field=".network.agentPort",
    ),
    validation_rule(
        "self.network.mindIOTLSPolicy == oldSelf.network.mindIOTLSPolicy",
        f"spec.network.mindIOTLSPolicy cannot be changed: {_IDENTITY}",
        field=".network.mindIOTLSPolicy",
    ),
    validation_rule(
        "self.network.rankTablePolicy == oldSelf.network.rankTablePolicy",
        f"spec.network.rankTablePolicy cannot be changed: {_IDENTITY}",
        field=".network.rankTablePolicy",
    ),
    TEMPLATE_UNCHANGED,
)


class HATrainingJobSpec(ApiModel):
    """What the job should be."""

    framework: Framework = Framework.PYTORCH
    """Training framework of the image. Immutable."""
    accelerator: Accelerator
    """The chips of a node. Immutable."""
    num_nodes: Annotated[int, Field(ge=1, le=16384)]
    """Rank pods, one per node. Immutable."""
    parallelism: Parallelism
    """How the model is spread over the ranks. Immutable."""
    optimizer: Optimizer = Optimizer()
    """How the optimizer state is kept. Immutable."""
    model: Model | None = None
    """What is known about the model."""
    launcher: Launcher = Launcher.HAJOB
    """Who starts the rank processes in the container trainer. Immutable."""
    managed_by: Annotated[str, StringConstraints(min_length=1, max_length=128)] = MANAGED_BY
    """Who looks after this job; every other value makes Hajob leave it alone. Immutable."""
    checkpoint: Checkpoint
    """Where checkpoints are kept. Immutable."""
    template: PodTemplate
    """Pod of every node. Immutable, except while suspended, or with a change of suspend: image, labels, annotations,
    nodeSelector, tolerations."""
    suspend: bool = False
    """True: no pods; false again: the job starts from its checkpoint."""
    restart_request_time: Timestamp | None = None
    """A time newer than the last start restarts the job once."""
    restart_checkpoint_policy: RestartCheckpointPolicy = RestartCheckpointPolicy.IF_POSSIBLE
    """What restartRequestTime does where the present step cannot be saved. IfPossible: the job starts anew from its
    newest checkpoint all the same. Required: the job trains on, and an Event says why."""
    finish_timeout_seconds: Seconds = 1800
    """From the last step to the end of the last rank, for saving, conversion, upload. Afterwards the job is complete if
    its final checkpoint is; else it restarts from the newest one."""
    startup_deadline_seconds: Seconds = 1800
    """How long a start may stand still: nothing computed or printed, no rank further on, until every rank trains."""
    active_deadline_seconds: Seconds | None = None
    """How long the job may run; none: without limit."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=SECONDS_PER_YEAR)] | None = None
    """When the finished job is deleted; none: never."""
    scheduling: Scheduling = Scheduling()
    """Where and how the pods are placed."""
    recovery: Recovery = Recovery()
    """What Hajob may do about a fault, and how often."""
    elastic: Elastic = Elastic()
    """Going on with fewer data-parallel ranks, and growing back."""
    pause: PlannedPause | None = None
    """Hold the training once, while other work is done."""
    coordinator: Coordinator = Coordinator()
    """The coordinator pod."""
    agent: Agent = Agent()
    """The agent container in every rank pod."""
    network: Network = Network()
    """Interfaces and ports."""
    output: Output = Output()
    """The ranks' output."""

    model_config = ConfigDict(json_schema_extra=SPEC_RULES)
