"""Checks for preconditions, on the sizes in the spec and on the trainer's arguments that the template shows.

A check returns True, False, or None when the operator cannot see the answer: a start script may add flags, so an
unseen flag is never taken as absent. hajob.plan.preconditions lists what every action needs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hajob.api.derived import layout_of_spec as layout_from
from hajob.api.enums import Framework, RestartSize, ResumePolicy
from hajob.api.spec import HATrainingJobSpec
from hajob.domain.layout import CopyKind, Layout, RankOrder, Sharding
from hajob.domain.loss import Tolerance, tolerance_of_layout
from hajob.domain.text import counted_noun
from hajob.plan.flags import TrainerFlags, read_flags, read_launched_command


@dataclass(frozen=True, slots=True)
class JobSetting:
    """Input of a precondition: the spec and values derived from it."""

    spec: HATrainingJobSpec
    layout: Layout
    flags: TrainerFlags
    tolerance: Tolerance

    @classmethod
    def from_spec(cls, spec: HATrainingJobSpec, words: Sequence[str] = ()) -> "JobSetting":
        """Build the input from a spec and the launched command; raises `LayoutError` when the sizes do not divide."""
        layout = layout_from(spec)
        flags = read_launched_command(words) if words else read_flags(spec.template)
        flags = flags.with_variable("HAJOB_CHECKPOINT_DIR", spec.checkpoint.path)
        return cls(spec, layout, flags, tolerance_of_layout(layout))


def has_second_copy(setting: JobSetting) -> bool:
    """Return whether the spec sets a second optimizer copy."""
    return setting.spec.optimizer.copies > 1


def trains_on_pytorch(setting: JobSetting) -> bool:
    """Return whether the training framework is PyTorch."""
    return setting.spec.framework is Framework.PYTORCH


def copies_divide(setting: JobSetting, kind: CopyKind) -> bool:
    """Return whether every copy takes an equal part of the groups of this kind."""
    layout = setting.layout
    return layout.sharding is Sharding.NONE or layout.group_size(kind) % layout.copies == 0


def is_group_above_one(setting: JobSetting, kind: CopyKind) -> bool:
    """Return whether the group has a second rank to hold each shard; True when the spec sets one copy."""
    return not has_second_copy(setting) or setting.layout.group_size(kind) > 1


def is_flag_absent(flag: str) -> Callable[[JobSetting], bool | None]:
    """Return a check that PyTorch arguments lack the flag; always met on MindSpore, which has no such flags."""
    return lambda setting: setting.flags.lacks_switch(flag) if trains_on_pytorch(setting) else True


def shown_flags(*flags: str) -> Callable[[JobSetting], str]:
    """Return a function that describes what the arguments say about these flags."""

    def words(setting: JobSetting) -> str:
        if not setting.flags.visible:
            return "the trainer's arguments are hidden in a script"
        given = [f"--{flag} {setting.flags.values[flag]}".rstrip() for flag in flags if flag in setting.flags.values]
        return ", ".join(given) or "not given: " + ", ".join(f"--{flag}" for flag in flags)

    return words


def same_directory(setting: JobSetting) -> bool | None:
    """Return whether the trainer saves to and loads from the directory of the spec; None: not visible."""
    flags = setting.flags
    if not flags.visible or not trains_on_pytorch(setting):
        return None
    save, load = flags.text_of_option("save"), flags.text_of_option("load")
    if any("$" in value for value in (save, load) if value):
        return None
    path = setting.spec.checkpoint.path
    if any(value not in {None, path} for value in (save, load)):
        return False
    return _as_far_as_seen(flags, fits=save == load == path)


def are_arguments_mended(setting: JobSetting) -> bool:
    """Return whether the launcher makes a restart load what the job has saved."""
    return setting.spec.checkpoint.resume_policy is ResumePolicy.ARGUMENTS and trains_on_pytorch(setting)


def reloads_own_checkpoints(setting: JobSetting) -> bool | None:
    """Return whether a restart loads the job's own checkpoints; known at the latest once the training is launched."""
    flags = setting.flags
    if not trains_on_pytorch(setting):
        return True  # MindSpore resumes by its own configuration files
    if not flags.entry and not (flags.visible and flags.complete):
        return None
    save = flags.text_of_option("save")
    return bool(save) and (
        are_arguments_mended(setting) or (flags.text_of_option("load") == save and "finetune" not in flags.values)
    )


def unless_mended(met: Callable[[JobSetting], bool | None]) -> Callable[[JobSetting], bool | None]:
    """Return a check that is met when the launcher drops the flag on a restart, and is `met` otherwise."""
    return lambda setting: True if are_arguments_mended(setting) else met(setting)


def saves_periodically(setting: JobSetting) -> bool | None:
    """Return whether the trainer saves a checkpoint before its last iteration; None: not visible."""
    flags = setting.flags
    every, last = flags.number_of_option("save-interval"), flags.number_of_option("train-iters")
    if every is None or last is None or not trains_on_pytorch(setting):
        return True if flags.visible or not trains_on_pytorch(setting) else None
    return 0 < every < last


