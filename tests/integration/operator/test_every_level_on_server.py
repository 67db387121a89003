"""What each level of each source leads to on a real API server, and that nothing more follows.

One operator's process and one job for each row, all at once. Objects are what device plugin, NodeD, ClusterD, kubelets
and people write; pods run in name only and coordinators are scripted, so that what is looked at is what the operator
reads, decides and writes. Whole trainings with such faults: `e2e/scenarios/test_hardware_faults.py`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from e2e.cluster import audit
from e2e.cluster.control_plane import ControlPlane
from e2e.nodes import faults as writers
from hajob.job.status.freshness import OFTEN_SECONDS
from hajob.protocol import sidecar_pb2 as wire
from tests.integration.operator import level_rows as rows
from tests.integration.operator.level_rows import Outcome, Row, Scene
from tests.integration.operator.scripted_jobs import ScriptedJobs, lane_nodes

Object = dict[str, Any]

ROW_SECONDS = 120.0
QUIET_SECONDS = 2.0
BUDGETS = 2
"""PodDisruptionBudgets of a job: the last that is made for its start."""
AGENT = b"hajob-operator/"
STATUS = "patch hatrainingjobs/status"
JOURNAL = frozenset({STATUS, "create events", "patch events"})
"""What every incident writes."""

NOTHING = Outcome()
REPLACING = ("create pods", "delete pods")
MOVING = ("create pods", "delete pods", "patch poddisruptionbudgets")


def kept_out(reason: str) -> Outcome:
    """The training goes on, no new pod is placed there."""
    return Outcome(quarantine=reason)


def in_place(*ranks: int, order: str = "IN_PLACE") -> Outcome:
    return Outcome((order,), ranks)


def replaced(quarantine: str = "") -> Outcome:
    return Outcome(("REPLACE",), (2, 3), (1,), quarantine, REPLACING)


TAKEN = Outcome(("REPLACE",), (2, 3), (1,), writes=("create pods",))
"""Somebody else has deleted the pod."""
SAID = Outcome(writes=("create events", "patch hatrainingjobs/status"))
"""It stands in the conditions, and nothing follows."""
SUCCEEDED = Outcome(writes=("create pods", "delete pods", "patch hatrainingjobs/status"))
"""The coordinator has a successor; the training hears of nothing."""
MOVED = Outcome(("MIGRATE",), (2, 3), (1,), writes=MOVING)
SAVED = Outcome(("CHECKPOINT",), (2, 3), (0, 1), writes=REPLACING)
STARTED_ANEW = Outcome((), (), (0, 1), writes=REPLACING)

DEVICE = (
    Row("not handle", rows.device("NotHandleFault"), NOTHING),
    Row("sub-health, by default", rows.device("SubHealthFault"), MOVED),
    Row("sub-health, Migrate", rows.device("SubHealthFault"), MOVED, {"subHealthPolicy": "Migrate"}),
    Row("sub-health, Ignore", rows.device("SubHealthFault"), NOTHING, {"subHealthPolicy": "Ignore"}),
    Row("sub-health, Evict", rows.device("SubHealthFault"), replaced(), {"subHealthPolicy": "Evict"}),
    Row("sub-health, Checkpoint", rows.device("SubHealthFault"), SAVED, {"subHealthPolicy": "Checkpoint"}),
    Row("restart request", rows.device("RestartRequest"), in_place(3)),
    Row("restart business", rows.device("RestartBusiness"), in_place(3)),
    Row("free restart", rows.device("FreeRestartNPU", healthy=True), kept_out("FreeRestartNPU")),
    Row("free restart, unhealthy", rows.device("FreeRestartNPU"), replaced("FreeRestartNPU")),
    Row("restart chip", rows.device("RestartNPU"), replaced("RestartNPU")),
    Row("pre-separate", rows.device("PreSeparateNPU"), kept_out("PreSeparateNPU")),
    Row("separate", rows.device("SeparateNPU"), replaced("SeparateNPU")),
    Row("manually separate", rows.device("ManuallySeparateNPU"), replaced("ManuallySeparateNPU")),
    Row("unknown level", rows.device("NeverHeardOf", code="FFFF0001"), replaced("SeparateNPU")),
    Row("another pod's chip", rows.device("RestartNPU", chip=7), kept_out("RestartNPU")),
    Row("link down", rows.device("NotHandleFault", code="81078603", kind="CardNetworkUnhealthy"), NOTHING),
    Row("memory fault", rows.device("RestartBusiness", code="80E01801"), in_place(3)),
    Row("isolated by hand", rows.isolated_by_hand(), replaced("ManuallySeparateNPU")),
    Row("raised to separate", rows.upgraded("SeparateNPU"), replaced("SeparateNPU")),
    Row("raised to pre-separate", rows.upgraded("PreSeparateNPU"), kept_out("PreSeparateNPU")),
    Row("wrong seal", rows.broken_seal(), NOTHING),
)
SWITCH = (
    Row("not handle", rows.switch("NotHandle"), NOTHING),
    Row("sub-health", rows.switch("SubHealth"), MOVED),
    Row("sub-health, Ignore", rows.switch("SubHealth"), NOTHING, {"subHealthPolicy": "Ignore"}),
    Row("restart request", rows.switch("RestartRequest"), in_place(2, 3)),
    Row("reset", rows.switch("Reset"), replaced("RestartNPU")),
    Row("separate", rows.switch("Separate"), replaced("SeparateNPU")),
)
NODED = (
    Row("not handle", rows.noded("NotHandleFault"), NOTHING),
    Row("pre-separate", rows.noded("PreSeparateFault"), kept_out("PreSeparateNPU")),
    Row("separate", rows.noded("SeparateFault"), replaced("SeparateNPU")),
)
NODE = (
    Row("not ready", rows.not_ready, NOTHING),
    Row("condition of sub-health", rows.condition("Slow"), MOVED),
    Row("condition that isolates", rows.condition("Broken"), replaced("SeparateNPU")),
    Row("condition nobody named", rows.condition("Unnamed"), NOTHING),
    Row("taint", rows.tainted("team"), NOTHING),
    Row("taint of an autoscaler", rows.tainted("ToBeDeletedByClusterAutoscaler"), MOVED),
    Row("cordoned", rows.cordoned, MOVED),
    Row("cordoned, Ignore", rows.cordoned, Outcome(writes=("create events",)), {"cordonPolicy": "Ignore"}),
    Row("being deleted", rows.node_is_being_deleted, MOVED),
    Row("gone", rows.node_is_gone, TAKEN, maybe="delete pods"),
)
POD = (
    Row("out of memory", rows.container_ended("OOMKilled", 137), replaced()),
    Row("ended by its program", rows.container_ended("Error", 1), replaced()),
    Row("evicted", rows.evicted_by_kubelet, replaced()),
    Row("preempted", rows.taken("PreemptionByScheduler"), TAKEN),
    Row("deleted by somebody", rows.deleted, TAKEN),
    Row("image cannot be pulled", rows.image_cannot_be_pulled, SAID),
)
PUBLIC = (
    Row("not handle", rows.public("100001011"), NOTHING),
    Row("sub-health", rows.public("010001001"), MOVED),
    Row("pre-separate", rows.public("110001022"), kept_out("PreSeparateNPU")),
    Row("separate", rows.public("020001001"), replaced("SeparateNPU")),
    Row("recover", rows.public("020001001", assertion="recover"), NOTHING),
    Row("unknown code", rows.public("999999999"), NOTHING),
    Row("unknown sender", rows.public("020001001", sender="anybody"), NOTHING),
)
CLUSTER = (
    Row("chip, not handle", rows.gathered_chips("NotHandleFault"), NOTHING),
    Row("chip, restart business", rows.gathered_chips("RestartBusiness"), in_place(3)),
    Row("chip, separate", rows.gathered_chips("SeparateNPU"), replaced("SeparateNPU")),
    Row("chip, isolated", rows.isolated_by_clusterd(), replaced("ManuallySeparateNPU")),
    Row("chip, public fault", rows.repeated_by_clusterd("SeparateNPU"), replaced("SeparateNPU")),
    Row("switch, sub-health", rows.gathered_switches("SubHealth"), MOVED),
    Row("switch, separate", rows.gathered_switches("Separate"), replaced("SeparateNPU")),
    Row("node, pre-separate", rows.gathered_hardware("PreSeparateFault"), kept_out("PreSeparateNPU")),
    Row("node, separate", rows.gathered_hardware("SeparateFault"), replaced("SeparateNPU")),
    Row("device plugin and ClusterD", rows.device_and_gathered, replaced("RestartNPU")),
    Row("sender and ClusterD", rows.public_and_repeated, replaced("SeparateNPU")),
)
REPORT = (
    Row("process exited", rows.report(wire.PROCESS_EXITED, exit_code=-9), in_place(3)),
    Row("program failed", rows.report(wire.PROCESS_EXITED, exit_code=1), in_place(3)),
    Row("container killed", rows.report(wire.PROCESS_EXITED, exit_code=-9, code="ContainerKilled"), replaced()),
    Row("agent silent", rows.report(wire.AGENT_SILENT, ranks=[2, 3]), replaced()),
    Row("memory fault", rows.report(wire.MEMORY_FAULT, code="507053"), in_place(3, order="RETRY")),
    Row("network fault", rows.report(wire.COMMUNICATION_FAULT, code="507904"), in_place(3, order="RETRY")),
    Row("found by MindIO", rows.report(wire.PROCESS_FAULT), in_place(3)),
    Row("hang", rows.report(wire.HANG), in_place(3)),
    Row("log rule", rows.report(wire.LOG_RULE, code="nan"), STARTED_ANEW),
    Row("heartbeats silent", rows.report(wire.HEARTBEAT_SILENT), in_place(3)),
    Row("script ended", rows.report(wire.SCRIPT_ENDED, exit_code=1), replaced()),
    Row("port taken", rows.report(wire.PORT_TAKEN), replaced()),
    Row(
        "connection lost",
        rows.connection_lost,
        SUCCEEDED,
        maybe="create events",
    ),
)
TABLE = {
    f"r{number:02}": (f"{source}: {row.name}", row)
    for number, (source, row) in enumerate(
        (source, row)
        for source, table in {
            "device plugin": DEVICE,
            "switch": SWITCH,
            "NodeD": NODED,
            "node": NODE,
            "pod": POD,
            "public fault": PUBLIC,
            "ClusterD": CLUSTER,
            "report": REPORT,
        }.items()
        for row in table
    )
}
"""A word for each row to what it is called, and the row."""


QUIET = "quiet"
LANES = 4


@dataclass
class Played:
    """A row as it was played.

    Attributes:
        begin, end: between these its operator's writes are this row's.
        found: what became of the job, writes apart.
        incidents: of the job, in this time.
        said: what the job was like when it did not become as expected.
    """

    scene: Scene
    begin: datetime
    end: datetime
    found: Outcome
    incidents: int
    said: str = ""


class OperatorWrites:
    """What the operator has written in one namespace; of the audit log only what is new is read each time."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._path, self._namespace = plane.audit.path, namespace.encode()
        self._at = self._path.stat().st_size
        self._found: list[audit.Request] = []

    def read(self) -> list[audit.Request]:
        with self._path.open("rb") as log:
            log.seek(self._at)
            for line in log:
                if not line.endswith(b"\n"):
                    break  # the server is writing this one now
                self._at += len(line)
                if AGENT in line and self._namespace in line:
                    self._take(line)
        return self._found

    def _take(self, line: bytes) -> None:
        one = audit.parse(json.loads(line))
        if one is not None and one.kind == "write" and one.namespace == self._namespace.decode():
            self._found.append(one)


