"""What hurts about TaskD: every trait that a server at port 8899 must live with, and that the stand-in has by default.

A trait is left off with TASKD_WITHOUT=name,name. docs/protocols/mindcluster.md ("TaskD") tells them for the server's
side; the names of the vectors in vectors.yaml are these.
"""

from __future__ import annotations

import os
from typing import Final

TRAITS: Final = {
    "one_slot": "of two signals within a tenth of a second the first is never seen",
    "token": "after a stopTrain nothing but globalFault and changeStrategy is heard, not even killMaster",
    "fault_uuid": "a globalFault with the uuid of the one before it is dropped",
    "same_strategy": "the same strategy under the same uuid is carried out once",
    "elastic_dedup": "an upgrade after a downgrade is dropped until another signal came between",
    "switch_dedup": "a second hot switch is dropped until another action came, be it for other ranks",
    "exit_blocks": "an exit keeps the stream until every agent that exits has registered again",
    "exit_needs_nodes": "an exit without nodes does nothing at all",
    "kill_master_repeats": "killMaster ends MindIO and agent 0 again in every tick until another agent 0 registers",
    "old_fault_ends_all": "25 minutes after a worker of node rank 0 ended the manager ends MindIO and agent 0, even if "
    "it was started again since",
    "needs_process_recover": "without PROCESS_RECOVER=on exit and killMaster are ignored",
    "extra_parameters_decide": "only extraParams make a recovery one in place; the action word does nothing",
    "restart_word_kills": "fault_nodes_restart in a globalFault ends the agent and leaves its workers",
    "reports_lost": "a report is tried four times within a quarter of a second, then it is lost, whatever comes back",
    "report_codes_ignored": "a report that is refused by its code counts as delivered",
    "backoff": "a server that was away is dialled after 1, 1.6, 2.6 ... seconds only",
    "fault_told_twice": "ReportProcessFault comes again after on_global_rank and after an unasked stopTrain",
    "late_exits": "an agent tells of a worker's end after 6 s, and nobody else does before MindIO",
    "agents_register_once": "a manager that was restarted knows no agent",
    "newest_agent_counts": "of two agents of one node rank only the newest one is commanded",
    "empty_trace_kills": "a profiling message without profilingSwitch ends the manager",
    "aborts_without_stdout": "without TTP_LOG_STDOUT=1 an exit ends the manager",
    "needs_all_variables": "without POD_IP, TTP_PORT or WORLD_SIZE there is no controller, and nobody says so",
    "manager_stays": "the manager ends neither with the agents nor with the training",
}
LEFT_OUT: Final = {
    "spin": "an idle manager computes on a whole processor: it would take one from the machine that plays it",
    "plugins_of_workers": "profiling needs libmspti.so in the workers, which no machine without chips has",
    "proxy": "agents dial the manager themselves; the real ones have a proxy at 127.0.0.1:9602 in every pod between",
}
"""Not played, and why."""


def has_trait(name: str) -> bool:
    """Whether the stand-in behaves so. Raises KeyError for a name that is no trait."""
    return bool(TRAITS[name]) and name not in os.environ.get("TASKD_WITHOUT", "").split(",")