def is_not_entry(entry: str) -> Callable[[JobSetting], bool | None]:
    """Return a check that this entry did not start the training; arguments visible in the template count as proof."""

    def met(setting: JobSetting) -> bool | None:
        if entry in setting.flags.entry:
            return not trains_on_pytorch(setting)
        return True if setting.flags.visible or not trains_on_pytorch(setting) else None

    return met


def launched_entry(setting: JobSetting) -> str:
    """Return the launched script or module, in words."""
    return setting.flags.entry or "not launched yet"


def _as_far_as_seen(flags: TrainerFlags, *, fits: bool) -> bool | None:
    """Return `fits`; None when it is False but a script may hide the missing arguments."""
    return fits if fits or flags.complete else None


def do_sizes_agree(setting: JobSetting) -> bool | None:
    """Return whether the visible sizes match the spec; a missing option has its default."""
    if not setting.flags.visible or not trains_on_pytorch(setting):
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
    order = flags.has_switch("use-tp-pp-dp-mapping")
    if order not in {mapped, None} or any(
        flags.number_of_option(flag) not in {size, None} for flag, size in wanted.items()
    ):
        return False
    return _as_far_as_seen(
        flags, fits=all((flags.number_of_option(flag) or default.get(flag, 1)) == size for flag, size in wanted.items())
    )


def torch_format(setting: JobSetting) -> bool | None:
    """Return whether checkpoints are in the torch format; None: not visible."""
    if not setting.flags.visible or not trains_on_pytorch(setting):
        return None
    chosen = setting.flags.text_of_option("ckpt-format") or setting.flags.text_of_option("dist-ckpt-format")
    if chosen not in {"torch", None} or setting.flags.has_switch("use-dist-ckpt"):
        return False
    return _as_far_as_seen(setting.flags, fits=chosen == "torch")


def is_checkpoint_resizable(setting: JobSetting) -> bool | None:
    """Return whether fewer data-parallel ranks can load a checkpoint of more; True with restartSize Original.

    In the torch format one file holds the optimizer of a whole data-parallel group without padding between its parts,
    and loading redistributes it. The data that `--reuse-fp32-param` saves beside it is split by rank.
    """
    if setting.spec.elastic.restart_size is RestartSize.ORIGINAL:
        return True
    if not trains_on_pytorch(setting) or torch_format(setting) is False:
        return False
    return is_flag_absent("reuse-fp32-param")(setting)


def is_batch_given(setting: JobSetting) -> bool | None:
    """Return whether the global batch size is given; without it, the batch shrinks with the number of ranks.

    When the trainer's arguments are visible they must include it: a silently smaller batch changes the training.
    """
    if setting.spec.elastic.restart_size is RestartSize.ORIGINAL or setting.flags.has_switch("global-batch-size"):
        return True
    return False if setting.flags.visible else None


def is_optimizer_distributed(setting: JobSetting) -> bool | None:
    """Return whether the optimizer is distributed, in the spec and in the arguments; None: not visible."""
    if setting.layout.sharding is not Sharding.DISTRIBUTED:
        return False
    return setting.flags.has_switch("use-distributed-optimizer")


def is_zero_stage_one(setting: JobSetting) -> bool | None:
    """Return whether only the optimizer is sharded; None: not visible."""
    flags = setting.flags
    if not flags.visible:
        return None
    sharded = flags.text_of_option("data-parallel-sharding-strategy") in {None, "", "no_shard", "optim"}
    if not sharded or "use-torch-fsdp2" in flags.values:
        return False
    return True if flags.complete else None


def replica_flag_agrees(setting: JobSetting) -> bool | None:
    """Return whether `--distributed-optimizer-no-replica` and `optimizer.copies` agree; None: not visible."""
    given = setting.flags.has_switch("distributed-optimizer-no-replica")
    return None if given is None else given == (not has_second_copy(setting))


def sizes_in_words(setting: JobSetting) -> str:
    """Return the sizes that determine the optimizer copies, in words."""
    layout = setting.layout
    return f"data {layout.data} x context {layout.context}, copies {setting.spec.optimizer.copies}"


def expert_sizes(setting: JobSetting) -> str:
    """Return the sizes that determine the experts' copies, in words."""
    layout = setting.layout
    return (
        f"{counted_noun(layout.world_size, 'rank')}, expert tensor {layout.expert_tensor}, expert {layout.expert}, "
        f"pipeline {layout.pipeline}, copies {setting.spec.optimizer.copies}"
    )


def left_after_a_node(setting: JobSetting) -> int:
    """Return the number of data-parallel ranks left after the loss of one node."""
    return setting.layout.data - setting.tolerance.lost_per_node


def unknown_on_mindspore(setting: JobSetting) -> bool | None:
    """Return None on MindSpore, whose settings the template does not show; True on PyTorch."""
    return True if trains_on_pytorch(setting) else None
