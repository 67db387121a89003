"""What the demo does, in order: a cluster, an operator, a training, six faults, and the proof.

It does nothing that a user could not do: the job is applied with kubectl from the very file that the README shows and
patched to have a spare node and, where none is free, no patience; faults are done to processes and machines, not to
Hajob. Steps and not seconds say when a fault is due, so that a slow machine sees the same demo.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import yaml

from e2e import providers
from e2e.bootstrap.paths import CHECKOUT
from e2e.bootstrap.setup import missing_binaries
from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.run import Run
from e2e.demo.board import Board, ShownIncident
from e2e.demo.observer import DemoError, Observer
from e2e.demo.page import serve_page
from e2e.demo.preparation import Building, announcement
from e2e.demo.screen import Screen
from e2e.harness.account import Recovery, layout_of, recovery
from e2e.harness.cluster_rig import ClusterRig
from e2e.harness.controllers import coordinator_node
from e2e.harness.job import IMPATIENT, Job
from e2e.harness.preflight import require_free_ports
from e2e.harness.rig import HOST_PATH, Rig, RigLayout
from e2e.harness.undisturbed import undisturbed
from hajob.api import constants as names

EXAMPLE = CHECKOUT / "examples/quickstart.yaml"
JOB_NAME = "quickstart"
VOLUME = f"{HOST_PATH}/checkpoints"
STEPS = 400  # what the example's start script trains
STEP_MILLISECONDS = 250  # until the last fault: the training must outlast them on a slow machine, too
EXAMPLE_SIZES: Final = {"tensor": 2, "pipeline": 1, "data": 4}
SPARE: Final = {"scheduling": {"numSpareNodes": 1}}
PATIENCE: Final = {"recovery": {"replacementTimeoutSeconds": 270}}
"""Otherwise a replacement may take as long as the machine needs for it."""
ACTIONS: Final = ("InPlace", "Replace", "Shrink", "Expand", "Migrate", "InPlace")
"""What each fault in turn is to lead to."""
FIRST_FAULT_STEP = 20
STEPS_BETWEEN = 15
STAY_STEPS = 1_000_000
STAY_SECONDS = 86_400.0
FEWEST_STEPS = 60  # for each fault: it trains on while one is noticed and while its recovery is closed
KILLED_RANK = 3
LOST_NODE_RANK = 2
SICK_NODE_RANK = 1
LAST_KILLED_RANK = 5
SUB_HEALTH: Final = {"code": "80E18400", "level": "SubHealthFault"}
MENU: Final = (
    'make inject ARGS="chip node-1 1"         a chip breaks: its ranks go to another node',
    'make inject ARGS="sub-health node-2 0"   a chip works badly: the node is left while the job trains',
    'make inject ARGS="memory node-0 0"       an uncorrectable error of a chip\'s memory',
    'make inject ARGS="recover node-1"        what was broken is well again',
    "kubectl delete pod -l training.hajob.io/node-rank=3   somebody deletes a pod",
    "kubectl cordon node-2                    maintenance; kubectl uncordon node-2 ends it",
)
START_SECONDS = 120.0
RECOVERY_SECONDS = 120.0
END_SECONDS = 240.0


def line_for_terminal(plane: ControlPlane) -> str:
    """A line for a shell, after which kubectl and its plugin are there and speak to this cluster."""
    directories = [plane.layout.programs, Path(sys.executable).parent]
    return f"export KUBECONFIG={plane.kubeconfig} PATH={':'.join(map(str, directories))}:$PATH"


@dataclass
class Outcome:
    """What became of the demo.

    Attributes:
        faults: How many were made.
        recoveries: The account of each one that was recovered, in any way.
        weights_differ: Sentences; None as long as nothing was compared.
        wanted: How many were to be made.
    """

    faults: int = 0
    recoveries: list[Recovery] = field(default_factory=list)
    weights_differ: list[str] | None = None
    wanted: int = len(ACTIONS)

    @property
    def recovered(self) -> int:
        """Faults that were recovered as promised."""
        wanted = zip(self.recoveries, ACTIONS, strict=False)
        return sum(each.action == action and not each.broken_promises for each, action in wanted)

    @property
    def weights_equal(self) -> bool | None:
        """Whether the weights are bitwise those of an undisturbed run; None: not compared."""
        return None if self.weights_differ is None else not self.weights_differ

    @property
    def is_success(self) -> bool:
        """Every fault was made and recovered as promised, and the weights are right."""
        return (self.faults, self.recovered, self.weights_equal) == (self.wanted, self.wanted, True)


@dataclass(frozen=True)
class Switches:
    """What can be chosen.

    Attributes:
        steps: Length of the training.
        flip_restored_byte: In each shard that a rank gets back.
        stays: No fault is made; it trains until Ctrl-C, for faults of your own (`make inject`).
        faults: How many of the six are made, the first ones.
        has_page: A browser shows it, too (`kubectl hajob ui`).
    """

    steps: int = STEPS
    flip_restored_byte: bool = False
    stays: bool = False
    faults: int = len(ACTIONS)
    has_page: bool = False

    def environment(self) -> Mapping[str, str]:
        """Variables of the trainer's image."""
        found = {} if self.stays else {"STEP_TIME_MS": str(STEP_MILLISECONDS)}
        found |= {} if self.steps == STEPS else {"TRAIN_ITERS": str(self.steps)}
        return found | ({"TOY_FLIP_RESTORED_BYTE": "1"} if self.flip_restored_byte else {})


