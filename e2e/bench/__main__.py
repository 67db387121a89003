"""`make bench`: recoveries again and again, what must not be taken for a fault, the cost; numbers beside their limits.

It always ends with 0 when it could measure: a missed limit is a result, not an error. Half the promises are about a
machine that does nothing else, so the load before the start is written beside the numbers.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from e2e import providers
from e2e.bench import (
    against,
    coordinator_live,
    coordinator_scale,
    event_cost,
    fault_scale,
    gangs,
    installation,
    lost_controllers,
    many_ranks,
    mass_loss,
    operator_scale,
    overhead,
    plan,
    report,
)
from e2e.bench.clearing import clear
from e2e.bench.decision import OTHER_JOBS, decisions
from e2e.bench.elastic import Resized, resizes, warm_spares
from e2e.bench.false_alarms import frozen_nodes, loaded_machine
from e2e.bench.faults_without_deaths import MINDIO_RETRY_SECONDS, Retried, Saved, retry, save
from e2e.bench.recoveries import Round, in_place, replace
from e2e.bench.report import Limit, Row, row
from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.run import Run
from e2e.harness.cluster_rig import ClusterRig
from e2e.harness.rig import Rig, RigLayout
from e2e.kubelets.rig import RealRig

RESULTS = CHECKOUT / "bench/results"
SECTIONS = (
    "planner",
    "decision",
    "in-place",
    "replace",
    "install",
    "resize",
    "warm-spare",
    "retry",
    "save",
    "many-ranks",
    "lost-controller",
    "coordinator-scale",
    "coordinator-live",
    "event-cost",
    "operator-scale",
    "gangs",
    "mass-loss",
    "faults",
    "overhead",
    "frozen",
    "loaded",
)
FILES: Final = {"processes": "recovery"}
"""Name of the results' file where it is not the provider's."""
ON_REAL_NODES = ("in-place", "replace", "install")
"""What is measured on nodes with real kubelets, too."""
ON_KUBELETS_ONLY = ("install",)
"""What needs images and charts."""
FEW_RANKS = 8
PLAN_DECISIONS = 20_000

Played = TypeVar("Played")


class Bench:
    """One run of the benchmark; what was measured before an error is kept."""

    def __init__(self, run: Run, chosen: argparse.Namespace) -> None:
        self.run = run
        self.chosen = chosen
        self.rows: list[Row] = []
        self.plan: list[Any] = []
        self.problems: list[str] = []
        self._began = time.monotonic()
        self._rig: Rig | None = None
        self._cluster_rig: ClusterRig | None = None

    def say(self, words: str) -> None:
        """A line of progress."""
        print(f"{time.monotonic() - self._began:7.1f} s  {words}", file=sys.stderr, flush=True)

    @property
    def rig(self) -> Rig:
        """The demo's cluster, started when the first section needs it."""
        if self._rig is None:
            self.say("starting the cluster")
            self._rig = Rig.start_demo(ControlPlane.start(self.run), RigLayout())
        return self._rig

    @property
    def cluster_rig(self) -> ClusterRig:
        """The same, or real nodes (`PROVIDER=kubelets`)."""
        if not providers.are_real():
            return self.rig
        if self._cluster_rig is None:
            self.say("starting real nodes")
            self._cluster_rig = providers.start(self.run, RigLayout())
        return self._cluster_rig

    def measure(self) -> None:
        """All chosen sections, one after the other."""
        sections: dict[str, Callable[[], None]] = {
            "planner": self._planner,
            "decision": self._decision,
            "in-place": self._in_place,
            "replace": self._replace,
            "install": self._install,
            "resize": self._resize,
            "warm-spare": self._warm_spare,
            "retry": self._retry,
            "save": self._save,
            "many-ranks": self._many_ranks,
            "lost-controller": self._lost_controller,
            "coordinator-scale": self._coordinator_scale,
            "coordinator-live": self._coordinator_live,
            "faults": self._faults,
            "event-cost": self._event_cost,
            "operator-scale": self._operator_scale,
            "gangs": self._gangs,
            "mass-loss": self._mass_loss,
            "overhead": self._overhead,
            "frozen": self._frozen,
            "loaded": self._loaded,
        }
        for name in self.chosen.only or SECTIONS:
            if providers.are_real() and name not in ON_REAL_NODES:
                self.say(f"{name}: left out, not for real nodes")
                continue
            if providers.name() != "kubelets" and name in ON_KUBELETS_ONLY:
                self.say(f"{name}: left out, for PROVIDER=kubelets")
                continue
            self.say(f"{name}:")
            try:
                sections[name]()
            except Exception as error:  # the other sections can still be measured
                traceback.print_exc()
                self.problems.append(f"{name}: {error}")
                self._end_broken(name)

    def _end_broken(self, name: str) -> None:
        """Keep the logs of a section that broke, then leave nothing of it to the sections after it."""
        used = self._rig or self._cluster_rig
        if used is None:
            return
        try:
            self.say(f"logs are kept in {used.explain()}")
        except Exception as error:  # it has to be cleared up all the same
            traceback.print_exc()
            self.problems.append(f"{name}: its logs are not kept: {error}")
        try:
            clear(used)
        except Exception as error:  # the sections after it say themselves whether they can be measured
            traceback.print_exc()
            self.problems.append(f"{name}: not cleared up: {error}")

    def _planner(self) -> None:
        self.plan = plan.figures(PLAN_DECISIONS)

    def _decision(self) -> None:
        found = [1000 * each for each in decisions(self.run, max(self.chosen.rounds, 100))]
        self.rows.append(row(f"report -> decision, {OTHER_JOBS} other jobs", "ms", found, Limit("p50", 30)))

    def _in_place(self) -> None:
        found: list[Round] = []
        try:
            for each in in_place(self.cluster_rig, self.chosen.rounds, self.say):
                found.append(each)
        finally:
            self.rows += in_place_rows(found)

    def _replace(self) -> None:
        found: list[Round] = []
        try:
            for each in replace(self.cluster_rig, self.chosen.rounds, self.say):
                found.append(each)
        finally:
            self.rows += replace_rows(found)

    def _install(self) -> None:
        found = installation.Found()
        assert isinstance(self.cluster_rig, RealRig)
        try:
            installation.measure(found, self.cluster_rig.cluster, self.chosen.rounds, self.say)
        finally:
            self.rows += installation.rows(found)

    def _resize(self) -> None:
        found: list[tuple[Resized, Resized]] = []
        try:
            for each in resizes(self.rig, self.chosen.rounds, self.say):
                found.append(each)
        finally:
            self.rows += resize_rows(found)

    def _warm_spare(self) -> None:
        found: list[Round] = []
        try:
            for each in warm_spares(self.rig, self.chosen.rounds, self.say):
                found.append(each)
        finally:
            self.rows += warm_spare_rows(found)

    def _retry(self) -> None:
        found: list[Retried] = []
        try:
            for each in retry(self.rig, self.chosen.rounds, self.say):
                found.append(each)
        finally:
            self.rows += retry_rows(found)

    def _save(self) -> None:
        found: list[Saved] = []
        try:
            for each in save(self.rig, self.chosen.rounds, self.say):
                found.append(each)
        finally:
            self.rows += save_rows(found)

    def _many_ranks(self) -> None:
        self._with_many_ranks("many-ranks", many_ranks.in_place, many_ranks_rows)

    def _lost_controller(self) -> None:
        self._with_many_ranks("lost-controller", lost_controllers.losses, lost_controller_rows)

    def _with_many_ranks(
        self,
        namespace: str,
        play: Callable[[Rig, int, int, Callable[[str], None]], Iterator[Played]],
        rows: Callable[[Mapping[int, Sequence[Played]]], list[Row]],
    ) -> None:
        """The same with few ranks and with many; what was played before an error is kept."""
        found: dict[int, list[Played]] = {ranks: [] for ranks in many_ranks.SIZES}
        rig = many_ranks.start(self.rig, namespace)
        try:
            for ranks, series in found.items():
                for each in play(rig, ranks, self.chosen.rounds, self.say):
                    series.append(each)
        except Exception:
            rig.explain()
            raise
        finally:
            rig.stop()
            self.rows += rows(found)

    def _coordinator_scale(self) -> None:
        self.rows += coordinator_rows(coordinator_scale.measure())

    def _coordinator_live(self) -> None:
        self.rows += live_rows(coordinator_live.measure(self.run, self.say))

    def _faults(self) -> None:
        self.rows += fault_scale.rows(fault_scale.measure(self.say, faults=50 * self.chosen.rounds))

    def _event_cost(self) -> None:
        many, few = event_cost.measure(10_000, 100, 100), event_cost.measure(1_000, 100, 100)
        self.rows += event_cost_rows(many, few)

    def _operator_scale(self) -> None:
        found = operator_scale.Found()
        try:
            operator_scale.measure(found, self.say)
        finally:
            self.rows += operator_rows(found)

    def _gangs(self) -> None:
        found = operator_scale.Found()
        try:
            gangs.measure(found, self.say, rounds=self.chosen.rounds)
        finally:
            self.rows += gangs.rows(found)

    def _mass_loss(self) -> None:
        found = operator_scale.Found()
        try:
            mass_loss.measure(found, self.say)
        finally:
            self.rows += mass_loss_rows(found)

    def _overhead(self) -> None:
        for size in overhead.SIZES:
            found: list[overhead.Pair] = []
            try:
                for each in overhead.pairs(self.rig, size, self.chosen.pairs, self.say):
                    found.append(each)
            finally:
                self.rows += overhead_rows(size.ranks, found)

    def _frozen(self) -> None:
        rounds = self.chosen.quiet_rounds
        alarms = frozen_nodes(self.rig, rounds, self.say)
        self.rows.append(row(f"node frozen for 2 s, {rounds} rounds: replacements", "", [alarms], Limit("max", 0)))

    def _loaded(self) -> None:
        rounds = self.chosen.quiet_rounds
        alarms = loaded_machine(self.rig, rounds, self.say)
        words = f"machine loaded 3 times its cores, {rounds} rounds: replacements"
        self.rows.append(row(words, "", [alarms], Limit("max", 0)))


