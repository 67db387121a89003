"""What the second optimizer copy and elastic training cost in device memory, told beforehand.

Bytes per parameter of a chip, d being data x context: with fp16/bf16 gradients 4 + 16/d with one copy and 4 + 32/d
with two; with fp32 gradients 6 + 12/d and 6 + 24/d; without a distributed optimizer 20 and 18 (docs/layout.md).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hajob.domain.errors import HajobInputError
from hajob.domain.layout import Layout, Sharding


class GradientType(StrEnum):
    """Precision in which gradients are kept beside bf16 parameters."""

    BF16 = "Bf16"
    FP32 = "Fp32"


_FIXED: Final = {GradientType.BF16: 4, GradientType.FP32: 6}
_SHARDED: Final = {GradientType.BF16: 16, GradientType.FP32: 12}
DEFAULT_BUFFER_BYTES: Final = 200_000_000
"""HCCL_BUFFSIZE, 200 MB unless set."""
_ELASTIC_BUFFERS: Final = 2 * 9


@dataclass(frozen=True, slots=True)
class MemoryCost:
    """Bytes per chip.

    Attributes:
        plain: parameters, gradients and optimizer with one copy.
        copied: the same with the job's copies.
        elastic: at most so much more for the new groups of a shrink.
        world_size: chips of the job.
    """

    plain: int
    copied: int
    elastic: int
    world_size: int

    @property
    def extra(self) -> int:
        """What the copies cost on each chip."""
        return self.copied - self.plain

    @property
    def extra_total(self) -> int:
        """What the copies cost in the whole job."""
        return self.extra * self.world_size


def memory(
    layout: Layout,
    parameters: int,
    gradients: GradientType = GradientType.BF16,
    buffer_bytes: int = DEFAULT_BUFFER_BYTES,
) -> MemoryCost:
    """Bytes per chip of a dense model spread evenly over tensor x pipeline; rounded up.

    Raises:
        HajobInputError: the number of parameters is not positive.
    """
    if parameters < 1:
        raise HajobInputError(f"a model of {parameters} parameters; it must be at least 1")
    split = layout.tensor * layout.pipeline
    if layout.sharding is Sharding.NONE:
        whole = -(-parameters * (_FIXED[gradients] + _SHARDED[gradients]) // split)
        return MemoryCost(whole, whole, _ELASTIC_BUFFERS * buffer_bytes, layout.world_size)
    group = layout.dense_group_size
    one = _bytes(parameters, split, group, gradients, 1)
    all_copies = _bytes(parameters, split, group, gradients, layout.copies)
    return MemoryCost(one, all_copies, _ELASTIC_BUFFERS * buffer_bytes, layout.world_size)


def _bytes(parameters: int, split: int, group: int, gradients: GradientType, copies: int) -> int:
    """ceil(parameters / split x (fixed + copies x sharded / group)), in integers."""
    return -(-parameters * (_FIXED[gradients] * group + copies * _SHARDED[gradients]) // (split * group))
