"""Node counts with which a job may be restarted when not all nodes are free (`elastic.restartSize: Available`).

A start makes every process anew, so MindIO's rules for a shrink do not apply: rank 0 and both holders of a shard
may be among the missing. A start needs what a training can begin with: whole data-parallel ranks, an even number of
them that the optimizer copies divide, a global batch that they can share equally, and a checkpoint that fewer ranks
than have saved it can load (docs/decisions/0038-a-smaller-start.md).
"""

from dataclasses import dataclass, replace
from typing import Final

from hajob.api.enums import RestartSize
from hajob.domain.errors import LayoutError
from hajob.plan.checks import JobSetting, is_batch_given, is_checkpoint_resizable
from hajob.plan.preconditions import PRECONDITIONS

_LEGAL: Final = frozenset(
    {
        "DataParallelAboveOne",
        "DataParallelEven",
        "CopiesDivideDataParallel",
        "ExpertDataParallelAboveOne",
        "CopiesDivideExpertDataParallel",
    }
)
"""Preconditions on the sizes at the start of a training with optimizer copies."""
_ASKED: Final = tuple(one for one in PRECONDITIONS if one.name in _LEGAL)


@dataclass(frozen=True, slots=True)
class StartSizes:
    """Possible start sizes of one job; `setting` describes it with all its nodes."""

    setting: JobSetting

    @classmethod
    def from_setting(cls, setting: JobSetting) -> "StartSizes | None":
        """Return the start sizes; None if the spec sets all nodes, or a smaller start could not load or trains less.

        The global batch size must be known: a start script shows it at its first launch at the latest.
        """
        asked = setting.spec.elastic.restart_size is RestartSize.AVAILABLE
        refused = is_checkpoint_resizable(setting) is False or not is_batch_given(setting)
        return cls(setting) if asked and not refused else None

    def largest_fitting(self, nodes: int | None) -> int:
        """Return the number of nodes to start with; 0: all, waiting for them if necessary.

        Args:
            nodes: number of nodes available to the job; None: unknown.
        """
        full = self.setting.layout.num_nodes
        if nodes is None or nodes >= full:
            return 0
        return next((count for count in range(nodes, 0, -1) if self._is_legal_size(count)), 0)

    @property
    def smallest(self) -> int:
        """Return the fewest nodes to start with; 0: only all."""
        return next((count for count in range(1, self.setting.layout.num_nodes) if self._is_legal_size(count)), 0)

    def _is_legal_size(self, nodes: int) -> bool:
        try:
            layout = replace(self.setting.layout, num_nodes=nodes)
        except LayoutError:
            return False
        smaller = replace(self.setting, layout=layout)
        least = self.setting.spec.elastic.min_data_parallel
        return layout.data >= least and self._shares_batch(layout.data) and all(one.met(smaller) for one in _ASKED)

    def _shares_batch(self, data: int) -> bool:
        """Whether this many data-parallel ranks can share the global batch equally, as far as it is visible."""
        whole, micro = (self.setting.flags.number_of_option(f"{name}-batch-size") for name in ("global", "micro"))
        return not whole or whole % ((micro or 1) * data) == 0
