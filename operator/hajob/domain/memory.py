"""Device memory that the second optimizer copy and elastic training cost, known beforehand.

Bytes per parameter of a chip with fp16 or bf16 gradients, d being data x context: 4 + 16/d with one copy and 4 + 32/d
with two; without a distributed optimizer 20 (docs/user/layout.md, with fp32 gradients as well).
"""

from dataclasses import dataclass
from typing import Final

from hajob.domain.errors import HajobInputError
from hajob.domain.layout import Layout, Sharding

_FIXED: Final = 4
_SHARDED: Final = 16
"""Bytes of a parameter on each chip, and spread over the group, with gradients in fp16 or bf16."""
BUFFER_BYTES: Final = 200_000_000
"""HCCL_BUFFSIZE, unless set."""
ELASTIC_BYTES: Final = 2 * 9 * BUFFER_BYTES


@dataclass(frozen=True, slots=True)
class MemoryCost:
    """Bytes per chip.

    Attributes:
        plain: parameters, gradients and optimizer with one copy.
        copied: the same with the job's copies.
        elastic: upper bound of what the new groups of a shrink need in addition.
        world_size: chips of the job.
    """

    plain: int
    copied: int
    elastic: int
    world_size: int

    @property
    def extra_bytes(self) -> int:
        """Bytes that the copies cost on each chip."""
        return self.copied - self.plain

    @property
    def extra_bytes_total(self) -> int:
        """Bytes that the copies cost in the whole job."""
        return self.extra_bytes * self.world_size


def memory_of_layout(layout: Layout, parameters: int) -> MemoryCost:
    """Return the bytes per chip of a dense model spread evenly over tensor x pipeline; rounded up.

    Raises:
        HajobInputError: the number of parameters is not positive.
    """
    if parameters < 1:
        raise HajobInputError(f"a model of {parameters} parameters; it must be at least 1")
    split = layout.tensor * layout.pipeline
    if layout.sharding is Sharding.NONE:
        whole = -(-parameters * (_FIXED + _SHARDED) // split)
        return MemoryCost(whole, whole, ELASTIC_BYTES, layout.world_size)
    group = layout.dense_group_size
    one = _bytes_per_chip(parameters, split, group, 1)
    all_copies = _bytes_per_chip(parameters, split, group, layout.copies)
    return MemoryCost(one, all_copies, ELASTIC_BYTES, layout.world_size)


def _bytes_per_chip(parameters: int, split: int, group: int, copies: int) -> int:
    """Return ceil(parameters / split x (fixed + copies x sharded / group)), in integers."""
    return -(-parameters * (_FIXED * group + copies * _SHARDED) // (split * group))
