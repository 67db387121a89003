"""The operator's settings, read once from its environment.

Each is documented at its field; `Settings.from_environment` is the only place that knows the variables' names.
Paths and addresses of credentials are settings too, so that the same operator runs in a pod, on a process node and
from a shell.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """What an installation may change. The variable is `HAJOB_` and the field's name in capitals."""

    namespace: str = "hajob-system"
    """Where the operator runs: its Lease and its Events about itself."""

    pod_name: str = "operator"
    """Its pod, for logs and for the holder identity."""

    identity: str = ""
    """The holder identity in the Lease; empty: the pod's name and a number of this process's own."""

    pod_ip: str = "127.0.0.1"
    """The address on which health and metrics are served; never the wildcard."""

    watch_namespace: str = ""
    """The one namespace whose jobs are served; empty: all."""

    fault_namespaces: str = "kube-system,mindx-dl"
    """Namespaces of the ConfigMaps that tell of faults (device plugin, NodeD, ClusterD), separated by commas."""

    kubeconfig: str = ""
    """A kubeconfig file; empty: the pod's own service account."""

    service_account_dir: str = "/var/run/secrets/kubernetes.io/serviceaccount"
    """Where the pod's token, CA and namespace are mounted."""

    sidecar_image: str = "hajob/sidecar:dev"
    """Image of agent, coordinator and installer."""

    lease_name: str = "hajob-operator"
    """Name of the leader's Lease."""

    lease_seconds: float = 4.0
    """How long a Lease holds without renewal. With the two below: a standby takes over within about 5 s."""

    lease_renew_seconds: float = 3.0
    """A leader that could not renew for so long stops writing."""

    lease_retry_seconds: float = 1.0
    """How often the Lease is renewed or looked at."""

    metrics_port: int = 8080
    """Port of /healthz, /readyz and /metrics."""

    log_level: str = "INFO"
    """Level of the operator's own log."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Read every setting that is set.

        Raises:
            SystemExit: a number does not read as one; names the variable and its value.
        """
        values = os.environ if environment is None else environment
        found: dict[str, object] = {}
        for field in dataclasses.fields(cls):
            name = f"HAJOB_{field.name.upper()}"
            if name not in values:
                continue
            kind: type[str | int | float] = type(getattr(cls(), field.name))
            try:
                found[field.name] = kind(values[name])
            except ValueError:
                raise SystemExit(f"{name}={values[name]!r} is not a {kind.__name__}") from None
        found.setdefault("identity", f"{found.get('pod_name', cls().pod_name)}_{secrets.token_hex(4)}")
        return cls(**found)  # type: ignore[arg-type]
