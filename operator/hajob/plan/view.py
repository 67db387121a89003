"""What the planner may look at besides the job's own state: plain values, gathered by the shell just before.

Nothing here is remembered; two looks a second apart may differ. Values that the shell does not know are None, and
what is unknown neither refuses nor promises anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hajob.domain.layout import Layout


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster and the training as they are now.

    Attributes:
        layout: sizes of the attempt.
        step: newest finished step of this attempt, -1 before the first.
        coordinator_ready: the MindIO controller serves.
        taking_over: it does not, and another one is about to take its place: what is ordered is done then.
        coordinator_silent: nobody hears it now: it is not dialled yet, away, or this operator is cut off from it.
        relieved_heard: it is still the coordinator that another one shall relieve who is heard.
        coordinator_apart: the coordinator shares no node with a rank of its job.
        free_nodes: nodes that could take a rank pod of this job now.
        growth_refused: why a ResourceQuota does not let the pods of a growth be made, in words; empty: it does.
        start_nodes: nodes that a start of the whole job could have, its own pods' included; None: not looked up.
        spares: names of the nodes that are held ready, the first to be taken first.
        unplaced: rank pods that should exist and for which the scheduler finds no node.
        checkpoint_step: step of the newest complete periodic checkpoint, None when unknown, -1 when there is none.
        node_names: node rank to the name of the node its pod runs on.
        nodes_to_avoid: names of nodes where no start of the whole job should go.
        start_sign_ms: job time at which a start was last seen to go on, None when nothing is known.
        step_ms: how long a step takes at the present size, in milliseconds; None when unknown.
        copies_told: False when ranks train that have not told MindIO of their optimizer's copies.
    """

    layout: Layout
    step: int = -1
    coordinator_ready: bool = True
    taking_over: bool = False
    coordinator_silent: bool = False
    relieved_heard: bool = False
    coordinator_apart: bool | None = None
    free_nodes: int | None = None
    growth_refused: str = ""
    start_nodes: int | None = None
    spares: tuple[str, ...] = ()
    unplaced: int = 0
    checkpoint_step: int | None = None
    node_names: Mapping[int, str] = field(default_factory=dict)
    nodes_to_avoid: tuple[str, ...] = ()
    copies_told: bool | None = None
    start_sign_ms: int | None = None
    step_ms: int | None = None
