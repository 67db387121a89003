"""The preconditions of every action, one line each: identifier, sentence, actual and wanted value.

The training stack documents these in prose, in many places, and fails only at the fault. Here they are one table;
hajob.plan.checks evaluates what follows from the spec and the visible arguments once, before any fault
(docs/user/preconditions.md is generated from this table).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from hajob.api.derived import has_rank_table
from hajob.domain.actions import MINDIO_ACTIONS, Action
from hajob.domain.layout import CopyKind, RankOrder, Sharding
from hajob.domain.text import counted_noun
from hajob.plan.checks import (
    JobSetting,
    copies_divide,
    do_sizes_agree,
    expert_sizes,
    has_second_copy,
    is_batch_given,
    is_checkpoint_resizable,
    is_flag_absent,
    is_group_above_one,
    is_not_entry,
    is_optimizer_distributed,
    is_zero_stage_one,
    launched_entry,
    left_after_a_node,
    reloads_own_checkpoints,
    replica_flag_agrees,
    same_directory,
    saves_periodically,
    shown_flags,
    sizes_in_words,
    torch_format,
    trains_on_pytorch,
    unknown_on_mindspore,
    unless_mended,
)


@dataclass(frozen=True, slots=True)
class Precondition:
    """One precondition.

    Attributes:
        name: identifier in the status.
        actions: the actions that need it.
        sentence: what is needed and why.
        met: True, False, or None when it cannot be known.
        found: the actual value, in words.
        wanted: the wanted value, in words.
        excludes: where it is visibly not met, the training ends at its start if high availability is switched on, or
            never speaks to MindIO.
    """

    name: str
    actions: tuple[Action, ...]
    sentence: str
    met: Callable[[JobSetting], bool | None]
    found: Callable[[JobSetting], str]
    wanted: str
    excludes: bool = False

    def describe_unmet(self, setting: JobSetting) -> str:
        """Return the sentence for the status, with the actual and the wanted value."""
        return f"{self.sentence}: {self.found(setting)}; it should be {self.wanted}"


MINDIO_PORT: Final = 8000  # the one that MindSpeed-LLM has written into its code
_SHRINK: Final = (Action.SHRINK,)
_SAVE: Final = (Action.CHECKPOINT,)
_RESUME: Final = (Action.CHECKPOINT, Action.RESTART)


def _chips_in_words(setting: JobSetting) -> str:
    return counted_noun(setting.layout.chips_per_node, "chip")


def _unset_flag(flag: str, name: str, actions: tuple[Action, ...], sentence: str) -> Precondition:
    return Precondition(name, actions, sentence, is_flag_absent(flag), shown_flags(flag), f"without --{flag}")


def _excluded_flag(flag: str, name: str, sentence: str) -> Precondition:
    return replace(_unset_flag(flag, name, MINDIO_ACTIONS, sentence), excludes=True)


PRECONDITIONS: Final[tuple[Precondition, ...]] = (
    Precondition(
        "DataParallelAboveOne",
        MINDIO_ACTIONS,
        "every shard needs a second rank that could hold it",
        lambda s: is_group_above_one(s, CopyKind.DENSE),
        sizes_in_words,
        "data x context above 1",
    ),
    Precondition(
        "DataParallelEven",
        MINDIO_ACTIONS,
        "the two optimizer copies live in the two halves of data x context",
        lambda s: not has_second_copy(s) or s.layout.sharding is Sharding.NONE or s.layout.dense_group_size % 2 == 0,
        sizes_in_words,
        "an even number of data x context",
    ),
    Precondition(
        "CopiesDivideDataParallel",
        MINDIO_ACTIONS,
        "every copy takes an equal part of data x context",
        lambda s: copies_divide(s, CopyKind.DENSE),
        sizes_in_words,
        "data x context divisible by the copies",
    ),
    Precondition(
        "ExpertDataParallelAboveOne",
        MINDIO_ACTIONS,
        "the experts' shards need a second rank, too",
        lambda s: not s.layout.has_expert_grid or is_group_above_one(s, CopyKind.EXPERT),
        expert_sizes,
        "ranks / (expert tensor x expert x pipeline) above 1",
    ),
    Precondition(
        "CopiesDivideExpertDataParallel",
        MINDIO_ACTIONS,
        "every copy takes an equal part of the experts' data-parallel ranks",
        lambda s: not s.layout.has_expert_grid or copies_divide(s, CopyKind.EXPERT),
        expert_sizes,
        "ranks / (expert tensor x expert x pipeline) divisible by the copies",
    ),
    Precondition(
        "OptimizerCopies",
        (Action.SHRINK, Action.CHECKPOINT),
        "without a second optimizer copy the loss of a rank loses its shard",
        has_second_copy,
        lambda s: f"optimizer.copies {s.spec.optimizer.copies}",
        "2",
    ),
    Precondition(
        "ReplicaFlagAgrees",
        MINDIO_ACTIONS,
        "the trainer and the spec must mean the same number of optimizer copies",
        replica_flag_agrees,
        shown_flags("distributed-optimizer-no-replica"),
        "given exactly when optimizer.copies is 1",
    ),
    Precondition(
        "CopySurvivesNodeLoss",
        _SHRINK,
        "no pod may hold both holders of a shard",
        lambda s: not has_second_copy(s) or s.tolerance.keeps_copy,
        lambda s: f"{_chips_in_words(s)} per node over tensor {s.layout.tensor}, {sizes_in_words(s)}",
        "chips per node at most half of tensor x data",
    ),
    Precondition(
        "PodsAligned",
        _SHRINK,
        "a pod must hold whole data-parallel ranks of one stage, or MindIO drops other ranks than the pods that leave",
        lambda s: s.tolerance.aligned,
        lambda s: f"{_chips_in_words(s)} per node, tensor {s.layout.tensor}, data {s.layout.data}",
        "chips per node dividing tensor x data, and one of chips per node and tensor dividing the other",
    ),
    Precondition(
        "MinDataParallel",
        _SHRINK,
        "after the loss of a node enough data-parallel ranks must be left",
        lambda s: left_after_a_node(s) >= s.spec.elastic.min_data_parallel,
        lambda s: f"{left_after_a_node(s)} of {s.layout.data} would be left",
        "at least elastic.minDataParallel",
    ),
    Precondition(
        "FrameworkPyTorch",
        _SHRINK,
        "only the PyTorch stack trains with fewer data-parallel ranks",
        trains_on_pytorch,
        lambda s: s.spec.framework.value,
        "PyTorch",
    ),
    Precondition(
        "NoRankTable",
        _SHRINK,
        "the communication of all ranks is set up by the rank table, which holds ranks that have left",
        lambda s: not has_rank_table(s.spec),
        lambda s: f"network.rankTablePolicy {s.spec.network.rank_table_policy.value}",
        "Disabled",
    ),
    Precondition(
        "NoExpertParallel",
        _SHRINK,
        "elastic training knows tensor, pipeline and data parallelism only",
        lambda s: s.layout.expert == 1,
        lambda s: f"expert {s.layout.expert}",
        "1",
    ),
    Precondition(
        "NoContextParallel",
        _SHRINK,
        "elastic training knows tensor, pipeline and data parallelism only",
        lambda s: s.layout.context == 1,
        lambda s: f"context {s.layout.context}",
        "1",
    ),
    Precondition(
        "DefaultRankOrder",
        _SHRINK,
        "elastic training rebuilds its groups in the default rank order",
        lambda s: s.layout.rank_order is RankOrder.TENSOR_DATA_PIPELINE,
        lambda s: s.layout.rank_order.value,
        "TensorDataPipeline",
    ),
    Precondition(
        "DistributedOptimizer",
        _SHRINK,
        "elastic training needs the distributed optimizer",
        is_optimizer_distributed,
        shown_flags("use-distributed-optimizer"),
        "with --use-distributed-optimizer",
    ),
    Precondition(
        "ZeroOne",
        MINDIO_ACTIONS,
        "the copies are those of ZeRO-1; parameters and gradients may not be sharded",
        is_zero_stage_one,
        shown_flags("data-parallel-sharding-strategy", "use-torch-fsdp2"),
        "ZeRO-1",
    ),
    _unset_flag("use-custom-fsdp", "NoCustomFsdp", _SHRINK, "elastic training cannot rebuild FSDP's groups"),
    _unset_flag("reuse-fp32-param", "NoReuseFp32Param", _SHRINK, "elastic training needs both parameter sets"),
    _excluded_flag("use-dist-ckpt", "NoDistributedCheckpoint", "high availability refuses distributed checkpoints"),
    _excluded_flag("swap-attention", "NoSwapAttention", "high availability refuses swapped attention"),
    _excluded_flag("swap-optimizer", "NoSwapOptimizer", "high availability refuses a swapped optimizer"),
    _excluded_flag("disable-gloo-group", "GlooGroups", "high availability needs Gloo groups"),
    _excluded_flag("lora-target-modules", "NoLora", "high availability refuses LoRA"),
    Precondition(
        "LayoutAgrees",
        (*MINDIO_ACTIONS, Action.RESTART),
        "the trainer's sizes must be those of spec.parallelism",
        do_sizes_agree,
        shown_flags(
            "tensor-model-parallel-size",
            "pipeline-model-parallel-size",
            "context-parallel-size",
            "expert-model-parallel-size",
            "use-tp-pp-dp-mapping",
        ),
        "the same sizes and order",
    ),
    Precondition(
        "Bf16",
        MINDIO_ACTIONS,
        "the optimizer copies are made for bf16 training",
        lambda s: s.flags.has_switch("bf16") if trains_on_pytorch(s) else True,
        shown_flags("bf16"),
        "with --bf16",
    ),
    Precondition(
        "SaveAndLoadSame",
        _RESUME,
        "a saved checkpoint is found again only where the trainer loads from",
        unless_mended(same_directory),
        shown_flags("save", "load"),
        "--save and --load equal to checkpoint.path",
    ),
    Precondition(
        "CheckpointFormatTorch",
        _SAVE,
        "the last step is saved in the torch format",
        torch_format,
        shown_flags("ckpt-format", "use-dist-ckpt"),
        "--ckpt-format torch",
    ),
    Precondition(
        "OptimizerLoaded",
        _RESUME,
        "a training that does not load its optimizer does not resume",
        unless_mended(is_flag_absent("no-load-optim")),
        shown_flags("no-load-optim"),
        "without --no-load-optim",
    ),
    Precondition(
        "RandomStateLoaded",
        _RESUME,
        "a training that does not load its random state does not resume exactly",
        unless_mended(is_flag_absent("no-load-rng")),
        shown_flags("no-load-rng"),
        "without --no-load-rng",
    ),
    Precondition(
        "CheckpointReloaded",
        (Action.RESTART,),
        "a restart starts over unless it loads what the job has saved (checkpoint.resumePolicy Arguments sees to it)",
        reloads_own_checkpoints,
        shown_flags("save", "load", "finetune"),
        "--load equal to --save, without --finetune",
    ),
    Precondition(
        "PeriodicSave",
        (Action.RESTART,),
        "a training that saves only at its end starts over",
        saves_periodically,
        shown_flags("save-interval", "train-iters"),
        "--save-interval below --train-iters",
    ),
    Precondition(
        "CheckpointResizable",
        (Action.RESTART,),
        "elastic.restartSize Available needs checkpoints that fewer data-parallel ranks can load",
        is_checkpoint_resizable,
        shown_flags("ckpt-format", "use-dist-ckpt", "reuse-fp32-param"),
        "PyTorch's torch format, without --reuse-fp32-param",
    ),
    Precondition(
        "GlobalBatchGiven",
        (Action.RESTART,),
        "elastic.restartSize Available needs a global batch that does not follow the number of ranks",
        is_batch_given,
        shown_flags("global-batch-size"),
        "with --global-batch-size",
    ),
    Precondition(
        "HandlersRegistered",
        MINDIO_ACTIONS,
        "the posttrain entry has heartbeats, but registers no handlers and no copies with MindIO",
        is_not_entry("posttrain"),
        launched_entry,
        "a pretrain entry",
    ),
    Precondition(
        "NoFsdp2",
        MINDIO_ACTIONS,
        "the fsdp2 entry knows nothing of high availability",
        is_not_entry("train_fsdp2"),
        launched_entry,
        "a pretrain entry",
        excludes=True,
    ),
    Precondition(
        "MindIOPort",
        MINDIO_ACTIONS,
        "MindSpeed-LLM's ranks dial port 8000 and no other; another trainer may take the port from TTP_PORT",
        lambda s: True if s.spec.network.mindio_port == MINDIO_PORT or not trains_on_pytorch(s) else None,
        lambda s: f"network.mindIOPort {s.spec.network.mindio_port}",
        f"{MINDIO_PORT}",
    ),
    Precondition(
        "TwoNodes",
        (Action.REPLACE, Action.SHRINK),
        "when the only node is lost nobody is left to go on from",
        lambda s: s.layout.num_nodes > 1,
        lambda s: f"numNodes {s.layout.num_nodes}",
        "at least 2",
    ),
    Precondition(
        "MindSporeGraphMode",
        MINDIO_ACTIONS,
        "MindSpore offers high availability in graph mode only",
        unknown_on_mindspore,
        lambda _s: "not visible in the template",
        "graph mode",
    ),
    Precondition(
        "MindSporeSinkSizeOne",
        MINDIO_ACTIONS,
        "MindSpore repairs steps only with a sink size of 1",
        unknown_on_mindspore,
        lambda _s: "not visible in the template",
        "sink_size 1",
    ),
    Precondition(
        "MindSporeOptimizerCopies",
        MINDIO_ACTIONS,
        "MindSpore needs at least two optimizer copies: data parallel / optimizer_weight_shard_size of 2 or more",
        lambda s: True if trains_on_pytorch(s) else (None if has_second_copy(s) else False),
        lambda s: f"optimizer.copies {s.spec.optimizer.copies}, the shard size is not visible",
        "at least 2",
    ),
)
