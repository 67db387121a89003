"""A whole rank pod of real processes, from the coordinator's side: start, exit, hold, admit."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.certificates import Authority
from tests.rigs.rank_pod import Controller, Coordinator, rank_order, running_pod, until
from tests.rigs.trainer_container import standing_ready

SCRIPT = 'echo begin; torchrun --nproc_per_node 2 "$HAJOB_DIR/rank.py"; echo "script saw $?"'


async def test_ranks_start_link_and_report_their_steps(tmp_path: Path, authority: Authority) -> None:
    async with running_pod(tmp_path, authority, SCRIPT) as pod:
        controller = Controller()
        await controller.start()
        coordinator = Coordinator(pod, authority)
        await coordinator.connect()
        await coordinator.order(rank_order(0), rank_order(1), controller=controller.address)
        for rank in (0, 1):
            await coordinator.phase(rank, pb.LINKED)
        await until(lambda: coordinator.state(1).step > 7, "steps of rank 1")
        told = {(step.rank, step.heartbeat) for report in coordinator.reports for step in report.steps}
        assert told == {(rank, heartbeat) for rank in (0, 1) for heartbeat in (False, True)}
        assert coordinator.facts == {}
        await coordinator.close()
        await controller.stop()


async def test_an_exit_is_reported_and_the_successor_waits_at_the_gate(tmp_path: Path, authority: Authority) -> None:
    async with running_pod(tmp_path, authority, SCRIPT) as pod:
        controller = Controller()
        await controller.start()
        coordinator = Coordinator(pod, authority)
        await coordinator.connect()
        await coordinator.order(rank_order(0), rank_order(1), controller=controller.address)
        await coordinator.phase(0, pb.LINKED)
        process = await coordinator.phase(1, pb.LINKED)
        await until(lambda: coordinator.state(1).step > 7, "a step that rank 1 has printed")
        os.kill(process.pid, signal.SIGKILL)
        await until(lambda: bool(coordinator.facts), "the fact of the exit")
        (fact,) = coordinator.facts.values()
        assert (fact.kind, fact.exit_code, list(fact.ranks)) == (pb.PROCESS_EXITED, -9, [1])
        assert "iteration" in fact.message

        linked_before = controller.links.count(1)
        await coordinator.order(rank_order(0), rank_order(1, 2, admitted=False), controller=controller.address)
        await coordinator.phase(1, pb.AT_GATE, incarnation=2)
        assert controller.links.count(1) == linked_before
        await coordinator.order(rank_order(0), rank_order(1, 2), controller=controller.address)
        await coordinator.phase(1, pb.LINKED, incarnation=2)
        assert controller.links.count(1) == linked_before + 1
        assert coordinator.state(0).incarnation == 1
        await coordinator.close()
        await controller.stop()
        await asyncio.sleep(0)


async def test_a_warm_spare_takes_any_node_rank_and_trains(tmp_path: Path, authority: Authority) -> None:
    """Nobody has told it which pod it is; its ranks stand ready, and are the processes that train."""
    spare = {"HAJOB_SPARE": "true", "HAJOB_NODE_RANK": "2", "HAJOB_WORLD_SIZE": "4"}
    async with running_pod(tmp_path, authority, SCRIPT, more=spare) as pod:
        controller = Controller()
        await controller.start()
        coordinator = Coordinator(pod, authority)
        await coordinator.connect(incarnation=7)
        await until(lambda: any(report.launcher_ready for report in coordinator.reports), "the launch of the script")
        assert not coordinator.reports[-1].ranks
        launcher = pod.launcher.pid if pod.launcher else 0
        await until(lambda: len(standing_ready(launcher)) == 2, "the processes that stand ready")
        ready = standing_ready(launcher)
        await coordinator.order(rank_order(2, 7), rank_order(3, 7), controller=controller.address)
        pids = {(await coordinator.phase(rank, pb.LINKED, incarnation=7)).pid for rank in (2, 3)}
        assert pids == ready
        await until(lambda: coordinator.state(3).step > 3, "steps of rank 3")
        os.kill(coordinator.state(3).pid, signal.SIGKILL)
        await until(lambda: bool(coordinator.facts), "the fact of the exit")
        (fact,) = coordinator.facts.values()
        assert (fact.node_rank, list(fact.ranks), fact.incarnation) == (1, [3], 7)
        await coordinator.order(rank_order(2, 7), rank_order(3, 8), controller=controller.address)
        await coordinator.phase(3, pb.LINKED, incarnation=8)
        await coordinator.close()
        await controller.stop()


HANGS = """
import os, sys, time
def stuck_in_a_collective():
    print("rank up", flush=True)
    time.sleep(600)
stuck_in_a_collective()
"""


async def test_where_a_rank_stands_is_told_and_kept_and_it_lives_on(tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "hangs.py").write_text(HANGS)
    async with running_pod(tmp_path, authority, 'torchrun --nproc_per_node 2 "$HAJOB_DIR/hangs.py"') as pod:
        coordinator = Coordinator(pod, authority)
        await coordinator.connect()
        await coordinator.order(rank_order(0), rank_order(1))
        await coordinator.phase(0, pb.STARTING)
        process = await coordinator.phase(1, pb.STARTING)
        kept = tmp_path / "output" / "1" / "rank-1.1.log"
        await until(lambda: kept.exists() and "rank up" in kept.read_text(), "its output")
        for number in (1, 2):
            await coordinator.order(rank_order(0), rank_order(1, stacks=number))
            fact_id = f"uid-0/stack/1/1/0/{number}"
            await until(lambda fact_id=fact_id: fact_id in coordinator.facts, "the stack")  # type: ignore[misc]
            fact = coordinator.facts[fact_id]
            assert (fact.kind, list(fact.ranks)) == (pb.STACK, [1])
            assert "in stuck_in_a_collective" in fact.message
        await until(lambda: kept.read_text().count("in stuck_in_a_collective") == 2, "the stack in the output")
        assert f"hajob: where rank 1, process {process.pid}, stands:" in kept.read_text()
        assert coordinator.state(1).pid == process.pid
        assert coordinator.facts.keys() == {"uid-0/stack/1/1/0/1", "uid-0/stack/1/1/0/2"}
        await coordinator.close()
