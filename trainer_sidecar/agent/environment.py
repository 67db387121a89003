"""The variables of one rank's process: what the job says, and what only this pod knows.

The job's part (rendezvous, attempt, world size after a change) comes with the order; the pod's part is its address,
because a rank dials MindIO at the gate of its own pod, and its place among the local ranks. docs/protocols/launcher.md
"""

from __future__ import annotations

from collections.abc import Mapping

from trainer_sidecar.agent.ranks import Wanted
from trainer_sidecar.agent.settings import Settings


def rank_environment(wanted: Wanted, settings: Settings) -> dict[str, str]:
    """Every variable of the process that an order asks for; the pod's own part cannot be overridden."""
    attempt = wanted.environment.get("HAJOB_ATTEMPT", "0")
    defaults = {
        "WORLD_SIZE": str(settings.world_size),
        "ROLE_WORLD_SIZE": wanted.environment.get("WORLD_SIZE", str(settings.world_size)),
        "ROLE_NAME": "default",
        "GROUP_WORLD_SIZE": str(settings.world_size // settings.ranks_per_node),
        "HAJOB_ATTEMPT": attempt,
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": attempt,
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": settings.job_uid,
        "MINDX_TASK_ID": settings.job_uid,
        "MINDIO_WAIT_MINDX_TIME": "120",
    }
    return {**defaults, **wanted.environment, **_own(wanted, settings)}


def _own(wanted: Wanted, settings: Settings) -> Mapping[str, str]:
    return {
        "RANK": str(wanted.rank),
        "ROLE_RANK": str(wanted.rank),
        "LOCAL_RANK": str(wanted.rank - settings.local_ranks.start),
        "LOCAL_WORLD_SIZE": str(settings.ranks_per_node),
        "GROUP_RANK": str(settings.node_rank),
        "HAJOB_INCARNATION": str(wanted.name.incarnation),
        "HAJOB_START": str(wanted.name.start),
        "POD_IP": settings.pod_address,
        "TTP_ADDR": settings.pod_address,
        "CONTROLLER_ADDR": settings.pod_address,
        "PROCESSOR_ADDR": settings.pod_address,
        "TTP_PORT": str(settings.mindio_port),
        "MS_TFT_IP": settings.pod_address,
        "MS_TFT_PORT": str(settings.mindio_port),
    }
