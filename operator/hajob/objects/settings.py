"""What the builders need to know of the installation, as opposed to the job.

Mount paths are settings and reach every process through its environment, so that no Hajob process knows a path.
None of them is a prefix of another one, because a node that has no root file system of its own puts directories in
their place.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PodSettings:
    """Images, ports, mount paths and times that are the same for all jobs of an installation."""

    sidecar_image: str
    image_pull_policy: str = "IfNotPresent"
    agent_port: int = 7071
    coordinator_port: int = 7070
    fence_after_seconds: int = 60
    shared_directory: str = "/hajob"
    tls_directory: str = "/hajob-tls"
    token_directory: str = "/hajob-token"
    token_seconds: int = 3600
    rank_grace_seconds: int = 10
    coordinator_grace_seconds: int = 5
