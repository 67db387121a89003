"""On the path of the sidecar's image: an agent takes its pod's address for its own, not every address of the machine.

Pods share one network here, where every loopback address would pass for the pod's own. In a cluster a pod has 127.0.0.1
and its address.
"""

import os
import sys

if "trainer_sidecar.agent" in sys.orig_argv:
    from trainer_sidecar.agent.gate import listener

    _OWN = {"127.0.0.1", os.environ.get("POD_IP", "")}
    listener.is_of_this_pod = lambda host: host in _OWN  # type: ignore[assignment]
