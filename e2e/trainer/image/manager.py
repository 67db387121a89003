"""Start TaskD's manager, as the start scripts of MindCluster do."""

import os

from taskd.api.taskd_manager_api import init_taskd_manager, start_taskd_manager

nodes = int(os.environ["WORLD_SIZE"]) // int(os.environ["LOCAL_WORLD_SIZE"])
init_taskd_manager(
    {"job_id": os.environ["MINDX_TASK_ID"], "node_nums": nodes, "proc_per_node": int(os.environ["LOCAL_WORLD_SIZE"])}
)
start_taskd_manager()