def in_place_rows(found: Sequence[Round]) -> list[Row]:
    """The numbers of a series of killed processes."""
    accounts = [each.account for each in found]
    return [
        row("process exit -> stop_train accepted", "ms", [1000 * each.to_stop for each in found], Limit("p50", 50)),
        row("InPlace: control share", "s", [each.control for each in accounts], Limit("p50", 0.5)),
        row("InPlace: after the gate", "s", [each.after_gate for each in found], Limit("p50", 0.3)),
        row("InPlace: start-up of the process", "s", [each.startup for each in accounts]),
        row("InPlace: whole outage", "s", [each.outage for each in accounts], Limit("p50", 3)),
        *_common_rows("InPlace", found),
    ]


def replace_rows(found: Sequence[Round]) -> list[Row]:
    """The numbers of a series of powered-off nodes."""
    accounts = [each.account for each in found]
    return [
        row("node powered off -> decision", "s", [each.to_decision for each in found], Limit("p95", 4)),
        row("Replace: decision -> training again", "s", [each.from_decision for each in found], Limit("p50", 8)),
        row("Replace: start-up of the processes", "s", [each.startup for each in accounts]),
        row("Replace: control share", "s", [each.control for each in accounts]),
        row("Replace: whole outage", "s", [each.outage for each in accounts]),
        *_common_rows("Replace", found),
    ]


