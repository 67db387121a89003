"""The variables of a rank's start that the launcher decides: only it knows the user's and the machine's.

The order's variables win over those of the call, except for the network: no example script chooses an interface, so a
user who does has a reason. docs/protocols/launcher.md#environment
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple

from trainer_sidecar.launcher import interfaces

CHOOSE_INTERFACE = ("HCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
MINDSPORE_WORDS = "MS_ENABLE_TFT"
KEPT_WORDS = ("TRE", "TSP", "RSC")
"""Switches of MindSpore that are not MindIO's and work beside it: repeating a step whose result is wrong, pausing,
rescheduling by the platform. ATO is none: MindSpore refuses it beside any of MindIO's."""
FAULT_PROCESS = "RESTART_FAULT_PROCESS_TYPE"
TOKEN = "HAJOB_PROCESS"


class Variables(NamedTuple):
    """The environment of a rank, and remarks for the output."""

    environment: Dict[str, str]
    notes: List[str]


def merge_variables(call: Dict[str, str], order: Dict[str, str], *, is_restart: bool) -> Variables:
    """Merge the call's variables with those of the order, and add what follows from both.

    `is_restart`: the rank has run in this pod before. MindSpeed-LLM's restarted rank would otherwise wait in a barrier
    for ranks of its node that were not restarted (`--no-shared-storage`).
    """
    environment = {**call, **order}
    if call.get("HCCL_IF_IP"):
        environment["HCCL_IF_IP"] = call["HCCL_IF_IP"]
    notes = _choose_interfaces(environment, call) + _keep_mindspore_words(environment, call.get(MINDSPORE_WORDS, ""))
    if not environment.get("TTP_LOG_PATH"):  # else its log, with the traceback of what it catches, goes with the pod
        environment.setdefault("TTP_LOG_STDOUT", "1")
    environment[FAULT_PROCESS] = "worker" if is_restart else "pod"
    return Variables(environment, notes)


def _keep_mindspore_words(environment: Dict[str, str], given: str) -> List[str]:
    """Add the call's own switches to the job's; name those that have no effect.

    MindSpore looks for `NAME:1` as it is written, so no blank may stay.
    """
    if MINDSPORE_WORDS not in environment or not given:
        return []
    ours = _words(environment[MINDSPORE_WORDS])
    kept = [word for word in _words(given) if word.partition(":")[0] in KEPT_WORDS and word not in ours]
    environment[MINDSPORE_WORDS] = "{" + ",".join(ours + kept) + "}"
    idle = [word for word in _words(given) if word not in ours + kept and not word.endswith(":0")]
    text = "{} {} of the start script has no effect under Hajob: the job's actions say {}"
    return [text.format(MINDSPORE_WORDS, ",".join(idle), environment[MINDSPORE_WORDS])] if idle else []


def _words(value: str) -> List[str]:
    words = ("".join(word.split()) for word in value.strip().strip("{}").split(","))
    return [word for word in words if word]


def _choose_interfaces(environment: Dict[str, str], call: Dict[str, str]) -> List[str]:
    """Set the interfaces: the call's, else the order's where the pod has it, else the one with its address."""
    address, notes = environment.get("POD_IP", ""), []
    own = interfaces.interface_with_address(address)
    for name in CHOOSE_INTERFACE:
        wanted = environment.pop(name, "")
        chosen = call.get(name) or interfaces.usable_interfaces(name, wanted)
        if wanted and not chosen:
            text = "this pod has no network interface {} (spec.network.interface) for {}: {}"
            notes.append(text.format(wanted, name, "{} is taken".format(own) if own else "it is left out"))
        if chosen or own:
            environment[name] = chosen or own
    if environment.get("HCCL_IF_IP") == address and environment.get("HCCL_SOCKET_IFNAME", own) != own:
        environment.pop("HCCL_IF_IP", None)  # it is Hajob's, and would win over the interface that was chosen
    return notes
