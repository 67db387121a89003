"""The environment that a training process needs, derived from the job.

Users of the stack write these by hand today, in every job and on every rank (docs/admin/pods.md). What is the
same for all ranks goes to the coordinator as `Assignment.environment`; the coordinator and the agent add what only they
know, because pod environment cannot change while a pod lives. docs/admin/pods.md says of every variable who sets it.
"""

from collections.abc import Collection
from typing import Final

from hajob.api.derived import chips_per_node, world_size_of
from hajob.api.enums import Framework, ResumePolicy
from hajob.api.job import HATrainingJob
from hajob.api.spec import HATrainingJobSpec
from hajob.domain.actions import Action
from hajob.domain.patience import MINDIO_WAIT_SECONDS
from hajob.plan.policy import Policy

# The words of HIGH_AVAILABILITY; they only switch features of the training framework on, never off.
_HIGH_AVAILABILITY: Final = {
    Action.RETRY: "retry",
    Action.IN_PLACE: "recover",
    Action.REPLACE: "recover",
    Action.SHRINK: "elastic-training",
    Action.CHECKPOINT: "dump",
}
_MINDSPORE_FEATURES: Final = {
    # With TTP alone a rank that MindIO has stopped raises, and ends in the middle of MindIO's save. Only with UCE, HCCE
    # or ARF MindSpore waits for what MindIO says.
    Action.CHECKPOINT: ("TTP", "HCCE"),
    Action.RETRY: ("UCE", "HCCE"),
    Action.IN_PLACE: ("ARF",),
    Action.REPLACE: ("ARF",),
}
_UNLIMITED_RESTARTS: Final = "1000000"
_WITHOUT_MINDIO: Final = "HAJOB_WITHOUT_MINDIO"
"""For coordinator, agents and launcher: no rank registers with MindIO (trainer_sidecar.launcher.arguments)."""


def _recovery_environment(spec: HATrainingJobSpec, actions: Collection[Action]) -> dict[str, str]:
    """Switches of framework and MindIO for these actions; controller and ranks share them.

    A framework ends at its start where one is on that it cannot work with, so none is set that is of no use.
    MindSpore's is set to nothing: its start scripts set it themselves.
    """
    if not actions:
        return {_WITHOUT_MINDIO: "1"} | ({"MS_ENABLE_TFT": "{}"} if spec.framework is Framework.MINDSPORE else {})
    words = {_HIGH_AVAILABILITY[action] for action in actions}
    environment = {"HIGH_AVAILABILITY": ",".join(sorted(words)), "TTP_STOP_CLEAN_BEFORE_DUMP": "1"}
    if {Action.IN_PLACE, Action.REPLACE} & set(actions):
        environment["PROCESS_RECOVER"] = "on"
    if spec.framework is Framework.MINDSPORE:
        features = [name for action, names in _MINDSPORE_FEATURES.items() if action in actions for name in names]
        environment["MS_ENABLE_TFT"] = "{" + ",".join(f"{name}:1" for name in dict.fromkeys(features)) + "}"
        environment["MS_ENABLE_THM"] = "{HCCL_WATCHDOG:0}"
        # Without it the scheduler refuses a process in a lost one's place, and ends 30 s after a loss, in the middle of
        # a long save; ranks end 25 s after their scheduler.
        environment["MS_ENABLE_RECOVERY"] = "1"
    else:
        environment["HCCL_ASYNC_ERROR_HANDLING"] = "0"
    return environment


def _framework_environment(job: HATrainingJob) -> dict[str, str]:
    """World and rendezvous, without addresses."""
    spec = job.spec
    world = str(world_size_of(spec))
    if spec.framework is Framework.MINDSPORE:
        return {
            "MINDIO_FOR_MINDSPORE": "1",
            "MS_WORKER_NUM": world,
            "MS_LOCAL_WORKER": str(chips_per_node(spec)),
            "MS_SERVER_NUM": "0",
            "MS_ROLE": "MS_WORKER",
            "MS_SCHED_PORT": str(spec.network.rendezvous_port),
        }
    return {
        "GROUP_WORLD_SIZE": str(spec.num_nodes),
        "ROLE_NAME": "default",
        "ROLE_WORLD_SIZE": world,
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_MAX_RESTARTS": _UNLIMITED_RESTARTS,
        "TORCHELASTIC_RUN_ID": job.metadata.uid,
    }


def rank_environment(job: HATrainingJob, policy: Policy) -> dict[str, str]:
    """Build the environment of the ranks, as far as it is the same for all of them (`Assignment.environment`)."""
    spec = job.spec
    return {
        "WORLD_SIZE": str(world_size_of(spec)),
        "MASTER_PORT": str(spec.network.rendezvous_port),
        "MINDX_TASK_ID": job.metadata.uid,
        "MINDIO_WAIT_MINDX_TIME": str(MINDIO_WAIT_SECONDS),
        **_network_environment(spec),
        **_recovery_environment(spec, policy.through_mindio),
        **_framework_environment(job),
        **({"HAJOB_RESUME_POLICY": spec.checkpoint.resume_policy.value} if _are_arguments_mended(spec) else {}),
    }


def _network_environment(spec: HATrainingJobSpec) -> dict[str, str]:
    """What the job chooses; else the launcher finds the interface with the pod's address."""
    interface = spec.network.interface
    return dict.fromkeys(("HCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"), interface) if interface else {}


def _are_arguments_mended(spec: HATrainingJobSpec) -> bool:
    """Whether the launcher changes the trainer's arguments; only Megatron's are known."""
    return spec.checkpoint.resume_policy is ResumePolicy.ARGUMENTS and spec.framework is Framework.PYTORCH