def resize_rows(found: Sequence[tuple[Resized, Resized]]) -> list[Row]:
    """The numbers of shrinks and of the growths after them, MindIO's part apart."""
    rows = []
    for name, series in zip(("Shrink", "Expand"), zip(*found, strict=True) if found else ((), ()), strict=True):
        others = [float(each.action != name) for each in series]
        rows += [
            row(f"{name}: control share", "s", [each.outage for each in series], Limit("p50", 0.5)),
            row(f"{name}: of it MindIO's and the trainer's", "s", [each.ordered for each in series]),
            row(f"{name}: another action was taken", "", others, Limit("max", 0)),
        ]
    ticks = [grown.tick for _, grown in found]
    return [*rows, row("Expand: ordered -> MindIO begins, the training goes on", "s", ticks)]


def warm_spare_rows(found: Sequence[Round]) -> list[Row]:
    """The numbers of nodes that were lost while a warm spare was held."""
    accounts = [each.account for each in found]
    beyond = [each.outage - each.noticed for each in accounts]
    return [
        row("Warm spare: node lost -> training again, beyond detection", "s", beyond, Limit("p50", 2)),
        row("Warm spare: start-up of the processes", "s", [each.startup for each in accounts]),
        row("Warm spare: whole outage", "s", [each.outage for each in accounts]),
        *_common_rows("Replace", found, "Warm spare"),
    ]


