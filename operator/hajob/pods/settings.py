"""The settings of the installation for the builders, as opposed to the job's.

Mount paths are settings and reach every process through its environment, so that no Hajob process knows a path.
None of them is a prefix of another one, because a node that has no root file system of its own puts directories in
their place.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.domain.fencing import FENCE_AFTER_SECONDS
from hajob.domain.savers import DEFAULT_SAVERS
from hajob.log_format import LogFormat

PullPolicy = Literal["Always", "IfNotPresent", "Never"]


@dataclass(frozen=True, slots=True)
class PodSettings:
    """Images, mount paths and times that are the same for all jobs of an installation."""

    sidecar_image: str
    image_pull_policy: PullPolicy = "IfNotPresent"
    image_pull_secrets: Sequence[str] = ()
    """Names of Secrets in the job's namespace; they come beside those of the template."""
    resources: Json = field(default_factory=dict)
    """Of agent, coordinator and installer where the job says nothing; empty: the built-in ones."""
    security_context: Json = field(default_factory=dict)
    """What differs, in Hajob's own containers, from what Pod Security `restricted` asks for."""
    log_format: LogFormat = "text"
    topology_label: str = names.LABEL_HOSTNAME
    """Label of nodes by which a job's pods keep apart."""
    saving_functions: str = DEFAULT_SAVERS
    """Names of functions in whose stacks a rank saves or evaluates (`hajob.domain.savers`)."""
    serves_volcano: bool = False
    """Whether PodGroups of Volcano may be made."""
    fence_after_seconds: int = FENCE_AFTER_SECONDS
    shared_directory: str = "/hajob"
    tls_directory: str = "/hajob-tls"
    mindio_tls_directory: str = "/hajob-mindio"
    token_directory: str = "/hajob-token"
    token_seconds: int = 3600
    rank_grace_seconds: int = 10
    coordinator_grace_seconds: int = 5


def parse_json_object(variable: str, text: str) -> Json:
    """Parse a setting that is a JSON object; empty for an empty text.

    Raises:
        ValueError: it is none; names the variable.
    """
    try:
        found = json.loads(text or "{}")
    except ValueError as error:
        raise ValueError(f"{variable} is not JSON: {error}") from None
    if isinstance(found, dict):
        return found
    raise ValueError(f"{variable}={text} is not a JSON object")