class Table:
    """All rows on one control plane. Rows after which nothing follows share one job, and play there all at once; the
    others are shared out among a few jobs, which recover from one after the other.
    """

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane, self.namespace = plane, namespace
        self.jobs = ScriptedJobs(plane, namespace)
        self.played: dict[str, Played] = {}
        self.writes = OperatorWrites(plane, namespace)
        self.lanes = self._lanes()

    @staticmethod
    def _lanes() -> dict[str, list[str]]:
        """Words of rows by their job."""
        lanes: dict[str, list[str]] = {QUIET: []}
        turn = itertools.cycle(range(LANES))
        for word, (_, row) in TABLE.items():
            policy = "".join(row.recovery.values()).lower()
            is_silent = row.outcome.is_quiet and not row.outcome.writes
            lane = QUIET if is_silent or policy == "ignore" else f"lane-{policy or next(turn)}"
            lanes.setdefault(lane, []).append(word)
        return lanes

    def num_nodes(self) -> dict[str, int]:
        """Of each job: as many as it needs, and one in addition for each pod that moves."""
        moves = {lane: sum(1 in TABLE[word][1].outcome.anew for word in words) for lane, words in self.lanes.items()}
        return {lane: self._ranks(lane) + moves[lane] for lane in self.lanes}

    def _ranks(self, lane: str) -> int:
        """Node ranks of a job: an even number, so that each has a copy elsewhere."""
        return 2 * (len(self.lanes[lane]) // 2 + 1) if lane == QUIET else 2

    @contextmanager
    def operator(self) -> Iterator[None]:
        """An operator's process that looks after this namespace and these nodes."""
        self.plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": writers.NODE_NAMESPACE}})
        settings = {"name": "hajob-faults", "labels": {"training.hajob.io/settings": "faults"}}
        path = f"/api/v1/namespaces/{self.namespace}/configmaps"
        self.plane.api.create(path, {"metadata": settings, "data": rows.SETTINGS})
        environment = {
            "HAJOB_KUBECONFIG": str(self.plane.kubeconfig),
            "HAJOB_NAMESPACE": self.namespace,
            "HAJOB_WATCH_NAMESPACES": self.namespace,
            "HAJOB_FAULT_NODE_SELECTOR": f"pool={self.namespace}",
            "HAJOB_METRICS_PORT": "0",
        }
        command = [sys.executable, "-m", "hajob.app.operator"]
        process = self.plane.run.spawn(f"operator-{self.namespace}", command, environment)
        try:
            yield
        finally:
            process.kill()
            process.wait()

    async def train(self) -> None:
        """Every job runs."""
        for lane, words in self.lanes.items():
            recovery: Object = {}
            for word in words:
                recovery |= TABLE[word][1].recovery
            await asyncio.to_thread(self.jobs.apply, lane, self._ranks(lane), recovery)
        await self.jobs.until("all jobs to run", lambda: all(self.jobs.state(lane) == "Running" for lane in self.lanes))
        await self.jobs.until("their starts to be over", self._is_quiet)
        self.writes = OperatorWrites(self.plane, self.namespace)

    def _is_quiet(self) -> bool:
        """Whether everything that belongs to a start is written, the last of it a while ago."""
        written = self.writes.read()
        made = sum((one.verb, one.resource) == ("create", "poddisruptionbudgets") for one in written)
        return (
            made >= BUDGETS * len(self.lanes) and (audit.now() - written[-1].answered).total_seconds() > QUIET_SECONDS
        )

    async def play(self) -> None:
        """First what nothing follows from, so that it has been read when something has followed from another."""
        silent = [word for word in self.lanes[QUIET] if not TABLE[word][1].outcome.writes]
        await asyncio.gather(*(self._begin(QUIET, word, number) for number, word in enumerate(silent)))
        await asyncio.gather(*(self._play(lane, words) for lane, words in self.lanes.items() if lane != QUIET))
        (told,) = set(self.lanes[QUIET]) - set(silent)
        quiet = [played for played in self.played.values() if played.scene.job == QUIET]
        for played in quiet:
            self._look(played)
            played.end = audit.now()
        await asyncio.gather(*(played.scene.take_back() for played in quiet))
        await self._begin(QUIET, told, len(silent))
        await self._wait_for(told)

    async def _play(self, lane: str, words: Sequence[str]) -> None:
        for word in words:
            await self._begin(lane, word, 1)
            await self._wait_for(word)
            await self.played[word].scene.take_back()

    async def _begin(self, lane: str, word: str, node_rank: int) -> None:
        await self.jobs.until(f"a pod for {word}", lambda: len(self.jobs.rank_pods(lane).get(node_rank, [])) == 1)
        (pod,) = self.jobs.rank_pods(lane)[node_rank]
        scene = Scene(self.jobs, lane, pod, word)
        scene.remember()
        now = audit.now()
        for played in self.played.values():
            played.end = min(played.end, now) if played.scene.job == lane != QUIET else played.end
        self.played[word] = Played(scene, now, datetime.max.replace(tzinfo=UTC), Outcome(), 0)
        await TABLE[word][1].act(scene)

    async def _wait_for(self, word: str) -> None:
        played, expected = self.played[word], TABLE[word][1].outcome

        def is_as_expected() -> bool:
            self._look(played)
            is_right = played.found == replace(expected, writes=()) and played.incidents == _incidents(expected)
            if is_right and expected.is_quiet:
                return self._writes(played, expected) == set(expected.writes)
            return is_right and played.scene.is_over() and self._is_written(played, expected)

        try:
            await self.jobs.until(word, is_as_expected, ROW_SECONDS)
        except AssertionError:  # the table tells all that is wrong
            newest = (self.jobs.status(played.scene.job).get("incidents") or [{}])[0]
            pods = {name: pod["status"] for name, pod in self.jobs.pods.items() if _is_of(played.scene.job, name)}
            played.said = f"{self.jobs.state(played.scene.job)}: {newest}; {pods}"

    def _is_written(self, played: Played, expected: Outcome) -> bool:
        """Whether the last that a move writes is there: budgets for one pod more, and then for one less."""
        budgets = [one for one in self._of_row(played) if (one.verb, one.resource) == ("patch", "poddisruptionbudgets")]
        return len(budgets) >= 2 * (expected.writes == MOVING)

    def _look(self, played: Played) -> None:
        scene = played.scene
        orders = scene.orders()
        played.incidents = scene.incidents()
        played.found = Outcome(
            orders=tuple(wire.Action.Name(order.action) for order in orders),
            lost=tuple(orders[0].lost_ranks) if orders else (),
            anew=scene.anew(),
            quarantine=self.jobs.kept_out(scene.node),
        )

    def _writes(self, played: Played, expected: Outcome) -> set[str]:
        """What the operator has written about the job in the time of a row."""
        found = {f"{one.verb} {one.resource}" for one in self._of_row(played)}
        found.discard(TABLE[played.scene.row][1].maybe)
        status = [one for one in self._of_row(played) if f"{one.verb} {one.resource}" == STATUS]
        if (
            len(status) <= 1 + (played.end - played.begin).total_seconds() / OFTEN_SECONDS
            and STATUS not in expected.writes
        ):
            found.discard(STATUS)  # the step of a young job is written so often, whatever happens
        return found - JOURNAL if played.incidents else found

    def _of_row(self, played: Played) -> list[audit.Request]:
        written = (one for one in self.writes.read() if played.begin <= one.answered <= played.end)
        return [one for one in written if _is_of(played.scene.job, one.name)]

    def differences(self) -> list[str]:
        """Rows that are not as the table has them, and what has happened to anything else; empty: all is right."""
        lines = []
        for word, (name, row) in TABLE.items():
            played, expected = self.played[word], row.outcome
            found = replace(played.found, writes=tuple(sorted(self._writes(played, expected))))
            if (found, played.incidents) != (expected, _incidents(expected)):
                lines += [f"{word} {name}, job {played.scene.job}", f"    expected {expected}"]
                lines += [f"    found    {found}, {played.incidents} incidents", f"    {played.said}"]
        named = {played.scene.node for word, played in self.played.items() if TABLE[word][1].outcome.quarantine}
        kept = {name for name in self.jobs.quarantines if name.startswith(self.namespace)}
        lines += [f"{node} was kept out" for node in sorted(kept - named)]
        strange = [one for one in self.writes.read() if not any(_is_of(lane, one.name) for lane in self.lanes)]
        return lines + [f"{one.verb} {one.resource} {one.name}" for one in strange]

    def all_let_in(self) -> bool:
        """Whether no node of the table is kept out any more."""
        mine = [name for name in self.jobs.quarantines if name.startswith(self.namespace)]
        return bool(mine) and not any(map(self.jobs.kept_out, mine))

    def clean_up(self) -> None:
        """Nothing of it stays on the control plane, which other tests use."""
        for played in self.played.values():
            played.scene.clean_up()


def _is_of(job: str, name: str) -> bool:
    """Whether an object of this name is the job, or one of its own."""
    return re.match(rf"{job}(?![a-z0-9])", name) is not None


def _incidents(expected: Outcome) -> int:
    return 0 if expected.is_quiet else 1


@pytest.mark.slow
async def test_each_level_of_each_source(control_plane: ControlPlane, crd: Object, namespace: str) -> None:
    assert crd
    table = Table(control_plane, namespace)
    with table.operator(), lane_nodes(control_plane, namespace, table.num_nodes()):
        async with table.jobs.living():
            try:
                await table.train()
                await table.play()
                await table.jobs.until("all nodes to be let in", table.all_let_in)
                assert "\n".join(table.differences()) == ""
            finally:
                table.clean_up()