def retry_rows(found: Sequence[Retried]) -> list[Row]:
    """The numbers of a series of memory faults."""
    beyond = [each.outage - MINDIO_RETRY_SECONDS for each in found]
    others = [float(each.action != "Retry") for each in found]
    return [
        row("Retry: whole outage", "s", [each.outage for each in found]),
        row("Retry: outage beyond MindIO's own 2.0 s", "s", beyond, Limit("p50", 0.5)),
        row("Retry: another action was taken", "", others, Limit("max", 0)),
    ]


def save_rows(found: Sequence[Saved]) -> list[Row]:
    """The numbers of a series of checkpoints on request."""
    return [
        row("order to save -> first byte", "s", [each.from_order for each in found], Limit("p50", 0.3)),
        row("spec.suspend changed -> first byte", "s", [each.from_request for each in found]),
    ]


def many_ranks_rows(found: Mapping[int, Sequence[Round]]) -> list[Row]:
    """The numbers of the same fault with 8 and with 64 ranks."""
    rows = []
    for ranks, series in found.items():
        accounts = [each.account for each in series]
        rows.append(row(f"InPlace, {ranks} ranks: control share", "s", [each.control for each in accounts]))
        rows.append(row(f"InPlace, {ranks} ranks: whole outage", "s", [each.outage for each in accounts]))
        for name in ("Detection", "Stop", "Naming", "Recovery"):
            values = [each.phases.get(name, 0.0) for each in series]
            rows.append(row(f"InPlace, {ranks} ranks: phase {name}", "s", values))
        others = [float(each.action != "InPlace") for each in accounts]
        rows.append(row(f"InPlace, {ranks} ranks: another action was taken", "", others, Limit("max", 0)))
    few, many = ([each.account.control for each in found[ranks]] for ranks in sorted(found))
    ratio = [statistics.median(many) / statistics.median(few)] if few and many else []
    rows.append(row("InPlace: control share of 64 ranks / of 8, medians", "", ratio, Limit("max", 1.5)))
    return rows


def lost_controller_rows(found: Mapping[int, Sequence[lost_controllers.Unprotected]]) -> list[Row]:
    """How long a training goes on without protection; the new process's own start apart."""
    rows = []
    for ranks, series in found.items():
        name, limit = f"controller lost, {ranks} ranks", Limit("p50", 1 if ranks <= FEW_RANKS else 2)
        rows += [
            row(f"{name}: protected again, beyond the new one's start", "s", [one.beyond for one in series], limit),
            row(f"{name}: start of the new one", "s", [one.start for one in series]),
            row(f"{name}: protected again", "s", [one.whole for one in series]),
            row(f"{name}: a step's time", "%", [one.step_percent for one in series], _step_limit(ranks)),
        ]
    return rows


def _step_limit(ranks: int) -> Limit | None:
    """Many ranks keep this machine's cores busy all the time: what the new controller takes comes from them."""
    return Limit("p50", 0.5) if ranks <= FEW_RANKS else None


def coordinator_rows(found: coordinator_scale.Found) -> list[Row]:
    """The numbers of one coordinator for thousands of agents; of its own CPU time, so that no other load counts."""
    name = f"{coordinator_scale.NODES} agents"
    limit = Limit("max", 1000 * coordinator_scale.LIMIT_SECONDS)
    return [
        row(f"{name}: process exit -> stop_train", "ms", [1000 * found.exit_to_stop], limit),
        row(f"{name}: order about a lost node -> stop_train", "ms", [1000 * found.order_to_stop], limit),
        row(f"{name}: controller lost -> protected again", "s", [found.lost_to_protected], Limit("max", 5)),
        *(
            row(f"{name}: loop held by one {about}", "ms", [1000 * each for each in seconds], limit)
            for about, seconds in sorted(found.turns.items())
        ),
    ]


