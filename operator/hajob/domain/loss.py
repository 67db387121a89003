"""Closure of a loss: from lost ranks to pods, data-parallel ranks and back, until nothing changes.

MindIO drops whole data-parallel ranks and computes them once; pods are ended whole. Where a pod also hosts a healthy
data-parallel rank the two disagree and the training would hang, so the closure is computed here to a fixed point and
MindIO's single pass is kept beside it (docs/user/layout.md, "What a loss takes along"). The cost of every function
grows with the fault, never with the world.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from hajob.domain.incidents import RestoredFrom
from hajob.domain.layout import CopyKind, Layout, RankOrder


@dataclass(frozen=True, slots=True)
class Isolation:
    """Ranks and pods that a shrink would drop.

    Attributes:
        dropped: data-parallel ranks that leave, ascending.
        ranks: the ranks of them (isolated ranks), ascending.
        nodes: node ranks of the pods that leave, ascending.
        mindio_ranks: ranks that MindIO itself would drop, given every rank of the lost pods (one pass).
    """

    dropped: tuple[int, ...]
    ranks: tuple[int, ...]
    nodes: tuple[int, ...]
    mindio_ranks: tuple[int, ...]

    @property
    def agrees_with_mindio(self) -> bool:
        """Whether MindIO would drop exactly these ranks."""
        return self.ranks == self.mindio_ranks

    @property
    def holds_rank_zero(self) -> bool:
        """Whether rank 0 would leave, which MindIO refuses."""
        return bool(self.ranks) and self.ranks[0] == 0


def isolate_loss(layout: Layout, lost: Iterable[int]) -> Isolation:
    """Compute what a shrink after this loss would drop.

    Raises:
        RankError: a lost rank is outside the world.
    """
    nodes = set(layout.nodes_of_ranks(lost))
    if not nodes:
        return Isolation((), (), (), ())
    first_pass: tuple[int, ...] | None = None
    seen: set[int] = set()
    dropped: set[int] = set()
    ranks: set[int] = set()
    # Each turn adds whole data-parallel ranks and whole pods, so it ends at the latest when everything is lost.
    while nodes - seen:
        fresh = [rank for node in nodes - seen for rank in layout.ranks_of_node(node)]
        seen = nodes
        _drop_data_ranks(layout, fresh, dropped, ranks)
        if first_pass is None:
            first_pass = tuple(sorted(ranks))
        nodes = {rank // layout.chips_per_node for rank in ranks}
    return Isolation(tuple(sorted(dropped)), tuple(sorted(ranks)), tuple(sorted(nodes)), first_pass or ())


def _drop_data_ranks(layout: Layout, lost: Sequence[int], dropped: set[int], ranks: set[int]) -> None:
    """Add the data-parallel ranks hit by `lost` and their ranks; experts' groups hit others at equal positions."""
    for data_rank in {layout.data_rank(rank) for rank in lost} - dropped:
        dropped.add(data_rank)
        ranks.update(layout.ranks_of_data(data_rank))
    if layout.expert == 1:
        return
    width = layout.tensor * layout.context
    for place in {layout.position_in_group(rank, CopyKind.EXPERT)[1] for rank in lost}:
        for run in layout.ranks_at_expert_position(place):
            # one rank of each block of `width` that the run touches suffices to find its data-parallel rank
            for data_rank in {layout.data_rank(rank) for rank in (*run[::width], run[-1])} - dropped:
                dropped.add(data_rank)
                ranks.update(layout.ranks_of_data(data_rank))


def copy_survives(layout: Layout, lost: Iterable[int]) -> bool:
    """Return whether the surviving ranks together hold every shard."""
    lost_set = frozenset(lost)
    for kind, size, copies in layout.copy_sizes:
        if copies == 1 and lost_set:
            return False
        if len(lost_set) >= copies and _takes_a_shard(layout, lost_set, kind, size, copies):
            return False
    return True


def _takes_a_shard(layout: Layout, lost: AbstractSet[int], kind: CopyKind, size: int, copies: int) -> bool:
    """Whether some shard of this kind has lost every holder."""
    if size % copies:
        return any(all(holder in lost for holder in layout.holders_of_shard(rank, kind)) for rank in lost)
    positions = (layout.position_in_group(rank, kind) for rank in lost)
    lost_copies = Counter((key, place % (size // copies)) for key, place in positions)  # of each shard
    return max(lost_copies.values()) == copies


@dataclass(frozen=True, slots=True)
class Repair:
    """One shard of one lost rank, and the rank that provides it."""

    rank: int
    kind: CopyKind
    restored_from: RestoredFrom
    giver: int | None


def plan_repairs(layout: Layout, lost: Iterable[int]) -> tuple[Repair, ...]:
    """Return which rank repairs which, for every lost rank and kind of shard.

    As soon as one shard has no live holder MindIO repairs *every* rank from the periodic checkpoint, so that all
    have the same step.
    """
    lost_set = frozenset(lost)
    complete = copy_survives(layout, lost_set)
    plan: list[Repair] = []
    for rank in sorted(lost_set):
        for kind in layout.copy_kinds:
            giver = next((holder for holder in layout.holders_of_shard(rank, kind) if holder not in lost_set), None)
            if complete and giver is not None:
                plan.append(Repair(rank, kind, RestoredFrom.OPTIMIZER_COPY, giver))
            else:
                plan.append(Repair(rank, kind, RestoredFrom.PERIODIC_CHECKPOINT, None))
    return tuple(plan)


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Effect of the loss of any single node, known from the layout before any fault.

    Attributes:
        aligned: every pod is a block of consecutive data-parallel ranks of one stage.
        keeps_copy: no pod holds both holders of a shard.
        lost_per_node: data-parallel ranks that the loss of one node drops.
    """

    aligned: bool
    keeps_copy: bool
    lost_per_node: int


def tolerance_of_layout(layout: Layout) -> Tolerance:
    """Evaluate the layout by the loss of one node; costs two closures, not one for each node.

    No pod holds both holders of a shard unless node 0 does: rank 0 and its partner stand as near as any two.
    """
    aligned = _is_aligned(layout)
    sample = isolate_loss(layout, [layout.world_size - 1])
    return Tolerance(
        aligned=aligned,
        keeps_copy=copy_survives(layout, layout.ranks_of_node(0)),
        lost_per_node=len(sample.dropped),
    )


def _is_aligned(layout: Layout) -> bool:
    """Whether pods and data-parallel ranks are cut at the same places, in either rank order."""
    chips, width = layout.chips_per_node, layout.tensor * layout.context
    if layout.rank_order is RankOrder.TENSOR_PIPELINE_DATA:
        width *= layout.pipeline
        return chips % width == 0 or width % chips == 0
    return (chips % width == 0 or width % chips == 0) and (width * layout.data) % chips == 0
