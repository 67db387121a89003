"""What a start script sees of Hajob: exit codes, what comes after torchrun, its mistakes named."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest

from e2e.cluster.loopback import own_port
from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.certificates import Authority
from tests.rigs.rank_pod import (
    ADDRESS,
    PATIENCE,
    REGISTERING,
    Controller,
    Coordinator,
    Pod,
    is_alive,
    rank_order,
    running_pod,
    until,
)

FINISHING = REGISTERING + 'print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])'


async def ended(pod: Pod) -> int:
    assert pod.launcher is not None
    return await asyncio.wait_for(pod.launcher.wait(), PATIENCE)


async def ordered(pod: Pod, authority: Authority) -> Coordinator:
    coordinator = Coordinator(pod, authority)
    await coordinator.connect()
    await coordinator.order(rank_order(0), rank_order(1))
    return coordinator


async def test_the_script_goes_on_after_its_ranks(tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "job.py").write_text(FINISHING)
    script = (
        'cd "$HAJOB_DIR"; torchrun --nproc_per_node 8 job.py --a b | tee log.txt; echo "tail ${PIPESTATUS[0]}"; exit 7'
    )
    async with running_pod(tmp_path, authority, script) as pod:
        coordinator = await ordered(pod, authority)
        assert await ended(pod) == 0
        assert "tail 0" in pod.log()
        printed = (tmp_path / "log.txt").read_text().splitlines()
        assert [line for line in sorted(printed) if " of 2" in line] == ["[rank 0] rank 0 of 2", "[rank 1] rank 1 of 2"]
        assert "--nproc-per-node 8 is overridden by the job: 2" in pod.log()
        await until(lambda: coordinator.reports[-1].script_ended, "the end of the script")
        assert {state.phase for state in coordinator.reports[-1].ranks} == {pb.FINISHED}
        assert coordinator.facts == {}
        await coordinator.close()


async def test_a_script_that_never_calls_torchrun_is_named(tmp_path: Path, authority: Authority) -> None:
    async with running_pod(tmp_path, authority, "echo no training here; exit 3") as pod:
        coordinator = await ordered(pod, authority)
        await until(lambda: bool(coordinator.facts), "the fact")
        (fact,) = coordinator.facts.values()
        assert (fact.kind, fact.exit_code) == (pb.SCRIPT_ENDED, 3)
        assert "without calling torchrun or msrun" in fact.message
        assert "no training here" in fact.message
        assert await ended(pod) == 3
        await coordinator.close()


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        ("torchrun --no-such-option x.py", "torchrun: "),
        ("torchrun", "torchrun: "),
        ("msrun --worker_num", "msrun: "),
    ],
)
async def test_a_wrong_call_fails_in_the_script(
    tmp_path: Path, authority: Authority, call: str, complaint: str
) -> None:
    async with running_pod(tmp_path, authority, f'{call}; echo "saw $?"') as pod:
        assert await ended(pod) == 65
        assert complaint in pod.log()
        assert "saw 64" in pod.log()


async def test_a_program_that_does_not_exist_travels_with_its_reason(tmp_path: Path, authority: Authority) -> None:
    async with running_pod(tmp_path, authority, "torchrun --no-python /no/such/program") as pod:
        coordinator = await ordered(pod, authority)
        await until(lambda: len(coordinator.facts) == 2, "two facts")
        for fact in coordinator.facts.values():
            assert (fact.kind, fact.exit_code) == (pb.PROCESS_EXITED, 127)
            assert "/no/such/program" in fact.message
        await coordinator.close()


async def test_a_second_call_runs_as_what_it_is(tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "job.py").write_text(FINISHING)
    script = 'cd "$HAJOB_DIR"; torchrun job.py; torchrun job.py; echo "saw $?"'
    async with running_pod(tmp_path, authority, script) as pod:
        coordinator = await ordered(pod, authority)
        assert await ended(pod) == 0
        assert "torchrun runs as what it is: the training was launched before it" in pod.log()
        await coordinator.close()


async def test_a_torchrun_that_the_script_kills_takes_its_ranks_along(tmp_path: Path, authority: Authority) -> None:
    script = 'torchrun "$HAJOB_DIR/rank.py" & echo $! > "$HAJOB_DIR/torchrun.pid"; wait; echo "saw $?"'
    async with running_pod(tmp_path, authority, script) as pod:
        coordinator = await ordered(pod, authority)
        pids = [(await coordinator.phase(rank, pb.AT_GATE)).pid for rank in (0, 1)]
        os.kill(int((tmp_path / "torchrun.pid").read_text()), signal.SIGTERM)
        await until(lambda: not any(is_alive(pid) for pid in pids), "the end of the ranks")
        await until(lambda: len(coordinator.facts) >= 2, "the facts")
        await coordinator.close()


async def test_msrun_sets_what_a_worker_needs(tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "job.py").write_text(
        REGISTERING + 'print({k: v for k, v in os.environ.items() if k.startswith("MS_")})'
    )
    script = 'cd "$HAJOB_DIR"; msrun --worker_num=2 --local_worker_num=2 job.py'
    async with running_pod(tmp_path, authority, script) as pod:
        coordinator = await ordered(pod, authority)
        assert await ended(pod) == 0
        assert "'MS_ROLE': 'MS_WORKER'" in pod.log()
        assert "'MS_SCHED_PORT': '29500'" in pod.log()
        assert "'MS_NODE_ID': '1'" in pod.log()
        await coordinator.close()


async def test_the_last_output_of_a_dying_rank_arrives_whole(tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "job.py").write_text("import sys\nfor i in range(2000): print('line', i)\nsys.exit('the reason')")
    async with running_pod(tmp_path, authority, 'cd "$HAJOB_DIR"; torchrun job.py') as pod:
        coordinator = await ordered(pod, authority)
        await until(lambda: len(coordinator.facts) == 2, "two facts")
        for fact in coordinator.facts.values():
            assert fact.exit_code == 1
            assert "line 1999" in fact.message
            assert "the reason" in fact.message
        await coordinator.close()


async def test_a_log_rule_sees_what_the_ranks_print(tmp_path: Path, authority: Authority) -> None:
    program = "import time\nfor i in range(3): print('lm loss: nan')\ntime.sleep(600)"
    (tmp_path / "job.py").write_text(program)
    async with running_pod(tmp_path, authority, 'cd "$HAJOB_DIR"; torchrun job.py') as pod:
        coordinator = Coordinator(pod, authority)
        await coordinator.connect()
        rules = [pb.LogRule(name="nan", pattern="loss: nan$", threshold=3, window_seconds=60)]
        order = pb.NodeOrder(revision=1, ranks=[rank_order(0), rank_order(1)], log_rules=rules)
        await coordinator.send(pb.CoordinatorToAgent(node_order=order))
        await until(lambda: len(coordinator.facts) == 2, "a fact of each rank")
        facts = sorted(coordinator.facts.values(), key=lambda fact: fact.ranks[0])
        assert [(fact.kind, fact.code, list(fact.ranks)) for fact in facts] == [
            (pb.LOG_RULE, "nan", [0]),
            (pb.LOG_RULE, "nan", [1]),
        ]
        await coordinator.close()


async def test_a_taken_port_is_named_and_the_agent_stays(tmp_path: Path, authority: Authority) -> None:
    stranger = socket.socket()
    stranger.bind((ADDRESS, own_port()))
    stranger.listen()
    port = stranger.getsockname()[1]
    async with running_pod(tmp_path, authority, 'torchrun "$HAJOB_DIR/rank.py"', gate_port=port) as pod:
        coordinator = Coordinator(pod, authority)
        await coordinator.connect()
        await until(lambda: bool(coordinator.facts), "the fact")
        (fact,) = coordinator.facts.values()
        assert fact.kind == pb.PORT_TAKEN
        assert f"{ADDRESS}:{port}" in fact.message
        stranger.close()
        controller = Controller()
        await controller.start()
        await coordinator.order(rank_order(0), rank_order(1), controller=controller.address)
        await coordinator.phase(0, pb.LINKED)
        await coordinator.close()
        await controller.stop()


async def test_a_script_goes_on_when_its_last_rank_was_ended_by_order(tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "job.py").write_text(REGISTERING + "if os.environ['RANK'] == '1': time.sleep(600)")
    async with running_pod(tmp_path, authority, 'cd "$HAJOB_DIR"; torchrun job.py; echo "saw $?"') as pod:
        coordinator = await ordered(pod, authority)
        await coordinator.phase(0, pb.FINISHED)
        await coordinator.order(rank_order(0), rank_order(1, run=False))
        assert await ended(pod) == 0
        assert "saw 0" in pod.log()
        await coordinator.close()
