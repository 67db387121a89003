"""With how many nodes a job may be started anew where not all of them can be had (`elastic.restartSize: Available`).

A start makes every process anew, so nothing of MindIO's rules for a shrink binds it: rank 0 and both holders of a shard
may be among the missing. What binds it is what a training can begin with: whole data-parallel ranks, an even number of
them that the optimizer copies divide, a global batch that they can share equally, and a checkpoint that fewer ranks
than have saved it can load (docs/decisions/0038-a-smaller-start.md).
"""

from dataclasses import dataclass, replace
from typing import Final

from hajob.api.enums import RestartSize
from hajob.domain.errors import LayoutError
from hajob.plan.checks import JobSetting, batch_given, resizable
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
"""What a training with optimizer copies asks of its sizes when it begins."""
_ASKED: Final = tuple(one for one in PRECONDITIONS if one.name in _LEGAL)


@dataclass(frozen=True, slots=True)
class StartSizes:
    """The sizes of one job; `setting`: of all its nodes."""

    setting: JobSetting

    @classmethod
    def of(cls, setting: JobSetting) -> "StartSizes | None":
        """None where every start takes all nodes: so the spec says, or a smaller one could not load or trains less.

        The global batch must have been seen: a start script shows it at its first launch at the latest.
        """
        asked = setting.spec.elastic.restart_size is RestartSize.AVAILABLE
        refused = resizable(setting) is False or not batch_given(setting)
        return cls(setting) if asked and not refused else None

    def fitting(self, nodes: int | None) -> int:
        """With how many nodes to start where there are so many for the job; 0: with all, if it has to wait for them.

        Args:
            nodes: that the job could have; None: nobody knows.
        """
        full = self.setting.layout.num_nodes
        if nodes is None or nodes >= full:
            return 0
        return next((count for count in range(nodes, 0, -1) if self._is_legal(count)), 0)

    def _is_legal(self, nodes: int) -> bool:
        try:
            layout = replace(self.setting.layout, num_nodes=nodes)
        except LayoutError:
            return False
        smaller = replace(self.setting, layout=layout)
        least = self.setting.spec.elastic.min_data_parallel
        return layout.data >= least and self._shares(layout.data) and all(one.met(smaller) for one in _ASKED)

    def _shares(self, data: int) -> bool:
        """Whether so many data-parallel ranks can share the global batch equally, as far as it can be seen."""
        whole, micro = (self.setting.flags.number(f"{name}-batch-size") for name in ("global", "micro"))
        return not whole or whole % ((micro or 1) * data) == 0
