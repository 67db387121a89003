"""Distribution of the global batch while data-parallel ranks are missing.

The global batch size is kept, so the loss curve is, too: the others take over the micro batches of the missing
ranks, the first ones taking one more (docs/user/layout.md, "Micro batches while shrunk").
"""

from dataclasses import dataclass
from fractions import Fraction

from hajob.domain.errors import HajobInputError


@dataclass(frozen=True, slots=True)
class Batch:
    """Sizes of one step.

    Attributes:
        micro_batches: micro batches of a whole step, over all data-parallel ranks.
        desired: data-parallel ranks at full size.
    """

    micro_batches: int
    desired: int

    @classmethod
    def from_sizes(cls, global_batch: int, micro_batch: int, desired: int) -> "Batch":
        """Build the batch from Megatron's sizes, in samples.

        Raises:
            HajobInputError: the global batch is not a multiple of micro batch x data-parallel ranks.
        """
        if global_batch < 1 or micro_batch < 1 or desired < 1:
            raise HajobInputError(
                f"global batch {global_batch}, micro batch {micro_batch} and {desired} ranks: below 1"
            )
        if global_batch % (micro_batch * desired):
            raise HajobInputError(
                f"global batch {global_batch} is not a multiple of micro batch {micro_batch} x data parallel {desired}"
            )
        return cls(global_batch // micro_batch, desired)

    def micro_batches_per_rank(self, current: int) -> tuple[int, ...]:
        """Return the micro batches of each remaining data-parallel rank, in the new order; they add up to the whole."""
        if not 1 <= current <= self.desired:
            raise HajobInputError(f"{current} data-parallel ranks of {self.desired}: not between 1 and {self.desired}")
        each, more = divmod(self.micro_batches, current)
        return (each + 1,) * more + (each,) * (current - more)

    def relative_step_time(self, current: int) -> Fraction:
        """Return the expected step time as a multiple of the full size's: the longest share decides."""
        return Fraction(max(self.micro_batches_per_rank(current)) * self.desired, self.micro_batches)