@dataclass(frozen=True)
class Scene:
    """The cluster, the job on it, and who watches it."""

    rig: ClusterRig
    job: Job
    observer: Observer


class Demo:
    """One demo in a run that has begun; `outcome` tells how far it came, also after an exception."""

    def __init__(self, run: Run, screen: Screen, switches: Switches) -> None:
        self.run = run
        self.screen = screen
        self.switches = switches
        self.outcome = Outcome(wanted=switches.faults)
        self.rig: ClusterRig | None = None
        self._off: list[str] = []  # nodes, in the order in which they were powered off

    def play(self) -> None:
        """Play it to the end.

        Raises:
            DemoError: Something that must come did not come.
            ControlPlaneError: So did something of the cluster.
        """
        self._prepare()
        rig = self._build()
        if self.switches.has_page:
            self.screen.say(f"the page: {serve_page(self.run, rig.plane.kubeconfig)}")
        job = self._submit(rig)
        observer = Observer(job, self.screen, 0 if self.switches.stays else self.switches.steps)
        scene = Scene(rig, job, observer)
        self.screen.begin("waiting for 8 ranks to train")
        observer.wait("the training", _is_under_way, START_SECONDS)
        if self.switches.stays:
            self._stay(scene)
            return
        losses = (self._kill, self._lose_first, self._lose_without_spare, self._bring_back)
        for act in (*losses, self._move, self._lose_coordinator)[: self.switches.faults]:
            act(scene)
        self.screen.begin("letting the training end, without pauses between its steps")
        job.hurry()
        observer.wait("the end of the training", lambda board: board.state == "Complete", END_SECONDS)
        self._compare(job)
        self.screen.say("$ kubectl get hajobs")
        self.screen.text(rig.plane.kubectl("get", "hajobs").stdout.rstrip())

    def _prepare(self) -> None:
        """Have the programs of the cluster, and meanwhile the training to compare with."""
        missing = [] if providers.name() == "kind" else missing_binaries()
        for line in announcement(missing):
            self.screen.say(line)
        if missing:
            building = Building(self.run, self.screen.say)
            self.screen.begin("building; meanwhile running the training undisturbed, to compare the weights")
            self._reference(EXAMPLE_SIZES)
            self.screen.begin("building")
            building.wait()

    def _reference(self, sizes: Mapping[str, int]) -> Path:
        tensor, pipeline, data = (sizes[name] for name in ("tensor", "pipeline", "data"))
        return undisturbed(self.run, tensor=tensor, pipeline=pipeline, data=data, iterations=self.switches.steps)

    def _build(self) -> ClusterRig:
        require_free_ports(self.run)
        self.screen.begin("starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler")
        kind = "real nodes" if providers.are_real() else "process nodes"
        more = 1 if self.switches.stays else 0  # so that a move still finds a place after a loss
        usual = RigLayout()
        layout = replace(
            usual,
            chip_nodes=usual.chip_nodes + more,
            plain_nodes=2,  # so that another coordinator and the other operator find a place
            operators=2,
            trainer_environment=self.switches.environment(),
        )

        def begun(plane: ControlPlane) -> None:
            self.screen.say("  for kubectl and kubectl hajob in another terminal, while it lasts:")
            self.screen.text(line_for_terminal(plane))
            self.screen.begin(f"starting {'eight' if more else 'seven'} {kind}; installing CRD and two operators")

        self.rig = providers.start(self.run, layout, begun)
        return self.rig

    def _submit(self, rig: ClusterRig) -> Job:
        self.screen.begin(f"kubectl apply -f {EXAMPLE.relative_to(CHECKOUT)}")
        if isinstance(rig, Rig) and (rig.volcano or rig.queue is not None):
            if rig.volcano:
                self.screen.say("  with scheduling: {gangPolicy: Volcano}")
            if rig.queue is not None:
                self.screen.say(f"  with the label {names.LABEL_QUEUE}: {rig.queue.queue}")
            rig.plane.apply(rig.fitted_job(yaml.safe_load(EXAMPLE.read_text())))
        else:
            rig.plane.kubectl("apply", "-f", str(EXAMPLE))
        if not self.switches.stays:
            self._patch(rig, SPARE)
        return Job(rig.plane, JOB_NAME, rig.namespace, rig.host_path(VOLUME))

    def _patch(self, rig: ClusterRig, spec: Mapping[str, object]) -> None:
        patch = json.dumps({"spec": spec})
        self.screen.say(f"kubectl patch hajob {JOB_NAME} --type merge -p '{patch}'")
        rig.plane.kubectl("patch", "hajob", JOB_NAME, "--type", "merge", "-p", patch)

    def _stay(self, scene: Scene) -> None:
        """Until Ctrl-C, or the training's end."""
        self.screen.say("try in a second terminal, one at a time, or several:")
        for line in MENU:
            self.screen.text(f"{'':>10}{line}")
        self.screen.begin("training until Ctrl-C")
        scene.observer.wait(
            "the end of the training", lambda board: board.state in {"Complete", "Failed"}, STAY_SECONDS
        )

    def _kill(self, scene: Scene) -> None:
        self.screen.begin(f"fault 1: SIGKILL to rank {KILLED_RANK}")
        self._recover(scene, f"rank {KILLED_RANK} killed", [KILLED_RANK], lambda: _kill_rank(scene, KILLED_RANK))

    def _power_off(self, scene: Scene, node_rank: int, words: str, *, restarted: bool = True) -> None:
        node, observer = scene.job.node_of(node_rank), scene.observer
        self.screen.begin(words)
        ranks = _ranks_of(node_rank)

        def fault() -> int:
            answer = scene.rig.nodes.control.power_off(node)
            observer.off.add(node)
            self._off.append(node)
            observer.lost |= {observer.board.ranks[rank].pid: "off" for rank in ranks}
            return int(answer["time"])

        self._recover(scene, f"{node} off" if restarted else f"{node} off, no spare", ranks if restarted else [], fault)

    def _lose_first(self, scene: Scene) -> None:
        node = scene.job.node_of(0)
        self._power_off(scene, 0, f"fault 2: power off {node}, the node of rank 0; a spare node is held")
        scene.observer.wait("the spare", lambda _: scene.job.node_of(0) != node, RECOVERY_SECONDS)

    def _lose_without_spare(self, scene: Scene) -> None:
        self._patch(scene.rig, IMPATIENT)
        node = scene.job.node_of(LOST_NODE_RANK)
        self._power_off(scene, LOST_NODE_RANK, f"fault 3: power off {node}; no node is free", restarted=False)
        self._patch(scene.rig, PATIENCE)

    def _bring_back(self, scene: Scene) -> None:
        node = self._off[-1]
        self.screen.begin(f"fault 4: {node} comes back, while the training goes on without it")

        def fault() -> int:
            scene.observer.off.discard(node)
            return int(scene.rig.nodes.control.power_on(node)["time"])

        self._recover(scene, f"{node} back", _ranks_of(LOST_NODE_RANK), fault)

    def _move(self, scene: Scene) -> None:
        """A chip falls ill on a node that still works; the node of the second fault is there again."""
        free = self._off[0]
        scene.rig.nodes.control.power_on(free)
        scene.observer.off.discard(free)
        scene.observer.wait(f"{free} to be held as a spare", lambda _: bool(_spares(scene.job)), RECOVERY_SECONDS)
        node = scene.job.node_of(SICK_NODE_RANK)
        self.screen.begin(f"fault 5: a chip of {node} is ill, but works")

        def fault() -> int:
            return int(scene.rig.nodes.control.break_chip(node, 0, **SUB_HEALTH)["time"])

        self._recover(scene, f"{node} sick", _ranks_of(SICK_NODE_RANK), fault)

    def _lose_coordinator(self, scene: Scene) -> None:
        """With its node go MindIO's controller and the rendezvous store; what must notice nothing is the training."""
        node, observer, rank = coordinator_node(scene.job), scene.observer, LAST_KILLED_RANK
        before = scene.job.takeovers()
        self.screen.begin(f"fault 6: power off {node}, the coordinator's node; then SIGKILL to rank {rank}")
        scene.rig.nodes.control.power_off(node)
        observer.off.add(node)
        observer.wait("another coordinator to take over", lambda _: _is_protected(scene.job, before), RECOVERY_SECONDS)
        self._recover(scene, f"CPU node off, rank {rank} killed", [rank], lambda: _kill_rank(scene, rank))

    def _recover(self, scene: Scene, words: str, lost: list[int], fault: Callable[[], int]) -> None:
        """Do a fault, wait until the training has gone on for a while, and take the account."""
        observer = scene.observer
        before = max((each.number for each in observer.look().incidents), default=0)
        began = fault()
        self.outcome.faults += 1
        observer.wait(f"a recovery: {words}", lambda board: bool(_recovered(board, before)), RECOVERY_SECONDS)
        incident = _recovered(observer.board, before)
        assert incident is not None, "it was waited for"
        step = observer.board.step + STEPS_BETWEEN
        observer.wait(f"step {step}", lambda board: board.step >= min(step, board.goal), RECOVERY_SECONDS)
        try:
            account = recovery(scene.rig, scene.job, words, began, incarnation=incident.number, lost_ranks=lost)
        except StopIteration as error:
            raise DemoError(f"{words}: the ranks' logs show no outage after it") from error
        self.outcome.recoveries.append(account)
        for sentence in account.broken_promises:
            self.screen.say(f"  not as promised: {sentence}")

    def _compare(self, job: Job) -> None:
        self.screen.begin("comparing the weights with those of the same training undisturbed")
        layout = layout_of(job)
        reference = self._reference({"tensor": layout.tensor, "pipeline": layout.pipeline, "data": layout.data})
        self.outcome.weights_differ = job.weights_differ(reference)
        for sentence in self.outcome.weights_differ:
            self.screen.say(f"  weights differ: {sentence}")


