"""Faults of nodes and chips, outside any job: levels, and the effect of each level on a job.

Every source of hardware faults (device plugin, NodeD, switches, public faults, nodes) has its own format; its
parser returns a `ClusterFact`. A fact about a chip becomes a fact of a job only where one of the job's ranks sits
on that chip (docs/admin/faults.md).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hajob.domain.facts import FactKind, Source


class Level(StrEnum):
    """How bad a fault is, in MindCluster's words, mildest first."""

    NOT_HANDLE = "NotHandleFault"
    SUB_HEALTH = "SubHealthFault"
    RESTART_REQUEST = "RestartRequest"
    RESTART_BUSINESS = "RestartBusiness"
    FREE_RESTART = "FreeRestartNPU"
    RESTART_CHIP = "RestartNPU"
    PRE_SEPARATE = "PreSeparateNPU"
    SEPARATE = "SeparateNPU"
    MANUALLY_SEPARATE = "ManuallySeparateNPU"


SEVERITY: Final = {level: place for place, level in enumerate(Level)}
"""Index of each level; 0 is the mildest."""

_KIND: Final = {
    Level.NOT_HANDLE: FactKind.CHIP_ERROR,
    Level.SUB_HEALTH: FactKind.SUB_HEALTH,
    Level.RESTART_REQUEST: FactKind.CHIP_ERROR,
    Level.RESTART_BUSINESS: FactKind.CHIP_ERROR,
    Level.FREE_RESTART: FactKind.CHIP_FAULT,
    Level.RESTART_CHIP: FactKind.CHIP_FAULT,
    Level.PRE_SEPARATE: FactKind.CHIP_FAULT,
    Level.SEPARATE: FactKind.CHIP_FAULT,
    Level.MANUALLY_SEPARATE: FactKind.CHIP_FAULT,
}
_HARMLESS: Final = frozenset({Level.NOT_HANDLE, Level.PRE_SEPARATE})

KEEPS_OUT: Final = frozenset(
    {Level.FREE_RESTART, Level.RESTART_CHIP, Level.PRE_SEPARATE, Level.SEPARATE, Level.MANUALLY_SEPARATE}
)
"""Levels during which no pod is placed on the chip."""


_TELL_OF_CHIPS: Final = frozenset({Source.DEVICE, Source.PUBLIC})
"""Sources whose devices are chips; what NodeD calls one is a part of the node."""


@dataclass(frozen=True, slots=True)
class ClusterFact:
    """One observation about a node or one of its chips.

    Attributes:
        id: the same for one fault, whichever source reports it and however often.
        source: the source that reported it.
        kind: kind of the fact for an affected job.
        node: name of the Kubernetes node.
        device: chip or device on the node, such as "Ascend910-3"; empty: the whole node.
        code: of the fault, in the source's own words; empty where there is none.
        level: how bad it is; None where the source has no levels (nodes).
        since_ms: when it began, milliseconds since 1970; None when missing or impossible.
        harms: whether a job on the chip or node has to react.
        message: a sentence.
        frequent: it recurred so often that its level was raised.
        happens_once: it is over by itself; no source reports its end.
        told_ms: when its writer last said so, by the writer's clock; None where it does not tell.
        repeated: ClusterD's copy of a public fault; the fault's own message counts where there is one.
    """

    id: str
    source: Source
    kind: FactKind
    node: str
    device: str = ""
    code: str = ""
    level: Level | None = None
    since_ms: int | None = None
    harms: bool = True
    message: str = ""
    frequent: bool = False
    happens_once: bool = False
    repeated: bool = False
    told_ms: int | None = None

    @property
    def isolates(self) -> bool:
        """Whether no new pod is placed on the chip, or the node."""
        return self.level in KEEPS_OUT

    @property
    def chip_number(self) -> str:
        """Number of the chip on its node; empty: the whole node, or a part of it that is no chip."""
        return self.device.rpartition("-")[2] if self.source in _TELL_OF_CHIPS else ""


def kind_of_level(level: Level) -> FactKind:
    """Return the kind of a fault of this level for an affected job."""
    return _KIND[level]


def harms_job(level: Level, *, unhealthy: bool = False) -> bool:
    """Return whether a running job has to react.

    Args:
        level: of the fault.
        unhealthy: the chip is listed as unhealthy, which makes `FreeRestartNPU` count.
    """
    return unhealthy if level is Level.FREE_RESTART else level not in _HARMLESS


def worst_level(levels: list[Level]) -> Level:
    """Return the most severe of some levels; at least one."""
    return max(levels, key=SEVERITY.__getitem__)
