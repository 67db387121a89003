"""The variables of one rank's process: what comes with the order, and what only this pod knows.

The pod's part is its address, because a rank dials MindIO and the rendezvous store at the gates of its own pod, and its
place among the local ranks. docs/admin/pods.md says of every variable who sets it.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainer_sidecar.agent.settings import AgentSettings
from trainer_sidecar.agent.supervise.ranks import Wanted

PER_RANK = ("LOCAL_RANK", "ROLE_RANK", "GROUP_RANK", "ROLE_NAME", "ROLE_WORLD_SIZE", "GROUP_WORLD_SIZE", "HAJOB_START")
"""What torchrun sets for each rank itself, with everything that begins with TORCHELASTIC_."""


def script_environment(wanted: Wanted, settings: AgentSettings) -> dict[str, str]:
    """Return the variables of a start script that starts TaskD and torchrun itself, as Ascend Operator names them.

    RANK is the node rank: TaskD's agents take their name from it. The manager's Go runtime is kept to one processor,
    because an idle manager computes without a pause on every one that it gets.
    """
    local = settings.local_address
    given = {name: value for name, value in wanted.environment.items() if not name.startswith("TORCHELASTIC_")}
    own = {
        **pod_environment(wanted, settings),
        "RANK": str(settings.node_rank),
        "MINDX_SERVER_IP": local,
        "TTP_ADDR": local,
        "CONTROLLER_ADDR": local,
        "PROCESSOR_ADDR": local,
        "PROCESS_RECOVER": "on",
        "TTP_LOG_STDOUT": "1",
        "GOMAXPROCS": "1",
    }
    return {name: value for name, value in {**given, **own}.items() if name not in PER_RANK}


def rank_environment(wanted: Wanted, settings: AgentSettings, *, meets_here: bool) -> dict[str, str]:
    """Return every variable of the process that an order asks for; the pod's own part cannot be overridden.

    `meets_here`: the ranks reach the store at this pod, not where the order says.
    """
    store = _place_to_meet(wanted.environment, settings) if meets_here else {}
    return {**wanted.environment, **pod_environment(wanted, settings), **store}


def _place_to_meet(ordered: Mapping[str, str], settings: AgentSettings) -> dict[str, str]:
    """Return what leads torch, and a worker of MindSpore, to this pod's gate: its address outlives the store's."""
    host, port = settings.pod_address, str(settings.rendezvous_port)
    torch = {"MASTER_ADDR": host, "MASTER_PORT": port}
    return torch | ({"MS_SCHED_HOST": host, "MS_SCHED_PORT": port} if ordered.get("MS_ROLE") else {})


def pod_environment(wanted: Wanted, settings: AgentSettings) -> dict[str, str]:
    """Return the variables that only the pod knows."""
    return {
        "RANK": str(wanted.rank),
        "ROLE_RANK": str(wanted.rank),
        "LOCAL_RANK": str(wanted.rank - settings.local_ranks.start),
        "LOCAL_WORLD_SIZE": str(settings.ranks_per_node),
        "GROUP_RANK": str(settings.node_rank),
        "HAJOB_NODE_RANK": str(settings.node_rank),
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
