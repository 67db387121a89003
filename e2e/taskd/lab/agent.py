"""An agent of the real TaskD without torch: `python3 -m e2e.taskd.lab.agent NODE MANAGER LOOPBACK`.

It registers through a proxy of its own, as the agent in torchrun does, and writes down what the manager says.
"""

from __future__ import annotations

import importlib
import json
import queue
import sys
import threading
import time
from typing import Any

from e2e.taskd.lab.deeds import write_deed
from e2e.taskd.plugins import EXIT_AGENT, RESTART_AGENT, START_AGENT

PORT = 9602
RESTARTS_CODE, RESTARTS = 201, "32767"
REPORT_CODE = 202


def main(node: str, manager: str, loopback: str) -> None:
    """Register, and write down every message, until one says that this agent is to exit."""
    api = importlib.import_module("taskd.api.taskd_proxy_api")
    kinds = importlib.import_module("taskd.python.framework.common.type")
    network = importlib.import_module("taskd.python.framework.agent.base_agent.agent_network")
    agents = importlib.import_module("taskd.python.framework.agent.base_agent.base_agent")
    library = importlib.import_module("taskd.python.cython_api.cython_api").lib
    api.init_taskd_proxy({"UpstreamAddr": manager, "ListenAddr": loopback, "ServerRank": node})
    library.CreateTaskdLog.restype = importlib.import_module("ctypes").c_void_p
    logger = library.CreateTaskdLog(f"agent-{node}.log".encode())
    place = kinds.Position(role="Agent", server_rank=node, process_rank="-1")
    own = kinds.NetworkConfig(place, f"{loopback}:{PORT}", "", enable_tls=False, tls_conf=None)
    heard: queue.Queue[Any] = queue.Queue()
    messages = network.AgentMessageManager(own, heard, logger)
    messages.register(node)
    agents.BaseAgent().send_message_to_manager("STATUS", RESTARTS_CODE, RESTARTS)  # what is answered by "start"
    threading.Thread(target=messages.receive_message, daemon=True).start()
    threading.Thread(target=_tell_faults, args=(agents.BaseAgent(), kinds), daemon=True).start()
    while _write_message(node, heard.get()) != EXIT_AGENT:
        pass
    agents.BaseAgent().send_message_to_manager("STATUS", REPORT_CODE, kinds.AgentReportInfo())


def _tell_faults(agent: Any, kinds: Any) -> None:  # noqa: ANN401 - classes of TaskD's
    """Tell the manager of workers that have ended: a line of input is ranks, and seconds since."""
    for line in sys.stdin:
        fault = json.loads(line)
        told = {"REPORT_FAULT_TIME": str(int(time.time()) - fault["seconds_ago"])}
        agent.send_message_to_manager("STATUS", REPORT_CODE, kinds.AgentReportInfo(fault["ranks"]), told)


def _write_message(node: str, message: Any) -> int:  # noqa: ANN401 - a class of TaskD's
    if message.code == START_AGENT:
        write_deed(f"agent {node}", "registered")
        return START_AGENT
    words = json.loads(message.message) if message.message and message.code != RESTART_AGENT else []
    write_deed(f"agent {node}", message.code, *sorted(words, key=int))
    return int(message.code)


if __name__ == "__main__":
    main(*sys.argv[1:])
