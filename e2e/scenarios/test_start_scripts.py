"""Start scripts as users have them: what they set, pipe and get wrong changes neither recovery nor how the end is told.

Most of MindSpeed-LLM's examples pipe their launcher into `tee` in a directory that may be missing, without `pipefail`:
their exit code says nothing about the training (docs/user/training-images.md).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from e2e.bootstrap.paths import CHECKOUT
from e2e.harness.images import mindio_directory
from e2e.harness.job import CHECKPOINT_MOUNT, Job
from e2e.harness.marks import only_e2e
from e2e.harness.rig import RIG_LABEL, Rig
from e2e.scenarios.proofs import assert_recovered, assert_weights_equal
from e2e.scenarios.start_scripts import HEAD_OF_A_SCRIPT, ITERATIONS, TRAINING_LINE, submit_script, wait_until_it_trains
from e2e.trainer import proof

REPAIRS = ("Retry", "InPlace", "Replace", "Shrink", "Checkpoint")
TWICE = {"recovery": {"maxProgramFailures": 1}}
FAILED_SECONDS = 60.0
CONVERSION = """
import os, pathlib, time
time.sleep(0.5)
pathlib.Path(os.environ["CONVERTED"], "converted-" + os.environ["RANK"]).write_text(str(time.time_ns()))
"""
TORCH = """
import os
if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") != "0":
    raise RuntimeError("Failed to load the backend extension: torch_npu. libascend_hal.so: cannot open shared object")
"""
TORCH_DISTRIBUTED = """
import socket, threading
from e2e.trainer.store import serve_at

class TCPStore:
    def __init__(self, host, port, is_master=False, wait_for_workers=True, master_listen_fd=None, use_libuv=True):
        assert is_master and not wait_for_workers
        listener = socket.socket(fileno=master_listen_fd)
        threading.Thread(target=serve_at, args=(listener,), daemon=True).start()
"""
WITHOUT_MINDIO = {"PYTHONPATH": "", "HAJOB_STORE": ""}
OWN_TORCHRUN = """#!/bin/sh
echo "the environment's own torchrun"
exit 3
"""


def assert_never_complete(job: Job, line: str) -> None:
    """The job fails, and both its condition and its incident name the line that tells why."""
    failed = job.wait_condition("Failed", seconds=FAILED_SECONDS)
    assert failed["reason"] == "ProgramFailed"
    assert line in failed["message"]
    assert job.condition("Complete")["status"] == "False"
    assert line in job.incidents()[0]["cause"]["message"]


def test_a_script_that_pipes_into_tee_is_recovered_in_place(rig: Rig) -> None:
    job = submit_script(rig, TRAINING_LINE)
    wait_until_it_trains(job)
    rig.nodes.control.kill(namespace=rig.namespace, rank=0)  # it prints nothing
    incident = job.wait_incident(2)
    assert (incident["action"], incident["lostSteps"]) == ("InPlace", 0)
    assert_recovered(job, [0], ITERATIONS)
    assert job.condition("Complete")["reason"] == "AllRanksFinished"
    assert job.common_step() == ITERATIONS


@pytest.mark.slow
def test_a_script_that_ends_with_1_after_its_training_completes(rig: Rig) -> None:
    shutil.rmtree(rig.trainer_image / "logs")
    job = submit_script(rig, TRAINING_LINE)
    wait_until_it_trains(job)
    rig.nodes.control.kill(namespace=rig.namespace, rank=1)
    assert job.wait_incident(2)["action"] == "InPlace"
    assert_recovered(job, [1], ITERATIONS)
    rig.plane.wait("the script's own end", lambda: job.condition("Complete")["reason"] == "ScriptDisagrees")
    assert "tee: logs/train.log: No such file or directory" in job.condition("Complete")["message"]


@pytest.mark.slow
def test_a_script_that_ends_with_0_hides_no_failed_training(rig: Rig) -> None:
    job = submit_script(rig, TRAINING_LINE, arguments=["--fault", "rank=1 step=8 do=exit always=1"], spec=TWICE)
    assert_never_complete(job, "rank 1: ends with code 1, as ordered")


@only_e2e
def test_torch_distributed_launch_trains_like_torchrun(rig: Rig) -> None:
    job = submit_script(rig, TRAINING_LINE.replace("torchrun", "python3 -m torch.distributed.launch"))
    wait_until_it_trains(job)
    rig.nodes.control.kill(namespace=rig.namespace, rank=0)
    assert job.wait_incident(2)["action"] == "InPlace"
    assert_recovered(job, [0], ITERATIONS)


@only_e2e
def test_a_login_shell_with_a_torchrun_of_its_own_is_reached(rig: Rig) -> None:
    """Only that environment has MindIO, and its torch wants a chip's driver, which the coordinator's pod has not."""
    make_environment(rig.trainer_image / "venv")
    path = str(rig.trainer_image / "venv/bin/python3")
    body = f"""
        export DISTRIBUTED_ARGS GPT_ARGS
        bash -lc 'source venv/bin/activate
        {TRAINING_LINE.strip()}' bash "$@"
    """
    selector = {"nodeSelector": {RIG_LABEL: rig.name}}
    job = submit_script(rig, body, environment=WITHOUT_MINDIO, spec={"coordinator": {"pythonPath": path, **selector}})
    wait_until_it_trains(job)
    rig.nodes.control.kill(namespace=rig.namespace, rank=1)
    assert job.wait_incident(2)["action"] == "InPlace"
    assert_recovered(job, [1], ITERATIONS)


def make_environment(directory: Path) -> None:
    """A virtual environment with MindIO, torch and a torchrun of its own."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    packages = next(directory.glob("lib/python3*/site-packages"))
    paths = (sysconfig.get_path("purelib"), str(mindio_directory()), str(CHECKOUT))
    (packages / "those-of-the-image.pth").write_text("\n".join(paths) + "\n")
    (packages / "torch").mkdir()
    (packages / "torch/__init__.py").write_text(TORCH)
    (packages / "torch/distributed.py").write_text(TORCH_DISTRIBUTED)
    own = directory / "bin" / "torchrun"
    own.write_text(OWN_TORCHRUN)
    own.chmod(0o755)


