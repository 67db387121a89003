"""What a start refuses, in the words of Megatron core 0.12.1 and MindSpeed-LLM's high availability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import argparse

EXCLUDED: Final = ("use_dist_ckpt", "swap_attention", "swap_optimizer", "disable_gloo_group", "lora_target_modules")
"""Options that high availability does not go with."""


class RefusedStartError(Exception):
    """Sizes or options that cannot be; the rank ends with 1."""


def check_options(options: argparse.Namespace) -> None:
    """Where high availability is on. Raises RefusedStartError, which names no option, as the real one."""
    if any(getattr(options, name) for name in EXCLUDED):
        raise RefusedStartError("AssertionError: switch of the high availability feature is unsupported")


@dataclass(frozen=True)
class Sizes:
    """Sizes of parallelism; `expert_tensor` 0: as `tensor`."""

    tensor: int
    pipeline: int
    context: int = 1
    expert: int = 1
    expert_tensor: int = 0

    @property
    def model(self) -> int:
        """Ranks that hold one copy of the dense model."""
        return self.tensor * self.pipeline * self.context

    @property
    def experts(self) -> int:
        """Ranks that hold one copy of the experts."""
        return (self.expert_tensor or self.tensor) * self.expert * self.pipeline


def checked_data_parallel(sizes: Sizes, world: int, *, replicas: bool) -> int:
    """The data-parallel size.

    With `replicas` the groups whose optimizer is kept twice must be even: the dense one, and the expert one even where
    there are no experts.

    Raises:
        RefusedStartError: They do not fit.
    """
    if world % sizes.model:
        raise RefusedStartError(f"world size ({world}) is not divisible by total_model_size ({sizes.model})")
    if world % sizes.experts:
        raise RefusedStartError(
            f"RuntimeError: decoder world_size ({world}) is not divisible by "
            f"expert_tensor_model_pipeline_parallel size ({sizes.experts})"
        )
    data = world // sizes.model
    dense, expert = data * sizes.context, world // sizes.experts
    if replicas and dense % 2:
        raise RefusedStartError(f"ValueError: High availability do not support the size of dp_cp_ranks {dense}")
    if replicas and expert % 2:
        raise RefusedStartError(f"ValueError: High availability do not support the size of dp_ep_ranks {expert}")
    if sizes.context > 1 or sizes.expert > 1:
        raise RefusedStartError("the toy trainer has neither experts nor a long context: it computes dense layers only")
    return data
