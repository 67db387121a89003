"""The planner's view of cluster and training: plain values that the shell gathers just before each event.

Nothing here is remembered; two views a second apart may differ. Values that the shell does not know are None; an
unknown value neither refuses nor guarantees anything.
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
        taking_over: no controller serves, and another is about to take over, which then carries out orders.
        coordinator_silent: the operator does not hear it (not dialled yet, gone, or cut off from this operator), or it
            has come back and has not said yet what it found.
        relieved_heard: the operator still hears the coordinator that another one is to relieve.
        coordinator_apart: the coordinator shares no node with a rank of its job.
        free_nodes: nodes that could take a rank pod of this job now.
        growth_refused: why a ResourceQuota forbids the pods of a growth, in words; empty: it allows them.
        start_nodes: nodes available to a start of the whole job, its own pods' included; None: not looked up.
        spares: names of the reserved spare nodes, in the order of use.
        super_pods: node rank to the super pod of its block; empty of a job without blocks.
        spare_super_pods: name of a spare node to its super pod.
        bare_super_pods: super pods of the job's blocks in which no node is free and no spare stands.
        unplaced: rank pods that should exist and for which the scheduler finds no node.
        checkpoint_step: step of the newest complete periodic checkpoint, None when unknown, -1 when there is none.
        loaded_step: step of the checkpoint that this attempt was given to load, -1 for none or when unknown.
        node_names: node rank to the name of the node its pod runs on.
        nodes_to_avoid: names of nodes that a start of the whole job should avoid.
        start_sign_ms: job time of the last sign that a start makes progress, None when unknown.
        step_ms: how long a step takes at the present size, in milliseconds; None when unknown.
        copies_told: False when training ranks have not reported their optimizer copies to MindIO.
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
    super_pods: Mapping[int, str] = field(default_factory=dict)
    spare_super_pods: Mapping[str, str] = field(default_factory=dict)
    bare_super_pods: tuple[str, ...] = ()
    unplaced: int = 0
    checkpoint_step: int | None = None
    loaded_step: int = -1
    node_names: Mapping[int, str] = field(default_factory=dict)
    nodes_to_avoid: tuple[str, ...] = ()
    copies_told: bool | None = None
    start_sign_ms: int | None = None
    step_ms: int | None = None
