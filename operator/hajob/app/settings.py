"""The operator's settings, read once from its environment.

Each is documented at its field; `Settings.from_environment` is the only place that knows the variables' names.
Paths and addresses of credentials are settings too, so that the same operator runs in a pod, on a process node and
from a shell.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError

from hajob.api import constants as names
from hajob.app.webhook import Receiver
from hajob.domain.savers import DEFAULT_SAVERS, compile_savers
from hajob.job.status.incident_news import check_words
from hajob.log_format import LogFormat
from hajob.pods.settings import PodSettings, PullPolicy, parse_json_object

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Selector = Annotated[str, Field(json_schema_extra={"pattern": "^([^=,]+=[^=,]*(,[^=,]+=[^=,]*)*)?$"})]
"""`label=value,label=value`; `Settings.fault_node_labels` reads it."""
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
LEASE_ORDER: Final = ("lease_seconds", "lease_renew_seconds", "lease_retry_seconds")
"""Each is larger than the next: else a standby leads while the leader before it still writes."""

_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL: Final = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_OF_VERSION_0_1: Final = "HAJOB_WATCH_NAMESPACE"
"""It named one namespace. Who still sets it must not serve all of them."""


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
    """The address on which health and metrics are served, and the loopback beside it; never the wildcard."""

    watch_namespaces: str = ""
    """Namespaces whose jobs are served, separated by commas; empty: all. One that may not be read is asked for again,
    now and then, and keeps no other waiting."""

    fault_namespaces: str = names.FAULT_NAMESPACES
    """Namespaces of the ConfigMaps that tell of faults (device plugin, NodeD, ClusterD), separated by commas."""

    fault_node_selector: Selector = ""
    """Labels of the nodes that are this operator's (`pool=a,chips=910b`): it quarantines only these, and only these
    count for its breaker; a job hears of the faults of any node it is on. Empty: all nodes. Chart and `deploy/` install
    one operator in a cluster."""

    kubeconfig: str = ""
    """A kubeconfig file; empty: the pod's own service account."""

    service_account_dir: str = "/var/run/secrets/kubernetes.io/serviceaccount"
    """Where the pod's token, CA and namespace are mounted."""

    sidecar_image: str = "hajob/sidecar:dev"
    """Image of agent, coordinator and installer."""

    sidecar_image_pull_policy: PullPolicy = "IfNotPresent"
    """When that image is pulled: Always, IfNotPresent or Never."""

    sidecar_pull_secrets: str = ""
    """Secrets in the jobs' namespaces that open its registry, separated by commas; beside those of the template."""

    sidecar_resources: str = ""
    """Requests and limits of its containers as JSON, where the job says nothing; empty: one CPU of each agent, else
    50m, and 64Mi requested."""

    sidecar_security_context: str = ""
    """Fields of their securityContext as JSON, over what Pod Security `restricted` asks for: {"runAsUser": 1000}."""

    topology_label: Annotated[str, Field(min_length=1)] = names.LABEL_HOSTNAME
    """Label of nodes by which the pods of a job keep apart: of the nodes with one value a job takes one. Nodes that are
    lost together, as two machines of one blade, can have a label of their own. Every node should have it."""

    saving_functions: str = DEFAULT_SAVERS
    """Functions and directories in whose Python stacks a rank that ends no step saves or evaluates, and does not hang:
    names separated by commas, `*` at an end stands for more letters."""

    volcano_enabled: bool = False
    """Whether jobs with `gangPolicy: Volcano` are served: PodGroups are made, and PodGroups and Queues are watched."""

    certificate_days: Annotated[int, Field(ge=1)] = 365
    """For how long the certificates of a job hold; they are replaced, in running jobs too, when two thirds are over."""

    kueue_enabled: bool = False
    """Whether jobs with the label kueue.x-k8s.io/queue-name get their quota from Kueue; it needs rights to Kueue's
    objects, which the chart gives with kueue.enabled. Without it such a job is not started."""

    lease_name: str = "hajob-operator"
    """Name of the leader's Lease."""

    lease_seconds: Seconds = 4.0
    """How long a Lease holds without renewal. With the two below: a standby takes over within about 5 s."""

    lease_renew_seconds: Seconds = 3.0
    """A leader that could not renew for so long stops writing."""

    lease_retry_seconds: Seconds = 1.0
    """How often the Lease is renewed or looked at."""

    metrics_port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """Port of /healthz, /readyz and /metrics."""

    webhook_url: str = ""
    """Where the begin and end of each incident are posted, signed; empty: nowhere, unless the directory says where."""

    webhook_directory: str = ""
    """Where a Secret is mounted with `url` (counts more than the one above), `key` (of the HMAC), `ca.crt`; all may be
    missing."""

    webhook_body: str = ""
    """What a chat's robot is sent, as JSON with names such as `$message` in its texts; empty: a CloudEvent."""

    webhook_cluster: str = ""
    """Name of this cluster in each event."""

    log_level: LogLevel = "INFO"
    """Level of the operator's own log."""

    log_format: LogFormat = "text"
    """What its log and those of the sidecars are: `text`, or `json`, an object a line (`ts`, `level`, `logger`, `msg`,
    `exception`)."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Read every setting that is set.

        Raises:
            SystemExit: a value is not what it should be; names the variable and the value.
        """
        values = os.environ if environment is None else environment
        if _OF_VERSION_0_1 in values:
            raise SystemExit(f"{_OF_VERSION_0_1} is a list now: set HAJOB_WATCH_NAMESPACES instead")
        found: dict[str, Any] = {}
        for field, kind in get_type_hints(cls, include_extras=True).items():
            if (name := _name_of_variable(field)) in values:
                found[field] = _parse_value(name, kind, values[name])
        found.setdefault("identity", f"{found.get('pod_name', cls().pod_name)}_{secrets.token_hex(4)}")
        settings = cls(**found)
        try:
            settings._check_order()
            settings.pod_settings()
            settings._check_names()
            settings.fault_node_labels()
            settings.served_namespaces()
            settings.webhook_receiver()
        except ValueError as error:
            raise SystemExit(str(error)) from None
        return settings

    def _check_order(self) -> None:
        """Raise ValueError if a leader could still write when the Lease is another's already."""
        times = {field: getattr(self, field) for field in LEASE_ORDER}
        if sorted(set(times.values()), reverse=True) != list(times.values()):
            said = ", ".join(f"{_name_of_variable(field)}={value:g}" for field, value in times.items())
            raise ValueError(f"{said}: each must be larger than the next")

    def _check_names(self) -> None:
        """Raise ValueError for a label or function that can be none; names the variable."""
        if not _LABEL.fullmatch(self.topology_label):
            raise ValueError(
                f"HAJOB_TOPOLOGY_LABEL={self.topology_label!r}: no label of a node: give kubernetes.io/hostname"
            )
        try:
            compile_savers(self.saving_functions)
        except ValueError as error:
            raise ValueError(f"HAJOB_SAVING_FUNCTIONS={self.saving_functions!r}: {error}") from None

    def fault_node_labels(self) -> Mapping[str, str]:
        """Return the labels that a node of this operator has.

        Raises:
            ValueError: it is no list of `label=value`; names the variable.
        """
        pairs = [part.partition("=") for one in self.fault_node_selector.split(",") if (part := one.strip())]
        if not all(label.strip() and equals for label, equals, _ in pairs):
            raise ValueError(f"HAJOB_FAULT_NODE_SELECTOR={self.fault_node_selector!r}: give label=value,label=value")
        return {label.strip(): value.strip() for label, _, value in pairs}

    def served_namespaces(self) -> tuple[str, ...]:
        """Return the namespaces whose jobs are served; one without a name: all.

        Raises:
            ValueError: it is no list of names; names the variable and the part.
        """
        if not self.watch_namespaces.strip():
            return ("",)
        found = tuple(dict.fromkeys(part.strip() for part in self.watch_namespaces.split(",")))
        wrong = next((name for name in found if not _NAMESPACE.fullmatch(name)), None)
        if wrong is not None:
            given = f"HAJOB_WATCH_NAMESPACES={self.watch_namespaces!r}"
            raise ValueError(f"{given}: {wrong!r} is no name of a namespace: give team-a,team-b")
        return found

    def webhook_receiver(self) -> Receiver:
        """Return where news of incidents go.

        Raises:
            ValueError: the body is no JSON object, or uses a name that there is not; names the variable.
        """
        body = parse_json_object("HAJOB_WEBHOOK_BODY", self.webhook_body) if self.webhook_body else None
        try:
            check_words(body)
        except ValueError as error:
            raise ValueError(f"HAJOB_WEBHOOK_BODY: {error}") from None
        if self.webhook_url and not self.webhook_url.startswith(("http://", "https://")):
            raise ValueError("HAJOB_WEBHOOK_URL begins with neither https:// nor http://")
        return Receiver(self.webhook_url, self.webhook_directory, body, self.webhook_cluster)

    def pod_settings(self) -> PodSettings:
        """Return what the builders of pods need of these.

        Raises:
            ValueError: a value does not read as what it should be; names the variable.
        """
        return PodSettings(
            sidecar_image=self.sidecar_image,
            image_pull_policy=self.sidecar_image_pull_policy,
            image_pull_secrets=tuple(name.strip() for name in self.sidecar_pull_secrets.split(",") if name.strip()),
            resources=parse_json_object("HAJOB_SIDECAR_RESOURCES", self.sidecar_resources),
            log_format=self.log_format,
            topology_label=self.topology_label,
            saving_functions=self.saving_functions,
            serves_volcano=self.volcano_enabled,
            security_context=parse_json_object("HAJOB_SIDECAR_SECURITY_CONTEXT", self.sidecar_security_context),
        )


def _name_of_variable(field: str) -> str:
    return f"HAJOB_{field.upper()}"


def _parse_value(variable: str, kind: type[object], text: str) -> object:
    """A variable's value as what the field is; ends the process with a sentence if it is something else."""
    try:
        return TypeAdapter(kind).validate_python(text)
    except ValidationError as error:
        told = error.errors()[0]["msg"]
        raise SystemExit(f"{variable}={text!r}: {told[0].lower()}{told[1:]}") from None