@only_e2e
def test_a_conversion_before_the_training_is_not_the_training(rig: Rig) -> None:
    (rig.trainer_image / "convert.py").write_text(CONVERSION)
    body = "torchrun $DISTRIBUTED_ARGS convert.py --load-model-type hf | tee logs/convert.log\n" + TRAINING_LINE
    job = submit_script(rig, body, environment={"CONVERTED": CHECKPOINT_MOUNT})
    converted = [job.volume / f"converted-{rank}" for rank in range(2)]
    rig.plane.wait("the conversion on every node", lambda: all(path.exists() for path in converted))
    wait_until_it_trains(job)
    assert job.condition("Complete")["status"] == "False"
    began = min(int(event["t"]) for event in proof.of(job.events(), "step_end"))
    assert all(int(path.read_text()) < began for path in converted)
    assert_weights_equal(job, ITERATIONS)
    assert job.common_step() == ITERATIONS
    assert job.incidents() == []


def test_ranks_that_end_with_0_and_did_not_train_have_failed(rig: Rig) -> None:
    ending = ["--load", f"{CHECKPOINT_MOUNT}/nothing-here", "--exit-on-missing-checkpoint"]
    job = submit_script(rig, TRAINING_LINE, arguments=ending, spec=TWICE)
    assert_never_complete(job, "'--exit-on-missing-checkpoint' set ... exiting.")
    assert proof.of(job.events(), "step_end") == []


@pytest.mark.slow
def test_what_a_script_would_not_resume_is_told_by_name(rig: Rig) -> None:
    head = (
        HEAD_OF_A_SCRIPT + "OUTPUT_ARGS='--save-interval 1000 --load /elsewhere/released --finetune --no-load-optim'\n"
    )
    job = submit_script(rig, TRAINING_LINE.replace('"$@"', '"$@" $OUTPUT_ARGS'), head=head)
    names = {"CheckpointReloaded", "PeriodicSave", "OptimizerLoaded"}
    rig.plane.wait("what only the launched arguments tell", lambda: names <= unmet(job, "Restart"))


@pytest.mark.slow
def test_what_high_availability_refuses_is_told_by_name(rig: Rig) -> None:
    """It ends such a script in words that name nothing; the same script trains where no repair is asked for."""
    shutil.copy(rig.trainer_image / "pretrain_gpt.py", rig.trainer_image / "train_fsdp2.py")
    body = TRAINING_LINE.replace("pretrain_gpt.py", "train_fsdp2.py")
    refused = ["--swap-optimizer", "--lora-target-modules", "linear_qkv"]
    protected = submit_script(rig, body, name="protected", arguments=refused, spec=TWICE)
    plain = HEAD_OF_A_SCRIPT
    for switch in ("--enable-high-availability", "--enable-hbmfault-repair", "--enable-worker-reboot"):
        plain = plain.replace(switch, "")
    spec = {"recovery": {"actions": [{"name": name, "maxCount": 0} for name in REPAIRS]}}
    unprotected = submit_script(rig, body, head=plain, name="unprotected", arguments=refused, spec=spec)
    names = ("actions left: ", "NoSwapOptimizer", "NoLora", "NoFsdp2")

    def told() -> bool:
        message = protected.condition("Accepted").get("message", "")
        return all(name in message for name in names)

    rig.plane.wait("what the script switches off in a condition", told)
    assert_never_complete(protected, "AssertionError: switch of the high availability feature is unsupported")
    assert "NoLora" not in unprotected.condition("Accepted")["message"], "nothing is asked for that it hinders"
    assert_weights_equal(unprotected, ITERATIONS)


def unmet(job: Job, action: str) -> set[str]:
    """Names of what an action of the job lacks."""
    evaluated = [each for each in job.status().get("recoverability", []) if each["action"] == action]
    return {one["name"] for each in evaluated for one in each.get("unmet", [])}