def live_rows(found: coordinator_live.Live) -> list[Row]:
    """The numbers of one coordinator's process with thousands of agents, over gRPC."""
    name = f"{coordinator_live.NODES} agents over gRPC"
    turn = Limit("max", 1000 * coordinator_scale.LIMIT_SECONDS)
    return [
        row(f"{name}: lost node's silence -> stop_train", "ms", [1000 * found.silence_to_stop], Limit("max", 250)),
        row(f"{name}: order about it -> stop_train", "ms", [1000 * found.order_to_stop], Limit("max", 250)),
        row(f"{name}: nodes given up, one was lost", "", [len(found.given_up)], Limit("max", 1)),
        row(f"{name}: leases that ran out", "", [found.lapsed], Limit("max", 0)),
        row(f"{name}: slowest of {found.answers} leases", "s", [found.slowest_answer], Limit("max", 3)),
        *(
            row(f"{name}: longest turn of the loop, {when}", "ms", [turns["longestMilliseconds"]], turn)
            for when, turns in found.turns.items()
        ),
        row(f"{name}: processor of the coordinator, steady", "%", [100 * found.turns["steady"]["processShare"]]),
        row(f"{name}: coordinator started -> every rank linked", "s", [found.start]),
        row(f"{name}: coordinator killed -> every agent heard", "s", [found.again], Limit("max", 12)),
    ]


def event_cost_rows(many: event_cost.Cost, few: event_cost.Cost) -> list[Row]:
    """The numbers of one event among 10,000 pods, and the memory of a process that knows them."""
    about = "100 jobs of 100 pods"
    return [
        row(f"{about}, 10,000 nodes: event of a pod", "ms", [many.pod_milliseconds], Limit("max", 0.2)),
        row(f"{about}, 10,000 nodes: event of a node", "ms", [many.node_milliseconds], Limit("max", 0.2)),
        row(f"{about}, 1,000 nodes: memory", "MiB", [few.memory], Limit("max", 120)),
    ]


OPERATOR_ROWS: Final = (
    ("large: objects", "1,000 pods of one job: objects made", "s", Limit("max", 10)),
    ("large: all running", "1,000 pods of one job: all run", "s", None),
    ("large: writes", "1,000 pods of one job: writes", "", None),
    ("large: cpu", "1,000 pods of one job: operator's processor time", "s", None),
    ("large: memory", "1,000 pods of one job: operator's most memory", "MiB", None),
    ("large: deletes of one pod", "deleted job: deletes of one pod", "", Limit("max", 1)),
    ("many: objects", "100 jobs of 10 pods: made after the last apply", "s", None),
    ("idle: writes", "idle with these: writes a second", "/s", Limit("max", 0.2)),
    ("idle: cpu", "idle with these: share of a core", "%", Limit("max", 2)),
    ("idle: memory", "idle with these: memory", "MiB", None),
    ("lost pod: all running", "pod lost before training: all run", "s", Limit("p50", 2)),
    ("lost pod: writes", "pod lost before training: writes", "", Limit("max", 12)),
    ("leader ended, SIGTERM", "leader ended (SIGTERM): all jobs known again", "s", None),
    ("leader ended, SIGKILL", "leader ended (SIGKILL): all jobs known again", "s", None),
    ("restart: dry runs", "new leader: dry runs", "", Limit("max", 0)),
    ("restart: writes", "new leader: writes in 20 s", "", None),
    ("restarted: memory", "new leader: memory", "MiB", None),
)
"""Name of the measurement, words of the row, unit, limit."""


def operator_rows(found: operator_scale.Found) -> list[Row]:
    """The numbers of the operator beside a thousand nodes of KWOK; without KWOK none was measured."""
    return [row(words, unit, found.of(name), limit) for name, words, unit, limit in OPERATOR_ROWS]


def mass_loss_rows(found: operator_scale.Found) -> list[Row]:
    """The numbers of many nodes lost at once, and how they grow with the job."""
    rows, medians = [], {}
    for pods, lost in mass_loss.LOSSES:
        limit = Limit("p50", 1) if lost == max(lost for _, lost in mass_loss.LOSSES) else None
        times = found.of(f"{pods}:{lost} last")
        medians[pods] = statistics.median(times) if times else float("nan")
        words = f"{pods:,} pods, {lost} nodes lost"
        rows += [
            row(f"{words}: reported -> all replacements created", "s", times, limit),
            row(f"{words}: writes beyond 2 for each", "", found.of(f"{pods}:{lost} writes"), Limit("max", 12)),
        ]
    small, large = min(medians), max(medians)
    ratio = [medians[large] / medians[small]] if all(map(math.isfinite, medians.values())) else []
    return [*rows, row(f"the same loss: time at {large:,} pods / at {small}, medians", "", ratio, Limit("max", 1.5))]


