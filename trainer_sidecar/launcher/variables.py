"""The variables of a rank's start that the launcher decides: only it knows the user's and the machine's.

The order's variables win over those of the call, except for the network: no example script chooses an interface, so a
user who does has a reason. docs/protocols/launcher.md#environment
"""

from __future__ import annotations

import os
from typing import Dict, List, NamedTuple

NETWORK = ("HCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "HCCL_IF_IP")
INTERFACES = "/sys/class/net"
FAULT_PROCESS = "RESTART_FAULT_PROCESS_TYPE"
TOKEN = "HAJOB_PROCESS"


class Variables(NamedTuple):
    """The environment of a rank, and remarks for the output."""

    environment: Dict[str, str]
    notes: List[str]


def merged(call: Dict[str, str], order: Dict[str, str], *, is_restart: bool) -> Variables:
    """Merge the call's variables with those of the order, and add what follows from both.

    `is_restart`: the rank has run in this pod before. MindSpeed-LLM's restarted rank would otherwise wait in a barrier
    for ranks of its node that were not restarted (`--no-shared-storage`).
    """
    environment = {**call, **order}
    notes: List[str] = []
    for name in NETWORK:
        if call.get(name):
            environment[name] = call[name]
        elif name != "HCCL_IF_IP" and not _exists(environment.get(name, "")):
            text = "{} is left out: this pod has no network interface {} (spec.network.interface)"
            notes.append(text.format(name, environment.pop(name)))
    if call.get("HCCL_SOCKET_IFNAME") and environment.get("HCCL_IF_IP") == environment.get("POD_IP"):
        environment.pop("HCCL_IF_IP", None)  # it is Hajob's, and would win over the user's interface
    if not environment.get("TTP_LOG_PATH"):  # else its log, with the traceback of what it catches, goes with the pod
        environment.setdefault("TTP_LOG_STDOUT", "1")
    environment[FAULT_PROCESS] = "worker" if is_restart else "pod"
    return Variables(environment, notes)


def _exists(interface: str) -> bool:
    """Whether an interface exists, or it can't be told."""
    return not interface or not os.path.isdir(INTERFACES) or os.path.isdir(os.path.join(INTERFACES, interface))
