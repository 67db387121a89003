"""What a precondition asks: of the sizes in the spec, and of the trainer's arguments as far as the template shows them.

A check answers True, False, or None where it cannot be known from outside; what may be hidden in a start script is
never taken for absent. The list of what every action needs is hajob.plan.preconditions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hajob.api.derived import layout as layout_from
from hajob.api.enums import Framework, RestartSize, ResumePolicy
from hajob.api.spec import HATrainingJobSpec
from hajob.domain.layout import CopyKind, Layout, RankOrder, Sharding
from hajob.domain.loss import Tolerance, tolerance
from hajob.plan.flags import TrainerFlags, launched, read_flags


@dataclass(frozen=True, slots=True)
class JobSetting:
    """What a precondition may look at."""

    spec: HATrainingJobSpec
    layout: Layout
    flags: TrainerFlags
    tolerance: Tolerance

    @classmethod
    def of(cls, spec: HATrainingJobSpec, words: Sequence[str] = ()) -> "JobSetting":
        """Gather it from a spec and what its script has launched; raises `LayoutError` when the sizes do not divide."""
        layout = layout_from(spec)
        return cls(spec, layout, launched(words) if words else read_flags(spec.template), tolerance(layout))


def copied(setting: JobSetting) -> bool:
    """Whether the job asks for a second optimizer copy at all."""
    return setting.spec.optimizer.copies > 1


def on_pytorch(setting: JobSetting) -> bool:
    """Whether the training framework is PyTorch."""
    return setting.spec.framework is Framework.PYTORCH


def copies_divide(setting: JobSetting, kind: CopyKind) -> bool:
    """Whether every copy takes an equal part of the groups of this kind."""
    layout = setting.layout
    return layout.sharding is Sharding.NONE or layout.group_size(kind) % layout.copies == 0


def above_one(setting: JobSetting, kind: CopyKind) -> bool:
    """Whether there is a second rank that could hold a shard, where one is asked for."""
    return not copied(setting) or setting.layout.group_size(kind) > 1


def absent(flag: str) -> Callable[[JobSetting], bool | None]:
    """The flag must not be given to the PyTorch stack; MindSpore has none of them."""
    return lambda setting: setting.flags.lacks(flag) if on_pytorch(setting) else True


def shown(*flags: str) -> Callable[[JobSetting], str]:
    """What the arguments say about these flags."""

    def words(setting: JobSetting) -> str:
        if not setting.flags.visible:
            return "the trainer's arguments are hidden in a script"
        given = [f"--{flag} {setting.flags.values[flag]}".rstrip() for flag in flags if flag in setting.flags.values]
        return ", ".join(given) or "not given: " + ", ".join(f"--{flag}" for flag in flags)

    return words


def same_directory(setting: JobSetting) -> bool | None:
    """Whether the trainer saves to and loads from the directory of the spec."""
    flags = setting.flags
    if not flags.visible or not on_pytorch(setting):
        return None
    save, load = flags.text("save"), flags.text("load")
    if any("$" in value for value in (save, load) if value):
        return None
    path = setting.spec.checkpoint.path
    if any(value not in {None, path} for value in (save, load)):
        return False
    return _as_far_as_seen(flags, fits=save == load == path)


def is_mended(setting: JobSetting) -> bool:
    """Whether the launcher makes a restart load what the job has saved."""
    return setting.spec.checkpoint.resume_policy is ResumePolicy.ARGUMENTS and on_pytorch(setting)


def reloaded(setting: JobSetting) -> bool | None:
    """Whether a restart goes on from what the job has saved; known at the latest when the training is launched."""
    flags = setting.flags
    if not on_pytorch(setting):
        return True  # by its own files of settings
    if not flags.entry and not (flags.visible and flags.complete):
        return None
    save = flags.text("save")
    return bool(save) and (is_mended(setting) or (flags.text("load") == save and "finetune" not in flags.values))


def unless_mended(met: Callable[[JobSetting], bool | None]) -> Callable[[JobSetting], bool | None]:
    """A flag that the launcher leaves out on a restart hinders nothing."""
    return lambda setting: True if is_mended(setting) else met(setting)


def saves_periodically(setting: JobSetting) -> bool | None:
    """Whether a checkpoint is saved before the end."""
    flags = setting.flags
    every, last = flags.number("save-interval"), flags.number("train-iters")
    if every is None or last is None or not on_pytorch(setting):
        return True if flags.visible or not on_pytorch(setting) else None
    return 0 < every < last


def not_by(entry: str) -> Callable[[JobSetting], bool | None]:
    """The training is not started by an entry of this name; a template that shows the arguments is believed."""

    def met(setting: JobSetting) -> bool | None:
        if entry in setting.flags.entry:
            return not on_pytorch(setting)
        return True if setting.flags.visible or not on_pytorch(setting) else None

    return met


def entry(setting: JobSetting) -> str:
    """What was launched, in words."""
    return setting.flags.entry or "not launched yet"


def _as_far_as_seen(flags: TrainerFlags, *, fits: bool) -> bool | None:
    """A verdict on what is absent counts only where nothing can be hidden in a script."""
    return fits if fits or flags.complete else None


def sizes_agree(setting: JobSetting) -> bool | None:
    """Whether the visible sizes are those of the spec; an option that is not given has its default."""
    if not setting.flags.visible or not on_pytorch(setting):
        return None
    sizes = setting.layout
    wanted = {
        "tensor-model-parallel-size": sizes.tensor,
        "pipeline-model-parallel-size": sizes.pipeline,
        "context-parallel-size": sizes.context,
        "expert-model-parallel-size": sizes.expert,
        "expert-tensor-parallel-size": sizes.expert_tensor,
    }
    default = {"expert-tensor-parallel-size": sizes.tensor}
    flags, mapped = setting.flags, sizes.rank_order is RankOrder.TENSOR_PIPELINE_DATA
    if any("$" in value for flag, value in flags.values.items() if flag in wanted):
        return None
    order = flags.has("use-tp-pp-dp-mapping")
    if order not in {mapped, None} or any(flags.number(flag) not in {size, None} for flag, size in wanted.items()):
        return False
    return _as_far_as_seen(
        flags, fits=all((flags.number(flag) or default.get(flag, 1)) == size for flag, size in wanted.items())
    )


def torch_format(setting: JobSetting) -> bool | None:
    """Whether checkpoints are in the torch format."""
    if not setting.flags.visible or not on_pytorch(setting):
        return None
    chosen = setting.flags.text("ckpt-format") or setting.flags.text("dist-ckpt-format")
    if chosen not in {"torch", None} or setting.flags.has("use-dist-ckpt"):
        return False
    return _as_far_as_seen(setting.flags, fits=chosen == "torch")


def resizable(setting: JobSetting) -> bool | None:
    """Whether fewer data-parallel ranks than have saved a checkpoint can load it; asked only where they would have to.

    In the torch format one file holds the optimizer of a whole data-parallel group without the padding between its
    parts, and is spread anew when it is loaded. What `--reuse-fp32-param` saves beside it is cut by rank.
    """
    if setting.spec.elastic.restart_size is RestartSize.ORIGINAL:
        return True
    if not on_pytorch(setting) or torch_format(setting) is False:
        return False
    return absent("reuse-fp32-param")(setting)


def batch_given(setting: JobSetting) -> bool | None:
    """Whether the global batch is given, so that fewer ranks train the same; left out, it follows their number.

    Where the trainer's arguments are seen it must be among them: a batch that shrinks in silence trains something else.
    """
    if setting.spec.elastic.restart_size is RestartSize.ORIGINAL or setting.flags.has("global-batch-size"):
        return True
    return False if setting.flags.visible else None


def distributed(setting: JobSetting) -> bool | None:
    """Whether the optimizer is distributed, in the spec and in the arguments."""
    if setting.layout.sharding is not Sharding.DISTRIBUTED:
        return False
    return setting.flags.has("use-distributed-optimizer")


def zero_one(setting: JobSetting) -> bool | None:
    """Whether only the optimizer is sharded."""
    flags = setting.flags
    if not flags.visible:
        return None
    sharded = flags.text("data-parallel-sharding-strategy") in {None, "", "no_shard", "optim"}
    if not sharded or "use-torch-fsdp2" in flags.values:
        return False
    return True if flags.complete else None


def replica_flag_agrees(setting: JobSetting) -> bool | None:
    """`--distributed-optimizer-no-replica` and `optimizer.copies` must say the same."""
    given = setting.flags.has("distributed-optimizer-no-replica")
    return None if given is None else given == (not copied(setting))


def sizes(setting: JobSetting) -> str:
    """The sizes that the copies depend on, in words."""
    layout = setting.layout
    return f"data {layout.data} x context {layout.context}, copies {setting.spec.optimizer.copies}"


def expert_sizes(setting: JobSetting) -> str:
    """The sizes that the experts' copies depend on, in words."""
    layout = setting.layout
    return (
        f"{layout.world_size} ranks, expert tensor {layout.expert_tensor}, expert {layout.expert}, pipeline "
        f"{layout.pipeline}, copies {setting.spec.optimizer.copies}"
    )


def left_after_a_node(setting: JobSetting) -> int:
    """Data-parallel ranks that are left after the loss of one node."""
    return setting.layout.data - setting.tolerance.lost_per_node


def unknown_on_mindspore(setting: JobSetting) -> bool | None:
    """What MindSpore needs cannot be seen in the template."""
    return True if on_pytorch(setting) else None
