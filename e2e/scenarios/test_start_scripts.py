"""Start scripts as users have them: what they set, pipe and get wrong changes neither recovery nor how the end is told.

Most of MindSpeed-LLM's examples pipe their launcher into `tee` in a directory that may be missing, without `pipefail`:
their exit code says nothing about the training (docs/training-images.md).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from e2e.harness.job import CHECKPOINT_MOUNT, Job
from e2e.harness.rig import Rig
from e2e.scenarios.proofs import assert_recovered, assert_weights_equal
from e2e.trainer import proof

HEAD = """#!/usr/bin/env bash
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
TRAINING = """
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
TWICE = {"recovery": {"maxProgramFailures": 1}}
FAILED_SECONDS = 60.0
CONVERSION = """
import os, pathlib, time
time.sleep(0.5)
pathlib.Path(os.environ["CONVERTED"], "converted-" + os.environ["RANK"]).write_text(str(time.time_ns()))
"""
OWN_TORCHRUN = """#!/bin/sh
echo "the environment's own torchrun"
exit 3
"""


def submit(rig: Rig, body: str, *, head: str = HEAD, **fields: Any) -> Job:  # noqa: ANN401 - those of `manifest`
    """A job whose start script sets what such scripts set, and then does `body`."""
    (rig.trainer_image / "train_as_found.sh").write_text(head + body)
    return rig.submit(**(SMALL | {"script": "train_as_found.sh"} | fields))


def wait_trains(job: Job, step: int = 5) -> None:
    """It runs, and the job's status tells steps that one rank alone prints."""
    job.wait_step(step)
    job.plane.wait("its step", lambda: job.status().get("progress", {}).get("step", -1) >= 1, 60)


def assert_never_complete(job: Job, line: str) -> None:
    """The job fails, and both its condition and its incident name the line that tells why."""
    failed = job.wait_condition("Failed", seconds=FAILED_SECONDS)
    assert failed["reason"] == "ProgramFailed"
    assert line in failed["message"]
    assert job.condition("Complete")["status"] == "False"
    assert line in job.incidents()[0]["cause"]["message"]


def test_a_script_that_pipes_into_tee_is_recovered_in_place(rig: Rig) -> None:
    job = submit(rig, TRAINING)
    wait_trains(job)
    rig.nodes.control.kill(namespace=rig.namespace, rank=0)  # it prints nothing
    incident = job.wait_incident(2)
    assert (incident["action"], incident["lostSteps"]) == ("InPlace", 0)
    assert_recovered(job, [0], ITERATIONS)
    assert job.condition("Complete")["reason"] == "AllRanksFinished"
    assert job.common_step() == ITERATIONS


def test_a_script_that_ends_with_1_after_its_training_completes(rig: Rig) -> None:
    shutil.rmtree(rig.trainer_image / "logs")
    job = submit(rig, TRAINING)
    wait_trains(job)
    rig.nodes.control.kill(namespace=rig.namespace, rank=1)
    assert job.wait_incident(2)["action"] == "InPlace"
    assert_recovered(job, [1], ITERATIONS)
    rig.plane.wait("the script's own end", lambda: job.condition("Complete")["reason"] == "ScriptDisagrees")
    assert "tee: logs/train.log: No such file or directory" in job.condition("Complete")["message"]


def test_a_script_that_ends_with_0_hides_no_failed_training(rig: Rig) -> None:
    job = submit(rig, TRAINING, arguments=["--fault", "rank=1 step=8 do=exit always=1"], spec=TWICE)
    assert_never_complete(job, "rank 1: ends with code 1, as ordered")


def test_torch_distributed_launch_trains_like_torchrun(rig: Rig) -> None:
    job = submit(rig, TRAINING.replace("torchrun", "python3 -m torch.distributed.launch"))
    wait_trains(job)
    rig.nodes.control.kill(namespace=rig.namespace, rank=0)
    assert job.wait_incident(2)["action"] == "InPlace"
    assert_recovered(job, [0], ITERATIONS)


def test_a_login_shell_with_a_torchrun_of_its_own_is_reached(rig: Rig) -> None:
    make_environment(rig.trainer_image / "venv")
    body = f"""
        export DISTRIBUTED_ARGS GPT_ARGS
        bash -lc 'source venv/bin/activate
        {TRAINING.strip()}' bash "$@"
    """
    job = submit(rig, body)
    wait_trains(job)
    rig.nodes.control.kill(namespace=rig.namespace, rank=1)
    assert job.wait_incident(2)["action"] == "InPlace"
    assert_recovered(job, [1], ITERATIONS)


def make_environment(directory: Path) -> None:
    """A virtual environment that finds the packages of this one, and puts a torchrun of its own first."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    packages = next(directory.glob("lib/python3*/site-packages"))
    (packages / "those-of-the-image.pth").write_text(sysconfig.get_path("purelib") + "\n")
    own = directory / "bin" / "torchrun"
    own.write_text(OWN_TORCHRUN)
    own.chmod(0o755)


def test_a_conversion_before_the_training_is_not_the_training(rig: Rig) -> None:
    (rig.trainer_image / "convert.py").write_text(CONVERSION)
    body = "torchrun $DISTRIBUTED_ARGS convert.py --load-model-type hf | tee logs/convert.log\n" + TRAINING
    job = submit(rig, body, environment={"CONVERTED": CHECKPOINT_MOUNT})
    converted = [job.volume / f"converted-{rank}" for rank in range(2)]
    rig.plane.wait("the conversion on every node", lambda: all(path.exists() for path in converted))
    wait_trains(job)
    assert job.condition("Complete")["status"] == "False"
    began = min(int(event["t"]) for event in proof.of(job.events(), "step_end"))
    assert all(int(path.read_text()) < began for path in converted)
    assert_weights_equal(job, ITERATIONS)
    assert job.common_step() == ITERATIONS
    assert job.incidents() == []


def test_ranks_that_end_with_0_and_did_not_train_have_failed(rig: Rig) -> None:
    ending = ["--load", f"{CHECKPOINT_MOUNT}/nothing-here", "--exit-on-missing-checkpoint"]
    job = submit(rig, TRAINING, arguments=ending, spec=TWICE)
    assert_never_complete(job, "'--exit-on-missing-checkpoint' set ... exiting.")
    assert proof.of(job.events(), "step_end") == []


def test_what_a_script_would_not_resume_is_told_by_name(rig: Rig) -> None:
    head = HEAD + "OUTPUT_ARGS='--save-interval 1000 --load /elsewhere/released --finetune --no-load-optim'\n"
    job = submit(rig, TRAINING.replace('"$@"', '"$@" $OUTPUT_ARGS'), head=head)
    names = {"CheckpointReloaded", "PeriodicSave", "OptimizerLoaded"}
    rig.plane.wait("what only the launched arguments tell", lambda: names <= unmet(job, "Restart"))


def unmet(job: Job, action: str) -> set[str]:
    """Names of what an action of the job lacks."""
    judged = [each for each in job.status().get("recoverability", []) if each["action"] == action]
    return {one["name"] for each in judged for one in each["unmet"]}
