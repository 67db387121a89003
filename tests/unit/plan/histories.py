"""Random histories of nodes that are lost and come back, in virtual time: the real planner, its pods and capacity.

A small cluster places the pods that the planner's state asks for, agents fall silent with their nodes, and a
coordinator does what MindIO does with an order. Nothing of the planner is used to check it: which shrink is legal, how
long nodes were free, how often the job has grown are kept here (docs/user/layout.md, docs/protocols/mindio.md).
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache

from hajob.domain.actions import Action, OrderCommand
from hajob.domain.facts import Fact, FactKind, Source
from hajob.domain.incidents import Purpose
from hajob.domain.layout import Layout
from hajob.job.status.journal import Journal, read_journal
from hajob.plan import effects, events
from hajob.plan.elastic import LONGEST_DELAY_SECONDS
from hajob.plan.invariants import Step, broken_rules
from hajob.plan.machine import advance_job
from hajob.plan.placements import Placement, placements
from hajob.plan.policy import Policy, policy_from_spec
from hajob.plan.sizes import StartSizes
from hajob.plan.state import ENDED, UNTRAINED, JobPhase, JobState
from hajob.plan.view import ClusterView
from hajob.sources.observe import events_of_capacity
from tests.rigs.plan_specs import GOOD, spec

LAYOUTS = (
    Layout(num_nodes=4, chips_per_node=2, tensor=2),
    Layout(num_nodes=8, chips_per_node=2, tensor=2, pipeline=2),
    Layout(num_nodes=4, chips_per_node=4, tensor=2),
    Layout(num_nodes=8, chips_per_node=2, tensor=4),
    Layout(num_nodes=6, chips_per_node=2, tensor=2),
    Layout(num_nodes=4, chips_per_node=2, tensor=1),
)
"""One and two pods for each data-parallel rank, and two data-parallel ranks in a pod."""

BATCH = 64
"""Samples of a step."""
HOUR_MS = 3_600_000
DETECTION_MS = 3_000
QUIET_MS = 8 * HOUR_MS
"""So long every node is there in the end."""
TRAINS = frozenset({JobPhase.RUNNING, JobPhase.CONFIRMING, JobPhase.SHRUNK, JobPhase.EXPANDING})


@cache
def data_rank(layout: Layout, rank: int) -> int:
    """Which data-parallel rank a rank is of, in the default order."""
    return rank // layout.tensor % layout.data


@cache
def ranks_of_data(layout: Layout, dropped: frozenset[int]) -> tuple[int, ...]:
    """Every rank of these data-parallel ranks."""
    return tuple(rank for rank in range(layout.world_size) if data_rank(layout, rank) in dropped)


def why_illegal(layout: Layout, lost: tuple[int, ...], least: int) -> str:
    """Why MindIO would refuse to go on without these ranks, or the user would; empty when neither does."""
    dropped = frozenset(data_rank(layout, rank) for rank in lost)
    ranks, half = ranks_of_data(layout, dropped), layout.data // 2
    nodes = {rank // layout.chips_per_node for rank in ranks}
    if 0 in ranks:
        return "rank 0 would leave"
    if any({place, place + half} <= dropped for place in range(half)):
        return "no complete copy would stay"
    if len(ranks) != len(nodes) * layout.chips_per_node:
        return "a pod would be half of it"
    return "" if layout.data - len(dropped) >= least else "too few would stay"


def largest_start(whole: Layout, nodes: int, least: int) -> int:
    """With the most of so many nodes a training can begin: whole, even, sharing the batch; 0: with none, or all."""
    if nodes >= whole.num_nodes:
        return 0
    for count in range(nodes, 0, -1):
        data, rest = divmod(count * whole.chips_per_node, whole.tensor * whole.pipeline)
        if not rest and data and data % 2 == 0 and data >= least and BATCH % data == 0:
            return count
    return 0


@dataclass(slots=True)
class Pod:
    """A pod that should exist: where it is, and when it will stand ready."""

    placement: Placement
    node: str = ""
    ready_ms: int = 0


@dataclass(slots=True)
class History:
    """One job's life.

    Attributes:
        whole: its sizes with all of its nodes.
        grown: when it began to grow.
        smaller: attempts that were started with fewer nodes.
        free_since_ms: since when there have been nodes for all that left; None while there are not.
        sizes: data-parallel ranks that trained, each change once.
    """

    seed: int
    chance: random.Random = field(init=False)
    whole: Layout = field(init=False)
    policy: Policy = field(init=False)
    up: set[str] = field(default_factory=set)
    state: JobState = field(default_factory=JobState)
    pods: dict[tuple[int, int], Pod] = field(default_factory=dict)
    now: int = 1_000_000
    step: int = -1
    stepped_ms: int = 0
    order: effects.SendOrder | None = None
    grown: list[int] = field(default_factory=list)
    free_since_ms: int | None = None
    sizes: list[int] = field(default_factory=list)
    restarts: list[int] = field(default_factory=list)
    smaller: list[int] = field(default_factory=list)
    failed: str = ""
    _due: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    _number: int = 0
    _growing: int = 0

    def __post_init__(self) -> None:
        """Chosen by the seed."""
        self.chance = random.Random(self.seed)
        self.whole = self.chance.choice(LAYOUTS)
        self.policy = Policy(
            replacement_timeout_seconds=self.chance.choice([20, 20, 270, 1000]),
            expand_delay_seconds=self.chance.choice([0, 10, 120, 600]),
            release_shrunk_pods=self.chance.random() < 0.5,
            min_data_parallel=self.chance.choice([1, 1, self.whole.data - 1]),
        )
        self.up = {f"n{number}" for number in range(self.whole.num_nodes + self.chance.choice([0, 0, 0, 1]))}
        if self.chance.random() < 0.5:
            self.policy = replace(self.policy, sizes=start_sizes(self.whole, self.policy.min_data_parallel))

    @property
    def layout(self) -> Layout:
        """Of the attempt."""
        return replace(self.whole, num_nodes=self.state.nodes) if self.state.nodes else self.whole

    # ------------------------------------------------------------------------------------------------- a life

    def live(self) -> History:
        """Losses and returns, then a long time in which every node is there."""
        whole = len(self.up)
        self.tell(events.Accepted())
        flaps = self.chance.random() < 0.2
        for number in range(self.chance.randrange(2, 12) * (3 if flaps else 1)):
            self.pass_time(self.chance.choice([1, 5, 30, 100, 300, 300, 900, 900]) * self.chance.randrange(500, 1500))
            if not flaps:
                self.happen(whole)
            elif number % 2:
                self.come_back()
            elif len(self.up) == whole:
                self.lose(self.chance.choice(self.expendable()))
        while len(self.up) < whole:
            self.come_back()
        self.pass_time(QUIET_MS)
        return self

    def happen(self, whole: int) -> None:
        """A node is lost, or several; some come back; a process dies; the leader changes."""
        kind = self.chance.random()
        if kind < 0.45 or len(self.up) == whole:
            for _ in range(self.chance.choice([1, 1, 1, 2, 3])):
                self.lose(self.chance.choice(self.expendable()))
        elif kind < 0.85:
            for _ in range(self.chance.randrange(1, whole - len(self.up) + 1)):
                self.come_back()
        elif kind < 0.95 and self.state.phase in TRAINS:
            self.die(self.chance.randrange(self.layout.world_size))
        else:
            taken_over = read_journal(Journal(self.state).to_text(self.now)).journal.for_new_leader(self.now)
            assert taken_over.state == self.state

    def expendable(self) -> list[str]:
        """Mostly not the nodes that no shrink can do without."""
        needed = set(self.layout.nodes_of_ranks(ranks_of_data(self.layout, frozenset({0}))))
        others = self.up - {pod.node for key, pod in self.pods.items() if key[0] in needed}
        return sorted(others if others and self.chance.random() < 0.9 else self.up)

    def lose(self, node: str) -> None:
        """A node is gone at once; its agent falls silent."""
        if len(self.up) == 1:
            return
        self.up.discard(node)
        for pod in list(self.pods.values()):
            if pod.node == node:
                self.after(DETECTION_MS, lambda pod=pod: self.missed(pod))  # type: ignore[misc]
        self.look()

    def missed(self, pod: Pod) -> None:
        """The agent of a pod is silent."""
        place = pod.placement
        if self.pods.get((place.node_rank, place.incarnation)) is pod:
            name = f"silent-{self.now}-{place.node_rank}-{place.incarnation}"
            self.see(
                Fact(name, FactKind.AGENT_SILENT, Source.COORDINATOR, place.node_rank, incarnation=place.incarnation)
            )

    def die(self, rank: int) -> None:
        """A process is killed."""
        node = rank // self.layout.chips_per_node
        number = self.state.incarnation_of(rank, node)
        name = f"exit-{self.now}-{rank}"
        if any(pod.node in self.up and key[0] == node for key, pod in self.pods.items()):
            self.see(Fact(name, FactKind.PROCESS_EXITED, ranks=(rank,), incarnation=number, exit_code=-9))

    def see(self, fact: Fact) -> None:
        """Tell a fact."""
        self.tell(events.FactSeen(fact=replace(fact, time_ms=self.now)))

    def come_back(self) -> None:
        """Another node, or the same one started anew: nothing avoids it."""
        self._number += 1
        self.up.add(f"new{self._number}")
        self.look()

    # -------------------------------------------------------------------------------------------------- time

    def after(self, milliseconds: int, act: Callable[[], None]) -> None:
        """Do something later."""
        self._number += 1
        heapq.heappush(self._due, (self.now + milliseconds, self._number, act))

    def pass_time(self, milliseconds: int) -> None:
        """Everything that is due until then, in order."""
        end = self.now + milliseconds
        while self.state.phase not in ENDED:
            deadline = min(((at, name) for name, at in self.state.deadlines.items()), default=(end + 1, ""))
            act_ms = self._due[0][0] if self._due else end + 1
            at = min(deadline[0], act_ms)
            if at > end:
                break
            self.now = max(self.now, at)
            if act_ms <= deadline[0]:
                heapq.heappop(self._due)[2]()
            else:
                self.tell(events.DeadlineReached(name=deadline[1]))
        self.now = max(self.now, end)

    def view(self) -> ClusterView:
        """What the planner may look at."""
        if self.state.phase in TRAINS:
            self.step += (self.now - self.stepped_ms) // 1000
        self.stepped_ms = self.now
        saved = self.step // 100 * 100
        names = {key[0]: pod.node for key, pod in self.pods.items() if pod.node}
        free = len(self.free())
        return ClusterView(
            self.layout,
            self.step,
            free_nodes=free,
            start_nodes=len(self.up) if self.policy.sizes is not None else None,
            checkpoint_step=saved if saved > 0 else -1,
            node_names=names,
        )

    def free(self) -> list[str]:
        """Nodes without a pod."""
        return sorted(self.up - {pod.node for pod in self.pods.values()})

    # ----------------------------------------------------------------------------------------------- planner

    def tell(self, event: events.JobEvent) -> None:
        """One event, what follows from it, and whether all of it is allowed."""
        before = self.state
        transition = advance_job(before, event, self.view(), self.policy, self.now)
        assert not broken_rules(Step(before, event, transition, self.layout, self.policy, self.now))
        self.state = transition.state
        incident = self.state.incident
        if incident is not None and incident.purpose is Purpose.GROW and incident.number != self._growing:
            self._growing = incident.number
            self.check_growth()
        for effect in transition.effects:
            if isinstance(effect, effects.SendOrder):
                self.ordered(effect, before)
            elif isinstance(effect, effects.FailJob):
                self.failed = f"{effect.reason}: {effect.message}"
        if self.state is not before:
            self.place()
            self.check()
            self.look()

    def place(self) -> None:
        """Pods that should not exist go, those that are missing are made and placed."""
        wanted = {(one.node_rank, one.incarnation): one for one in placements(self.state, self.whole.num_nodes).ranks}
        for key in self.pods.keys() - wanted.keys():
            del self.pods[key]
        for key in wanted.keys() - self.pods.keys():
            self.pods[key] = Pod(wanted[key])
        self.schedule()

    def schedule(self) -> None:
        """Each pod for itself, as the scheduler does it."""
        free = self.free()
        for _, pod in sorted(self.pods.items()):
            room = [name for name in free if name not in pod.placement.avoid] if not pod.node else []
            if room:
                pod.node = room[0]
                free.remove(room[0])
                pod.ready_ms = self.now + self.chance.choice([500, 2_000, 30_000])
                self.after(pod.ready_ms - self.now, self.answer)

    def look(self) -> None:
        """Capacity has changed: the scheduler looks, and the planner is told as the operator would tell it."""
        self.schedule()
        shrunk, smaller, free = self.state.shrunk, self.state.smaller, len(self.free())
        wanted = len(shrunk.absent_nodes(released=self.policy.release_shrunk_pods)) if shrunk else 0
        wanted = self.whole.num_nodes - self.state.nodes if smaller is not None and shrunk is None else wanted
        waits = self.state.phase is JobPhase.SHRUNK if shrunk is not None else smaller is not None
        if not waits or free < wanted:
            self.free_since_ms = None
        elif self.free_since_ms is None:
            self.free_since_ms = self.now
        for event in events_of_capacity(self.state, self.policy, lambda: len(self.free())):
            self.tell(event)
        if self.state.phase in UNTRAINED:
            unplaced = any(not pod.node for pod in self.pods.values())
            if unplaced and self.state.waiting is None:
                self.tell(events.PlacesMissing(message="no node"))
            elif not unplaced and self.state.waiting is not None:
                self.tell(events.PlacesFound())

    # ------------------------------------------------------------------------------- the coordinator and MindIO

    def ordered(self, order: effects.SendOrder, before: JobState) -> None:
        """An order goes out; what is not allowed is found here."""
        if order.command is OrderCommand.STOP:
            return
        self.order = order
        if order.command is OrderCommand.SHRINK and before.phase is not JobPhase.EXPANDING:
            assert before.shrunk is None, "a second shrink"
            illegal = why_illegal(self.layout, order.lost_ranks, self.policy.min_data_parallel)
            assert not illegal, illegal
        if order.command is OrderCommand.EXPAND:
            self.check_growth()
        if order.command is OrderCommand.START:
            self.step = self.step // 100 * 100 if before.phase is not JobPhase.SAVING else self.step
            self.restarts.append(self.now)
            self.check_start()
        self.after(self.chance.choice([50, 500]), self.answer)

    def check_growth(self) -> None:
        """All nodes at once, for long enough, and longer the oftener it has grown of late."""
        times = sum(at > self.now - HOUR_MS for at in self.grown)
        limits, delay = self.policy.limits[Action.EXPAND], self.policy.expand_delay_seconds
        assert times < limits.max_count, f"{times} growths in an hour"
        needed = max(delay, min(delay * 2**times, LONGEST_DELAY_SECONDS))
        assert self.free_since_ms is not None, "it grows without nodes"
        assert self.now - self.free_since_ms >= 1000 * needed, "it grows before they have lasted"
        self.grown.append(self.now)

    def check_start(self) -> None:
        """With all nodes, or with as many as are there and make a training, where that is asked for."""
        asked = self.policy.sizes is not None and self.state.attempt > 1
        most = largest_start(self.whole, len(self.up), self.policy.min_data_parallel) if asked else 0
        assert self.state.nodes == most, f"started with {self.state.nodes} nodes, not {most}"
        if most:
            self.smaller.append(most)

    def answer(self) -> None:
        """What the coordinator does with the newest order, as far as it can now."""
        order = self.order
        if order is None or self.state.phase in ENDED:
            return
        if order.command is OrderCommand.START:
            if self.stands(range(self.layout.num_nodes)):
                self.order = None
                self.tell(events.PodsReady())
                self.tell(events.AllRanksStarted(order.incarnation, self.state.attempt))
                self.resume(order)
        elif order.command is OrderCommand.CHECKPOINT:
            self.order = None
            self.after(2_000, lambda: self.tell(events.ResultReported(order.incarnation, 0, "", "dump")))
        elif order.command is OrderCommand.SHRINK:
            self.order = None
            if self.state.phase is JobPhase.SHRINKING:
                self.shrink(order)
        elif self.stands({*order.replaced_nodes, *self.layout.nodes_of_ranks(order.restart_ranks)}):
            self.order = None
            self.repair(order)

    def stands(self, nodes: Iterable[int]) -> bool:
        """Whether the pods of these node ranks are there and ready."""
        ready = {key[0] for key, pod in self.pods.items() if pod.node in self.up and pod.ready_ms <= self.now}
        return set(nodes) <= ready

    def repair(self, order: effects.SendOrder) -> None:
        """All that was lost stands ready: it is named, and repaired a moment later unless something dies."""
        self.tell(events.ReplacementsReady(order.incarnation, order.revision))
        if order.command is not OrderCommand.EXPAND:
            self.tell(events.Named(order.incarnation, order.revision))
        phase, number = self.state.phase, self.state.incarnation

        def end() -> None:
            if (self.state.phase, self.state.incarnation, self.order) == (phase, number, None):
                self.resume(order)

        self.after(self.chance.choice([200, 4_000]), end)

    def shrink(self, order: effects.SendOrder) -> None:
        """MindIO names what it drops and goes on without."""
        ranks = ranks_of_data(self.layout, frozenset(data_rank(self.layout, rank) for rank in order.lost_ranks))
        for event in (
            events.Named(order.incarnation, order.revision),
            events.StrategiesOffered(order.incarnation, ("exit", "dump", "recover", "downgrade")),
            events.ResultReported(order.incarnation, 201, "", "downgrade", ranks),
        ):
            self.tell(event)
        self.resume(order)

    def resume(self, order: effects.SendOrder) -> None:
        """A step ends, MindIO says that it has succeeded."""
        self.step += 1
        self.tell(events.Resumed(order.incarnation, self.step))
        self.tell(events.ResultReported(order.incarnation, 0))

    # ------------------------------------------------------------------------------------------- what must hold

    def check(self) -> None:
        """Sizes are legal, pods are whole, at any moment."""
        shrunk, layout = self.state.shrunk, self.layout
        size = layout.data - (len(shrunk.dropped) if shrunk else 0)
        if self.state.phase in TRAINS and (not self.sizes or self.sizes[-1] != size):
            self.sizes.append(size)
        if shrunk is not None:
            assert shrunk.ranks == ranks_of_data(layout, frozenset(shrunk.dropped)), "no whole data-parallel ranks"
            assert set(shrunk.nodes) == {rank // layout.chips_per_node for rank in shrunk.ranks}
            assert set(shrunk.lost_nodes) <= set(shrunk.nodes)
            assert not why_illegal(layout, shrunk.ranks, self.policy.min_data_parallel)
        nodes = [key[0] for key in self.pods]
        assert len(nodes) == len(set(nodes)), "two pods of one node rank"
        gone = set(range(layout.num_nodes)) - set(nodes)
        if self.state.phase in TRAINS:
            assert gone <= set(shrunk.nodes if shrunk else ()), "a rank that trains has no pod"

    def ended_well(self) -> bool:
        """At the original size; or given up because a budget of restarts was spent."""
        if self.state.phase is JobPhase.FAILED:
            return self.failed.startswith(("RestartBudgetSpent", "NoProgress"))
        return self.state.phase is JobPhase.RUNNING and self.state.shrunk is None and self.state.smaller is None


@cache
def start_sizes(whole: Layout, least: int) -> StartSizes | None:
    """As the spec of such a job gives them, with `elastic.restartSize: Available`."""
    accelerator = {"product": "A2", "chipsPerNode": whole.chips_per_node}
    parallelism = {"tensor": whole.tensor, "pipeline": whole.pipeline}
    elastic = {"restartSize": "Available", "minDataParallel": least}
    body = spec(GOOD, numNodes=whole.num_nodes, accelerator=accelerator, parallelism=parallelism, elastic=elastic)
    found = policy_from_spec(body).sizes
    assert found is not None
    return found