def overhead_rows(ranks: int, found: Sequence[overhead.Pair]) -> list[Row]:
    """The numbers of a series of trainings of so many ranks with Hajob and without it."""
    differences = [each.percent for each in found]
    ends = overhead.interval(differences) if differences else ()
    return [
        row(f"{ranks} ranks: step of 50 ms with Hajob", "ms", [1000 * each.with_hajob for each in found]),
        row(f"{ranks} ranks: step of 50 ms without Hajob", "ms", [1000 * each.without for each in found]),
        row(f"{ranks} ranks: Hajob's share of a step, paired runs", "%", differences, Limit("p50", 0.5)),
        row(f"{ranks} ranks: its median, 95 % interval, lower end", "%", ends[:1]),
        row(f"{ranks} ranks: its median, 95 % interval, upper end", "%", ends[1:]),
    ]


def _common_rows(action: str, found: Sequence[Round], name: str = "") -> list[Row]:
    name = name or action
    accounts = [each.account for each in found]
    others = [float(each.action != action) for each in accounts]
    broken = [float(len(each.broken_promises)) for each in accounts]
    return [
        row(f"{name}: API writes", "", [each.write_count for each in accounts], Limit("max", 12)),
        row(f"{name}: another action was taken", "", others, Limit("max", 0)),
        row(f"{name}: broken promises", "", broken, Limit("max", 0)),
    ]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make bench", description="measures recoveries and overhead")
    parser.add_argument("--rounds", type=int, default=20, help="of each recovery (20)")
    parser.add_argument("--quiet-rounds", type=int, default=200, help="of what must not be taken for a fault (200)")
    parser.add_argument("--pairs", type=int, default=20, help="of trainings with and without Hajob (20)")
    providers.add_option(parser)
    parser.add_argument("--only", action="append", choices=SECTIONS, help="this section, may be repeated (all)")
    parser.add_argument("--output", type=Path, help="the JSON file; the table goes beside it")
    parser.add_argument("--against", metavar="REV", help="play in turns with this revision instead, and compare")
    parser.add_argument("--turns", type=int, default=4, help="of each side and section with --against (4)")
    return parser.parse_args(arguments)


def play_against(chosen: argparse.Namespace) -> int:
    """Compare with another revision; 0 unless something could not be measured."""
    if chosen.provider not in {None, "processes"}:
        print(f"--against plays on process nodes only, not on {chosen.provider}", file=sys.stderr)
        return 1
    wanted = chosen.only or SECTIONS
    sections = [name for name in wanted if name in against.ROUNDS_OF_A_TURN]
    if others := [name for name in wanted if name not in sections]:
        print(f"left out, they are not played against another revision: {', '.join(others)}", file=sys.stderr)
    began = time.monotonic()

    def say(words: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {words}", file=sys.stderr, flush=True)

    output = chosen.output or RESULTS / "against.json"
    try:
        return against.measure(chosen.against, sections, chosen.turns, output, say)
    except against.RevisionError as error:
        print(error, file=sys.stderr)
        return 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; 0 unless a section could not be measured."""
    chosen = parse(arguments)
    if chosen.against:
        return play_against(chosen)
    away = providers.elsewhere(chosen, "e2e.bench", sys.argv[1:] if arguments is None else arguments, {})
    if away is not None:
        return away
    about = {
        "machine": report.machine(),
        "rounds": chosen.rounds,
        "quietRounds": chosen.quiet_rounds,
        "pairs": chosen.pairs,
    }
    with Run.start("the benchmark") as run:
        bench = Bench(run, chosen)
        try:
            bench.measure()
        except KeyboardInterrupt:
            bench.problems.append("interrupted")
    output = chosen.output or RESULTS / f"{FILES.get(providers.name(), providers.name())}.json"
    report.write(output, bench.rows, about | {"problems": bench.problems}, bench.plan)
    print(report.table(bench.rows))
    for figure in bench.plan:
        limit = f"   {figure.limit}: {'ok' if figure.met else 'missed'}" if figure.limit else ""
        print(f"{figure.name:<58} {figure.value:>12,.1f} {figure.unit:<4}{limit}")
    print(f"written to {output}")
    for problem in bench.problems:
        print(f"not measured: {problem}", file=sys.stderr)
    return 1 if bench.problems else 0


if __name__ == "__main__":
    sys.exit(main())