def _kill_rank(scene: Scene, rank: int) -> int:
    """When it was done."""
    answer = scene.rig.nodes.control.kill(namespace=scene.rig.namespace, rank=rank)
    scene.observer.lost[scene.observer.board.ranks[rank].pid] = "killed"
    return int(answer["time"])


def _is_protected(job: Job, takeovers: int) -> bool:
    """Whether a coordinator is in service that has taken over after so many others had."""
    counted = job.takeovers()
    return counted > takeovers and job.condition("CoordinatorReady").get("status") == "True"


def _ranks_of(node_rank: int) -> list[int]:
    """The ranks of a node rank of the example."""
    return [2 * node_rank, 2 * node_rank + 1]


def _spares(job: Job) -> list[str]:
    """Nodes that are held for the job."""
    return [pod["spec"]["nodeName"] for pod in job.pods("spare") if pod["status"].get("phase") == "Running"]


def _is_under_way(board: Board) -> bool:
    """The ranks are far enough, and Hajob knows that they train."""
    return board.step >= FIRST_FAULT_STEP and board.state == "Running"


def _recovered(board: Board, before: int) -> ShownIncident | None:
    """The newest incident after number `before`, once it is recovered."""
    newest = board.incidents[-1] if board.incidents else None
    return newest if newest and newest.number > before and newest.outcome == "Recovered" else None
