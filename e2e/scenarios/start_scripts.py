"""Start scripts as users have them, and jobs that run one."""

from __future__ import annotations

from typing import Any

from e2e.harness.job import Job
from e2e.harness.rig import Rig

HEAD_OF_A_SCRIPT = """#!/usr/bin/env bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
NPUS_PER_NODE=8
MASTER_ADDR=localhost
MASTER_PORT=6000
NNODES=1
NODE_RANK=0
WORLD_SIZE=$(($NPUS_PER_NODE*$NNODES))
DISTRIBUTED_ARGS="
    --nproc_per_node $NPUS_PER_NODE \\
    --nnodes $NNODES \\
    --node_rank $NODE_RANK \\
    --master_addr $MASTER_ADDR \\
    --master_port $MASTER_PORT
"
GPT_ARGS="
    --use-mcore-models \\
    --bf16 \\
    --use-distributed-optimizer \\
    --enable-high-availability \\
    --enable-hbmfault-repair \\
    --enable-worker-reboot
"
"""
TRAINING_LINE = """
torchrun $DISTRIBUTED_ARGS pretrain_gpt.py $GPT_ARGS --distributed-backend nccl "$@" | tee logs/train.log
"""
ITERATIONS = 300
"""The training outlasts what is asked of it; then it is hurried."""
SMALL: dict[str, Any] = {
    "tensor": 1,
    "nodes": 2,
    "chips": 1,
    "iterations": ITERATIONS,
}


def submit_script(rig: Rig, body: str, *, head: str = HEAD_OF_A_SCRIPT, **fields: Any) -> Job:  # noqa: ANN401 - those of `manifest`
    """Submit a job whose start script sets what such scripts set, and then does `body`."""
    script = f"train_{fields.get('name', 'as_found')}.sh"
    (rig.trainer_image / script).write_text(head + body)
    return rig.submit(**(SMALL | {"script": script} | fields))


def wait_until_it_trains(job: Job, step: int = 5) -> None:
    """Wait until the job's status tells steps that one rank alone prints."""
    job.wait_step(step)
    job.plane.wait("its step", lambda: job.status().get("progress", {}).get("step", -1) >= 1, 120)
