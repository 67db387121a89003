"""What every action needs, one line for each: identifier, sentence, what is, what should be.

The training stack states these in prose, in many places, and fails at the moment of the fault. Here they are one
table; what follows from the spec and the visible arguments is judged once, before any fault. A check answers True,
False, or None where it cannot be known from outside (docs/preconditions.md is made from this table).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hajob.api.derived import layout as layout_from
from hajob.api.enums import Framework
from hajob.api.spec import HATrainingJobSpec
from hajob.domain.actions import Action
from hajob.domain.layout import CopyKind, Layout, RankOrder, Sharding
from hajob.domain.loss import Tolerance, tolerance
from hajob.plan.flags import Flags, read_flags


@dataclass(frozen=True, slots=True)
class Setting:
    """What a precondition may look at."""

    spec: HATrainingJobSpec
    layout: Layout
    flags: Flags
    tolerance: Tolerance

    @classmethod
    def of(cls, spec: HATrainingJobSpec) -> "Setting":
        """Gather it from a spec; raises `LayoutError` when the sizes do not divide."""
        layout = layout_from(spec)
        return cls(spec, layout, read_flags(spec.template), tolerance(layout))


@dataclass(frozen=True, slots=True)
class Precondition:
    """One line of the list.

    Attributes:
        name: identifier, as it stands in the status.
        actions: which actions need it.
        sentence: what is needed and why.
        met: True, False, or None when it cannot be known.
        found: what is, in words.
        wanted: what should be, in words.
    """

    name: str
    actions: tuple[Action, ...]
    sentence: str
    met: Callable[[Setting], bool | None]
    found: Callable[[Setting], str]
    wanted: str

    def message(self, setting: Setting) -> str:
        """The sentence for a status: what is, what should be."""
        return f"{self.sentence}: {self.found(setting)}; it should be {self.wanted}"


_PROCESS: Final = (Action.RETRY, Action.IN_PLACE, Action.REPLACE)
_MINDIO: Final = (*_PROCESS, Action.SHRINK, Action.CHECKPOINT)
_SHRINK: Final = (Action.SHRINK,)
_SAVE: Final = (Action.CHECKPOINT,)
_RESUME: Final = (Action.CHECKPOINT, Action.RESTART)


def _copied(setting: Setting) -> bool:
    """Whether the job asks for a second optimizer copy at all."""
    return setting.spec.optimizer.copies > 1


def _pytorch(setting: Setting) -> bool:
    return setting.spec.framework is Framework.PYTORCH


def _divides(setting: Setting, kind: CopyKind) -> bool:
    layout = setting.layout
    if not _copied(setting) or layout.sharding is Sharding.NONE:
        return True
    return layout.group_size(kind) % layout.copies == 0


def _above_one(setting: Setting, kind: CopyKind) -> bool:
    return not _copied(setting) or setting.layout.group_size(kind) > 1


def _absent(flag: str, only_pytorch: bool = True) -> Callable[[Setting], bool | None]:
    """The flag must not be given."""
    return lambda setting: True if only_pytorch and not _pytorch(setting) else setting.flags.lacks(flag)


def _shown(*flags: str) -> Callable[[Setting], str]:
    """What the arguments say about these flags."""

    def words(setting: Setting) -> str:
        if not setting.flags.visible:
            return "the trainer's arguments are hidden in a script"
        given = [f"--{flag} {setting.flags.values[flag]}".rstrip() for flag in flags if flag in setting.flags.values]
        return ", ".join(given) or "not given: " + ", ".join(f"--{flag}" for flag in flags)

    return words


def _unset(flag: str, name: str, actions: tuple[Action, ...], sentence: str) -> Precondition:
    return Precondition(name, actions, sentence, _absent(flag), _shown(flag), f"without --{flag}")


def _same_directory(setting: Setting) -> bool | None:
    flags = setting.flags
    if not flags.visible or not _pytorch(setting):
        return None
    save, load = flags.text("save"), flags.text("load")
    if any("$" in (value or "") for value in (save, load)):
        return None
    path = setting.spec.checkpoint.path
    if any(value not in {None, path} for value in (save, load)):
        return False
    return _as_far_as_seen(flags, fits=save == load == path)


def _as_far_as_seen(flags: Flags, *, fits: bool) -> bool | None:
    """A verdict on what is absent counts only where nothing can be hidden in a script."""
    return fits if fits or flags.complete else None


def _agrees(setting: Setting) -> bool | None:
    """Whether the visible sizes are those of the spec; an option that is not given has its default of 1."""
    if not setting.flags.visible or not _pytorch(setting):
        return None
    sizes = setting.layout
    wanted = {
        "tensor-model-parallel-size": sizes.tensor,
        "pipeline-model-parallel-size": sizes.pipeline,
        "context-parallel-size": sizes.context,
        "expert-model-parallel-size": sizes.expert,
    }
    if any("$" in (setting.flags.text(flag) or "") for flag in wanted):
        return None
    flags, mapped = setting.flags, sizes.rank_order is RankOrder.TENSOR_PIPELINE_DATA
    order = flags.has("use-tp-pp-dp-mapping")
    if order not in {mapped, None} or any(flags.number(flag) not in {size, None} for flag, size in wanted.items()):
        return False
    return _as_far_as_seen(flags, fits=all((flags.number(flag) or 1) == size for flag, size in wanted.items()))


def _format(setting: Setting) -> bool | None:
    if not setting.flags.visible or not _pytorch(setting):
        return None
    chosen = setting.flags.text("ckpt-format") or setting.flags.text("dist-ckpt-format")
    if chosen not in {"torch", None} or setting.flags.has("use-dist-ckpt"):
        return False
    return _as_far_as_seen(setting.flags, fits=chosen == "torch")


def _distributed(setting: Setting) -> bool | None:
    if setting.layout.sharding is not Sharding.DISTRIBUTED:
        return False
    return setting.flags.has("use-distributed-optimizer")


def _zero_one(setting: Setting) -> bool | None:
    flags = setting.flags
    if not flags.visible:
        return None
    sharded = flags.text("data-parallel-sharding-strategy") in {None, "", "no_shard", "optim"}
    if not sharded or "use-torch-fsdp2" in flags.values:
        return False
    return True if flags.complete else None


def _replicas_flag(setting: Setting) -> bool | None:
    """`--distributed-optimizer-no-replica` and `optimizer.copies` must say the same."""
    given = setting.flags.has("distributed-optimizer-no-replica")
    return None if given is None else given == (not _copied(setting))


def _sizes(setting: Setting) -> str:
    layout = setting.layout
    return f"data {layout.data} x context {layout.context}, copies {setting.spec.optimizer.copies}"


def _left(setting: Setting) -> int:
    return setting.layout.data - setting.tolerance.lost_per_node


def _mindspore_unknown(setting: Setting) -> bool | None:
    return True if _pytorch(setting) else None


PRECONDITIONS: Final[tuple[Precondition, ...]] = (
    Precondition(
        "DataParallelAboveOne",
        _MINDIO,
        "every shard needs a second rank that could hold it",
        lambda s: _above_one(s, CopyKind.DENSE),
        _sizes,
        "data x context above 1",
    ),
    Precondition(
        "DataParallelEven",
        _MINDIO,
        "the two optimizer copies live in the two halves of data x context",
        lambda s: not _copied(s) or s.layout.sharding is Sharding.NONE or s.layout.dense_group_size % 2 == 0,
        _sizes,
        "an even number of data x context",
    ),
    Precondition(
        "CopiesDivideDataParallel",
        _MINDIO,
        "every copy takes an equal part of data x context",
        lambda s: _divides(s, CopyKind.DENSE),
        _sizes,
        "data x context divisible by the copies",
    ),
    Precondition(
        "ExpertDataParallelAboveOne",
        _MINDIO,
        "the experts' shards need a second rank, too",
        lambda s: s.layout.expert == 1 or _above_one(s, CopyKind.EXPERT),
        lambda s: f"{_sizes(s)}, expert {s.layout.expert}",
        "data x context / expert above 1",
    ),
    Precondition(
        "CopiesDivideExpertDataParallel",
        _MINDIO,
        "every copy takes an equal part of the experts' data-parallel ranks",
        lambda s: s.layout.expert == 1 or _divides(s, CopyKind.EXPERT),
        lambda s: f"{_sizes(s)}, expert {s.layout.expert}",
        "data x context / expert divisible by the copies",
    ),
    Precondition(
        "OptimizerCopies",
        (Action.SHRINK, Action.CHECKPOINT),
        "without a second optimizer copy the loss of a rank loses its shard",
        _copied,
        lambda s: f"optimizer.copies {s.spec.optimizer.copies}",
        "2",
    ),
    Precondition(
        "ReplicaFlagAgrees",
        _MINDIO,
        "the trainer and the spec must mean the same number of optimizer copies",
        _replicas_flag,
        _shown("distributed-optimizer-no-replica"),
        "given exactly when optimizer.copies is 1",
    ),
    Precondition(
        "CopySurvivesNodeLoss",
        _SHRINK,
        "no pod may hold both holders of a shard",
        lambda s: not _copied(s) or s.tolerance.keeps_copy,
        lambda s: f"{s.layout.chips_per_node} chips per node over tensor {s.layout.tensor}, {_sizes(s)}",
        "chips per node at most half of tensor x data",
    ),
    Precondition(
        "PodsAligned",
        _SHRINK,
        "a pod must hold whole data-parallel ranks of one stage, or MindIO drops other ranks than the pods that leave",
        lambda s: s.tolerance.aligned,
        lambda s: f"{s.layout.chips_per_node} chips per node, tensor {s.layout.tensor}, data {s.layout.data}",
        "chips per node dividing tensor x data, and one of chips per node and tensor dividing the other",
    ),
    Precondition(
        "MinDataParallel",
        _SHRINK,
        "after the loss of a node enough data-parallel ranks must be left",
        lambda s: _left(s) >= s.spec.elastic.min_data_parallel,
        lambda s: f"{_left(s)} of {s.layout.data} would be left",
        "at least elastic.minDataParallel",
    ),
    Precondition(
        "FrameworkPyTorch",
        _SHRINK,
        "only the PyTorch stack trains with fewer data-parallel ranks",
        _pytorch,
        lambda s: s.spec.framework.value,
        "PyTorch",
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
        _distributed,
        _shown("use-distributed-optimizer"),
        "with --use-distributed-optimizer",
    ),
    Precondition(
        "ZeroOne",
        _MINDIO,
        "the copies are those of ZeRO-1; parameters and gradients may not be sharded",
        _zero_one,
        _shown("data-parallel-sharding-strategy", "use-torch-fsdp2"),
        "ZeRO-1",
    ),
    _unset("use-custom-fsdp", "NoCustomFsdp", _SHRINK, "elastic training cannot rebuild FSDP's groups"),
    _unset("reuse-fp32-param", "NoReuseFp32Param", _SHRINK, "elastic training needs both parameter sets"),
    _unset("use-dist-ckpt", "NoDistributedCheckpoint", _MINDIO, "high availability refuses distributed checkpoints"),
    _unset("swap-attention", "NoSwapAttention", _MINDIO, "high availability refuses swapped attention"),
    _unset("swap-optimizer", "NoSwapOptimizer", _MINDIO, "high availability refuses a swapped optimizer"),
    _unset("disable-gloo-group", "GlooGroups", _MINDIO, "high availability needs Gloo groups"),
    _unset("lora-target-modules", "NoLora", _MINDIO, "high availability refuses LoRA"),
    Precondition(
        "LayoutAgrees",
        (*_MINDIO, Action.RESTART),
        "the trainer's sizes must be those of spec.parallelism",
        _agrees,
        _shown(
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
        _MINDIO,
        "the optimizer copies are made for bf16 training",
        lambda s: s.flags.has("bf16") if _pytorch(s) else True,
        _shown("bf16"),
        "with --bf16",
    ),
    Precondition(
        "SaveAndLoadSame",
        _RESUME,
        "a saved checkpoint is found again only where the trainer loads from",
        _same_directory,
        _shown("save", "load"),
        "--save and --load equal to checkpoint.path",
    ),
    Precondition(
        "CheckpointFormatTorch",
        _SAVE,
        "the last step is saved in the torch format",
        _format,
        _shown("ckpt-format", "use-dist-ckpt"),
        "--ckpt-format torch",
    ),
    Precondition(
        "OptimizerLoaded",
        _RESUME,
        "a training that does not load its optimizer does not resume",
        _absent("no-load-optim"),
        _shown("no-load-optim"),
        "without --no-load-optim",
    ),
    Precondition(
        "RandomStateLoaded",
        _RESUME,
        "a training that does not load its random state does not resume exactly",
        _absent("no-load-rng"),
        _shown("no-load-rng"),
        "without --no-load-rng",
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
        _MINDIO,
        "MindSpore offers high availability in graph mode only",
        _mindspore_unknown,
        lambda _s: "not visible in the template",
        "graph mode",
    ),
    Precondition(
        "MindSporeSinkSizeOne",
        _MINDIO,
        "MindSpore repairs steps only with a sink size of 1",
        _mindspore_unknown,
        lambda _s: "not visible in the template",
        "sink_size 1",
    ),
    Precondition(
        "MindSporeOptimizerCopies",
        _MINDIO,
        "MindSpore needs at least two optimizer copies: data parallel / optimizer_weight_shard_size of 2 or more",
        lambda s: True if _pytorch(s) else (None if _copied(s) else False),
        lambda s: f"optimizer.copies {s.spec.optimizer.copies}, the shard size is not visible",
        "at least 2",
    ),
)
